"""A copy of a store that is in use: consistent, verified, and there whole or not at all.

The copy is of one moment, held by a read transaction for as long as it takes: no writer waits for
it, and nothing starts over when one writes; meanwhile the log keeps what is written. It grows
beside its place under another name, is synced, is read back and compared with that moment, and only
then gets its name. Whoever is killed on the way leaves a `.partial`, which the next backup to the
same place takes over.
"""

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from itertools import islice
from typing import Any, NamedTuple

import apsw

from holdfast.engine.sqlite.connection import quoted
from holdfast.engine.sqlite.driver_errors import translated
from holdfast.engine.sqlite.file_guard.open_files import unusable
from holdfast.engine.sqlite.file_guard.permissions import OWNER_ONLY
from holdfast.engine.sqlite.queries import UPKEEP
from holdfast.engine.store_info import Backup
from holdfast.errors import Damaged, StoreUnavailable
from holdfast.process_fork import inside
from holdfast.stepping_connection import SteppingConnection

PAGES_AT_ONCE = 1024
ROWS_AT_ONCE = 5000


def backup(reader: apsw.Connection, path: str, to: str) -> Backup:
    """Copies the store at `path`, of this connection, to a file that must not be there yet."""
    with _place(to) as (partial, file):
        reader.execute("BEGIN")
        try:
            held = _contents(reader)
            _copy(reader, partial)
        finally:
            reader.execute("ROLLBACK")
        # before it is verified: what is read back should have been on the disk
        os.fsync(file)
        _verify(partial, held, path)
        _name(partial, to)
    return Backup(
        path=to, bytes=os.path.getsize(to), sessions=held.sessions, entries=held.entries
    )


@contextmanager
def _place(to: str) -> Iterator[tuple[str, int]]:
    """The file that grows beside its place, held by a lock, so that no two write it; gone
    afterwards.
    """
    partial = to + ".partial"
    try:
        if os.path.lexists(to):
            raise FileExistsError(0, "there is something already")
        file = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, OWNER_ONLY)
        try:
            # by lock and not by name: a killed backup leaves its file behind, and the
            # next one takes it over
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            try:
                os.fchmod(file, OWNER_ONLY)
                os.ftruncate(file, 0)
                yield partial, file
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(partial)
        finally:
            os.close(file)
    except BlockingIOError as error:
        problem, remedy = (
            "another backup to this place is under way",
            "Let it finish, or choose another place",
        )
        raise StoreUnavailable(where=to, problem=problem, remedy=remedy) from error
    except OSError as error:
        remedy = (
            "Choose a place in a folder that exists, is yours to write and has room; nothing "
            "is ever overwritten"
        )
        raise unusable(error, to, remedy) from error


def _copy(reader: apsw.Connection, partial: str) -> None:
    flags = apsw.SQLITE_OPEN_READWRITE
    with translated(partial), closing(SteppingConnection(partial, flags=flags)) as copy:
        with inside():
            copy.execute("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF").fetchall()
            pages = copy.backup("main", reader, "main")
        try:
            while not pages.done:
                _step(pages)
        finally:
            with inside():
                pages.close()


def _step(pages: apsw.Backup) -> None:
    # one by one: a fork that comes in between does not wait for all of them
    with inside():
        pages.step(PAGES_AT_ONCE)


class _Contents(NamedTuple):
    sessions: int
    entries: int
    digest: bytes


def _contents(connection: apsw.Connection) -> _Contents:
    """What must be in a copy: which sessions there are, and which entries, by number and id."""
    digest = hashlib.blake2b()
    counts = []
    for name in ("copied_sessions", "copied_entries"):
        rows: Any = connection.execute(UPKEEP[name])
        counts.append(0)
        while page := list(islice(rows, ROWS_AT_ONCE)):
            counts[-1] += len(page)
            digest.update(repr(page).encode("utf-8", "surrogatepass"))
    return _Contents(counts[0], counts[1], digest.digest())


def _verify(partial: str, held: _Contents, path: str) -> None:
    """Reads the copy back: what was to be copied is there, and its pages are sound."""
    place = f"file:{quoted(partial)}?immutable=1"
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    with translated(partial), closing(SteppingConnection(place, flags=flags)) as copy:
        same = _contents(copy) == held
        sound = copy.execute("PRAGMA integrity_check(1)").get
    if not same:
        raise Damaged(
            where=partial,
            problem="it is not what was copied; the disk it lies on may be at fault",
        )
    if sound != "ok":
        raise Damaged(
            where=path, problem=f"a copy of it is not sound and was not kept ({sound})"
        )


def _name(partial: str, to: str) -> None:
    """Gives the copy its name, unless something else got it meanwhile."""
    # a link fails where something is already; a rename would replace it
    os.link(partial, to)
    os.unlink(partial)
    # the name itself must survive a power cut, too
    folder = os.open(os.path.dirname(os.path.abspath(to)), os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
