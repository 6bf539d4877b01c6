"""Whether the files of an open store are still the ones that were opened.

SQLite goes on with files that were deleted, moved or replaced, and what it writes there nobody else
will ever see, or worse: two processes with two logs write into one database (FAULTS G7, G8). So the
files are looked at before each batch and each read, by device and inode, and nothing is written
while one of them has strayed. While nothing has changed in their folder, one look at that is
enough. A file that is moved back is the same file again.

A log that is gone for good is still in our hands. What only it holds is brought into the database,
if nobody has gone on without it: whoever writes leaves a note on the fair lock, once, by which log.
Then the store has to be opened again.
"""

import os
import weakref
from contextlib import suppress

import apsw

from holdfast.engine.protocol import Tick
from holdfast.engine.sqlite.driver_errors import translate
from holdfast.engine.sqlite.file_guard.fair_lock import FairLock
from holdfast.engine.sqlite.file_guard.folder_stamp import FolderStamp
from holdfast.errors import StoreUnavailable

Mark = tuple[int, int] | None


class FileIdentity:
    """The files of a store as they were when a connection began to use them: the database, its log,
    the log's index.
    """

    def __init__(self, path: str, tick: Tick) -> None:
        self._path, self._log, self._index = path, path + "-wal", path + "-shm"
        self._folder = FolderStamp(os.path.dirname(path), tick)
        self._marks = _mark(path), _mark(self._log), _mark(self._index)
        self._name = repr(self._marks[1]).encode()
        self._claimed = self._is_leaving = False
        _in_use.add(self)

    @property
    def are_ours(self) -> bool:
        """Whether all of them are the ones that were opened."""
        return self._folder.is_calm(self._look)

    def _look(self) -> bool:
        return _mark(self._path) == self._marks[0] and self.steady

    def may_be_read(self) -> bool:
        """False when the log has strayed; refuses when the database has."""
        if self.are_ours:
            return True
        self.check()
        return self.log_is_ours

    def check(self) -> None:
        """Refuses to go on when the database is not the one that was opened."""
        mark = _mark(self._path)
        if mark == self._marks[0]:
            return
        raise StoreUnavailable(
            where=self._path,
            problem="its file was moved or deleted while it was open"
            if mark is None
            else "another file was put in its place while it was open",
            remedy="Put the file back where it was, or close the store and open it again",
        )

    @property
    def log_is_ours(self) -> bool:
        return _mark(self._log) == self._marks[1]

    @property
    def steady(self) -> bool:
        """Whether the log and its index are the ones that were opened."""
        return self.log_is_ours and _mark(self._index) == self._marks[2]

    def claim(self, lock: FairLock) -> None:
        """Under the fair lock, before the first write: says by which log."""
        # once for each log: the note stays
        if not self._claimed:
            lock.leave_note(self._name)
            self._claimed = True

    def rescue(self, connection: apsw.Connection, lock: FairLock) -> None:
        """Under the fair lock, when they are not: saves what can be saved, and says what to do."""
        # empty: nobody has written since the lock file was made
        alone = lock.note() in (b"", self._name)
        remedy = "Close the store and open it again; all that was acknowledged is there"
        try:
            if not self.log_is_ours and not self._brought_in(connection, alone):
                remedy = (
                    "Close the store, open it again and look: what was acknowledged last may "
                    "be missing"
                )
        except apsw.ConnectionClosedError:
            pass  # it was let go earlier, after some other trouble
        except apsw.Error as error:
            raise translate(error, self._path) from error
        problem = f"its log {self._log} was deleted or replaced while it was open"
        raise StoreUnavailable(where=self._path, problem=problem, remedy=remedy)

    def _brought_in(self, connection: apsw.Connection, alone: bool) -> bool:
        """Whether all that the strayed log holds is in the database now."""
        length, done = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
        # a new log with bytes in it is somebody's who went on: the old one must not be
        # written over theirs
        if done < length and alone and not _has_bytes(self._log):
            length, done = connection.wal_checkpoint(
                mode=apsw.SQLITE_CHECKPOINT_PASSIVE
            )
        return done >= length

    def leave(self, connection: apsw.Connection) -> None:
        """Closes a connection. Where the log has strayed, that must not checkpoint it, as SQLite
        does at the end.
        """
        with suppress(apsw.ConnectionClosedError):
            if not self.steady:
                connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        # a disk that fails now does no harm: what is in the log is safe there
        with suppress(apsw.Error):
            connection.close(True)

    def begin_to_leave(self) -> None:
        """All connections are going to be closed, and the last of them deletes the log: where it is
        still the one that was opened, it does not stray by that.
        """
        self._is_leaving = self.steady

    @property
    def has_strayed(self) -> bool:
        """Whether somebody else has deleted or replaced the log."""
        return not self._is_leaving and not self.steady

    def forget(self) -> None:
        """No connection uses them any more."""
        _in_use.discard(self)


_in_use: "weakref.WeakSet[FileIdentity]" = weakref.WeakSet()


def is_in_use(path: str) -> bool:
    """Whether a store of this process has the file at this path open, under whatever name."""
    mark = _mark(path)
    return mark is not None and any(files._marks[0] == mark for files in list(_in_use))


def refuse_beside_strayed(path: str) -> None:
    """Within a process SQLite shares a log's index among all who have the store open, even when it
    was deleted: whoever opened the store now would get that one.
    """
    if any(files._path == path and files.has_strayed for files in list(_in_use)):
        problem = "its log was deleted, and another handle of this process still holds on to it"
        raise StoreUnavailable(
            where=path, problem=problem, remedy="Close that handle first"
        )


def _mark(path: str) -> Mark:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_dev


def _has_bytes(path: str) -> bool:
    try:
        return os.path.getsize(path) > 0
    except OSError:
        return False
