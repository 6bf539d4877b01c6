"""Files that no reader knows, and that look like a store which was damaged: they are named, not
passed over.

A file may be anybody's. It counts as a damaged store if it begins as SQLite's files do and can't be
opened, or if it is called as stores are and its beginning is what a crash, a cut or another program
leaves of one.
"""

import os
import stat
from pathlib import Path

import apsw

from holdfast.errors import StoreUnavailable
from holdfast.importers.guarded_sqlite import Guarded
from holdfast.importers.private_copy import (
    SQLITE_MAGIC,
    STILL_WRITTEN,
    NoRoom,
    PrivateCopy,
    read_start,
)
from holdfast.importers.values import StrPath

DATABASES = (".db", ".sqlite", ".sqlite3")
TEXTS = (".jsonl", ".json")
_START = 1 << 16
_HEADER = 100
# Three bytes of SQLite's header that are the same in every file.
_FRACTIONS = slice(21, 24)


def damage_at(path: StrPath) -> str | None:
    """What is wrong with a file that no reader knows, or with a folder that can't be entered; None
    when it is nobody's store, as far as can be seen. An empty file is none: SQLite makes such files
    itself.
    """
    try:
        if os.path.isdir(path):
            os.listdir(path)
            return None
        if not stat.S_ISREG(os.stat(path).st_mode):
            return None
        start = read_start(path, _START)
    except OSError as error:
        return f"It can't be read ({error.strerror or error})."
    # It is a database, whatever it is called.
    if start.startswith(SQLITE_MAGIC):
        return _why_closed(Path(path))
    if not start:
        return None
    if os.fspath(path).endswith(DATABASES):
        return _hurt_header(start)
    if not os.fspath(path).endswith(TEXTS) or b"\0" not in start:
        return None
    if start.strip(b"\0"):
        return "There are zeros where words should be."
    return "It begins with nothing but zeros."


def _why_closed(path: Path) -> str | None:
    try:
        with PrivateCopy(path) as copy:
            Guarded(copy.path).connection.close()
    except NoRoom:
        raise  # which says nothing of the file
    except StoreUnavailable as error:
        if error.problem == STILL_WRITTEN:
            raise
        return f"It is a SQLite file, and {error.problem}."
    except (apsw.Error, UnicodeDecodeError) as error:
        return f"It is a SQLite file, and can't be opened ({error})."
    return None


def _hurt_header(start: bytes) -> str | None:
    """What is wrong with what may have been SQLite's: other programs, too, call their files so."""
    if not start[:_HEADER].strip(b"\0"):
        return "It begins with zeros, where a SQLite file has its header."
    if start[_FRACTIONS] == b"\x40\x20\x20" or b"CREATE TABLE" in start:
        return "It looks like a SQLite file whose header was overwritten."
    return None
