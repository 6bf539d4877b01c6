"""A fair lock in front of SQLite's own, so that no process starves.

SQLite waits for its write lock by sleeping and trying again, which starved one of eight processes
fifteen thousand to one. The kernel queues those who wait for a file lock, so whoever writes takes
this one first. A wait that takes too long is given up: the kernel's lock has no timeout, so a
second thread does the waiting. It stays in the queue for the next attempt, so there is never more
than one, and lets go again when it comes too late.
"""

import errno
import fcntl
import os
import threading
from collections.abc import Callable

from holdfast.engine.sqlite.file_guard.permissions import make_owned
from holdfast.engine.sqlite.file_guard.process_fork import keep_from_children
from holdfast.engine.wake_signal import Signal
from holdfast.errors import StoreUnavailable

NOTE_BYTES = 64


class FairLock:
    """A lock among processes, on a file of its own beside the database. Used by one thread at a
    time.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._waiter: _Waiter | None = None
        self._open()

    def _open(self) -> None:
        try:
            make_owned(self._path)
            self._file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            raise self._unusable(error) from error
        self._close = keep_from_children(self._file)

    def _unusable(self, error: OSError) -> StoreUnavailable:
        if error.errno == errno.ELOOP:
            remedy = "Remove it if nobody needs it: a lock is a file of its own"
            return StoreUnavailable(
                where=self._path, problem="it is a symbolic link", remedy=remedy
            )
        remedy = (
            "Check that there is room on the disk, and that its folder is yours to write; "
            "then try again"
        )
        return StoreUnavailable(
            where=self._path, problem=error.strerror or str(error), remedy=remedy
        )

    def acquire(self, timeout_s: float) -> bool:
        """True when held; False when it could not be had in time."""
        try:
            if (
                os.fstat(self._file).st_nlink == 0
            ):  # it was deleted: others queue up at a new one
                self.close()
                self._open()
            # it kept its place in the queue since the last attempt was given up
            if self._waiter is not None and self._waiter.resume():
                return self._wait(self._waiter, timeout_s)
            self._waiter = None
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            self._waiter = _Waiter(self._file)
            return self._wait(self._waiter, timeout_s)
        except OSError as error:
            raise self._unusable(error) from error

    def _wait(self, waiter: "_Waiter", timeout_s: float) -> bool:
        # it may come between the end of the wait and the giving up
        if waiter.got.wait(timeout_s) or not waiter.give_up():
            self._waiter = None
            return True
        return False  # it stays in the queue, for the next attempt

    def release(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def note(self) -> bytes:
        """What the last holder who had something to say has left for the next."""
        return os.pread(self._file, NOTE_BYTES, 0).rstrip()

    def leave_note(self, note: bytes) -> None:
        """Only while it is held. It is written over the last one, in one piece."""
        try:
            # padded: a shorter note must not leave the end of a longer one behind it
            os.pwrite(self._file, note.ljust(NOTE_BYTES), 0)
        except OSError as error:
            raise self._unusable(error) from error

    def close(self) -> None:
        waiter, self._waiter = self._waiter, None
        # a thread in the kernel's queue would otherwise wait on a number that another
        # file has by then
        if waiter is None or not waiter.leave(self._close):
            self._close()


class _Waiter:
    """A thread in the kernel's queue, which can't be called back. When it comes too late, it lets
    go at once.
    """

    def __init__(self, file: int) -> None:
        self._file = file
        self.got = Signal()
        self._settled = threading.Lock()
        self._wanted, self._over = True, False
        self._close: Callable[[], None] | None = None
        threading.Thread(target=self._run, name="holdfast-lock", daemon=True).start()

    def _run(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_EX)
        with self._settled:
            self._over = True
            if self._wanted:
                self.got.set()
            elif self._close is not None:
                self._close()  # closing lets go
            else:
                fcntl.flock(self._file, fcntl.LOCK_UN)

    def resume(self) -> bool:
        """It is wanted again; False when it has come and gone."""
        with self._settled:
            self._wanted = True
            return not self._over

    def give_up(self) -> bool:
        """It is wanted no more; False when it has the lock by now."""
        with self._settled:
            self._wanted = self.got.is_set()
            return not self._wanted

    def leave(self, close: Callable[[], None]) -> bool:
        """It closes the file when its turn comes; False when that is over."""
        with self._settled:
            self._wanted, self._close = False, close
            return not self._over
