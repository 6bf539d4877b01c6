"""Looking at a store without making, locking or changing anything: on a read-only disk, in a folder
that is another's.

    its index is there       others may have it open: it is read as they read it, and their index is only looked at
    only its log is there    a process was killed, or a copy was made: the log is read into memory
    neither is there         it was closed: the file is all there is

In the second and the third case nobody writes, and SQLite is told not to lock. Somebody may begin
to at any moment, so the files are looked at before and after each read, and what was read in
between is thrown away if they have changed. A writer's first step is to make the index.
"""

import os
import shutil
import stat
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any, NamedTuple

import apsw

from holdfast.engine.named_sql import Rows, Values
from holdfast.engine.protocol import Commit, Commits, Now, Outcome, Tick, WordsOf
from holdfast.engine.sql.reads import Searcher
from holdfast.engine.sqlite.connection import (
    APPLICATION_ID,
    keep_plans,
    not_ours,
    quoted,
    refuse_newer,
)
from holdfast.engine.sqlite.driver_errors import translated
from holdfast.engine.sqlite.file_guard.damaged_log import (
    refuse_damaged_log_unlocked,
)
from holdfast.engine.sqlite.file_guard.file_header import read_header
from holdfast.engine.sqlite.file_guard.handled_files import handling
from holdfast.engine.sqlite.file_guard.mounts import refuse_lone_file
from holdfast.engine.sqlite.lease_clock import clock_of
from holdfast.engine.sqlite.maintenance.damage import damage_error
from holdfast.engine.sqlite.maintenance.migrate import SCHEMA_VERSION
from holdfast.engine.sqlite.queries import QUERIES
from holdfast.engine.sqlite.readers import Readers
from holdfast.engine.sqlite.reads import SqliteReads
from holdfast.engine.sqlite.search.access import SqliteSearch
from holdfast.engine.sqlite.spoilt_texts import rows_of
from holdfast.engine.wake_signal import alone
from holdfast.engine.writer import WriterTicket
from holdfast.errors import HoldfastError, ReadOnlyStore, StoreUnavailable
from holdfast.process_fork import (
    concern,
    inside,
    note_opened,
    refuse_torn,
    unconcern,
)

ATTEMPTS_MAX = 100
"""So often a read is begun again that a writer has come in between of."""
LOOKS = 5
PAUSE_S = 0.01
BUSY_MS = 5000

Stamp = tuple[int, ...] | None


class FilesSeen(NamedTuple):
    """How the files are. While the index is there, only which files they are counts: what is in
    them may change.
    """

    database: Stamp
    log: Stamp
    shared: Stamp
    """The index, by which those who use the store know of each other."""


class ReadOnlyReaders(Readers):
    """Connections that only look, one for each thread."""

    def read(self, name: str, values: Values) -> Rows:
        for attempt in range(ATTEMPTS_MAX):
            reader, seen = self._reader()
            try:
                with inside():
                    rows = rows_of(reader, QUERIES[name], values)
            except (apsw.Error, UnicodeDecodeError) as error:
                if not _is_same(self._path, seen, error, attempt):
                    continue
                with inside():
                    raise damage_error(
                        error, self._path, reader, name, values
                    ) from error
            if not self._changed(seen):
                return rows
        raise _changing(self._path)

    @contextmanager
    def alone(self) -> Iterator[apsw.Connection]:
        seen = look(self._path)
        with translated(self._path):
            self._refuse_closed()
            with inside(), handling(self._path):
                reader = connect(self._path, seen)
                self._lend(reader)
            try:
                yield reader
            finally:
                with inside(), handling(self._path):
                    reader.close()
                    self._take_back(reader)
        if self._changed(seen):
            raise StoreUnavailable(
                where=self._path,
                problem="somebody began to write it",
                remedy="Try again",
            )

    def _reader(self) -> tuple[apsw.Connection, FilesSeen]:
        seen = look(self._path)
        known: tuple[apsw.Connection, FilesSeen] | None = getattr(
            self._local, "known", None
        )
        self._refuse_closed()
        if known is not None and known[1] == seen:
            return known
        # what it has cached is of files that are not there any more
        with translated(self._path), inside(), handling(self._path):
            if known is not None:
                known[0].close()
            reader = connect(self._path, seen)
            self._keep(reader)
            self._local.known = (reader, seen)
            for left in self._left_over():
                left.close()
        return reader, seen

    def _changed(self, seen: FilesSeen) -> bool:
        return look(self._path) != seen

    def leave(self) -> None:
        known: tuple[apsw.Connection, FilesSeen] | None = getattr(
            self._local, "known", None
        )
        if known is not None:
            self._local.known = None
            with suppress(apsw.Error), inside(), handling(self._path):
                known[0].close()
            self._local.thread = None

    def close(self) -> None:
        self._is_closed = True
        for reader in self.connections():
            with suppress(apsw.Error), inside(), handling(self._path):
                reader.close()


