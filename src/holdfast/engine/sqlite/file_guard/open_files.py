"""A process that has no file left to open: that is said, and not that a folder or a disk is to blame.

The kernel says it where Python opens a file. SQLite says no more than that a file can't be opened:
then it is tried whether any can.
"""

import errno
import os
from contextlib import suppress

from holdfast.errors import StoreUnavailable

NEEDED = 4
"""A connection's files: database, log, index, journal. Those that it had are closed by the time that
its error is told, so one that can be opened says nothing.
"""
PROBLEM = "this process has too many files open"
REMEDY = (
    "Raise its limit of open files (`ulimit -n`), or close stores and other files, "
    "then try again"
)
_NONE_LEFT = (errno.EMFILE, errno.ENFILE)


def unusable(
    error: OSError, where: str, remedy: str, what: str = ""
) -> StoreUnavailable:
    """What an error at a file of the store means to a person: `what` could not be done, and `remedy`
    helps against all but too many open files.
    """
    said = error.strerror or str(error)
    if error.errno in _NONE_LEFT:
        return StoreUnavailable(
            where=where, problem=f"{PROBLEM} ({said})", remedy=REMEDY
        )
    problem = f"{what}: {said}" if what else said
    return StoreUnavailable(where=where, problem=problem, remedy=remedy)


def is_none_left() -> bool:
    """Whether this process could not open the files of one connection."""
    opened: list[int] = []
    try:
        while len(opened) < NEEDED:
            opened.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno in _NONE_LEFT
    finally:
        for file in opened:
            with suppress(OSError):
                os.close(file)
    return False
