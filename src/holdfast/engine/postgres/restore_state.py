"""Restoring what belongs to a session beside its log: the inbox, the outbox and the events that
another store has.

A batch holds what is there now, loaded for it, and what is to be there; what is restored is one more
change to both.
"""

from collections.abc import Iterable
from typing import Any, Protocol

from holdfast.engine.named_sql import Row, Rows
from holdfast.engine.postgres.server.text_as_bytes import raw, raw_or_none
from holdfast.engine.protocol import Accepted, Laid, Write, Writes


class RestoredRows(Protocol):
    """The part of a batch that is changed here."""

    events: dict[bytes, Accepted]
    inboxes: dict[str, dict[bytes, int]]
    debts: set[tuple[str, bytes]]
    accepted: Rows
    waiting: dict[tuple[str, int], Row | None]
    owed: dict[tuple[str, bytes], Row | None]
    restored: bool


def restore(batch: RestoredRows, row: Any, restored: Laid) -> None:
    """Inbox and outbox hold this and nothing else; events that are known stay as they are."""
    batch.restored = True
    place = row.tenant, row.id
    # what is there now goes first; what is restored at the same seq takes its place
    for seq in batch.inboxes.get(row.id, {}).values():
        batch.waiting[row.id, seq] = None
    batch.inboxes[row.id] = {each.message: each.seq for each in restored.inbox}
    for each in restored.inbox:
        waiter = raw_or_none(each.waiter)
        batch.waiting[row.id, each.seq] = (*place, each.seq, each.message, waiter, None)
    for debt in [debt for debt in batch.debts if debt[0] == row.id]:
        batch.debts.remove(debt)
        batch.owed[debt] = None
    for owed in restored.outbox:
        batch.debts.add((row.id, owed.id))
        batch.owed[row.id, owed.id] = (
            *place,
            owed.id,
            owed.turn,
            raw(owed.reply_to),
            owed.at,
        )
    for event in restored.events:
        if event.name not in batch.events:
            batch.events[event.name] = Accepted(row.id, event.seq, event.message)
            batch.accepted.append((event.name, row.id, event.seq, event.message))


def restored_events(writes: Iterable[Write]) -> list[bytes]:
    """The names of events that are to be known."""
    names: set[bytes] = set()
    for write in writes:
        if write.lay is not None:
            names.update(event.name for event in write.lay.events)
    return list(names)


def restored_places(
    writes: Writes, places: dict[str, bytes]
) -> list[tuple[bytes, str]]:
    """The sessions whose inbox and outbox are to be others."""
    return [
        (places[id], id)
        for id in {write.session for write in writes if write.lay is not None}
        & places.keys()
    ]
