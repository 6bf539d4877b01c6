"""The view: which messages the model sees, and in which order.

A shape is stored as ranges over the natural order, so a list of a thousand messages whose head was
dropped is one pair of numbers. Messages that come after the shape follow it by themselves.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise

from msgspec.structs import replace

from holdfast.domain.entry import Shape
from holdfast.domain.message import target_of
from holdfast.domain.repair import StoredMessage, pair


def shaped(
    natural: Sequence[StoredMessage],
    shape: Shape,
    *,
    after: int,
    joined: Collection[int] = (),
) -> list[StoredMessage]:
    """The natural order as this shape shows it; what was said after seq `after` follows, and what
    waited in the inbox then and was taken since (`joined`).
    """
    out = named(natural, shape.ranges)
    given = {message.seq for message in out}
    out.extend(
        message
        for message in natural
        if (message.seq > after or message.seq in joined) and message.seq not in given
    )
    return out


def without(
    natural: Sequence[StoredMessage], shape: Shape, gone: Collection[int]
) -> Shape:
    """The shape for a natural order from which these messages are taken: a range must not fall with
    its end.
    """
    left = [message for message in natural if message.seq not in gone]
    shown = [
        message.seq
        for message in named(natural, shape.ranges)
        if message.seq not in gone
    ]
    return replace(shape, ranges=ranges(left, shown))


def named(
    natural: Sequence[StoredMessage], ranges: Sequence[tuple[int, int]]
) -> list[StoredMessage]:
    """The messages in these ranges over the natural order."""
    return in_ranges(
        natural, {message.seq: index for index, message in enumerate(natural)}, ranges
    )


def in_ranges(
    natural: Sequence[StoredMessage],
    place: Mapping[int, int],
    ranges: Sequence[tuple[int, int]],
) -> list[StoredMessage]:
    """The messages in these ranges over the natural order, each once, where its first range has it;
    `place` says where each seq stands there.

    No shape of ours names a message twice. One that a stranger wrote may, and ranges that lie over
    each other would otherwise make a view far larger than its history.
    """
    stretches = [
        (place[first], place[last])
        for first, last in ranges
        if first in place and last in place
    ]
    if _overlap(stretches):
        return [natural[index] for index in _each_once(stretches)]
    out: list[StoredMessage] = []
    for start, end in stretches:
        out.extend(natural[start : end + 1])
    return out


def _overlap(stretches: Sequence[tuple[int, int]]) -> bool:
    ordered = sorted(stretches)
    return any(after[0] <= before[1] for before, after in pairwise(ordered))


def _each_once(stretches: Sequence[tuple[int, int]]) -> Iterator[int]:
    """The places in these stretches, each once. What was given is skipped in one step, however
    often it is named.
    """
    skip: dict[
        int, int
    ] = {}  # a place that was given → one after it where to look next
    for start, end in stretches:
        at, passed = start, []
        while at <= end:
            passed.append(at)
            if at in skip:
                at = skip[at]
            else:
                yield at
                at += 1
        for index in passed:
            skip[index] = at


def ranges(
    natural: Sequence[StoredMessage], shown: Sequence[int]
) -> tuple[tuple[int, int], ...]:
    """The seqs in `shown`, in that order, as ranges over the natural order."""
    place = {message.seq: index for index, message in enumerate(natural)}
    out: list[tuple[int, int]] = []
    previous = -2
    for seq in shown:
        index = place[seq]
        if out and index == previous + 1:
            out[-1] = (out[-1][0], seq)
        else:
            out.append((seq, seq))
        previous = index
    return tuple(out)


def put_after(
    order: list[StoredMessage], seq: int, more: Sequence[StoredMessage]
) -> list[StoredMessage]:
    """The order with these messages after the one of this seq, but for those that it has; as it is
    without that one.
    """
    at = next(
        (index for index, message in enumerate(order) if message.seq == seq), None
    )
    if at is None:
        return order
    given = {message.seq for message in order}
    return [
        *order[: at + 1],
        *(message for message in more if message.seq not in given),
        *order[at + 1 :],
    ]


class Ties:
    """What messages that come later may be tied to in these: calls, those that nobody has answered,
    and the turns that call or answer.
    """

    def __init__(self) -> None:
        self.calls: set[str] = set()
        self.open: set[str] = set()
        self.turns: set[int | None] = set()

    def add(self, messages: Sequence[StoredMessage]) -> None:
        tools = [
            message
            for message in messages
            if message.note.calls or message.note.answers
        ]
        if not tools:
            return
        pairs = pair(tools)
        self.turns |= {message.turn for message in tools} - {None}
        for index, message in enumerate(tools):
            for place, call in enumerate(message.note.calls):
                self.calls.add(target_of(message.id, place))
                if (index, place) not in pairs:
                    self.open.add(call.id)


def settled(
    order: Sequence[StoredMessage], kept: int, running: int | None, before: Ties
) -> int:
    """The last place before which nothing changes any more: between a plain answer and a plain user
    message, where no format merges anything, and where no result is parted from its call. `before`:
    of what is kept already.
    """
    for index in range(len(order) - 1, kept, -1):
        message, previous = order[index], order[index - 1]
        if message.turn is not None and message.turn == running == previous.turn:
            continue
        if (
            message.note.plain
            and previous.note.plain
            and message.note.role == "user"
            and previous.note.role == "assistant"
        ):
            part, rest = Ties(), Ties()
            part.add(order[kept:index])
            rest.add(order[index:])
            return (
                index
                if part.turns.isdisjoint(rest.turns)
                and stands_alone(order[kept:index], before)
                else kept
            )
    return kept


def stands_alone(messages: Sequence[StoredMessage], before: Ties) -> bool:
    """Whether no answer in these messages answers a call in what stands before them (FAULTS E4: ids
    are reused, so which one it answers is for the pairing to say).
    """
    if not before.calls:
        return True
    tools = [
        message for message in messages if message.note.calls or message.note.answers
    ]
    if not before.turns.isdisjoint(message.turn for message in tools):
        return False
    made = {
        (message.turn, call.id)
        for message in tools
        for call in message.note.calls
        if message.turn is not None
    }
    answered = set(pair(tools).values())
    for index, message in enumerate(tools):
        if message.note.target in before.calls:
            return False
        for place, call_id in enumerate(
            message.note.answers if message.note.target is None else ()
        ):
            if (
                call_id in before.open
                and (index, place) not in answered
                and (message.turn, call_id) not in made
            ):
                return False
    return True


def live(
    messages: Sequence[StoredMessage], running: int | None
) -> Sequence[StoredMessage]:
    """Marks the messages of the running turn: an open call in it is still running, not
    interrupted.
    """
    if (
        running is None
        or not messages
        or messages[-1].turn != running
        and all(m.turn != running for m in messages)
    ):
        return messages
    return [
        replace(message, running=True) if message.turn == running else message
        for message in messages
    ]
