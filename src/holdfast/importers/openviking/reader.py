"""OpenViking's sessions: a session's directory, or a tree that holds such directories."""

import re
from collections.abc import Iterator
from pathlib import Path

from holdfast.importers.foreign_session import ForeignSession
from holdfast.importers.jsonl import first_values, parsed
from holdfast.importers.openviking.convert import foreign_session
from holdfast.importers.openviking.files import (
    DONE,
    FAILED,
    META,
    ROOT,
    SessionFolder,
    is_message,
    read_folder,
)
from holdfast.importers.private_copy import PrivateCopy, listed, read_start
from holdfast.importers.reader import ForeignReader, UnreadableRecord

__all__ = ["OpenVikingReader", "is_session", "recognises", "session_folders"]

# How far below a path a session may lie; no farther than a private copy goes.
DEPTH_MAX = 64
# How many directories are looked at before a tree counts as somebody else's.
LOOKED_AT_MAX = 20_000
_START = 1 << 20
_ARCHIVE = re.compile(r"archive_\d+")
_BEGINNING = re.compile(rb'\s*\{\s*"session_id"')


def recognises(path: Path) -> bool:
    """Whether this is a session's directory, or one with such directories below it."""
    return (
        path.is_dir() and next(session_folders(path, LOOKED_AT_MAX), None) is not None
    )


class OpenVikingReader(ForeignReader):
    """A directory of OpenViking's, opened from a private copy."""

    kind = "openviking"

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._source = Path(path)
        self._copy = PrivateCopy(path, folders=tuple(session_folders(self._source)))
        self._unreadable: dict[tuple[str, str], UnreadableRecord] = {}
        self._ids = _named(self._copy.path, self._source)

    def folders(self, session: str | None = None) -> Iterator[SessionFolder]:
        """The sessions as they lie there, one at a time."""
        for id, path in self._ids:
            if session is None or session == id:
                place = self._source / path.relative_to(self._copy.path)
                folder = read_folder(path, id=id, place=str(place))
                self._note(folder)
                yield folder

    def sessions(self, session: str | None = None) -> Iterator[ForeignSession]:
        for folder in self.folders(session):
            yield foreign_session(folder)

    def unreadable(self) -> list[UnreadableRecord]:
        return list(self._unreadable.values())

    def close(self) -> None:
        self._copy.close()

    def _note(self, folder: SessionFolder) -> None:
        for place, problem, raw in _troubles(folder):
            self._unreadable[folder.id, place] = UnreadableRecord(
                folder.id, place, problem, raw
            )


def _troubles(folder: SessionFolder) -> Iterator[tuple[str, str, bytes]]:
    files = [(ROOT, folder.records)]
    small_files = [(META, folder.meta)]
    for one in folder.archives:
        under = f"history/{one.name}"
        files.append((f"{under}/{ROOT}", one.records))
        small_files += [
            (f"{under}/{META}", one.meta),
            (f"{under}/{DONE}", one.done),
            (f"{under}/{FAILED}", one.failed),
        ]
    for name, records in files:
        for record in records or ():
            if record.problem:
                yield f"{name}:{record.number}", record.problem, record.raw
    for name, file in small_files:
        if file.problem:
            yield name, file.problem, file.raw
    for place, problem in folder.problems:
        yield place, problem, b""


def _named(copy: Path, source: Path) -> list[tuple[str, Path]]:
    """Each session with its id: the name of its directory, or the way to it where two have the same
    name.
    """
    # Without any session, the path itself is reported as an unreadable one.
    found = sorted(session_folders(copy)) or [copy]
    # A path like `.` has no name of its own.
    names = [path.name if path != copy else source.resolve().name for path in found]
    named = []
    for name, path in zip(names, found, strict=True):
        if names.count(name) > 1:
            name = path.relative_to(copy).as_posix()
        named.append((name, path))
    return named


def session_folders(path: Path, most: int | None = None) -> Iterator[Path]:
    """The directories of sessions at or below a path. Links are not followed; a session holds no
    other session.
    """
    waiting = [(path, 0)]
    looked_at = 0
    while waiting and (most is None or looked_at < most):
        folder, depth = waiting.pop()
        looked_at += 1
        if is_session(folder):
            yield folder
        elif depth < DEPTH_MAX:
            for below in _below(folder):
                waiting.append((below, depth + 1))


def _below(folder: Path) -> list[Path]:
    try:
        return [path for path, is_folder in listed(folder) if is_folder]
    except OSError:
        return []


def is_session(path: Path) -> bool:
    """Whether a directory is a session, by what lies in it: a meta of a session, lines that are
    messages, or archives. Where both files are there and neither can be read, what is left of them
    is looked at.
    """
    meta = _start(path / META)
    root = _start(path / ROOT)
    if meta is not None and (_BEGINNING.match(meta) or _is_meta(meta)):
        return True
    if root is not None and _has_message(path / ROOT):
        return True
    # Both are there and broken: it is a session that was damaged, not somebody else's folder.
    if meta is not None and root is not None and parsed(meta)[1]:
        return True
    return _has_archives(path)


def _start(path: Path) -> bytes | None:
    try:
        return read_start(path, _START) if path.is_file() else None
    except OSError:
        return None


def _is_meta(raw: bytes) -> bool:
    data, _ = parsed(raw)
    return isinstance(data, dict) and "session_id" in data


def _has_message(path: Path) -> bool:
    return any(is_message(value) for value in first_values(path, (b'"role"',)))


def _has_archives(path: Path) -> bool:
    for below in _below(path / "history"):
        if _ARCHIVE.fullmatch(below.name):
            if any((below / name).exists() for name in (ROOT, META, DONE, FAILED)):
                return True
    return False
