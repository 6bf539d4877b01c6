"""What a batch comes to, as statements: one for each table, its rows in arrays."""

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any

from holdfast.engine.named_sql import Rows
from holdfast.engine.postgres.batch import Batch, StampedSession
from holdfast.engine.postgres.server.binary_arrays import (
    Array,
    Blobs,
    Flags,
    Floats,
    Ids,
    Ints,
    Texts,
)

Statement = tuple[str, dict[str, Any] | None]
Columns = dict[str, type[Array]]

PLACE: Columns = {"tenant": Blobs, "session": Ids}
ENTRY = PLACE | {
    "seq": Ints,
    "kind": Texts,
    "turn": Ints,
    "id": Blobs,
    "at": Ints,
    "note": Blobs,
    "body": Blobs,
    "parted": Flags,
}
CHUNK = PLACE | {
    "position": Ints,
    "turn": Ints,
    "message": Blobs,
    "idx": Ints,
    "body": Blobs,
}
WAITING = PLACE | {"seq": Ints, "message": Blobs, "waiter": Blobs, "lease_s": Floats}
DEBT = PLACE | {"id": Blobs, "turn": Ints, "reply_to": Blobs, "at": Ints}
CLAIM = PLACE | {"id": Blobs, "token": Blobs, "seconds": Floats}
EVENT: Columns = {"name": Blobs, "session": Ids, "seq": Ints, "message": Blobs}
BLOB = PLACE | {"name": Ints, "digest": Blobs, "body": Blobs}
BINDING: Columns = {"tenant": Blobs, "key": Blobs, "session": Ids, "epoch": Ints}
ACTIVITY: Columns = {
    "tenant": Blobs,
    "id": Ids,
    "was": Ints,
    "head": Ints,
    "position": Ints,
    "active_at": Ints,
    "last_at": Ints,
    "was_unread": Flags,
    "unread": Flags,
}
TURN = ACTIVITY | {
    "ended": Ints,
    "fence": Ints,
    "turn": Ints,
    "holder": Blobs,
    "lease_s": Floats,
    "journal": Ints,
    "base": Ints,
}
SESSION: Columns = {
    "tenant": Blobs,
    "id": Ids,
    "key": Blobs,
    "epoch": Ints,
    "ended": Ints,
    "head": Ints,
    "fence": Ints,
    "turn": Ints,
    "holder": Blobs,
    "lease_s": Floats,
    "position": Ints,
    "journal": Ints,
    "base": Ints,
    "origin": Ints,
    "opened_at": Ints,
    "active_at": Ints,
    "last_at": Ints,
    "parent": Ids,
}
LISTED = PLACE | {"key": Blobs, "state": Ints, "active_at": Ints, "unread": Flags}
_GROWN: Columns = {
    "tenant": Blobs,
    "id": Ids,
    "was": Ints,
    "head": Ints,
    "active_at": Ints,
    "last_at": Ints,
}
_HEARD: Columns = {"tenant": Blobs, "id": Ids, "was": Ints, "position": Ints}
_LISTED: Columns = {"l_tenant": Blobs, "l_session": Ids, "l_active_at": Ints}
_APPENDED = {f"e_{name}": kind for name, kind in ENTRY.items()}
_SPOKEN = {f"e_{name}": kind for name, kind in CHUNK.items()}


SWEPT = PLACE | {"position": Ints}

Table = tuple[str, Columns, Sequence[Sequence[Any]]]
"""A statement, its columns, and the rows that it is for."""


def effects(
    batch: Batch,
    sessions: dict[str, StampedSession],
    erased: Sequence[Statement] = (),
) -> list[Statement]:
    """All of a batch, in an order that every table bears, with what is `erased` before anything is
    added. Rows of sessions come first: others wait for them.
    """
    # sorted: two batches that update the same rows must not do so crosswise
    moved = [batch.moved[id] for id in sorted(batch.moved)]
    first: list[Table] = [
        (
            "save_activity",
            ACTIVITY,
            [_activity(row) for row in moved if row.id not in batch.turned],
        ),
        (
            "save_turn",
            TURN,
            [_turn(row) for row in moved if row.id in batch.turned],
        ),
    ]
    added: list[Table] = [
        ("add_session", SESSION, [_session(row) for row in batch.opened.values()]),
        ("bind", BINDING, list(batch.bound.values())),
        ("list_sessions", LISTED, [row.listed for row in batch.listed.values()]),
        ("add_event", EVENT, batch.accepted),
        ("add_blob", BLOB, batch.blobs),
        ("add_entry", ENTRY, batch.entries),
        ("add_chunk", CHUNK, batch.chunks),
        ("sweep", SWEPT, list(batch.swept.values())),
        *_shifts(batch, sessions),
    ]
    return [*statements(first, batch.stamp), *erased, *statements(added, batch.stamp)]


def statements(tables: Iterable[Table], stamp: int = 0) -> list[Statement]:
    """One for each table that has rows. The stamp is for those that ask for it."""
    found: list[Statement] = []
    for name, names, rows in tables:
        if rows:
            found.append((name, columns(names, rows) | {"stamp": stamp}))
    return found


def append(batch: Batch, *, lasting: bool) -> tuple[str, dict[str, Any]]:
    """All of a plain batch in one statement."""
    # sorted: two batches that update the same rows must not do so crosswise
    moved = [batch.moved[id] for id in sorted(batch.moved)]
    values: dict[str, Any] = {"stamp": batch.stamp, "lasting": lasting}
    if batch.chunks:
        rows, statement = batch.chunks, "append_chunk"
        values |= columns(_HEARD, list(map(_heard, moved)))
        values |= columns(_SPOKEN, rows)
    else:
        rows, statement = batch.entries, "append"
        values |= columns(_GROWN, list(map(_grown, moved)))
        values |= columns(_APPENDED, rows)
        values |= columns(_LISTED, list(map(_listed, batch.listed.values())))
    if len(rows) == len(moved) == 1:
        # one row needs no arrays to be taken apart: the server plans and runs it in
        # less time
        statement = statement.replace("append", "append_one")
    return statement, values


def columns(names: Columns, rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Rows turned into arrays, by name."""
    if not rows:
        return {name: kind() for name, kind in names.items()}
    return {
        name: kind(values)
        for (name, kind), values in zip(
            names.items(), zip(*rows, strict=True), strict=True
        )
    }


def _shifts(batch: Batch, sessions: dict[str, StampedSession]) -> list[Table]:
    """What comes into inboxes and the outbox, what goes, and what a sender has now."""
    tables: list[Table] = []
    for gathered, what, names, which in (
        (batch.waiting, "waiting", WAITING, "seq"),
        (batch.owed, "debt", DEBT, "id"),
    ):
        gone: Rows = []
        come: Rows = []
        for (id, place), row in gathered.items():
            if row is None:
                gone.append((sessions[id].tenant, id, place))
            else:
                come.append(row)
        tables.append((f"remove_{what}", PLACE | {which: names[which]}, gone))
        tables.append((f"add_{what}", names, come))
    tables.append(("claim_debt", CLAIM, list(batch.claimed.values())))
    return tables


def _of_session(names: Columns) -> Any:
    """What a session has for these columns; `was` is the stamp that it is remembered with."""
    return attrgetter(*("stamp" if name == "was" else name for name in names))


_activity, _turn = _of_session(ACTIVITY), _of_session(TURN)
_grown, _heard = _of_session(_GROWN), _of_session(_HEARD)
_listed = attrgetter("tenant", "id", "active_at")
_session = attrgetter(*SESSION)
