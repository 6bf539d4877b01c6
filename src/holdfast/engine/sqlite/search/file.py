"""The search file: opened, looked at, thrown away and made anew.

It holds nothing that the log doesn't, so nothing in it is worth mending: a file that is damaged, of
another version or of another program is `Spoiled`, and whoever finds it so puts an empty one in its
place. It is one file, with a rollback journal only while it is written.

Much damage SQLite would not notice: a few bytes of a list of messages, and some are not found. So
the file is sealed: whoever has written it sets its time of last change to the number of the last
entry that it knows, in seconds. A file with another time was written by somebody else, or by
somebody who was killed at it, and is not believed.

Whoever writes it or replaces it holds a fair lock of its own. SQLite finds a journal by its name: a
journal of the old file would be played back into the new one, so nobody may be writing while a file
is replaced, and what is left of an old journal goes first. Readers need no lock: they look at the
file's inode before they use it.
"""

import contextlib
import os
import stat
from collections.abc import Iterator

import apsw

from holdfast.engine.sqlite.connection import keep_plans
from holdfast.engine.sqlite.driver_errors import translate
from holdfast.engine.sqlite.file_guard.fair_lock import FairLock
from holdfast.engine.sqlite.file_guard.open_files import unusable
from holdfast.engine.sqlite.file_guard.permissions import make_owned
from holdfast.engine.sqlite.queries import SEARCH, transaction
from holdfast.errors import StoreUnavailable
from holdfast.process_fork import inside, note_opened

APPLICATION_ID = 0x48534348  # "HSCH"
VERSION = 2
"""Another one whenever the schema changes, or what a word is: the file is made anew then."""

# Errors that say nothing about what is in the file.
_PASSING = (
    apsw.AuthError,
    apsw.BusyError,
    apsw.CantOpenError,
    apsw.ConnectionClosedError,
    apsw.FullError,
    apsw.InterruptError,
    apsw.IOError,
    apsw.LockedError,
    apsw.NoLFSError,
    apsw.NoMemError,
    apsw.PermissionsError,
    apsw.ProtocolError,
    apsw.ReadOnlyError,
    apsw.TooBigError,
)

_PRAGMAS = (
    "PRAGMA mmap_size=0; PRAGMA temp_store=MEMORY; PRAGMA cache_size=-8192; PRAGMA "
    "synchronous=NORMAL; PRAGMA trusted_schema=0"
)

_CONDEMNED = 0
_LEFT_OVER = ("-new", "-new-journal")


class Spoiled(Exception):
    """The search file is not there, or no good; it is to be made anew."""


class Unsealed(Spoiled):
    """The search file may be no good, or just being written; whoever holds its lock can tell."""


