"""What the first bytes of a database say, looked at before SQLite opens it: SQLite would mend, log
and lock a file that is not ours to touch.

They are read through SQLite's own file layer. On POSIX, closing a file lets go of every lock the
process has on it, and another handle of this process may have the same store open; that layer
knows, and waits with closing.
"""

import os
from typing import NamedTuple

import apsw

from holdfast.errors import Damaged

MAGIC = b"SQLite format 3\0"
HEADER_BYTES = 100
FIRST_PAGE_BYTES = 4096  # all of a new store that is written before it has a log


class FileHeader(NamedTuple):
    """What a database says of itself; `whole` when it is longer than its first page."""

    application_id: int
    version: int
    whole: bool


def read_header(path: str) -> FileHeader | None:
    """The header of the database here; None when there is none yet, or when a log or journal beside
    it may know better: a power cut leaves a database half written. `Damaged` when it has no header
    and should.
    """
    size, first = _first_bytes(path)
    if size == 0:
        refuse_lost_database(path)
        return None
    if _bytes_of(path + "-wal"):
        return None  # SQLite makes it whole
    if size <= FIRST_PAGE_BYTES and _bytes_of(path + "-journal"):
        return None  # the making of the store was cut short: SQLite takes it back
    if not first.startswith(MAGIC) or len(first) < HEADER_BYTES:
        problem = (
            "it does not begin as a database does: its first page was lost, or it is "
            "another program's file"
        )
        raise Damaged(where=path, problem=problem)
    # SQLite writes 65536 as 1; the least of all suits here
    page_bytes = int.from_bytes(first[16:18], "big") or 1
    _refuse_torn_database(path, size, page_bytes, first)
    return FileHeader(
        int.from_bytes(first[68:72], "big"),
        int.from_bytes(first[60:64], "big"),
        size > page_bytes,
    )


def refuse_lost_database(path: str) -> None:
    """SQLite would delete the log of an empty database, with all that was acknowledged and not yet
    checkpointed.
    """
    if _bytes_of(path + "-wal"):
        problem = (
            f"the file is empty, but its log {path}-wal is not: the database beside it "
            "was lost"
        )
        raise Damaged(where=path, problem=problem)


def _refuse_torn_database(path: str, size: int, page_bytes: int, first: bytes) -> None:
    """SQLite takes a torn last page for a whole one, with zeros where its rows were."""
    # the count is good only if the version it was written for is that of the file
    pages = int.from_bytes(first[28:32], "big") if first[24:28] == first[92:96] else 0
    if size < pages * page_bytes:
        raise Damaged(
            where=path,
            problem=f"it was cut off: {size} of its {pages * page_bytes} bytes are left",
        )


def _bytes_of(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def _first_bytes(path: str) -> tuple[int, bytes]:
    """The size of a file and its first bytes. Raises the driver's errors."""
    flags = [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0]
    file = apsw.VFSFile("", path, flags)
    try:
        size = file.xFileSize()
        return size, file.xRead(min(size, HEADER_BYTES), 0) if size else b""
    finally:
        file.xClose()
