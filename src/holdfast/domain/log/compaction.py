"""Compaction: where a history may be cut, and what a summary stands for (I-11).

A compaction covers messages from the beginning of the view up to a boundary and shows a summary in
their stead. A boundary lies between turns, never between a call and its result. What is covered
stays in the log and can be shown again.
"""

from collections.abc import Collection, Iterable

from holdfast.domain.entry import Compacted, Edit
from holdfast.domain.log.fold import Log
from holdfast.domain.log.view import ranges
from holdfast.domain.message import thaw
from holdfast.domain.repair import (
    Messages,
    Pairs,
    StoredMessage,
    calls_of,
    pair,
    seqs_of,
)


def cut(order: Messages, *, keep_turns: int) -> int:
    """How many messages from the beginning a compaction covers that leaves the last `keep_turns`
    turns as they are.
    """
    places = _starts(order, keep_turns)
    if keep_turns == 0:
        places.append(len(order))
    return _last_allowed(order, places)


def cut_inside(log: Log, running: int, *, keep_turns: int) -> int:
    """How many messages a compaction covers while a turn is running that is to go on. If no turn is
    to be kept, the cut falls inside it, wherever a cut may: not after its first open call, and not
    before it has used what it was asked.
    """
    order = log.visible
    end = _first_open(order, running)
    turn = log.turns.get(running)
    # if it dies now, it gives back what it took: that must not be summed up
    if turn is None or not turn.spoke:
        numbers = [seen.turn for seen in order[:end]]
        if running in numbers:
            end = numbers.index(running)
    places = list(range(end + 1))
    if keep_turns > 0:
        places = [index for index in _starts(order, keep_turns) if index <= end]
    return _last_allowed(order, places)


def _starts(order: Messages, keep_turns: int) -> list[int]:
    """Where turns begin; a cut at one of these places leaves so many turns, or more."""
    starts = [index for index in range(len(order)) if _begins_turn(order, index)]
    if keep_turns > 1:
        del starts[1 - keep_turns :]
    return starts


def _last_allowed(order: Messages, places: list[int]) -> int:
    allowed = boundaries(order)
    for place in reversed(places):
        if allowed[place]:
            return place
    return 0


def _begins_turn(order: Messages, index: int) -> bool:
    message = order[index]
    if index == 0:
        return True
    if message.turn is None:
        # Outside of turns, what a user says begins something new.
        return message.note.role == "user"
    return message.turn != order[index - 1].turn


def _first_open(order: Messages, running: int) -> int:
    """The place of the first call that the running turn has yet to answer; the end when there is
    none.
    """
    pairs = pair(order)
    for index, seen in enumerate(order):
        # An approved call of an earlier turn is run by this one.
        if seen.started:
            return index
        if seen.turn == running:
            for place in range(len(calls_of(seen))):
                if (index, place) not in pairs:
                    return index
    return len(order)


def boundaries(order: Messages) -> list[bool]:
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
    # Ids are reused (FAULTS E4): which call a result answers is for the pairing to say.
    pairs = pair(order)
    for (call_at, _), (result_at, _) in pairs.items():
        rule_out(call_at, result_at)
    for index, message in enumerate(order):
        if _waits(index, message, pairs):
            # A summary can't wait for an approval: nothing from here on is covered.
            first_waiting = index
            break
    open_stretches = 0
    found = []
    for index in range(len(order) + 1):
        open_stretches += stretches[index]
        found.append(open_stretches == 0 and index <= first_waiting)
    return found


def _waits(index: int, message: StoredMessage, pairs: Pairs) -> bool:
    """Whether a call of this message waits for approval, and was not answered meanwhile."""
    if not message.waiting:
        return False
    for place, call in enumerate(calls_of(message)):
        if call.id in message.waiting and (index, place) not in pairs:
            return True
    return False


def covering(log: Log, covered: Collection[str]) -> Compacted | None:
    """The compaction that covers these messages; None unless all of them are shown now.

    What is hidden among them is set aside: the summariser was not told of it. What is gone from the
    view stays out.
    """
    covered = frozenset(covered)
    shown = [seen for seen in log.visible if seen.id in covered]
    if len(shown) != len(covered):
        return None
    kept = []
    aside = []
    # Only what is hidden before the last covered message is among them.
    to_come = len(covered)
    for seen in log.in_view:
        if seen.id in covered:
            to_come -= 1
        elif to_come and seen.id in log.hidden:
            aside.append(seen.seq)
        else:
            kept.append(seen)
    places = log.places
    # What an earlier summary set aside and this log never read can still be shown again.
    unread = [seq for seq in log.aside if seq not in places]
    edited = [seen for seen in kept if seen.seq in log.edits]
    return Compacted(
        covers=ranges(places, seqs_of(shown)),
        ranges=ranges(places, seqs_of(kept)),
        edits={seen.seq: Edit(seen.note, thaw(seen.body)) for seen in edited},
        instructions=log.instructions_seq,
        since=_earliest(log, kept),
        aside=(*unread, *aside),
    )


def _earliest(log: Log, kept: Iterable[StoredMessage]) -> int:
    """The first entry that these messages, or those in the inbox, depend on."""
    seqs = [log.head + 1, *seqs_of(log.inbox)]
    numbers = set()
    for seen in kept:
        seqs.append(seen.seq)
        if seen.turn is not None:
            numbers.add(seen.turn)
            seqs.append(log.born(seen))
    # more will come of it
    running = log.turn_record(log.running)
    if running is not None:
        numbers.add(running.number)
        seqs.append(running.seq)
    for number in numbers:
        seqs += seqs_of(log.of_turn(number))
    return min(seqs)
