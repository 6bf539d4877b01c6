"""Clock and chance come from one file and are passed in: one seed, one world."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tidy.tree import Module, library, within

SOURCE = "runtime/clock"
DICE = {"random", "secrets", "uuid"}
CLOCKS = {
    "time.time",
    "time.time_ns",
    "time.monotonic",
    "time.monotonic_ns",
    "time.perf_counter",
    "time.perf_counter_ns",
    "time.clock_gettime",
    "time.clock_gettime_ns",
    "datetime.datetime.now",
    "datetime.datetime.utcnow",
    "datetime.datetime.today",
    "datetime.date.today",
    "os.urandom",
    "os.getrandom",
}
IN_SQL = re.compile(
    r"\bcurrent_(?:timestamp|time|date)\b|'now'|\brandom(?:blob)?\s*\(|\bgen_random_uuid\b", re.I
)


def clock_and_chance(root: Path) -> list[str]:
    """Only `runtime/clock.py` reads a clock or rolls dice; sleeping and waiting with a limit are no
    readings.
    """
    found = []
    for module in library(root):
        if not within(module, SOURCE):
            found += [
                f"{module.shown}:{line} uses {name}; take time and chance from "
                "`runtime/clock.py`, passed in."
                for line, name in sorted(set(_readings(module)))
            ]
    for path in sorted((root / "src").rglob("*.sql")):
        code = re.sub(r"--.*", "", path.read_text(encoding="utf-8"))
        found += [
            f"{path.relative_to(root).as_posix()} uses {word}; pass the value in as a parameter."
            for word in IN_SQL.findall(code)
        ]
    return found


def _readings(module: Module) -> Iterator[tuple[int, str]]:
    known = _imported(module)
    for node in module.nodes(ast.Import, ast.ImportFrom, ast.Attribute):
        if isinstance(node, ast.Import):
            yield from (
                (node.lineno, alias.name)
                for alias in node.names
                if alias.name.split(".")[0] in DICE
            )
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                if name in CLOCKS or name.split(".")[0] in DICE:
                    yield node.lineno, name
        elif isinstance(node, ast.Attribute):
            name = _dotted(node, known)
            if name in CLOCKS:
                yield node.lineno, name


def _imported(module: Module) -> dict[str, str]:
    """What the names in this module stand for: `{"dt": "datetime", "now": "datetime.datetime"}`."""
    known = {}
    for node in module.nodes(ast.Import, ast.ImportFrom):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.split(".")[0]
                known[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            known |= {
                alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names
            }
    return known


def _dotted(node: ast.expr, known: dict[str, str]) -> str:
    if isinstance(node, ast.Attribute):
        before = _dotted(node.value, known)
        return f"{before}.{node.attr}" if before else ""
    return known.get(node.id, "") if isinstance(node, ast.Name) else ""
