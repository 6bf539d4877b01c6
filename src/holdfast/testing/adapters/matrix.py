"""The matrix: every row played with a framework's own store and with Holdfast under it."""

import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from holdfast.testing.adapters.process import NotKilled
from holdfast.testing.adapters.row_setup import NoRequest, PlayedBy, set_up
from holdfast.testing.adapters.rows import ROWS, FaultRow
from holdfast.testing.adapters.verdict import Outcome

STORES = ("own", "holdfast")


@dataclass
class Matrix:
    """What was played, in order: each row with the outcome on either store."""

    lines: list[tuple[FaultRow, dict[str, Outcome]]] = field(default_factory=list)

    @property
    def wrong(self) -> list[str]:
        """A sentence for each row that was wrong with Holdfast."""
        found = []
        for row, outcomes in self.lines:
            outcome = outcomes.get("holdfast", Outcome())
            if outcome.played and outcome.wrong:
                found.append(f"{row.name}: {'; '.join(outcome.wrong[:3])}")
        return found

    def text(self) -> str:
        """The matrix, to be read."""
        cells: list[Sequence[str]] = [
            ("row", "store", "shown", "stored", "next request", "verdict")
        ]
        for row, outcomes in self.lines:
            for on, outcome in outcomes.items():
                cells.append((row.name, on, *_cells(outcome)))
        # All columns but the last: a verdict may be long, and nothing stands behind it.
        widths = [max(len(line[n]) for line in cells) for n in range(5)]
        lines = []
        for line in cells:
            padded = [
                cell.ljust(width) for cell, width in zip(line, widths, strict=False)
            ]
            lines.append("  ".join([*padded, line[-1]]).rstrip())
        return "\n".join(lines)


def _cells(outcome: Outcome) -> tuple[str, str, str, str]:
    if not outcome.played:
        return "-", "-", "-", "not played"
    sent = {None: "-", True: "valid", False: "REFUSED"}[outcome.next_valid]
    verdict = "right" if outcome.right else f"WRONG: {outcome.wrong[0]}"
    return outcome.shown, outcome.stored, sent, verdict[:110]


def play(
    player: str,
    *,
    python: str = sys.executable,
    stores: Sequence[str] = STORES,
    rows: Sequence[str] = (),
    where: str | None = None,
    tell: Callable[[str], None] = lambda sentence: None,
) -> Matrix:
    """Plays all rows, or those whose names have one of these words, with a player.

    * `player`: a module by its name, or by its path, as `holdfast.testing.adapters.playing` describes it
    * `python`: the interpreter of the environment in which the framework lives
    * `where`: an address of Holdfast's store; by default a file for each row
    * `tell`: is called with a sentence after each row
    """
    by = PlayedBy(player, python, "own", abilities=abilities(player, python))
    matrix = Matrix()
    for row in ROWS:
        if rows and not any(words in row.name for words in rows):
            continue
        outcomes = {}
        for on in stores:
            place = where if on == "holdfast" else None
            outcomes[on] = _played(row, replace(by, on=on, where=place))
            tell(f"{row.name}, {on}: {_cells(outcomes[on])[-1]}")
        matrix.lines.append((row, outcomes))
    return matrix


def abilities(player: str, python: str) -> frozenset[str]:
    """The functions that a player has, asked in its own environment."""
    # In the framework's own environment: here its packages need not be installed, and a
    # player imports them at its top.
    program = (
        "import sys; from holdfast.testing.adapters.playing import load; "
        "print(*vars(load(sys.argv[1])))"
    )
    said = subprocess.run(
        [python, "-c", program, player], check=True, capture_output=True, text=True
    )
    known = {"ask", "clear", "compact", "spoil"}
    return frozenset(known.intersection(said.stdout.split()))


def _played(row: FaultRow, by: PlayedBy) -> Outcome:
    """What became of a row. One that ends with an error is wrong, and the others go on."""
    try:
        with set_up(by) as made:
            return row.play(made)
    except NoRequest as none:
        return Outcome(wrong=(f"no request followed: {none}",))
    except NotKilled as unhurt:
        return Outcome(wrong=(f"the fault did not happen: {unhurt}",))
    except Exception as error:
        # An outcome has room for one sentence; where it broke is told here.
        traceback.print_exc()
        return Outcome(wrong=(f"{type(error).__name__}: {error}",))
