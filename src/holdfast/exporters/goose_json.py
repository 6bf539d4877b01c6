"""A session as the JSON that `goose session import` takes.

What the model sees is what goose's model will see; all else that was said stands beside it for
readers alone, as goose keeps what it has summed up.
"""

from collections.abc import Iterator
from typing import Any

import holdfast
from holdfast.doctor.goose.case import GooseCase
from holdfast.doctor.goose.write import export_of
from holdfast.domain.message import Call, Part, Result, Text
from holdfast.exporters import units
from holdfast.formats import registry
from holdfast.importers.goose.records import GooseRow
from holdfast.importers.goose.records import GooseSession as GooseSession
from holdfast.runtime.live.context import Contexts
from holdfast.runtime.live.session_log import SessionLog

NAME_MAX = 80


def goose_json(session: holdfast.Session) -> dict[str, Any]:
    """The export."""
    info = session.info()
    told = {message.id: message for message in session.transcript()}
    first = next(iter(told.values()), None)
    about = first.labels.get("story", {}) if first is not None else {}
    columns = (
        about["facts"]
        if about.get("kind") == "goose" and isinstance(about.get("facts"), dict)
        else {}
    )
    name = {
        "name": " ".join(info.title.split())[:NAME_MAX] or f"Session {info.id[:8]}",
        "working_dir": ".",
    }
    rows = tuple(_row(number, payload) for number, payload in enumerate(_spoken(session, told), 1))
    return export_of(
        GooseCase(GooseSession(info.id, "database", info.id, {**name, **columns}), rows)
    )


def _spoken(
    session: holdfast.Session, told: dict[str, holdfast.Message]
) -> Iterator[dict[str, Any]]:
    """All messages in order: those that the model sees in goose's words, the others before what
    came after them. goose reads by the time of a message, so none is earlier than the one before
    it.
    """
    clock = 0
    for payload in _ordered(session, told):
        created = payload.get("created")
        clock = max(clock, created if isinstance(created, int) else 0)
        yield {**payload, "created": clock}


def _ordered(
    session: holdfast.Session, told: dict[str, holdfast.Message]
) -> Iterator[dict[str, Any]]:
    shown, seen = _shown(session), set[str]()
    for _, ids in shown:
        seen.update(ids)
    aside = [
        message for message in told.values() if message.id not in seen and message.state != "erased"
    ]
    summaries: list[dict[str, Any]] = []
    for payload, ids in shown:
        seqs = [told[id].seq for id in ids if id in told]
        if ids and not seqs:  # a summary: behind what it stands for, and for the model alone
            summaries.append({**payload, "metadata": {"userVisible": False, "agentVisible": True}})
            continue
        while aside and seqs and aside[0].seq < min(seqs):
            yield _aside(aside.pop(0))
        yield from (*summaries, payload)
        summaries = []
    yield from (*map(_aside, aside), *summaries)


def _shown(session: holdfast.Session) -> list[tuple[dict[str, Any], tuple[str, ...]]]:
    room = session._work.room
    return room.reading(lambda: _shown_in(room))


def _shown_in(room: SessionLog) -> list[tuple[dict[str, Any], tuple[str, ...]]]:
    log = room.log()
    with room.lock:
        shown: list[Any] = Contexts().shown(log, registry.get("goose"))
    return shown


def _aside(message: holdfast.Message) -> dict[str, Any]:
    """A message for readers alone."""
    hidden = {"userVisible": True, "agentVisible": False}
    if message.format == "goose" and isinstance(message.payload, dict):
        metadata = message.payload.get("metadata")
        return {
            **message.payload,
            "metadata": {**(metadata if isinstance(metadata, dict) else {}), **hidden},
        }
    role = "assistant" if message.role == "assistant" else "user"
    content = [{"type": "text", "text": _worded(part)} for part in message.parts]
    return {
        "id": message.id,
        "role": role,
        "created": message.at // 1000,
        "content": content,
        "metadata": hidden,
    }


def _worded(part: Part) -> str:
    """A part for readers: goose pairs calls with results only where its model sees them."""
    if isinstance(part, Text):
        return part.text
    if isinstance(part, Call):
        return units.call(part)
    return part.content if isinstance(part, Result) else units.aside(part)


def _row(number: int, payload: dict[str, Any]) -> GooseRow:
    metadata = {"userVisible": True, "agentVisible": True, **(payload.get("metadata") or {})}
    known = ("id", "role", "content", "created", "metadata")
    rest = {name: value for name, value in payload.items() if name not in known}
    created = payload.get("created")
    return GooseRow(
        number=number,
        place="",
        message_id=payload.get("id"),
        role=payload["role"],
        content=payload["content"],
        created=created if isinstance(created, int) else None,
        metadata=metadata,
        rest=rest,
    )
