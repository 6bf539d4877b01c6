"""A table for people: columns as wide as they need to be, and on a terminal no wider than that."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from holdfast.cli.output import Piece, split
from holdfast.exporters.safe_text import cells, cut, one_line

GAP = 2
NARROW = 8


class Column(NamedTuple):
    """A heading. `shrinks` says which column gives way when the screen is too narrow: 1 first, then
    2. If that is not enough, those with `leaves` are left out, 1 first.
    """

    heading: str
    right: bool = False
    shrinks: int = 0
    leaves: int = 0


Line = tuple[Piece, ...]


def table(
    columns: Sequence[Column], rows: Sequence[Sequence[Piece]], *, width: int | None
) -> Iterator[Line]:
    """The lines of a table; nothing when there are no rows."""
    if not rows:
        return
    heading: list[Piece] = [(column.heading, "quiet") for column in columns]
    lines = [[_plain(cell) for cell in row] for row in (heading, *rows)]
    # In columns of the screen, not in letters: some letters take two, some none.
    widths = [
        max(cells(text) for text, _ in column) for column in zip(*lines, strict=True)
    ]
    kept = list(range(len(columns)))
    if width is not None:
        # Which columns stay is decided first, as if all had shrunk: none shrinks for
        # the sake of one that has to go anyway.
        kept = _fitting(columns, widths, width)
        _shrink(columns, widths, kept, width)
    for line in lines:
        yield tuple(_cells(line, columns, widths, kept))


def _plain(cell: Piece) -> tuple[str, str]:
    text, style = split(cell)
    return one_line(text), style


def _fitting(columns: Sequence[Column], widths: Sequence[int], width: int) -> list[int]:
    """The columns that there is room for when all that can shrink have done so."""
    kept = list(range(len(columns)))
    least = list(widths)
    for at, column in enumerate(columns):
        if column.shrinks:
            least[at] = min(widths[at], NARROW)
    for at in _in_turn([column.leaves for column in columns]):
        if _total(least, kept) > width:
            kept.remove(at)
    return kept


def _in_turn(turns: Sequence[int]) -> list[int]:
    """The columns that have a turn, in the order of their turns."""
    having = [at for at, turn in enumerate(turns) if turn]
    return sorted(having, key=turns.__getitem__)


def _total(widths: Sequence[int], kept: Sequence[int]) -> int:
    return sum(widths[at] for at in kept) + GAP * (len(kept) - 1)


def _shrink(
    columns: Sequence[Column], widths: list[int], kept: Sequence[int], width: int
) -> None:
    over = _total(widths, kept) - width
    for at in _in_turn([column.shrinks for column in columns]):
        if at in kept:
            give = min(max(over, 0), max(0, widths[at] - NARROW))
            widths[at] -= give
            over -= give


def _cells(
    line: Sequence[tuple[str, str]],
    columns: Sequence[Column],
    widths: Sequence[int],
    kept: Sequence[int],
) -> Iterator[Piece]:
    for at in kept:
        text, style = line[at]
        text = cut(text, widths[at])
        space = " " * (widths[at] - cells(text))
        last = at == kept[-1]
        if columns[at].right:
            yield from (space, (text, style))
        else:
            # Nothing follows in the last column that it would have to be lined up with.
            yield from ((text, style), "" if last else space)
        if not last:
            yield " " * GAP
