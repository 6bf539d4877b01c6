"""A session as the JSON that `goose session import` takes.

What the model sees is what goose's model will see; all else that was said stands beside it for
readers alone, as goose keeps what it has summed up.
"""

from collections import deque
from collections.abc import Iterator
from typing import Any

import holdfast
from holdfast.doctor.goose.case import GooseCase
from holdfast.doctor.goose.write import export_of
from holdfast.domain.message import Call, Part, Result, Text
from holdfast.exporters import units
from holdfast.formats import registry
from holdfast.importers.goose.records import GooseRow, GooseSession
from holdfast.importers.values import JsonObject
from holdfast.runtime.live.context import Contexts
from holdfast.runtime.live.session_log import SessionLog

NAME_MAX = 80


def goose_json(session: holdfast.Session) -> JsonObject:
    """The export."""
    info = session.info()
    messages = {message.id: message for message in session.transcript()}
    columns = {
        "name": " ".join(info.title.split())[:NAME_MAX] or f"Session {info.id[:8]}",
        "working_dir": ".",
        **_columns_of_origin(messages),
    }
    rows = []
    for number, payload in enumerate(_in_order_of_time(session, messages), 1):
        rows.append(_row(number, payload))
    exported = GooseSession(info.id, "database", info.id, columns)
    return export_of(GooseCase(exported, tuple(rows)))


def _columns_of_origin(messages: dict[str, holdfast.Message]) -> JsonObject:
    """What goose's own store said of a session that was imported from there."""
    # Only the first one can have it: nothing else is looked at.
    for message in messages.values():
        origin = message.labels.get(
            "story", {}
        )  # an import labels the first message with it
        facts = origin.get("facts")
        if origin.get("kind") == "goose" and isinstance(facts, dict):
            return facts
        break
    return {}


def _in_order_of_time(
    session: holdfast.Session, messages: dict[str, holdfast.Message]
) -> Iterator[JsonObject]:
    """All messages in order: those that the model sees in goose's words, the others before what
    came after them. goose reads by the time of a message, so none is earlier than the one before
    it.
    """
    # Messages that were imported have the times of their stores, which need not grow.
    clock = 0
    for payload in _ordered(session, messages):
        created = payload.get("created")
        if isinstance(created, int):
            clock = max(clock, created)
        yield {**payload, "created": clock}


def _ordered(
    session: holdfast.Session, messages: dict[str, holdfast.Message]
) -> Iterator[JsonObject]:
    shown = _shown(session)
    seen: set[str] = set()
    for _, ids in shown:
        seen.update(ids)
    aside: deque[holdfast.Message] = deque()
    for message in messages.values():
        if message.id not in seen and message.state != "erased":
            aside.append(message)
    summaries: list[JsonObject] = []
    for payload, ids in shown:
        seqs = [messages[id].seq for id in ids if id in messages]
        if (
            ids and not seqs
        ):  # a summary: behind what it stands for, and for the model alone
            summaries.append(
                {**payload, "metadata": {"userVisible": False, "agentVisible": True}}
            )
            continue
        while aside and seqs and aside[0].seq < min(seqs):
            yield _aside(aside.popleft())
        yield from summaries
        yield payload
        summaries = []
    yield from map(_aside, aside)
    yield from summaries


def _shown(session: holdfast.Session) -> list[tuple[JsonObject, tuple[str, ...]]]:
    session_log = session._log
    return session_log.reading(lambda: _shown_in(session_log))


def _shown_in(session_log: SessionLog) -> list[tuple[JsonObject, tuple[str, ...]]]:
    log = session_log.log()
    with session_log.lock:
        shown: list[Any] = Contexts().shown(log, registry.get("goose"))
    return shown


def _aside(message: holdfast.Message) -> JsonObject:
    """A message for readers alone."""
    hidden = {"userVisible": True, "agentVisible": False}
    if message.format == "goose" and isinstance(message.payload, dict):
        metadata = message.payload.get("metadata")
        if isinstance(metadata, dict):
            hidden = {**metadata, **hidden}
        return {**message.payload, "metadata": hidden}
    role = "assistant" if message.role == "assistant" else "user"
    content = [{"type": "text", "text": _worded(part)} for part in message.parts]
    return {
        "id": message.id,
        "role": role,
        # goose counts in seconds.
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
    if isinstance(part, Result):
        return part.content
    return units.aside(part)


def _row(number: int, payload: JsonObject) -> GooseRow:
    metadata = {
        "userVisible": True,
        "agentVisible": True,
        **(payload.get("metadata") or {}),
    }
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