def look(path: str) -> FilesSeen:
    """How the files of this store are now."""
    index = _stamp(path + "-shm", whole=False)
    # while others write, sizes and times change with every commit
    whole = index is None
    log = _stamp(path + "-wal", whole=whole)
    return FilesSeen(
        _stamp(path, whole=whole),
        None if log is not None and whole and not log[2] else log,
        index,
    )


def _stamp(path: str, *, whole: bool) -> Stamp:
    try:
        found = os.stat(path)
    except OSError:
        return None
    # Opening a pipe would wait for somebody who writes to it.
    if not stat.S_ISREG(found.st_mode):
        remedy = "Look what it is, and move it away"
        raise StoreUnavailable(where=path, problem="it is not a file", remedy=remedy)
    which = found.st_dev, found.st_ino
    return (*which, found.st_size, found.st_mtime_ns) if whole else which


def connect(path: str, seen: FilesSeen) -> apsw.Connection:
    """A connection that makes no file and writes none. Raises the driver's errors."""
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    place = f"file:{quoted(path)}"
    if seen.shared is not None:
        connection = apsw.Connection(f"{place}?mode=ro&readonly_shm=1", flags=flags)
    elif seen.log is not None:
        connection = apsw.Connection(
            f"{place}?mode=ro", flags=flags, vfs=_unlocked().name
        )
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        # then the index of the log is in memory
        connection.execute("PRAGMA locking_mode=EXCLUSIVE").fetchall()
    else:
        connection = apsw.Connection(f"{place}?mode=ro&immutable=1", flags=flags)
    note_opened(connection)
    keep_plans(connection)
    connection.set_busy_timeout(BUSY_MS)
    connection.execute(
        "PRAGMA query_only=1; PRAGMA mmap_size=0; PRAGMA temp_store=MEMORY"
    ).fetchall()
    return connection


class _UnlockedFile(apsw.VFSFile):
    """A file on which nobody else works: locks are only said to be held, and nothing is written."""

    def xLock(self, level: int) -> None:
        pass

    def xUnlock(self, level: int) -> None:
        pass

    def xCheckReservedLock(self) -> bool:
        return False

    def xWrite(self, data: bytes, offset: int) -> None:
        raise apsw.ReadOnlyError("this file is only looked at")

    def xTruncate(self, size: int) -> None:
        raise apsw.ReadOnlyError("this file is only looked at")


class _Unlocked(apsw.VFS):
    name = "holdfast-onlooker"

    def __init__(self) -> None:
        super().__init__(self.name, "")

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        # SQLite asks to write where it finds a log; here it is told that it can't
        flags[0] = (
            flags[0] & ~(apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_READWRITE)
            | apsw.SQLITE_OPEN_READONLY
        )
        return _UnlockedFile("", name, flags)

    def xDelete(self, name: str, sync: bool) -> None:
        raise apsw.ReadOnlyError("files here are only looked at")


_vfs: list[_Unlocked] = []
_gate = threading.Lock()


def _unlocked() -> _Unlocked:
    """SQLite knows it by its name for as long as it is held here."""
    with _gate:
        if not _vfs:
            _vfs.append(_Unlocked())
        return _vfs[0]


