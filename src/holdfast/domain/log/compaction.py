"""Compaction: where a history may be cut, and what a summary stands for (I-11).

A compaction covers messages from the beginning of the view up to a boundary and shows a summary in
their stead. A boundary lies between turns, never between a call and its result. What is covered
stays in the log and can be shown again.
"""

from collections.abc import Collection, Iterable, Sequence

from holdfast.domain.entry import Compacted, Edit
from holdfast.domain.log.fold import Log
from holdfast.domain.log.view import ranges
from holdfast.domain.message import thaw
from holdfast.domain.repair import StoredMessage, calls_of, pair


def cut(order: Sequence[StoredMessage], *, keep_turns: int) -> int:
    """How many messages from the beginning a compaction covers that leaves the last `keep_turns`
    turns as they are.
    """
    starts = [index for index in range(len(order)) if _begins_turn(order, index)]
    if keep_turns > 0:
        starts = [*starts[: -keep_turns + 1 or None]]
    else:
        starts.append(len(order))
    allowed = boundaries(order)
    return next((index for index in reversed(starts) if allowed[index]), 0)


def cut_inside(log: Log, running: int, *, keep_turns: int) -> int:
    """The same while a turn is running that is to go on. If no turn is to be kept, the cut falls
    inside it, wherever a cut may: not after its first open call, and not before it has used what it
    was asked.
    """
    order = log.visible
    end = _first_open(order, running)
    turn = log.turns.get(running)
    # if it dies now, it gives back what it took: that must not be summed up
    if turn is None or not turn.spoke:
        end = next(
            (index for index, seen in enumerate(order[:end]) if seen.turn == running),
            end,
        )
    if keep_turns > 0:
        starts = [index for index in range(len(order)) if _begins_turn(order, index)]
        places = [index for index in starts[: -keep_turns + 1 or None] if index <= end]
    else:
        places = list(range(end + 1))
    allowed = boundaries(order)
    return next((index for index in reversed(places) if allowed[index]), 0)


def _begins_turn(order: Sequence[StoredMessage], index: int) -> bool:
    message = order[index]
    if index == 0:
        return True
    if message.turn is None:
        return message.note.role == "user"
    return message.turn != order[index - 1].turn


def _first_open(order: Sequence[StoredMessage], running: int) -> int:
    """The place of the first call that the running turn has yet to answer; the end when there is
    none.
    """
    pairs = pair(order)
    for index, seen in enumerate(order):
        made_here = seen.turn == running and any(
            (index, place) not in pairs for place in range(len(calls_of(seen)))
        )
        if made_here or seen.started:
            return index
    return len(order)


def boundaries(order: Sequence[StoredMessage]) -> list[bool]:
    """For each place, the end included, whether a cut before it separates no result from its call
    and covers no call that waits.

    A result and the call that it may answer rule out every place between them. Counting where such
    stretches begin and end costs the length of the order, however many of them there are.
    """
    stretches = [0] * (len(order) + 2)

    def rule_out(call: int, result: int) -> None:
        stretches[min(call, result) + 1] += 1
        stretches[max(call, result) + 1] -= 1

    latest: dict[str, int] = {}
    first_waiting = len(order)
    for index, message in enumerate(order):
        for answer in message.note.answers:
            if answer in latest:
                rule_out(latest[answer], index)
        for call in message.note.calls:
            latest[call.id] = index
        if message.waiting:
            first_waiting = min(first_waiting, index)
    # Ids are reused (FAULTS E4): which call a result answers is for the pairing to say.
    for (call_at, _), (result_at, _) in pair(order).items():
        rule_out(call_at, result_at)
    open_stretches = 0
    found = []
    for index in range(len(order) + 1):
        open_stretches += stretches[index]
        found.append(open_stretches == 0 and index <= first_waiting)
    return found


def covering(log: Log, covered: Collection[str]) -> Compacted | None:
    """The compaction that covers these messages; None unless all of them are shown now.

    What is hidden among them is set aside: the summariser was not told of it. What is gone from the
    view stays out.
    """
    order, placed, standing = log.visible, log.in_view, log.natural
    covered = frozenset(covered)
    if sum(seen.id in covered for seen in order) != len(covered):
        return None
    end = (
        max(
            (index for index, seen in enumerate(placed) if seen.id in covered),
            default=-1,
        )
        + 1
    )
    aside = {
        seen.seq: None
        for seen in placed[:end]
        if seen.id not in covered and seen.id in log.hidden
    }
    kept = [seen for seen in placed if seen.id not in covered and seen.seq not in aside]
    unread = {*log.aside}.difference(seen.seq for seen in standing)
    return Compacted(
        covers=ranges(standing, [seen.seq for seen in order if seen.id in covered]),
        ranges=ranges(standing, [seen.seq for seen in kept]),
        edits={
            seen.seq: Edit(seen.note, thaw(seen.body))
            for seen in kept
            if seen.seq in log.edits
        },
        instructions=log.instructions_seq,
        since=_earliest(log, kept),
        aside=(*(seq for seq in log.aside if seq in unread), *aside),
    )


def _earliest(log: Log, kept: Iterable[StoredMessage]) -> int:
    """The first entry that these messages, or those in the inbox, depend on."""
    waiting = log.waiting
    seqs = [log.head + 1, *(seen.seq for seen in log.by_seq if seen.id in waiting)]
    if log.running is not None and log.running in log.turns:  # more will come of it
        seqs += [
            log.turns[log.running].seq,
            *(message.seq for message in log.of_turn(log.running)),
        ]
    looked_at: set[int] = set()
    for seen in kept:
        seqs.append(seen.seq)
        if seen.turn is not None and seen.turn not in looked_at:
            looked_at.add(seen.turn)
            seqs += [
                log.born(seen),
                *(message.seq for message in log.of_turn(seen.turn)),
            ]
    return min(seqs)
