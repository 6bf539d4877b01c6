"""What a batch comes to, as statements: one for each table, its rows in arrays."""

from collections.abc import Iterable, Sequence
from typing import Any

from holdfast.engine.named_sql import Row
from holdfast.engine.postgres.batch import Batch, SessionRow
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
_MOVED: Columns = {
    "l_tenant": Blobs,
    "l_session": Ids,
    "l_active_at": Ints,
    "l_unread": Flags,
}
_APPENDED = {f"e_{name}": kind for name, kind in ENTRY.items()}
_SPOKEN = {f"e_{name}": kind for name, kind in CHUNK.items()}


def effects(
    batch: Batch, sessions: dict[str, SessionRow], erased: Sequence[Statement] = ()
) -> list[Statement]:
    """All of a batch, in an order that every table bears, with what is `erased` before anything is
    added. Rows of sessions come first: others wait for them.
    """
    moved = sorted(batch.moved)
    plain = [batch.moved[id] for id in moved if id not in batch.turned]
    turned = [batch.moved[id] for id in moved if id in batch.turned]
    found: list[Statement] = []
    stamp = {"stamp": batch.stamp}
    if plain:
        found.append(
            ("save_activity", columns(ACTIVITY, map(_activity, plain)) | stamp)
        )
    if turned:
        found.append(("save_turn", columns(TURN, map(_turn, turned)) | stamp))
    found += erased
    if batch.opened:
        rows = [
            tuple(getattr(row, name) for name in SESSION)
            for row in batch.opened.values()
        ]
        found.append(("add_session", columns(SESSION, rows) | stamp))
    if batch.bound:
        bound = [(*key, *current) for key, current in batch.bound.items()]
        found.append(("bind", columns(BINDING, bound)))
    listed = [row.listed for row in batch.listed.values()]
    for name, rows, names in (
        ("list_sessions", listed, LISTED),
        ("add_event", batch.accepted, EVENT),
        ("add_blob", batch.blobs, BLOB),
        ("add_entry", batch.entries, ENTRY),
        ("add_chunk", batch.chunks, CHUNK),
    ):
        if rows:
            found.append((name, columns(names, rows)))
    if batch.swept:
        over = [
            (tenant, id, position) for id, (tenant, position) in batch.swept.items()
        ]
        found.append(("sweep", columns(PLACE | {"position": Ints}, over)))
    return found + list(_shifts(batch, sessions))


def append(batch: Batch, *, lasting: bool) -> tuple[str, dict[str, Any]]:
    """All of a plain batch in one statement."""
    values = columns(
        ACTIVITY, (_activity(batch.moved[id]) for id in sorted(batch.moved))
    )
    values |= {"stamp": batch.stamp, "lasting": lasting}
    rows, names, statement = batch.entries, _APPENDED, "append"
    if batch.chunks:
        rows, names, statement = batch.chunks, _SPOKEN, "append_chunk"
    if len(rows) == len(batch.moved) == 1:
        statement = statement.replace("append", "append_one")
    moved = [
        (row.tenant, row.id, row.active_at, row.unread) for row in batch.listed.values()
    ]
    values |= (
        columns(_MOVED, moved)
        if moved
        else {name: kind() for name, kind in _MOVED.items()}
    )
    return statement, values | columns(names, rows)


def columns(names: Columns, rows: Iterable[Sequence[Any]]) -> dict[str, Any]:
    """Rows turned into arrays, by name."""
    return {
        name: kind(values)
        for (name, kind), values in zip(
            names.items(), zip(*rows, strict=True), strict=True
        )
    }


def _shifts(batch: Batch, sessions: dict[str, SessionRow]) -> Iterable[Statement]:
    """What comes into inboxes and the outbox, what goes, and what a sender has now."""
    for gathered, leaving, entering, names in (
        (batch.waiting, "remove_waiting", "add_waiting", WAITING),
        (batch.owed, "remove_debt", "add_debt", DEBT),
    ):
        gone: list[Any] = [
            (sessions[id].tenant, id, place)
            for (id, place), row in gathered.items()
            if row is None
        ]
        come: list[Any] = [row for row in gathered.values() if row is not None]
        if gone:
            yield leaving, columns(dict(list(names.items())[:3]), gone)
        if come:
            yield entering, columns(names, come)
    if batch.claimed:
        yield "claim_debt", columns(CLAIM, batch.claimed.values())


def _activity(row: SessionRow) -> Row:
    return (
        row.tenant,
        row.id,
        row.stamp,
        row.head,
        row.position,
        row.active_at,
        row.last_at,
        row.was_unread,
        row.unread,
    )


def _turn(row: SessionRow) -> Row:
    turn = (row.fence, row.turn, row.holder, row.lease_s)
    return *_activity(row), row.ended, *turn, row.journal, row.base
