"""Compaction: where a history may be cut, and what a summary stands for (I-11).

A compaction covers messages from the beginning of the view up to a boundary and shows a summary in their stead. A
boundary lies between turns, never between a call and its result. What is covered stays in the log and can be shown
again.
"""

from collections.abc import Sequence

from holdfast.domain.repair import Seen, pair


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
