"""Another SQLite library in this process: kept away from the files of a store that is open.

Locks on files belong to the process, not to who took them. When anything in the process closes a
file, all its locks on that file are gone. SQLite knows that of its own connections, and nothing of
another copy of itself: Python's `sqlite3` is one, apsw has another. So a `sqlite3` connection to the
file of an open store, if it only reads and is closed, takes the locks of the store away; then another
process gets the write lock that this one still holds.

Python tells of each `sqlite3.connect` before it is done, and one that is for a store of ours is
refused. A file that was opened before the store was can't be refused any more: that is said.
"""

import os
import sys
import warnings
from typing import Any
from urllib.parse import unquote

import apsw

from holdfast.engine.sqlite.file_guard.file_identity import is_in_use
from holdfast.engine.sqlite.file_guard.handled_files import handled_so_far, is_handled
from holdfast.errors import BadArgument

OPEN_FILES = "/proc/self/fd"
_TAKES = (
    "a file that no Holdfast store of this process has open: closing it would release the store's "
    "locks. Look at it from another process, or with holdfast.open(path, read_only=True)"
)


class _Guard:
    """The hook is there from the first store on; hooks can't be taken away again."""

    is_there = False


def guard_against_others() -> None:
    """From now on no `sqlite3` of this process opens a store that is open."""
    if not _Guard.is_there:
        _Guard.is_there = True
        sys.addaudithook(_look)


def _look(event: str, given: tuple[Any, ...]) -> None:
    # Called for each import and each file that is opened, too: nothing before this line.
    if event != "sqlite3.connect":
        return
    path = _path_of(given[0] if given else None)
    if path is not None and is_in_use(path):
        raise BadArgument(parameter="database", takes=_TAKES, given=f"`{path}`")


def _path_of(database: Any) -> str | None:
    """The file that is meant; None where it is none."""
    try:
        name = os.fsdecode(database)
    except TypeError:
        return None
    if name.startswith("file:"):
        name = unquote(name.removeprefix("file:").partition("?")[0])
        # `file:///a` and `file://localhost/a` mean `/a`.
        if name.startswith("//"):
            name = "/" + name[2:].partition("/")[2]
    return name


def _is_open_here(path: str) -> bool:
    """Whether a store or a connection of apsw's has the file open, or may have."""
    if is_in_use(path) or is_handled(path):
        return True
    real = os.path.realpath(path)
    for connection in apsw.connections():
        try:
            if os.path.realpath(connection.filename) == real:
                return True
        except apsw.Error:
            return True  # at work in another thread, or just closed: it does not tell
    return False


def warn_of_earlier(path: str) -> None:
    """Says so when something in this process has the file open, and no connection of apsw's. On
    systems that don't tell which files are open, it says nothing.
    """
    before = handled_so_far()
    # Again after the look: what another thread of ours opens and closes is seen in between.
    if (
        not _is_open_here(path)
        and _is_listed(path)
        and not _is_open_here(path)
        and before == handled_so_far()
    ):
        warnings.warn(
            f"{path} is open in this process already, by something else than Holdfast: when "
            "that closes it, the store loses its locks.",
            RuntimeWarning,
            stacklevel=2,
        )


def _is_listed(path: str) -> bool:
    """Whether it is among the files that this process has open."""
    try:
        wanted = os.stat(path)
        numbers = os.listdir(OPEN_FILES)
    except OSError:
        return False
    for number in numbers:
        try:
            found = os.stat(int(number))
        except (OSError, ValueError):
            continue  # closed by now: that of the listing itself, if no other
        if (found.st_ino, found.st_dev) == (wanted.st_ino, wanted.st_dev):
            return True
    return False