class SearchFile:
    """One search file, and the connection to it. Not to be used by two threads at once."""

    def __init__(self, path: str, *, lock_s: float) -> None:
        self.path = path
        self._lock_s = lock_s
        self._lock: FairLock | None = None
        self._connection: apsw.Connection | None = None
        self._mark: tuple[int, int] | None = None

    @property
    def exists(self) -> bool:
        return os.path.lexists(self.path)

    @property
    def has_traces(self) -> bool:
        """Whether it is there, or anything that a killed process has left of it."""
        return any(os.path.lexists(self.path + end) for end in ("", *_LEFT_OVER))

    @contextlib.contextmanager
    def judged(self) -> Iterator[None]:
        """Tells what the driver's errors mean for this file: it is `Spoiled`, or it can't be had
        now.
        """
        try:
            yield
        except _PASSING as error:
            self._let_go()
            raise translate(error, self.path) from error
        except apsw.Error as error:
            self._let_go()
            raise Spoiled(str(error)) from error
        except OSError as error:
            remedy = "Check the folder's rights and the disk; all but searching goes on without it"
            raise unusable(error, self.path, remedy) from error

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """The right to write the file or to replace it."""
        if self._lock is None:
            self._lock = FairLock(self.path + "-lock")
        lock = self._lock
        try:
            # Inside: Ctrl-C may come as soon as it is held. To release what is not does nothing.
            if not lock.acquire(self._lock_s):
                problem = f"another process has held its lock for {self._lock_s:g} s"
                remedy = "Let that process finish or end it, then try again"
                raise StoreUnavailable(where=self.path, problem=problem, remedy=remedy)
            yield
        finally:
            lock.release()

    def open(self) -> apsw.Connection:
        """The connection to the file that is there now."""
        found = _found(self.path)
        if found is None:
            raise Spoiled("there is none")
        # somebody has put another file in its place
        if self._connection is None or _identity(found) != self._mark:
            self._let_go()
            self._mark = _identity(found)
            self._connection = self._connect(self.path)
            if self._connection.pragma("application_id") != APPLICATION_ID:
                raise Spoiled("it is not ours")
        if self._connection.pragma("user_version") != VERSION:
            raise Spoiled("it is of another version, or condemned")
        n, sealed = self._connection.execute(SEARCH["seal"]).get
        # a disk that does not keep times can't tell; then the file is believed
        if sealed and found.st_mtime_ns != _time_for(n) * 1_000_000_000:
            raise Unsealed("somebody else has written it")
        return self._connection

    def seal(self, n: int) -> None:
        """After it was written, and under the lock: what is in it now is ours."""
        with contextlib.suppress(FileNotFoundError):  # it was deleted meanwhile
            os.utime(self.path, (_time_for(n), _time_for(n)))

    def renew(self) -> None:
        """Puts an empty file in the place of the one that was found spoiled; only under the lock.
        Nothing is done when somebody else did so meanwhile.
        """
        found = _found(self.path)
        if found is not None and _identity(found) != self._mark:
            return
        self.remove()
        new = self._fresh()
        with (
            contextlib.closing(self._connect(new)) as connection,
            transaction(connection, "IMMEDIATE"),
        ):
            connection.execute(SEARCH["schema"])
            connection.execute(
                f"PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version={VERSION}"
            ).fetchall()
            if not _keeps_times(new):
                connection.execute(SEARCH["unseal"])
        self._put(new)

    def condemn(self, connection: apsw.Connection) -> None:
        """Inside a transaction that takes something out: the file is no good any more once that is
        done, for traces are left in it. Who is killed before `rewrite` leaves a file that is thrown
        away.
        """
        connection.pragma("user_version", _CONDEMNED)

    def rewrite(self) -> None:
        """Puts a copy in the place of a condemned file that has no trace of what was taken out;
        only under the lock.
        """
        assert self._connection is not None, "it was open when it was condemned"
        new = self._fresh()
        self._connection.execute("VACUUM INTO ?", (new,))
        with contextlib.closing(self._connect(new)) as copy:
            copy.pragma("user_version", VERSION)
        self.remove()
        self._put(new)

    def remove(self) -> None:
        """Throws away what is there; only under the lock. A folder that somebody put there is moved
        aside.
        """
        self._let_go()
        if os.path.isdir(self.path) and not os.path.islink(self.path):
            _move_aside(self.path)
        for name in (
            self.path,
            self.path + "-journal",
            self.path + "-wal",
            self.path + "-shm",
        ):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)

    def sweep(self) -> None:
        """Throws away what a killed process has left of a file that it was making; only under the
        lock.
        """
        for end in _LEFT_OVER:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path + end)

    def close(self) -> None:
        self._let_go()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _fresh(self) -> str:
        """An empty, owner-only file beside it."""
        self.sweep()
        new = self.path + "-new"
        make_owned(new)
        return new

    def _put(self, new: str) -> None:
        """Seals a new file and puts it in its place."""
        with contextlib.closing(self._connect(new)) as connection:
            n, _ = connection.execute(SEARCH["seal"]).get
        os.utime(new, (_time_for(n), _time_for(n)))
        # in one step: a reader finds the old file or the new one
        os.rename(new, self.path)

    def _connect(self, path: str) -> apsw.Connection:
        with inside():
            connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
            note_opened(connection)
            try:
                keep_plans(connection)
                connection.set_busy_timeout(int(self._lock_s * 1000))
                connection.execute(_PRAGMAS).fetchall()
            except BaseException:
                # here: one that is dropped is closed wherever that happens
                connection.close(True)
                raise
        return connection

    def abandon(self) -> None:
        """In a child that was forked: what is open is its parent's."""
        self._connection = None

    def _let_go(self) -> None:
        if self._connection is not None:
            self._connection.close(True)
            self._connection = None


def _found(path: str) -> os.stat_result | None:
    """The file that is there, if there is one."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found if stat.S_ISREG(found.st_mode) else None


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _time_for(n: int) -> int:
    """In seconds, which every disk can tell; some can't tell more than these."""
    return n % (1 << 31)


def _keeps_times(path: str) -> bool:
    os.utime(path, (1_000_000_007, 1_000_000_007))
    return os.stat(path).st_mtime_ns == 1_000_000_007 * 1_000_000_000


def _move_aside(folder: str) -> None:
    try:
        os.rmdir(folder)
    except OSError:
        number = 1
        while os.path.lexists(f"{folder}-aside-{number}"):
            number += 1
        os.rename(folder, f"{folder}-aside-{number}")
