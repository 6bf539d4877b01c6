"""What a live run reports: one row for each fault, without Holdfast and with it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Outcome:
    """What one run of a row came to.

    `shown` and `stored` are counts or short words, as fits the row. `next_valid` is whether the
    program's next request to its model was valid by the provider's rules, and None where no
    request follows. `right` is the verdict; `why` says in a sentence what was wrong.
    """

    shown: str
    stored: str
    next_valid: bool | None
    right: bool
    why: str = ""


Play = Callable[[Path, bool], Outcome]
"""Plays a row in an empty folder; the second argument says whether Holdfast is there."""


@dataclass(frozen=True)
class Row:
    """One fault. `curable` is False where nothing outside the program can cure it: such a row is
    in the table, and its verdict does not count."""

    name: str
    play: Play
    curable: bool = True


@dataclass
class Table:
    """Rows that were played, in order."""

    lines: list[tuple[Row, Outcome, Outcome]] = field(default_factory=list)

    def wrong(self) -> list[str]:
        return [
            f"{row.name}: {served.why or 'wrong with Holdfast'}"
            for row, _, served in self.lines
            if row.curable and not served.right
        ]

    def text(self) -> str:
        header = ("row", "", "shown", "stored", "next request", "verdict")
        cells: list[Sequence[str]] = [header]
        for row, alone, served in self.lines:
            cells.append((row.name, "without", *_cells(alone, row)))
            cells.append(("", "with", *_cells(served, row)))
        widths = [max(len(line[n]) for line in cells) for n in range(len(header))]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in cells
        )


def _cells(outcome: Outcome, row: Row) -> tuple[str, str, str, str]:
    sent = {None: "-", True: "valid", False: "REFUSED"}[outcome.next_valid]
    verdict = "right" if outcome.right else "WRONG" if row.curable else "wrong, not curable here"
    return outcome.shown, outcome.stored, sent, verdict
