"""The view: which messages the model sees, and in which order.

A shape is stored as ranges over the natural order, so a list of a thousand messages whose head was
dropped is one pair of numbers. Messages that come after the shape follow it by themselves.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from msgspec.structs import replace

from holdfast.domain.entry import Ranges, Shape
from holdfast.domain.message import target_of
from holdfast.domain.repair import Messages, Order, StoredMessage, pair, seqs_of

Places = Mapping[int, int]
"""Where each seq stands in an order."""
_Stretches = list[tuple[int, int]]
"""First and last place of each, in one order of messages."""


def shaped(
    natural: Messages, shape: Shape, later: Iterable[int], *, places: Places
) -> Order:
    """The natural order as this shape shows it. What has come to it `later`, of these seqs, follows.
    `places` say where each seq stands in the natural order.
    """
    out = in_ranges(natural, places, shape.ranges)
    given = set(seqs_of(out))
    # A late message stands in its own turn: by seq is not the natural order. What was given back
    # stands nowhere.
    at = {places[seq] for seq in later if seq in places and seq not in given}
    out += [natural[place] for place in sorted(at)]
    return out


def leaving_out(messages: Order, seqs: set[int]) -> Order:
    """The messages whose seqs are not among these."""
    # Nothing is left out of most orders, and they are long.
    if not seqs:
        return messages
    return [message for message in messages if message.seq not in seqs]


def without(natural: Order, shape: Shape, gone: set[int]) -> Shape:
    """The shape for a natural order from which these messages are taken: a range must not fall with
    its end.
    """
    left = leaving_out(natural, gone)
    shown = leaving_out(named(natural, shape.ranges), gone)
    return replace(shape, ranges=ranges(places_of(left), seqs_of(shown)))


def named(natural: Messages, ranges: Ranges) -> Order:
    """The messages in these ranges over the natural order."""
    return in_ranges(natural, places_of(natural), ranges)


def places_of(natural: Messages) -> dict[int, int]:
    """Where each seq stands in this order."""
    return {message.seq: index for index, message in enumerate(natural)}


def in_ranges(natural: Messages, places: Places, ranges: Ranges) -> Order:
    """The messages in these ranges over the natural order, each once, where its first range has it;
    `places` say where each seq stands there.

    No shape of ours names a message twice. One that a stranger wrote may, and ranges that lie over
    each other would otherwise make a view far larger than its history.
    """
    stretches: _Stretches = []
    for first, last in ranges:
        # What a load from the last compaction has not read, and what was erased, is not there.
        if first in places and last in places:
            stretches.append((places[first], places[last]))
    if _overlap(stretches):
        return [natural[index] for index in _each_once(stretches)]
    out: Order = []
    for start, end in stretches:
        out.extend(natural[start : end + 1])
    return out


def _overlap(stretches: _Stretches) -> bool:
    for before, after in pairwise(sorted(stretches)):
        if after[0] <= before[1]:
            return True
    return False


def _each_once(stretches: _Stretches) -> Iterator[int]:
    """The places in these stretches, each once. What was given is skipped in one step, however
    often it is named.
    """
    # a place that was given → one after it where to look next
    skip: dict[int, int] = {}
    for start, end in stretches:
        at = start
        passed = []
        while at <= end:
            passed.append(at)
            if at in skip:
                at = skip[at]
            else:
                yield at
                at += 1
        for index in passed:
            skip[index] = at


def ranges(places: Places, shown: Sequence[int]) -> Ranges:
    """The seqs in `shown`, in that order, as ranges over the natural order; `places` say where each
    seq stands there.
    """
    out: _Stretches = []
    previous = -2
    for seq in shown:
        index = places[seq]
        if out and index == previous + 1:
            out[-1] = (out[-1][0], seq)
        else:
            out.append((seq, seq))
        previous = index
    return tuple(out)


def put_after(order: Order, seq: int, more: Order) -> Order:
    """The order with these messages after the one of this seq, but for those that it has; as it is
    without that one.
    """
    seqs = seqs_of(order)
    if seq not in seqs:
        return order
    at = seqs.index(seq) + 1
    return [*order[:at], *leaving_out(more, set(seqs)), *order[at:]]


class Ties:
    """What messages that come later may be tied to in these: calls, those that nobody has answered,
    and the turns that call or answer.
    """

    def __init__(self) -> None:
        self.calls: set[str] = set()
        self.open: set[str] = set()
        self.turns: set[int | None] = set()

    def add(self, messages: Messages) -> None:
        tools = _with_tools(messages)
        if not tools:
            return
        pairs = pair(tools)
        self.turns |= _turns_of(tools)
        for index, message in enumerate(tools):
            for place, call in enumerate(message.note.calls):
                self.calls.add(target_of(message.id, place))
                if (index, place) not in pairs:
                    self.open.add(call.id)


def _with_tools(messages: Messages) -> Messages:
    return [seen for seen in messages if seen.note.calls or seen.note.answers]


def _turns_of(messages: Messages) -> set[int | None]:
    """The turns of these messages. What stands outside a turn has none in common."""
    return {message.turn for message in messages} - {None}


def settled(order: Messages, kept: int, running: int | None, before: Ties) -> int:
    """The last place before which nothing changes any more: between a plain answer and a plain user
    message, where no format merges anything, and where no result is parted from its call. `before`:
    of what is kept already.
    """
    for index in range(len(order) - 1, kept, -1):
        if not _may_part(order[index - 1], order[index], running):
            continue
        part = order[kept:index]
        # A turn on both sides may have a call on one and its result on the other.
        after = _with_tools(order[index:])
        if after and _are_tied(_with_tools(part), after):
            return kept
        return index if stands_alone(part, before) else kept
    return kept


def _are_tied(before: Messages, after: Messages) -> bool:
    """Whether what stands after these may answer a call in them, or make one that they answer."""
    if not _turns_of(after).isdisjoint(_turns_of(before)):
        return True
    # A turn that was over has stored the result of a call that a later one made.
    answered = {seen.note.target for seen in before} - {None}
    if not answered:
        return False
    made = Ties()
    made.add(after)
    return not answered.isdisjoint(made.calls)


def _may_part(
    previous: StoredMessage, message: StoredMessage, running: int | None
) -> bool:
    # Inside the running turn: an open call there is shown as running until it ends.
    if message.turn is not None and message.turn == running == previous.turn:
        return False
    if not (message.note.plain and previous.note.plain):
        return False
    return message.note.role == "user" and previous.note.role == "assistant"


def stands_alone(messages: Messages, before: Ties) -> bool:
    """Whether no answer in these messages answers a call in what stands before them (FAULTS E4: ids
    are reused, so which one it answers is for the pairing to say).
    """
    if not before.calls:
        return True
    tools = _with_tools(messages)
    if not before.turns.isdisjoint(_turns_of(tools)):
        return False
    made = _calls_in_turns(tools)
    answered = set(pair(tools).values())
    for index, message in enumerate(tools):
        # A result that names its call answers no other, whatever its id says.
        if message.note.target is not None:
            if message.note.target in before.calls:
                return False
            continue
        for place, call_id in enumerate(message.note.answers):
            if call_id not in before.open or (index, place) in answered:
                continue
            # Where its own turn makes a call of this id, it is never paired outside the turn.
            if (message.turn, call_id) not in made:
                return False
    return True


def _calls_in_turns(tools: Messages) -> set[tuple[int, str]]:
    made: set[tuple[int, str]] = set()
    for message in tools:
        if message.turn is not None:
            made.update((message.turn, call.id) for call in message.note.calls)
    return made


def live(messages: Messages, running: int | None) -> Messages:
    """Marks the messages of the running turn: an open call in it is still running, not
    interrupted.
    """
    if running is None:
        return messages
    marked = []
    for message in messages:
        if message.turn == running:
            message = replace(message, running=True)
        marked.append(message)
    return marked
