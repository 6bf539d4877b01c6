"""`python -m torture.systems [NAME…]`: each program loads what the doctor healed for it, and
carries on; what a program sends next is the context that Holdfast makes of its stores.

A program lives in an environment of its own, outside Holdfast's (OpenViking is AGPL and never a
dependency), which is made once and used again. Each module here has `INSTALL`, what pip puts there,
and `run(environment)`, which gives how many rows were right, of how many, and a sentence for each
that was not. Exits with 1 when one was not.
"""

import argparse
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path

from torture.systems.environment import install

NAMES = ("agents", "claude", "codex", "goose", "hermes", "openviking")


def main() -> int:
    parser = argparse.ArgumentParser(prog="torture.systems", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"one of {', '.join(NAMES)} (default: all)"
    )
    where = Path(tempfile.gettempdir()) / "holdfast-systems"
    parser.add_argument(
        "--environments",
        type=Path,
        default=where,
        help="where they are made (default: %(default)s)",
    )
    options = parser.parse_args()
    unknown = set(options.names) - set(NAMES)
    if unknown:
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    rows, wrong = [], []
    for name in options.names or NAMES:
        started = time.monotonic()
        right, of, problems = _run(name, options.environments / name)
        took = f"{time.monotonic() - started:.0f} s"
        rows.append((name, "right" if right == of else "WRONG", took, f"{right} of {of}"))
        wrong += [f"{name}: {problem}" for problem in problems]
    for row in (("system", "", "took", "rows right"), *rows):
        print("{:<12}{:<8}{:>7}  {}".format(*row))
    for problem in wrong:
        print(problem, file=sys.stderr)
    return 1 if wrong or any(row[1] == "WRONG" for row in rows) else 0


def _run(name: str, environment: Path) -> tuple[int, int, list[str]]:
    module = import_module(f"torture.systems.{name}")
    install(environment, list(getattr(module, "INSTALL", ())))
    result: tuple[int, int, list[str]] = module.run(environment)
    return result


if __name__ == "__main__":
    sys.exit(main())
