"""Whether the tests notice faults, put into a private copy of the source one at a time.

    ./dev mutants                        # all of them: an hour on two cores
    ./dev mutants --layer domain
    ./dev mutants --only approval-used
    ./dev mutants --list

Each fault names the tests that should notice it. The exit code is 1 when a fault is missed, when
its snippet is no longer where it was, or when its tests can't be found. `--sound` runs all named
tests without any fault first: a test that fails anyway notices nothing.
"""

import argparse
import json
import signal
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, SimpleQueue

from torture.mutants.book import Mutant, layers, mutants
from torture.mutants.copies import PrivateCopy, Verdict

FINE = ("noticed", "equivalent")


def main() -> int:
    given = _arguments()
    # so that copies and tests do not stay behind
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    chosen = [m for m in mutants(given.layer) if not given.only or m.id in given.only]
    if unknown := set(given.only) - {mutant.id for mutant in chosen}:
        print(
            f"There is no fault {', '.join(sorted(unknown))}; --list names them.", file=sys.stderr
        )
        return 2
    if given.list:
        for mutant in chosen:
            print(f"{mutant.layer:10} {mutant.id:44} {mutant.fault}")
        return 0
    verdicts = []
    for verdict in _all(chosen, given.jobs, given.limit_s, given.sound):
        verdicts.append(verdict)
        if not given.json:
            took = f"{verdict.took_s:5.1f} s" if verdict.took_s else "       "
            print(f"{verdict.fate:10} {took}  {verdict.mutant.id:44} {verdict.by}", flush=True)
    _tell(verdicts, as_json=given.json)
    return 0 if all(verdict.fate in FINE for verdict in verdicts) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./dev mutants", description="Do the tests notice faults?"
    )
    parser.add_argument(
        "--only", action="append", default=[], metavar="ID", help="this fault; may be repeated"
    )
    parser.add_argument("--layer", choices=layers(), help="the faults of one layer")
    parser.add_argument("--list", action="store_true", help="name the faults and run nothing")
    parser.add_argument("--json", action="store_true", help="one object for each fault, in a list")
    parser.add_argument("--jobs", type=int, default=2, help="how many are tried side by side (2)")
    parser.add_argument(
        "--limit-s", type=float, default=300.0, help="tests that take longer hang (300)"
    )
    parser.add_argument(
        "--sound", action="store_true", help="first see that the tests pass without a fault"
    )
    return parser.parse_args()


def _all(chosen: list[Mutant], jobs: int, limit_s: float, sound: bool) -> Iterator[Verdict]:
    """Tries them out, each worker in a copy of its own."""
    waiting: SimpleQueue[Mutant] = SimpleQueue()
    told: SimpleQueue[Verdict | BaseException] = SimpleQueue()
    copies: list[PrivateCopy] = []
    for mutant in chosen:
        waiting.put(mutant)

    def work(folder: Path) -> None:
        try:
            copy = PrivateCopy(folder, limit_s=limit_s)
            copies.append(copy)
            while True:
                mutant = waiting.get_nowait()
                told.put(_soundly(copy, mutant) if sound else copy.try_out(mutant))
        except Empty:
            return
        except BaseException as error:
            told.put(error)

    with tempfile.TemporaryDirectory(prefix="holdfast-mutants-") as place:
        for number in range(max(1, jobs)):
            threading.Thread(
                target=work, args=(Path(place) / f"copy-{number}",), daemon=True
            ).start()
        try:
            for _ in chosen:
                verdict = told.get()
                if isinstance(verdict, BaseException):
                    raise verdict
                yield verdict
        finally:
            while not waiting.empty():
                waiting.get_nowait()
            for copy in copies:
                copy.end()


def _soundly(copy: PrivateCopy, mutant: Mutant) -> Verdict:
    if mutant.tests and not mutant.problem():
        fate, by = copy.run(mutant.tests)
        if fate != "missed":
            return Verdict(mutant, "unsound" if fate == "noticed" else fate, by)
    return copy.try_out(mutant)


def _tell(verdicts: list[Verdict], *, as_json: bool) -> None:
    if as_json:
        lines = [
            {
                "id": v.mutant.id,
                "layer": v.mutant.layer,
                "fault": v.mutant.fault,
                "fate": v.fate,
                "by": v.by,
            }
            for v in verdicts
        ]
        print(json.dumps(lines, indent=1))
        return
    print()
    fates = ["noticed", "equivalent", "missed", "stale", "no tests", "unsound"]
    print(f"{'':12}{'faults':>8}" + "".join(f"{fate:>12}" for fate in fates))
    for layer in [*sorted({verdict.mutant.layer for verdict in verdicts}), "all"]:
        mine = [verdict for verdict in verdicts if layer in ("all", verdict.mutant.layer)]
        counted = Counter(verdict.fate for verdict in mine)
        print(f"{layer:12}{len(mine):>8}" + "".join(f"{counted[fate]:>12}" for fate in fates))


if __name__ == "__main__":
    sys.exit(main())
