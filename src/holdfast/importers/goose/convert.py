"""goose's sessions as foreign sessions: flags become labels, a sub-agent's session follows from the one that
asked for it.
"""

from collections import Counter
from collections.abc import Container, Iterable, Iterator
from typing import Any

from holdfast.domain.message import Usage
from holdfast.importers.foreign_session import (
    ForeignLines,
    ForeignMessage,
    ForeignSession,
)
from holdfast.importers.goose.records import (
    GooseRow,
    GooseSession,
    instant_of,
    milliseconds_of,
    shown_to,
    text_of,
    whole,
)
from holdfast.importers.values import JsonObject, object_or_empty, text_or_none

FORMAT = "goose"
ROLES = ("user", "assistant")
# The key in a message's metadata under which a healer notes what it knows.
OWN_NOTES = "holdfast"


def foreign_session(
    session: GooseSession, lines: ForeignLines, facts: JsonObject
) -> ForeignSession:
    """A session with its lines."""
    columns = session.columns
    return ForeignSession(
        kind="goose",
        id=session.id,
        place=session.place,
        lines=lines,
        title=text_or_none(columns.get("name") or columns.get("description")),
        opened_at=instant_of(columns.get("created_at")),
        parent=session.parent,
        lineage="delegate" if session.parent else None,
        facts={**columns, **facts},
    )


def lines_of(
    rows: Iterable[GooseRow], session: str, repeated: Container[str] | None = None
) -> Iterator[ForeignMessage]:
    """Rows as lines, each with its origin: the message's id, which outlives a rewriting of the
    history, with a number where it comes again. `repeated` names the ids that do, where that is
    known, so that not all have to be remembered.
    """
    met: Counter[str] = Counter()
    for row in rows:
        name = named(row, session)
        if repeated is None or name in repeated:
            met[name] += 1
        yield line_of(row, name if met[name] < 2 else f"{name}#{met[name]}")


def named(row: GooseRow, session: str) -> str:
    """A message's id; goose itself names the rows of its first releases like this when it moves
    them to a later one.
    """
    return row.message_id or f"msg_{session}_{row.number}"


def line_of(row: GooseRow, origin: str) -> ForeignMessage:
    metadata = row.metadata or {}
    return ForeignMessage(
        origin=origin,
        place=row.place,
        role=row.role if row.role in ROLES else "user",
        payload=payload_of(row),
        format=FORMAT,
        at=milliseconds_of(row.created),
        labels=_labels(row),
        usage=_usage(metadata.get("usage")),
        model=_model(metadata.get("inference")),
    )


def payload_of(row: GooseRow) -> JsonObject:
    """The message as goose shapes it. What could not be taken apart stands beside it under its
    column's name.
    """
    payload: JsonObject = {
        "id": row.message_id,
        "role": row.role,
        "created": row.created,
        "content": row.content or [],
    }
    if row.content is None:
        payload["content_json"] = text_of(row.raw)
    if row.metadata is not None:
        payload["metadata"] = row.metadata
    elif row.raw_metadata:
        payload["metadata_json"] = text_of(row.raw_metadata)
    return {**row.rest, **payload}


def _labels(row: GooseRow) -> JsonObject:
    labels: JsonObject = {}
    # goose's model is sent only what has one of these roles and can be taken apart.
    readable = row.role in ROLES and row.content is not None
    if not readable or not shown_to(row, "agentVisible"):
        labels["visible_to_model"] = False
    if not shown_to(row, "userVisible"):
        labels["visible_to_user"] = False
    noted = (row.metadata or {}).get(OWN_NOTES)
    for key, value in object_or_empty(noted).items():
        # Flags alone are labels: a note may also carry blocks, or broken bytes.
        if isinstance(value, bool):
            labels[key] = value
    return labels


def _usage(usage: Any) -> Usage | None:
    if not isinstance(usage, dict):
        return None
    # Releases differ in what they call it.
    cached = usage.get("cacheReadInputTokens", usage.get("cacheReadTokens"))
    return Usage(
        input=whole(usage.get("inputTokens")),
        output=whole(usage.get("outputTokens")),
        cached=whole(cached),
    )


def _model(inference: Any) -> str | None:
    if not isinstance(inference, dict):
        return None
    return text_or_none(
        inference.get("resolvedModel") or inference.get("requestedModel")
    )
