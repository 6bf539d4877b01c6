"""Compaction: where a history may be cut, and what a summary stands for (I-11).

A compaction covers messages from the beginning of the view up to a boundary and shows a summary in their stead. A
boundary lies between turns, never between a call and its result. What is covered stays in the log and can be shown
again.
"""

from collections.abc import Collection, Iterable, Sequence

from holdfast.domain.entry import Compacted, Edit
from holdfast.domain.fold import Log
from holdfast.domain.message import thaw
from holdfast.domain.repair import Seen, pair
from holdfast.domain.view import ranges


def cut(order: Sequence[Seen], *, keep_turns: int) -> int:
    """How many messages from the beginning a compaction covers that leaves the last `keep_turns` turns as they are."""
    starts = [index for index in range(len(order)) if _begins_turn(order, index)]
    if keep_turns > 0:
        starts = [*starts[: -keep_turns + 1 or None]]
    else:
        starts.append(len(order))
    return next((index for index in reversed(starts) if is_boundary(order, index)), 0)


def _begins_turn(order: Sequence[Seen], index: int) -> bool:
    message = order[index]
    if index == 0:
        return True
    if message.turn is None:
        return message.note.role == "user"
    return message.turn != order[index - 1].turn


def is_boundary(order: Sequence[Seen], index: int) -> bool:
    """Whether a cut before `order[index]` separates no result from its call, and covers no call that waits."""
    if any(message.waiting for message in order[:index]):
        return False
    before = {call.id for message in order[:index] for call in message.note.calls}
    after: set[str] = set()
    for message in order[index:]:
        if any(answer in before and answer not in after for answer in message.note.answers):
            return False
        after.update(call.id for call in message.note.calls)
    # Ids are reused (FAULTS E4): which call a result answers is for the pairing to say.
    return all((call < index) == (result < index) for (call, _), (result, _) in pair(order).items())


def covering(log: Log, covered: Collection[str]) -> Compacted | None:
    """The compaction that covers these messages; None unless all of them are shown now.

    What is hidden among them is set aside: the summariser was not told of it. What is gone from the view stays out.
    """
    order, placed, standing = log.order, log.placed, log.standing
    if sum(seen.id in covered for seen in order) != len(set(covered)):
        return None
    end = max((index for index, seen in enumerate(placed) if seen.id in covered), default=-1) + 1
    aside = {seen.seq: None for seen in placed[:end] if seen.id not in covered and seen.id in log.hidden}
    kept = [seen for seen in placed if seen.id not in covered and seen.seq not in aside]
    unread = {*log.aside}.difference(seen.seq for seen in standing)
    return Compacted(
        covers=ranges(standing, [seen.seq for seen in order if seen.id in covered]),
        ranges=ranges(standing, [seen.seq for seen in kept]),
        edits={seen.seq: Edit(seen.note, thaw(seen.body)) for seen in kept if seen.seq in log.edits},
        instructions=log.instructions_seq,
        since=_earliest(log, kept),
        aside=(*(seq for seq in log.aside if seq in unread), *aside),
    )


def _earliest(log: Log, kept: Iterable[Seen]) -> int:
    """The first entry that these messages, or those in the inbox, depend on."""
    waiting = log.waiting
    seqs = [log.head + 1, *(seen.seq for seen in log.messages if seen.id in waiting)]
    for seen in kept:
        seqs.append(seen.seq)
        if seen.turn is not None:
            seqs += [log.born(seen), *(message.seq for message in log.of_turn(seen.turn))]
    return min(seqs)
