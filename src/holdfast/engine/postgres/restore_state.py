"""Laying down what belongs to a session beside its log: the inbox, the outbox and the events that
another store has.

A batch holds what is there now, loaded for it, and what is to be there; what is laid down is one
more change to both.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from holdfast.engine.postgres.server.text_as_bytes import raw
from holdfast.engine.protocol import Accepted, Laid, Write


class RestoredRows(Protocol):
    """The part of a batch that is changed here."""

    events: dict[bytes, Accepted]
    inboxes: dict[str, dict[bytes, int]]
    debts: set[tuple[str, bytes]]
    accepted: list[tuple[Any, ...]]
    waiting: dict[tuple[str, int], tuple[Any, ...] | None]
    owed: dict[tuple[str, bytes], tuple[Any, ...] | None]
    laid: bool


def lay(batch: RestoredRows, known: Any, laid: Laid) -> None:
    """Inbox and outbox hold this and nothing else; events that are known stay as they are known."""
    batch.laid = True
    place = known.tenant, known.id
    for seq in batch.inboxes.get(known.id, {}).values():
        batch.waiting[known.id, seq] = None
    batch.inboxes[known.id] = {each.message: each.seq for each in laid.inbox}
    for each in laid.inbox:
        waiter = None if each.waiter is None else raw(each.waiter)
        batch.waiting[known.id, each.seq] = (*place, each.seq, each.message, waiter, None)
    for debt in [debt for debt in batch.debts if debt[0] == known.id]:
        batch.debts.remove(debt)
        batch.owed[debt] = None
    for owed in laid.outbox:
        batch.debts.add((known.id, owed.id))
        batch.owed[known.id, owed.id] = (*place, owed.id, owed.turn, raw(owed.reply_to), owed.at)
    for event in laid.events:
        if event.name not in batch.events:
            batch.events[event.name] = Accepted(known.id, event.seq, event.message)
            batch.accepted.append((event.name, known.id, event.seq, event.message))


def laid_events(writes: Iterable[Write]) -> list[bytes]:
    """The names of events that are to be known."""
    return list(
        {event.name for write in writes if write.lay is not None for event in write.lay.events}
    )


def laid_places(writes: Sequence[Write], places: dict[str, bytes]) -> list[tuple[bytes, str]]:
    """The sessions whose inbox and outbox are to be others."""
    return [
        (places[id], id)
        for id in {write.session for write in writes if write.lay is not None} & places.keys()
    ]
