"""Which foreign stores there are, and which of them a path is: told by what is in it, never by its
name.
"""

import os
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from holdfast.importers.damaged_stores import DATABASES, TEXTS, damage_at
from holdfast.importers.reader import ForeignReader
from holdfast.importers.values import StrPath

UNKNOWN = "unknown"
# The kind whose sessions are folders: nothing else is looked for in them.
TREE = "openviking"
# Each kind, with its module and its class.
READERS = {
    "hermes": ("hermes.reader", "HermesReader"),
    "goose": ("goose.reader", "GooseReader"),
    "openviking": ("openviking.reader", "OpenVikingReader"),
    "claude": ("claude.reader", "ClaudeReader"),
    "codex": ("codex.reader", "CodexReader"),
    "agents": ("agents_sdk.reader", "AgentsReader"),
}
# Tells what a file or a folder is; there are more kinds than those of this layer.
KindOf = Callable[[StrPath], str | None]
# What a file is called that is worth a look when a whole folder was given.
ENDINGS = (*DATABASES, *TEXTS)


def kind_of(path: StrPath) -> str | None:
    """What a file or a folder is; None when no reader knows it."""
    for kind in READERS:
        if _reader(kind).recognises(Path(path)):
            return kind
    return None


def open_reader(kind: str, path: StrPath) -> ForeignReader:
    """The store of this kind at this path, opened from a private copy."""
    reader: ForeignReader = getattr(_reader(kind), READERS[kind][1])(Path(path))
    return reader


def source_of(path: StrPath) -> str:
    """What a store is told apart by from others that call their sessions alike: where it lies."""
    return os.path.realpath(path)


def stores_at(path: str, kind_of: KindOf) -> list[tuple[str, str]]:
    """The stores that a path means, each with its kind: the one that it is; or, of a folder, all
    that are in it and in the folders below, of whatever kind. Sessions that are folders make one
    store together, whose path is the folder that was given, whatever else is in it. A file that
    looks like a damaged store, and a folder that can't be entered, are of kind `UNKNOWN`.
    """
    if not os.path.isdir(path):
        kind = kind_of(path)
        return [(kind, path)] if kind is not None else []
    found: list[tuple[str, str]] = []
    has_sessions = False
    closed: list[OSError] = []
    for each in _walked(path, closed.append):
        if each.is_dir():
            has_sessions = True
        elif kind := kind_of(each) or (UNKNOWN if damage_at(each) else None):
            found.append((kind, str(each)))
    # A folder that can't be entered may hold any number of them: it is told, not passed over.
    found += [(UNKNOWN, str(error.filename)) for error in closed]
    return [(TREE, path), *found] if has_sessions else found


def _walked(folder: str, on_closed: Callable[[OSError], None]) -> Iterator[Path]:
    """The folders that are sessions, and the files that may be stores, in a folder and in those
    below it; in an order that does not change. Links are not followed: a tree means what lies in
    it.
    """
    for where, below, names in os.walk(folder, onerror=on_closed):
        # A session's own files are no stores.
        if _reader(TREE).is_session(Path(where)):
            below.clear()
            yield Path(where)
            continue
        below.sort()
        for name in sorted(names):
            file = Path(where, name)
            if name.endswith(ENDINGS) and not file.is_symlink():
                yield file


def parts_of(kind: str, path: StrPath) -> list[Path]:
    """What of a path belongs to the store of this kind that is there: of a folder, the sessions in
    it.
    """
    found = []
    if kind == TREE:
        found = list(_reader(TREE).session_folders(Path(path)))
    return found or [Path(path)]


def _reader(kind: str) -> Any:
    # A reader is loaded when it is asked for: a command that reads one store needs no other.
    return import_module(f"holdfast.importers.{READERS[kind][0]}")
