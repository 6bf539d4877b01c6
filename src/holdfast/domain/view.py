"""The view: which messages the model sees, and in which order.

A shape is stored as ranges over the natural order, so a list of a thousand messages whose head was dropped is one
pair of numbers. Messages that come after the shape follow it by themselves.
"""

from collections.abc import Sequence

from holdfast.domain.entry import Shape
from holdfast.domain.repair import Seen


def shaped(natural: Sequence[Seen], shape: Shape, *, after: int) -> list[Seen]:
    """The natural order as this shape shows it; what was said after seq `after` follows."""
    place = {message.seq: index for index, message in enumerate(natural)}
    out: list[Seen] = []
    for first, last in shape.ranges:
        if first in place and last in place:
            out.extend(natural[place[first] : place[last] + 1])
    given = {message.seq for message in out}
    out.extend(message for message in natural if message.seq > after and message.seq not in given)
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
