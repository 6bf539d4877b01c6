"""What waits in all inboxes of a store: what a gateway asks after a restart (I-4).

Found by age, through an index, a page at a time: it costs what waits, not how many sessions there
are. A turn whose process has died gives back what it had not used before the first page is read.
"""

from typing import Annotated, Any

from msgspec import Meta

from holdfast.domain.arguments import kind_of
from holdfast.domain.entry import note_of
from holdfast.domain.repair import StoredMessage
from holdfast.engine.protocol import PAGE_BYTES_MAX, Pending
from holdfast.errors import BadArgument
from holdfast.runtime.catalog.page import Page, read_cursor, write_cursor
from holdfast.runtime.live.damage import readable
from holdfast.runtime.live.message import Message
from holdfast.runtime.live.session_log import put_labels
from holdfast.runtime.open_store import OpenStore
from holdfast.runtime.plans.plan import Plan, read
from holdfast.runtime.turns.recovery import settle_if_dead

Mark = tuple[bytes, str, int]
Place = tuple[
    Annotated[str, Meta(max_length=64)], str, Annotated[int, Meta(ge=0, lt=1 << 62)]
]
"""A message, its session and its seq: what waits is in the order of these."""


class PendingMessage(Message):
    """A message that waits, with the session it waits in and that session's key."""

    key: str | None
    session_id: str

    def __init__(self, pending: Pending, labels: dict[str, Any] | None = None) -> None:
        entry = readable(pending.entry)
        note = note_of("message", entry.note)
        super().__init__(
            StoredMessage(
                entry.id.hex(), entry.seq, None, note, entry.body, False, (), entry.at
            ),
            turn=None,
            pending=True,
            labels=labels,
        )
        self.key = pending.key
        self.session_id = pending.session


def pending(
    store: OpenStore, *, after: str | None, limit: int
) -> Plan[Page[PendingMessage]]:
    """A page of what waits, oldest first; `after` is the `next` of the page before."""
    engine, tenant = store.engine, store.tenant
    mark = None
    # With the first page only: whoever reads on has just had this done.
    if after is None:
        running = yield from read(
            lambda: [engine.state(id) for id in engine.running(tenant)]
        )
        for state in running:
            if state is not None:
                yield from settle_if_dead(store.session_log(state))
    else:
        mark = _mark_of(after)
    # One more than is shown: it tells whether a page follows.
    found = yield from read(lambda: engine.pending(tenant, after=mark, limit=limit + 1))
    shown = found[:limit]
    # The engine ends a page early when its payloads are large: then more may follow.
    is_cut = sum(len(each.entry.body) for each in found) >= PAGE_BYTES_MAX
    next = None
    if shown and (len(found) > limit or is_cut):
        last = shown[-1]
        next = write_cursor((last.entry.id.hex(), last.session, last.entry.seq))
    labels = yield from read(lambda: _labels(store, shown))
    messages = []
    for each in shown:
        messages.append(PendingMessage(each, labels.get(each.entry.id.hex())))
    return Page(messages, next)


def _labels(store: OpenStore, shown: list[Pending]) -> dict[str, dict[str, Any]]:
    """What is noted about each of these messages that has labels."""
    first: dict[str, int] = {}
    for each in shown:
        first[each.session] = min(
            each.entry.seq, first.get(each.session, each.entry.seq)
        )
    labels: dict[str, dict[str, Any]] = {}
    for session, seq in first.items():
        # Only those after it: of a long log, what waits is near the end.
        for entry in store.engine.labels(session, after=seq):
            put_labels(labels, entry)
    return labels


def _mark_of(after: str) -> Mark:
    try:
        message, session, seq = read_cursor(after, Place)
        return bytes.fromhex(message), session, seq
    except ValueError:
        takes = "the `next` of a page of `Store.pending`"
        raise BadArgument(
            parameter="after", takes=takes, given=kind_of(after)
        ) from None
