"""The view: which messages the model sees, and in which order.

A shape is stored as ranges over the natural order, so a list of a thousand messages whose head was dropped is one
pair of numbers. Messages that come after the shape follow it by themselves.
"""

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from holdfast.domain.entry import Shape
from holdfast.domain.message import target_of
from holdfast.domain.repair import Seen


def shaped(natural: Sequence[Seen], shape: Shape, *, after: int, joined: Collection[int] = ()) -> list[Seen]:
    """The natural order as this shape shows it; what was said after seq `after` follows, and what waited in the inbox
    then and was taken since (`joined`)."""
    out = _named(natural, shape)
    given = {message.seq for message in out}
    out.extend(
        message for message in natural if (message.seq > after or message.seq in joined) and message.seq not in given
    )
    return out


def without(natural: Sequence[Seen], shape: Shape, gone: Collection[int]) -> Shape:
    """The shape for a natural order from which these messages are taken: a range must not fall with its end."""
    left = [message for message in natural if message.seq not in gone]
    shown = [message.seq for message in _named(natural, shape) if message.seq not in gone]
    return replace(shape, ranges=ranges(left, shown))


def _named(natural: Sequence[Seen], shape: Shape) -> list[Seen]:
    place = {message.seq: index for index, message in enumerate(natural)}
    out: list[Seen] = []
    for first, last in shape.ranges:
        if first in place and last in place:
            out.extend(natural[place[first] : place[last] + 1])
    return out


def ranges(natural: Sequence[Seen], shown: Sequence[int]) -> tuple[tuple[int, int], ...]:
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


def settled(order: Sequence[Seen], kept: int, running: int | None) -> int:
    """The last place before which nothing changes any more: between a plain answer and a plain user message, where no
    format merges anything, and in front of which every result has its call."""
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
            return index if stands_alone(order[kept:index]) else kept
    return kept


def stands_alone(messages: Sequence[Seen]) -> bool:
    """Whether every answer in these messages answers a call in them."""
    called = {call.id for message in messages for call in message.note.calls}
    named = {target_of(message.id, place) for message in messages for place in range(len(message.note.calls))}
    notes = [message.note for message in messages if message.note.answers]
    return all(note.target in named if note.target else called.issuperset(note.answers) for note in notes)


def live(messages: Sequence[Seen], running: int | None) -> Sequence[Seen]:
    """Marks the messages of the running turn: an open call in it is still running, not interrupted."""
    if running is None or not messages or messages[-1].turn != running and all(m.turn != running for m in messages):
        return messages
    return [replace(message, running=True) if message.turn == running else message for message in messages]
