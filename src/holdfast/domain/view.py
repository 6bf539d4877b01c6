"""The view: which messages the model sees, and in which order.

A shape is stored as ranges over the natural order, so a list of a thousand messages whose head was dropped is one
pair of numbers. Messages that come after the shape follow it by themselves.
"""

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from holdfast.domain.entry import Shape
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
