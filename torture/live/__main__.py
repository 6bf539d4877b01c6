"""`python -m torture.live NAME`: a real program under faults, without Holdfast and with it.

The program lives in an environment of its own, made once and used again. Each module here has
`INSTALL`, what pip puts there; `prepare(environment)`, which makes ready what pip can't (a program
from npm, say); and `rows(environment)`, its `Row`s; `soak(environment, messages)`, which gives a
sentence for each thing that was wrong. Exits with 1 when a row that can be cured was wrong
with Holdfast.
"""

import argparse
import sys
import tempfile
import time
import traceback
from importlib import import_module
from pathlib import Path

from torture.live.table import Outcome, Table
from torture.systems.environment import install

NAMES = ("goose", "hermes", "openviking", "proxy")


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev live", description=__doc__)
    parser.add_argument("name", choices=NAMES)
    parser.add_argument(
        "--row", action="append", default=[], help="only rows whose name has these words"
    )
    parser.add_argument(
        "--soak", type=int, metavar="MESSAGES", help="instead: so many messages, random kills"
    )
    parser.add_argument(
        "--environments",
        type=Path,
        default=Path(tempfile.gettempdir()) / "holdfast-live",
        help="where they are made (default: %(default)s)",
    )
    options = parser.parse_args()
    module = import_module(f"torture.live.{options.name}")
    environment = options.environments / options.name
    install(environment, list(module.INSTALL))
    module.prepare(environment)
    if options.soak:
        wrong = list(module.soak(environment, options.soak))
        print(f"{options.soak} messages, {len(wrong)} wrong")
    else:
        table = _play(module.rows(environment), options.row)
        print(table.text())
        wrong = table.wrong()
    for problem in wrong:
        print(problem, file=sys.stderr)
    return 1 if wrong else 0


def _play(rows, wanted) -> Table:
    table = Table()
    for row in rows:
        if wanted and not any(words in row.name for words in wanted):
            continue
        started = time.monotonic()
        outcomes = []
        for served in (False, True):
            with tempfile.TemporaryDirectory(prefix="holdfast-live-") as folder:
                outcomes.append(_played(row, Path(folder), served))
        table.lines.append((row, *outcomes))
        said = "right" if outcomes[1].right else f"wrong: {outcomes[1].why}"
        took = time.monotonic() - started
        print(f"{row.name}: {said} ({took:.0f} s)", file=sys.stderr, flush=True)
    return table


def _played(row, folder, served) -> Outcome:
    """What became of a row. One that ends with an error is wrong, and the others go on."""
    try:
        return row.play(folder, served)
    except Exception as error:
        traceback.print_exc()
        return Outcome("-", "-", None, False, f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    sys.exit(main())
