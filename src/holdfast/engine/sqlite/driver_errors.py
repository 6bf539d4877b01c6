"""SQLite's errors, told as Holdfast's: the one place where driver errors are translated."""

from collections.abc import Iterator
from contextlib import contextmanager

import apsw

from holdfast.engine.sqlite.file_guard.open_files import PROBLEM, REMEDY, is_none_left
from holdfast.errors import Damaged, HoldfastError, StoreUnavailable

_REMEDIES: dict[type[apsw.Error], tuple[str, str]] = {
    apsw.BusyError: (
        "another program holds its write lock",
        "Let that program finish, then try again",
    ),
    apsw.LockedError: (
        "another program holds its lock",
        "Let that program finish, then try again",
    ),
    apsw.FullError: (
        "the disk is full",
        "Make room, then try again; what was acknowledged is safe",
    ),
    apsw.IOError: (
        "the disk answered with an error",
        "Check the disk, then try again; what was acknowledged is safe",
    ),
    apsw.ReadOnlyError: (
        "it can't be written",
        # SQLite has one index for all of a process, as the first to open it may use it.
        "Check the rights of the file and of its folder, then try again; a process that has opened "
        "it with `read_only=True` opens it for writing before that, or after closing it",
    ),
    apsw.CantOpenError: (
        "it can't be opened",
        "Check that its folder exists and is yours to write, then try again",
    ),
    apsw.PermissionsError: (
        "its rights forbid it",
        "Check the rights of the file and of its folder, then try again",
    ),
    apsw.AuthError: (
        "its rights forbid it",
        "Check the rights of the file and of its folder, then try again",
    ),
    apsw.NoMemError: ("there is no memory left", "Free memory, then try again"),
    apsw.TooBigError: (
        "a message is larger than SQLite can hold",
        "Store large parts elsewhere and refer to them",
    ),
    apsw.NoLFSError: (
        "the disk can't hold files this large",
        "Move the store to another disk",
    ),
    apsw.InterruptError: ("the work was interrupted", "Try again"),
    apsw.ProtocolError: (
        "its lock protocol failed",
        "Check that the store is on a local disk, then try again",
    ),
}

_DAMAGE = (apsw.CorruptError, apsw.NotADBError)
TROUBLE = (apsw.Error, UnicodeDecodeError)
"""What reading a damaged file may raise; the second where a text is no UTF-8 any more."""


def translate(
    error: apsw.Error | UnicodeDecodeError, where: str, *, place: str = ""
) -> HoldfastError:
    """What this driver error means to a person; `place` says where in the store it was met."""
    if isinstance(error, _DAMAGE):
        return Damaged(
            where=where, problem=f"{error}, met in {place}" if place else str(error)
        )
    if isinstance(error, UnicodeDecodeError):
        problem = f"a text in it is no UTF-8 (byte {error.start})"
        return Damaged(where=where, problem=f"{problem}, met in {place or 'a row'}")
    # The statements are ours and are right: the tables are not what they were.
    if isinstance(error, apsw.SQLError):
        problem = f"its tables are not those of a store ({error})"
        return Damaged(where=where, problem=problem)
    for kind, (problem, remedy) in _REMEDIES.items():
        if isinstance(error, kind):
            problem, remedy = _seen_closer(error) or (problem, remedy)
            return StoreUnavailable(
                where=where, problem=problem + _in_its_words(error), remedy=remedy
            )
    return StoreUnavailable(
        where=where,
        problem=f"SQLite says {error!r}",
        remedy="Report this; it is a defect",
    )


def _seen_closer(error: apsw.Error) -> tuple[str, str] | None:
    """What is wrong and what helps, where SQLite's kind of error says too little."""
    if isinstance(error, apsw.CantOpenError) and is_none_left():
        return PROBLEM, REMEDY
    # The index of a log is grown before it is used, and nothing but room is needed for that.
    if getattr(error, "extendedresult", None) == apsw.SQLITE_IOERR_SHMSIZE:
        return "there is no room for it on the disk", _REMEDIES[apsw.FullError][1]
    return None


def _in_its_words(error: apsw.Error) -> str:
    # What the last statement met; a step of a backup is none, and leaves no words.
    said = str(error).removeprefix(f"{type(error).__name__}: ")
    return "" if said in ("", "not an error") else f" ({said})"


@contextmanager
def translated(where: str) -> Iterator[None]:
    """Driver errors in here are raised as Holdfast's."""
    try:
        yield
    except TROUBLE as error:
        raise translate(error, where) from error
