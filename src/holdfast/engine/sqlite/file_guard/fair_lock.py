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

from holdfast.engine.sqlite.file_guard.open_files import unusable
from holdfast.engine.sqlite.file_guard.permissions import make_owned
from holdfast.engine.sqlite.file_guard.process_fork import keep_from_children
from holdfast.engine.wake_signal import Signal
from holdfast.errors import StoreUnavailable

NOTE_BYTES = 64
_GOT, _GIVEN_UP = "got", "given up"
_WAITER, _OWNER = "the waiter", "its owner"


_NONE = -1
"""No file: it was closed."""


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
        return unusable(error, self._path, remedy)

    def acquire(self, timeout_s: float) -> bool:
        """True when held; False when it could not be had in time."""
        try:
            # It was deleted: others queue up at a new one. The last attempt to have that
            # may have failed, with its folder gone.
            if self._file == _NONE or os.fstat(self._file).st_nlink == 0:
                self.close()
                self._open()
            while True:
                # it kept its place in the queue since the last attempt was given up
                if self._waiter is not None:
                    got = self._wait(self._waiter, timeout_s)
                    if got is not None:
                        return got
                self._waiter = None
                try:
                    fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return True
                except BlockingIOError:
                    self._waiter = _Waiter(self._file)
        except OSError as error:
            raise self._unusable(error) from error

    def _wait(self, waiter: "_Waiter", timeout_s: float) -> bool | None:
        """Whether it was had in time; None when the waiter has come and gone."""
        try:
            if not waiter.resume():
                return None
            # it may come between the end of the wait and the giving up
            if waiter.got.wait(timeout_s) or not waiter.give_up():
                self._waiter = None
                return True
            return False  # it stays in the queue, for the next attempt
        except BaseException:
            # Ctrl-C: what it has by now is nobody's.
            if not waiter.give_up():
                self.release()
            raise

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
        # Its number is another file's by the next time: that one must not be closed.
        if self._file == _NONE:
            return
        self._file = _NONE
        # a thread in the kernel's queue would otherwise wait on a number that another
        # file has by then
        if waiter is None or not waiter.leave(self._close):
            self._close()


class _Waiter:
    """A thread in the kernel's queue, which can't be called back. When it comes too late, it lets
    go at once.

    It is wanted from `resume` until `give_up`. Who was first is decided by `dict.setdefault`, which
    is one step: Ctrl-C in the middle of a lock's use would leave it locked.
    """

    def __init__(self, file: int) -> None:
        self._file = file
        self.got = Signal()
        self._is_over = False
        # Nobody has it yet: an interrupt may come before anybody does.
        self._attempt: dict[str, str] = {"fate": _GIVEN_UP}
        self._last: dict[str, str] = {}
        self._close: Callable[[], None] | None = None
        threading.Thread(target=self._run, name="holdfast-lock", daemon=True).start()

    def _run(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_EX)
        # First: who resumes it after this knows that it may have missed that.
        self._is_over = True
        is_wanted = self._attempt.setdefault("fate", _GOT) == _GOT
        if self._last.setdefault("has the file", _WAITER) == _OWNER:
            assert self._close is not None
            self._close()  # closing lets go
        elif is_wanted:
            self.got.set()
        else:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def resume(self) -> bool:
        """It is wanted again; False when it has come. Whether it has gone as well does not matter:
        the lock can be taken again by those who have it.
        """
        self._attempt = {}
        return not self._is_over

    def give_up(self) -> bool:
        """It is wanted no more; False when it has the lock by now."""
        return self._attempt.setdefault("fate", _GIVEN_UP) == _GIVEN_UP

    def leave(self, close: Callable[[], None]) -> bool:
        """It closes the file when its turn comes; False when that is over."""
        self._close = close
        return self._last.setdefault("has the file", _OWNER) == _OWNER