class ReadOnlySqliteEngine(SqliteReads):
    """Sessions in one SQLite file that is only looked at; see `protocol.Engine`."""

    read_only = True

    def __init__(
        self,
        path: str,
        *,
        tick: Tick,
        now: Now | None = None,
        clock: str = "tick",
        words_of: WordsOf | None = None,
    ) -> None:
        super().__init__(path, ReadOnlyReaders(path), clock_of(clock, tick, now))
        self._log = self._log_source(words_of)
        self._gate = threading.RLock()
        self._words: SqliteSearch | None = None
        _refuse_other(path)
        self._read("session_number", id="")  # what can't be read is told now
        concern(self)

    def commit(self, commits: Commits) -> list[Outcome]:
        raise ReadOnlyStore(where=self.where)

    def submit(self, commit: Commit) -> WriterTicket:
        raise ReadOnlyStore(where=self.where)

    def scrub(self) -> None:
        raise ReadOnlyStore(where=self.where)

    def _searcher(self) -> Searcher:
        """An index of our own, in the folder for temporary files, gone with this handle."""
        with alone(self._gate, self.where):
            if self._words is None:
                folder = tempfile.mkdtemp(prefix="holdfast-search-")
                weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
                path = os.path.join(folder, "search")
                self._words = SqliteSearch(path, self._log, lock_s=BUSY_MS / 1000)
                # this handle is for looking: nothing is indexed in idle time
                self._words.rest()
            return self._words.index

    def close(self) -> None:
        if not self._forked:
            self._poller.stop()
            self._poller.wait()
            if self._words is not None:
                self._words.close()
            self._readers.close()
            unconcern(self)
            self._tell_closed()

    def gates(self) -> list[Any]:
        return self._words.gates() if self._words is not None else []

    def abandon(self) -> None:
        self._forked = True
        self._poller.stop()
        if self._words is not None:
            self._words.abandon()


def _kind(path: str) -> tuple[int, int, int]:
    """Whose database it is, its version, and how long its pages are."""
    for attempt in range(ATTEMPTS_MAX):
        seen = look(path)
        try:
            with translated(path), inside(), handling(path):
                read_header(path)
                with closing(connect(path, seen)) as connection:
                    kind = (
                        connection.execute("PRAGMA application_id").get,
                        connection.execute("PRAGMA user_version").get,
                        connection.execute("PRAGMA page_size").get,
                    )
        except HoldfastError as error:
            if _is_same(path, seen, error.__cause__, attempt):
                raise
            continue
        if look(path) == seen:
            return kind
    raise _changing(path)


def _is_same(
    path: str, seen: FilesSeen, error: BaseException | None, attempt: int
) -> bool:
    """Whether the files in which this was met are still those that were seen. Who closes a store
    takes its index away, and a new one may have the same number: what can't be opened is looked at
    a few times.
    """
    if look(path) != seen:
        return False
    if isinstance(error, apsw.CantOpenError) and attempt < LOOKS:
        time.sleep(PAUSE_S)
        return False
    return True


def _changing(path: str) -> StoreUnavailable:
    return StoreUnavailable(where=path, problem="it keeps changing", remedy="Try again")


def _refuse_other(path: str) -> None:
    """Refuses what is no store of this release."""
    refuse_torn(path)
    problem: str | None = None
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            problem = "it is not a file"
    except OSError as error:
        problem = error.strerror
    if problem is not None:
        raise StoreUnavailable(where=path, problem=problem, remedy="Check the path")
    refuse_lone_file(path)
    owner, version, page_bytes = _kind(path)
    refuse_damaged_log_unlocked(path, page_bytes=page_bytes)
    if owner != APPLICATION_ID:
        raise not_ours(path)
    refuse_newer(version, path)
    if version < SCHEMA_VERSION:
        remedy = "Open it once without `read_only`, or run `holdfast store migrate`"
        raise StoreUnavailable(
            where=path, problem=f"it has the older format {version}", remedy=remedy
        )
