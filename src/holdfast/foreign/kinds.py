"""Which foreign stores there are, and which of them a path is: told by what is in it, never by its name."""

import os
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from holdfast.foreign.shelf import Shelf

SHELVES = {
    "hermes": ("hermes.shelf", "HermesShelf"),
    "goose": ("goose.shelf", "GooseShelf"),
    "openviking": ("openviking.shelf", "OpenVikingShelf"),
    "claude": ("claude", "ClaudeShelf"),
    "codex": ("codex", "CodexShelf"),
    "agents": ("agents", "AgentsShelf"),
}
"""Each kind, with its module and its class."""
KindOf = Callable[[str | os.PathLike[str]], str | None]
"""Tells what a file or a folder is; there are more kinds than those of this layer."""
ENDINGS = (".db", ".sqlite", ".sqlite3", ".jsonl", ".json")
"""What a file is called that is worth a look when a whole folder was given."""


def kind_of(path: str | os.PathLike[str]) -> str | None:
    """What a file or a folder is; None when no reader knows it."""
    for kind in SHELVES:
        if _reader(kind).recognises(Path(path)):
            return kind
    return None


def open_shelf(kind: str, path: str | os.PathLike[str]) -> Shelf:
    """The store of this kind at this path, opened from a private copy."""
    shelf: Shelf = getattr(_reader(kind), SHELVES[kind][1])(Path(path))
    return shelf


def source_of(path: str | os.PathLike[str]) -> str:
    """What a store is told apart by from others that call their sessions alike: where it lies."""
    return os.path.realpath(path)


def stores_at(path: str, kind_of: KindOf) -> list[tuple[str, str]]:
    """The stores that a path means, each with its kind: the one that it is, or those in it when it is a folder that is
    none itself.
    """
    kind = kind_of(path)
    if kind is not None:
        return [(kind, path)]
    files = _files_in(path) if os.path.isdir(path) else ()
    return [(kind, str(file)) for file in files if (kind := kind_of(file)) is not None]


def _files_in(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """Files in a folder, and in those below it, that may be stores; in an order that does not change. Links are not
    followed: a tree means what lies in it.
    """
    for where, below, names in os.walk(folder):
        below.sort()
        found = (Path(where, name) for name in sorted(names) if name.endswith(ENDINGS))
        yield from (path for path in found if not path.is_symlink())


def _reader(kind: str) -> Any:
    return import_module(f"holdfast.foreign.{SHELVES[kind][0]}")
