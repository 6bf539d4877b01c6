"""The line that led to a message: what a rewind to it leaves in the view, and what it takes away.

The line is the view as it was when the message was said, up to the message: what earlier rewinds
had taken away by then stays away, what later ones took comes back. The arrangement of the view
stays as a list or a summary has made it, as long as the message has a place in it; else all that
was said on the line is shown, in its natural order.
"""

from bisect import bisect_left

from holdfast.domain.entry import Rewound
from holdfast.domain.log.fold import Log
from holdfast.domain.log.rewind import spans
from holdfast.domain.log.view import leaving_out, ranges
from holdfast.domain.repair import Messages, Order, StoredMessage, ids_of, seqs_of


def back_to(log: Log, id: str) -> Rewound | None:
    """The rewind to this message, in a log that was folded from its first entry; None unless it
    stands somewhere.
    """
    standing = log.natural
    said = [seen for seen in standing if seen.note.origin != "summary"]
    order = _shown(log)
    keeps_shape = id in ids_of(order)
    if not keeps_shape:
        # A summary covers it, or a list has dropped it: all that was said is shown again.
        order = said
    if id not in ids_of(order):
        return None
    at = ids_of(order).index(id)
    to = order[at]
    before, was_away = _before(log, to)
    gone = was_away.union(seqs_of(order[at + 1 :]), _later(log, order, to))
    left = leaving_out(order[: at + 1], gone)
    dead, cut = _turns(log, to, left, gone, before)
    return Rewound(
        to=id,
        gone=spans(gone, among=seqs_of([*log.by_seq, *standing])),
        turns=spans(dead, among=[turn.seq for turn in log.turns.values()]),
        cut=tuple(sorted(cut)),
        ranges=() if keeps_shape else ranges(log.places, seqs_of(said)),
    )


def _shown(log: Log) -> Order:
    """The arrangement, without what a summary has set aside and is still hidden: that is among what
    it covers.
    """
    aside = frozenset(log.aside)
    return [
        seen
        for seen in log.arranged
        if seen.seq not in aside or seen.id not in log.hidden
    ]


def _said_at(log: Log, seen: StoredMessage) -> int:
    """When a message came into the view: what waited in the inbox, with the turn that took it."""
    return max(seen.seq, log.born(seen))


def _before(log: Log, to: StoredMessage) -> tuple[Rewound, set[int]]:
    """The last rewind before this message was said, and what was gone then. If it came late, and
    was gone from the beginning: before its turn began.
    """
    for said_at in (_said_at(log, to), log.born(to)):
        # Rewinds stand in the order of their seqs.
        earlier = bisect_left(log.rewinds, said_at, key=lambda rewind: rewind[0])
        if not earlier:
            return Rewound(), set()
        gone = log.gone_after(earlier - 1)
        if to.seq not in gone:
            return log.rewinds[earlier - 1][1], gone
    raise AssertionError("no rewind takes away what comes after it")


def _later(log: Log, order: Messages, to: StoredMessage) -> set[int]:
    """What was said after this message, stands after it, and is gone, or dropped by a list: a list
    may have put it anywhere, and may show it again.
    """
    here = set(ids_of(order))
    gone = log.gone
    until = _said_at(log, to)
    standing = log.natural
    later = set()
    for seen in standing[ids_of(standing).index(to.id) :]:
        if seen.note.origin == "summary" or _said_at(log, seen) <= until:
            continue
        is_dropped = seen.id not in here and log.summary_of(seen.id, here) is None
        if is_dropped or seen.seq in gone:
            later.add(seen.seq)
    return later


def _turns(
    log: Log, to: StoredMessage, left: Messages, gone: set[int], before: Rewound
) -> tuple[set[int], set[int]]:
    """The seqs of the turns of which nothing is left, and of those that are cut."""
    alive = {seen.turn for seen in left}
    taken = {seen.turn for seen in log.natural if seen.seq in gone}
    until = _said_at(log, to)
    dead = set()
    for turn in log.turns.values():
        if turn.number in alive:
            continue
        # A turn that began later may have said nothing yet: what it says is gone as well.
        if turn.number in taken or turn.seq > until:
            dead.add(turn.seq)
    # What an earlier rewind had cut, and is still here, stays cut.
    cut = {log.born(seen) for seen in left}.intersection(before.cut)
    if to.turn is not None:
        cut.add(log.born(to))
    return dead, cut
