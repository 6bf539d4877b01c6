"""Who may know whom. All imports count: at the top, type-only, inside functions, by
`import_module`.
"""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from tidy.tree import Module, library

# Lowest first; an import never points up, and those on one line do not know each other. `holdfast`
# is the public face.
LAYERS = [
    {"errors"},
    {"domain", "forked_imports", "process_fork", "write_ahead_log"},
    {"stepping_connection"},
    {"engine", "formats", "importers", "parts"},
    {"runtime", "doctor"},
    {"holdfast"},
    {"exporters"},
    {"server"},
    {"adapters", "testing"},
    {"cli", "__main__"},
    {"holdfast_command"},
]
HEIGHT = {name: height for height, layer in enumerate(LAYERS) for name in layer}
STRANGERS = [("holdfast.engine.sqlite", "holdfast.engine.postgres")]


def layers(root: Path) -> list[str]:
    """An import never points up, and siblings do not know each other."""
    found = []
    for module, line, target in _edges(*library(root)):
        here, there = _layer(module.name), _layer(target)
        place = f"{module.shown}:{line} imports {target}"
        for unknown in sorted({here, there} - HEIGHT.keys()):
            found.append(
                f"{place}, but `{unknown}` is not on the map; give it a layer in "
                "tests/tidy/imports.py."
            )
        if here == there or not {here, there} <= HEIGHT.keys():
            continue
        if HEIGHT[here] < HEIGHT[there]:
            found.append(
                f"{place}, which lies above it; move what both need down to `{here}` or lower, or "
                "pass it in."
            )
        elif HEIGHT[here] == HEIGHT[there]:
            found.append(
                f"{place}, its sibling; let a layer above join the two, or move the shared part "
                "below both."
            )
    return found + list(_strangers(root))


def cycles(root: Path) -> list[str]:
    """No module reaches itself, by any kind of import."""
    graph: dict[str, set[str]] = {}
    for module, _line, target in _edges(*library(root)):
        graph.setdefault(module.name, set()).add(target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        ring = " imports ".join(reversed(error.args[1]))
        return [
            f"There is a ring: {ring}. Move what they share into a module that imports neither."
        ]
    return []


def _strangers(root: Path) -> Iterator[str]:
    for module, line, target in _edges(*library(root)):
        for pair in STRANGERS:
            for here, there in (pair, pair[::-1]):
                if _is_in(module.name, here) and _is_in(target, there):
                    yield (
                        f"{module.shown}:{line} imports {target}; engines do not know each other. "
                        "Move what both need up into `holdfast.engine`."
                    )


def _is_in(name: str, package: str) -> bool:
    return f"{name}.".startswith(f"{package}.")


def _layer(name: str) -> str:
    return name.split(".")[1] if "." in name else name


def _edges(*modules: Module) -> Iterator[tuple[Module, int, str]]:
    """(module, line, the module of the library that it imports there)."""
    known = {module.name for module in modules}
    for module in modules:
        for node in module.nodes(ast.Import, ast.ImportFrom, ast.Call):
            for target in _targets(module, node):
                inner = _innermost(target, known)
                if inner is not None and inner != module.name:
                    yield module, getattr(node, "lineno", 0), inner


def _targets(module: Module, node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Import(names=names):
            yield from (alias.name for alias in names)
        case ast.ImportFrom(module=origin, names=names, level=level):
            start = _package(module, level) if level else ""
            whole = ".".join(part for part in (start, origin) if part)
            yield from (f"{whole}.{alias.name}" for alias in names)
        case ast.Call(
            func=ast.Name(id=verb) | ast.Attribute(attr=verb),
            args=[ast.Constant(value=str(name)), *_],
        ):
            if verb in {"import_module", "__import__"}:
                yield name


def _package(module: Module, level: int) -> str:
    parts = module.name.split(".")
    drop = level - 1 if module.is_package else level
    return ".".join(parts[: len(parts) - drop])


def _innermost(target: str, known: set[str]) -> str | None:
    """`holdfast.domain.message.Text` is the module `holdfast.domain.message`; None when it is not
    of the library.
    """
    if _is_in(target, "holdfast"):
        while target:
            if target in known:
                return target
            target = target.rpartition(".")[0]
    return None
