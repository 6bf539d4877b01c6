"""The rows of a Hermes session as a foreign session.

Copies that a compaction made are folded into their originals and the summary says which messages it
keeps; what a branch copied from its parent is left out, since its lines begin behind it. Rows that
the user took back, and rows that are only metadata, are given, hidden from the model.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from holdfast.domain.message import USUAL_FORMAT
from holdfast.importers.foreign_session import (
    HIDDEN,
    ForeignLine,
    ForeignMessage,
    ForeignSession,
    Lineage,
    Summary,
)
from holdfast.importers.hermes.compaction_copies import Folded, fold, key
from holdfast.importers.hermes.records import (
    HermesRow,
    HermesSession,
    calls,
    is_taken_back,
    parts,
)
from holdfast.importers.values import JsonObject, text_or_none, wrong_blocks

# Live rows of a parent, each with the name of the message it is.
Context = Sequence[tuple[HermesRow, str]]
# Labels of a row that a healer folded into another: it says nothing that the other does
# not. A copy that a compaction made also has the flags it had, for its summary's sake.
FOLDED, WAS = "folded_into", "was"
# What Hermes notes in a call, and takes off before it sends it.
_OWN_KEYS = ("call_id", "response_item_id")
_ROLES = ("user", "assistant", "tool", "system")
_OWN_COLUMNS = {
    "id",
    "title",
    "system_prompt",
    "started_at",
    "ended_at",
    "end_reason",
    "session_key",
}


def foreign_session(
    session: HermesSession,
    facts: Mapping[str, Any],
    lines: Iterable[ForeignLine],
    *,
    parent: str | None,
    lineage: Lineage | None,
    parent_origin: str | None,
    current: bool,
) -> ForeignSession:
    """The session with what its row says; its lines are made elsewhere."""
    ended = None
    ended_at = None
    if session.ended_at is not None:
        ended = session.end_reason or "ended"
        ended_at = _milliseconds(session.ended_at)
    rest = {}
    for name, value in facts.items():
        if value is not None and name not in _OWN_COLUMNS:
            rest[name] = _plain(value)
    return ForeignSession(
        kind="hermes",
        id=session.id,
        place=f"sessions.id={session.id}",
        lines=lines,
        key=session.key,
        current=current,
        title=text_or_none(facts.get("title")),
        opened_at=_milliseconds(session.started_at),
        ended=ended,
        ended_at=ended_at,
        instructions=text_or_none(facts.get("system_prompt")),
        parent=parent,
        lineage=lineage,
        parent_origin=parent_origin,
        facts=rest,
    )


def lines_of(
    rows: Sequence[HermesRow], before: Context, model: str | None
) -> Iterator[ForeignLine]:
    """The lines of a session's rows; `before` is the parent's context when they begin with a
    compaction of it.
    """
    kept = []
    for row in rows:
        if FOLDED not in row.labels or WAS in row.labels:
            kept.append(_as_it_was(row))
    folded = fold(kept, before)
    for row in kept:
        if row.id in folded.generations:
            yield _summary(row, folded)
        elif row.id not in folded.copy_of:
            yield line(row, model)


def branched_from(rows: Sequence[HermesRow], before: Context) -> Context:
    """What a branch of a session can copy. All that was compacted is shared as soon as the summary
    is.
    """
    folded = fold(rows, before)
    names: dict[int, str] = {}
    waiting: list[int] = []
    summary = ""
    for row in folded.kept:
        if row.id in folded.generations:
            summary = row.name
            names |= dict.fromkeys(waiting, summary)
            waiting.clear()
        # What a branch shares of a compacted session it shares from the summary on.
        elif row.id in folded.copy_of:
            names[row.id] = summary
            waiting.append(row.id)
    return [
        (row, names.get(row.id, row.name))
        for row in rows
        if row.role in _ROLES
        and (row.active or is_taken_back(row))
        and FOLDED not in row.labels
    ]


def shared(rows: Iterable[HermesRow], before: Context) -> tuple[int, str | None]:
    """How many rows of a branch are its parent's, and the name of the last of those messages."""
    count = 0
    place = 0
    last = None
    for row in rows:
        if is_taken_back(row):
            break
        # What was taken back in the parent need not be in the branch.
        while place < len(before) and key(before[place][0]) != key(row):
            if not is_taken_back(before[place][0]):
                return count, last
            place += 1
        if place == len(before):
            break
        last = before[place][1]
        count += 1
        place += 1
    return count, last


def line(row: HermesRow, model: str | None) -> ForeignMessage:
    """One row as a message."""
    return ForeignMessage(
        origin=row.name,
        place=row.place,
        role=_role(row),
        payload=payload(row),
        format=USUAL_FORMAT,
        at=_milliseconds(row.timestamp),
        labels=_labels(row),
        model=model if row.role == "assistant" else None,
    )


def payload(row: HermesRow) -> JsonObject:
    """The row as a message; columns that a provider does not know are under `_hermes`, by their own
    names.
    """
    role = _role(row)
    said: JsonObject = {"role": role, "content": _content(row)}
    kept: JsonObject = {}
    if role != row.role:
        kept["role"] = row.role
    asked = calls(row)
    if asked:
        said["tool_calls"] = [_sendable(call) for call in asked]
    # A column that is not JSON, or of which something was taken off, is kept as it is too.
    if asked is None or said.get("tool_calls", asked) != asked:
        kept["tool_calls"] = row.tool_calls
    if row.tool_call_id is not None:
        said["tool_call_id"] = row.tool_call_id
    for name in ("reasoning", "reasoning_content"):
        if isinstance(row.rest.get(name), str):
            said[name] = row.rest[name]
    for name in ("id", "timestamp", "tool_name", "finish_reason", "observed"):
        kept[name] = getattr(row, name)
    for name, value in row.rest.items():
        if name not in said:
            kept[name] = _plain(value)
    said["_hermes"] = {name: value for name, value in kept.items() if value is not None}
    return said


def _role(row: HermesRow) -> str:
    """Who speaks: rows of other roles are notes of the program's own."""
    return row.role if row.role in _ROLES else "system"


def _sendable(call: JsonObject) -> JsonObject:
    return {key: value for key, value in call.items() if key not in _OWN_KEYS}


def _as_it_was(row: HermesRow) -> HermesRow:
    if WAS not in row.labels:
        return row
    active, compacted = row.labels[WAS]
    return msgspec.structs.replace(row, active=active, compacted=compacted, labels={})


def _content(row: HermesRow) -> Any:
    try:
        found = parts(row)
    except ValueError:
        return row.content
    if found is None or wrong_blocks(found):
        return row.content
    return found


def _labels(row: HermesRow) -> JsonObject:
    labels = dict(row.labels)
    if row.role not in _ROLES:
        labels |= HIDDEN | {row.role: True}
    if is_taken_back(row):
        # A healer that took it back has said so in its own label.
        labels |= HIDDEN
        if not row.labels:
            labels["taken_back"] = True
    if row.observed:
        labels["observed"] = True
    return labels


def _summary(row: HermesRow, folded: Folded) -> Summary:
    generation = folded.generations[row.id]
    keeps, heads = generation.keeps, generation.heads
    shows = (*keeps[:heads], row.name, *keeps[heads:]) if heads else ()
    at = _milliseconds(row.timestamp)
    return Summary(
        row.name, row.place, row.content or "", keeps, at, shows, is_shown=True
    )


def _milliseconds(at: float) -> int:
    return math.floor(at * 1000)


def _plain(value: Any) -> Any:
    """A column's value as JSON can hold it."""
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
