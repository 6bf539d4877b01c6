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
from holdfast.formats.reading import text_block
from holdfast.importers.goose.convert import OWN_NOTES
from holdfast.importers.goose.records import GooseRow, GooseSession
from holdfast.importers.values import JsonObject, object_or_empty
from holdfast.runtime.live.context import Contexts
from holdfast.runtime.live.session_log import SessionLog

NAME_MAX = 80
# The key of a payload under which a recorder keeps what came over the wire.
RECORDED = "_acp"


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
    """What goose's own store said of a session that was imported from there; where an agent worked
    that was recorded.
    """
    # Only the first one can have it: nothing else is looked at.
    for message in messages.values():
        opened = object_or_empty(object_or_empty(message.payload).get(RECORDED))
        if isinstance(opened.get("cwd"), str):
            return {"working_dir": opened["cwd"]}
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
    aside, waiting = _not_shown(shown, messages)
    summaries: list[JsonObject] = []
    for payload, ids in shown:
        stored = [messages[id] for id in ids if id in messages]
        # A summary: behind what it stands for, and for the model alone.
        if ids and not stored:
            flags = {"userVisible": False, "agentVisible": True}
            summaries.append({**payload, "metadata": flags})
            continue
        while aside and stored and aside[0].seq < stored[0].seq:
            yield _aside(aside.popleft())
        yield from summaries
        yield _for_the_model(payload, stored)
        summaries = []
    yield from map(_aside, aside)
    yield from summaries
    # The next turn would take them, and goose's next turn does.
    for message in waiting:
        yield _worded(message, agent=True)


def _not_shown(
    shown: list[tuple[JsonObject, tuple[str, ...]]],
    messages: dict[str, holdfast.Message],
) -> tuple[deque[holdfast.Message], list[holdfast.Message]]:
    """The messages with words that the model is not shown, in order, and those that wait."""
    seen: set[str] = set()
    for _, ids in shown:
        seen.update(ids)
    aside: deque[holdfast.Message] = deque()
    waiting: list[holdfast.Message] = []
    for message in messages.values():
        if message.id in seen or message.state == "erased":
            continue
        # What has no words is there for programs alone; a row of goose's own goes back.
        if not message.parts and message.format != "goose":
            continue
        if message.state == "pending":
            waiting.append(message)
        else:
            aside.append(message)
    return aside, waiting


def _shown(session: holdfast.Session) -> list[tuple[JsonObject, tuple[str, ...]]]:
    session_log = session._log
    return session_log.reading(lambda: _shown_in(session_log))


def _shown_in(session_log: SessionLog) -> list[tuple[JsonObject, tuple[str, ...]]]:
    log = session_log.log()
    with session_log.lock:
        shown: list[Any] = Contexts().shown(log, registry.get("goose"))
    whole: list[Any] = []
    for payload, ids in shown:
        # A view takes results apart to put each next to its call; those of one message
        # that still follow each other are that message.
        if ids and whole and whole[-1][1] == ids:
            before, _ = whole.pop()
            payload = {**before, "content": before["content"] + payload["content"]}
        whole.append((payload, ids))
    return whole


def _for_the_model(payload: JsonObject, stored: list[holdfast.Message]) -> JsonObject:
    """A payload of the context, with the identity, the flags and the marks of its message."""
    if not stored:
        # Made here, to answer a call that nothing else answers.
        metadata = {**payload.get("metadata", {}), OWN_NOTES: {"synthetic": True}}
        return {**payload, "metadata": metadata}
    # goose's messages are never joined: a payload shows one message.
    message = stored[0]
    identity = {"id": message.id, "created": message.at // 1000}
    if message.format == "goose":
        identity = object_or_empty(message.payload)
    metadata = object_or_empty(identity.get("metadata"))
    flags = _metadata(message, metadata, agent=True)
    told = {"role": payload["role"], "content": payload["content"], "metadata": flags}
    return {**identity, **told}


def _aside(message: holdfast.Message) -> JsonObject:
    """A message that the model does not see."""
    if message.format == "goose" and isinstance(message.payload, dict):
        metadata = object_or_empty(message.payload.get("metadata"))
        flags = _metadata(message, metadata, agent=False)
        return {**message.payload, "metadata": flags}
    return _worded(message, agent=False)


def _worded(message: holdfast.Message, *, agent: bool) -> JsonObject:
    """A message in words: goose pairs calls with results only where its model sees both."""
    return {
        "id": message.id,
        "role": "assistant" if message.role == "assistant" else "user",
        # goose counts in seconds.
        "created": message.at // 1000,
        "content": [text_block(_words(part)) for part in message.parts],
        "metadata": _metadata(message, {}, agent=agent),
    }


def _metadata(
    message: holdfast.Message, stored: JsonObject, *, agent: bool
) -> JsonObject:
    """The metadata of a message. What somebody labelled since goose stored its flags holds (I-13);
    what the model sees, the context says.
    """
    user = message.labels.get("visible_to_user", stored.get("userVisible"))
    flags = {"userVisible": user is not False, "agentVisible": agent}
    metadata = {**stored, **flags}
    if message.state == "partial":
        notes = object_or_empty(stored.get(OWN_NOTES))
        # An import takes it for cut off again.
        metadata[OWN_NOTES] = {**notes, "incomplete": True}
    return metadata


def _words(part: Part) -> str:
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
