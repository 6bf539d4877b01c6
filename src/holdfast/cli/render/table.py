"""A table for people: columns as wide as they need to be, and on a terminal no wider than that."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from holdfast.cli.output import Piece
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
    plain = [[_plain(cell) for cell in row] for row in rows]
    widths = [
        max(cells(text) for text in (column.heading, *(row[at][0] for row in plain)))
        for at, column in enumerate(columns)
    ]
    if width is not None:
        kept = _fitting(columns, widths, width)
        columns, widths = [columns[at] for at in kept], [widths[at] for at in kept]
        plain = [[row[at] for at in kept] for row in plain]
        _shrink(columns, widths, width)
    yield tuple(
        _cells([(column.heading, "quiet") for column in columns], columns, widths)
    )
    for row in plain:
        yield tuple(_cells(row, columns, widths))


def _plain(cell: Piece) -> tuple[str, str]:
    text, style = (cell, "") if isinstance(cell, str) else cell
    return one_line(text), style


def _fitting(columns: Sequence[Column], widths: Sequence[int], width: int) -> list[int]:
    """The columns that there is room for when all that can shrink have done so."""
    kept = list(range(len(columns)))

    def least() -> int:
        narrow = [
            min(widths[at], NARROW) if columns[at].shrinks else widths[at]
            for at in kept
        ]
        return sum(narrow) + GAP * (len(narrow) - 1)

    for _, at in sorted(
        (column.leaves, at) for at, column in enumerate(columns) if column.leaves
    ):
        if least() > width:
            kept.remove(at)
    return kept


def _shrink(columns: Sequence[Column], widths: list[int], width: int) -> None:
    over = sum(widths) + GAP * (len(widths) - 1) - width
    for _, at in sorted(
        (column.shrinks, at) for at, column in enumerate(columns) if column.shrinks
    ):
        give = min(max(over, 0), max(0, widths[at] - NARROW))
        widths[at] -= give
        over -= give


def _cells(
    row: Sequence[tuple[str, str]], columns: Sequence[Column], widths: Sequence[int]
) -> Iterator[Piece]:
    for at, ((text, style), column, wide) in enumerate(
        zip(row, columns, widths, strict=True)
    ):
        text = cut(text, wide)
        space = " " * (wide - cells(text))
        last = at == len(columns) - 1
        piece: Piece = (text, style) if style else text
        yield from (space, piece) if column.right else (piece, "" if last else space)
        if not last:
            yield " " * GAP
