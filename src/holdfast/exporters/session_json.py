"""A session as one object for programs: the fields that sessions, turns, messages and calls have in
the library.
"""

from typing import Any

import msgspec

import holdfast
from holdfast.domain.log.explain import Outline, Section
from holdfast.domain.repair import StoredMessage
from holdfast.exporters.messages import read_messages
from holdfast.importers.values import JsonObject
from holdfast.runtime.live.message import Message

MESSAGE = "id seq at turn role state late text parts format event_id reply_to finish model usage"


def session_json(
    session: holdfast.Session,
    info: holdfast.SessionInfo,
    outline: Outline,
    sections: list[Section],
) -> JsonObject:
    """These sections, and what waits; ready to be encoded."""
    wanted: list[StoredMessage] = []
    numbers: set[int] = set()
    for section in sections:
        wanted += section.messages
        if section.turn is not None:
            numbers.add(section.turn.number)
    pending = outline.log.inbox
    messages = read_messages(session, [*wanted, *pending])
    said = [seen for seen in wanted if seen.id not in outline.covers]
    summaries = [seen for seen in wanted if seen.id in outline.covers]
    parent, parent_seq = outline.parent or (None, None)
    return {
        "session": info,
        "parent": parent,
        "parent_seq": parent_seq,
        "instructions": outline.log.instructions,
        "turns": [turn for turn in session.turns() if turn.number in numbers],
        "messages": [_message(messages[seen.id], seen, outline) for seen in said],
        "calls": [call for seen in said for call in outline.calls.get(seen.id, ())],
        "summaries": [_summary(messages[seen.id], outline) for seen in summaries],
        "pending": [_message(messages[seen.id], seen, outline) for seen in pending],
        "erased": outline.erased,
    }


def _message(message: Message, seen: StoredMessage, outline: Outline) -> JsonObject:
    view = outline.view(seen)
    state = "pending" if view == "waiting" else message.state
    return {
        **_fields(message, MESSAGE),
        "state": state,
        "labels": outline.log.labels.get(seen.id, {}),
        "view": view,
    }


def _summary(message: Message, outline: Outline) -> JsonObject:
    return {**_fields(message, "id seq at text"), "covers": outline.covered(message.id)}


def _fields(thing: Any, names: str) -> JsonObject:
    return {name: msgspec.to_builtins(getattr(thing, name)) for name in names.split()}
