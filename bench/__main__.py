"""`python -m bench [names…] [--quick] [--world native|slowed] [--json]`: measures, and prints a
table with the bars.

Each module is measured in a process of its own, once natively and once with every sync 1 ms slower,
or 2 ms on PostgreSQL. `BENCH_DIR` says on which disk; the current folder's unless told.
"""

import argparse
import importlib
import os
import platform
import subprocess
import sys
import tempfile

import msgspec

from bench import shim
from bench.figure import Figure, Run

MODULES = (
    "appends",
    "accepts",
    "chunks",
    "contexts",
    "compacted",
    "records",
    "lists",
    "searching",
    "disk",
    "importing",
    "postgres",
    "machines",
    "served",
)
LONG = ("growth",)
"""Measured only if it is named: it fills stores with up to a million sessions."""


def main() -> int:
    options = _options()
    if "BENCH_WORLD" in os.environ:
        return _measure_here(options)
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as folder:
        library = shim.build(folder)
        for name in options.names or MODULES:
            for world in [options.world] if options.world else shim.WORLDS:
                if name in ("importing", "growth") and world == "slowed":
                    continue  # they are not about syncs
                print(f"{name}, {world} …", file=sys.stderr, flush=True)
                figures += _measure_there(name, options.quick, shim.environment(library, world))
    print(
        msgspec.json.format(msgspec.json.encode(figures)).decode()
        if options.json
        else table(figures)
    )
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Holdfast beside raw SQLite, raw psycopg and its peers."
    )
    known = f"{', '.join(MODULES)}; all of these unless told; or {', '.join(LONG)}"
    parser.add_argument("names", nargs="*", metavar="name", help=f"what to measure: {known}")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter repeats")
    parser.add_argument(
        "--world", choices=list(shim.WORLDS), help="only natively, or only with slowed syncs"
    )
    parser.add_argument("--json", action="store_true", help="figures for machines")
    options = parser.parse_args()
    unknown = set(options.names).difference(MODULES, LONG)
    if unknown:
        parser.error(
            f"there is no {', '.join(sorted(unknown))}; there are {', '.join((*MODULES, *LONG))}"
        )
    return options


def _measure_here(options: argparse.Namespace) -> int:
    run = Run(os.environ["BENCH_WORLD"], options.quick)
    for name in options.names:
        figures = importlib.import_module(f"bench.{name}").measure(run)
        sys.stdout.buffer.write(msgspec.json.encode(figures))
    return 0


def _measure_there(name: str, quick: bool, environment: dict[str, str]) -> list[Figure]:
    command = [sys.executable, "-m", "bench", name, *(["--quick"] if quick else [])]
    child = subprocess.run(command, env=environment, stdout=subprocess.PIPE)
    if child.returncode:
        print(f"{name} could not be measured.", file=sys.stderr)
        return []
    return msgspec.json.decode(child.stdout, type=list[Figure])


def table(figures: list[Figure]) -> str:
    """A table in Markdown that reads as plain text too."""
    rows = [["figure", "world", "measured", "bar", "", "by"]]
    for figure in figures:
        bar = "" if figure.at_least is None else f"≥ {_number(figure.at_least)}"
        bar = bar if figure.at_most is None else f"≤ {_number(figure.at_most)}"
        rows.append(
            [
                figure.name,
                figure.world,
                f"{_number(figure.value)} {figure.unit}",
                bar,
                figure.verdict,
                figure.by,
            ]
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    rows.insert(1, ["-" * width for width in widths])
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    machine = (
        f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python "
        f"{platform.python_version()}"
    )
    load = f"load {os.getloadavg()[1]:.1f} over the last five minutes"
    return "\n".join([f"Medians of interleaved repeats in one run; {machine}; {load}.", "", *lines])


def _number(value: float) -> str:
    return (
        f"{value:.0f}"
        if abs(value) >= 100
        else f"{value:.1f}"
        if abs(value) >= 10
        else f"{value:.2f}"
    )


if __name__ == "__main__":
    sys.exit(main())
