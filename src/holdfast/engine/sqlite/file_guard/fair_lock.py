"""A fair lock in front of SQLite's own, so that no process starves.

SQLite waits for its write lock by sleeping and trying again, which starved one of eight processes
fifteen thousand to one. The kernel queues those who wait for a file lock, so whoever writes takes
this one first. A wait that takes too long is given up: the kernel's lock has no timeout, so a
second thread does the waiting. It stays in the queue for the next attempt, so there is never more
than one, and lets go again when it comes too late.

That thread waits with a file that it has opened itself. When it comes in time, the file is handed
over with the lock on it; if not, it is closed by the thread. Nobody closes a file that another
thread uses: by its number, that one would lock whatever was opened next.
"""

import errno
import fcntl
import os
import time
from contextlib import suppress

from holdfast.engine.sqlite.file_guard.open_files import unusable
from holdfast.engine.sqlite.file_guard.permissions import make_owned
from holdfast.engine.wake_signal import Signal, begin_thread
from holdfast.errors import StoreUnavailable
from holdfast.process_fork import inside, keep_from_children

NOTE_BYTES = 64
LOOK_S = 0.01
"""How often the lock is tried by one who could not open another file to wait with."""
_GOT, _GIVEN_UP = "got", "given up"


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
            self._file = _LockFile(self._path)
        except OSError as error:
            raise self._unusable(error) from error

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
            number = self._file.number
            if number == _NONE or os.fstat(number).st_nlink == 0:
                self.close()
                self._open()
            while True:
                # it kept its place in the queue since the last attempt was given up
                if self._waiter is not None:
                    got = self._wait(self._waiter, timeout_s)
                    if got is not None:
                        return got
                self._waiter = None
                if self._is_free():
                    return True
                self._waiter = _Waiter(self._path)
                self._waiter.begin()
        except OSError as error:
            raise self._unusable(error) from error

    def _is_free(self) -> bool:
        """Whether nobody had it; then it is held."""
        try:
            fcntl.flock(self._file.number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _wait(self, waiter: "_Waiter", timeout_s: float) -> bool | None:
        """Whether it was had in time; None when the waiter has come and gone."""
        try:
            waiter.resume()
            was_over = waiter.is_over
            # it may come between the end of the wait and the giving up
            if was_over or not waiter.told.wait(timeout_s):
                is_unwanted = waiter.give_up()
                if is_unwanted and not was_over:
                    return False  # it stays in the queue, for the next attempt
                if is_unwanted and waiter.file is not None:
                    return None
            if waiter.file is None:
                return self._looked(timeout_s)
            self._file = waiter.file  # the lock is on this one
            self._waiter = None
            return True
        except BaseException:
            # Ctrl-C: what it has by now is nobody's.
            if not waiter.give_up():
                waiter.let_go()
            raise

    def _looked(self, timeout_s: float) -> bool:
        """Whether it was had in time by one who can't queue up."""
        self._waiter = None
        for _ in range(max(1, int(timeout_s / LOOK_S))):
            if self._is_free():
                return True
            time.sleep(LOOK_S)
        return self._is_free()

    def release(self) -> None:
        if self._file.number != _NONE:
            fcntl.flock(self._file.number, fcntl.LOCK_UN)

    def note(self) -> bytes:
        """What the last holder who had something to say has left for the next."""
        return os.pread(self._file.number, NOTE_BYTES, 0).rstrip()

    def leave_note(self, note: bytes) -> None:
        """Only while it is held. It is written over the last one, in one piece."""
        try:
            # padded: a shorter note must not leave the end of a longer one behind it
            os.pwrite(self._file.number, note.ljust(NOTE_BYTES), 0)
        except OSError as error:
            raise self._unusable(error) from error

    def close(self) -> None:
        waiter, self._waiter = self._waiter, None
        # one that is in the kernel's queue lets go of its own file when its turn comes
        if waiter is not None and not waiter.give_up():
            waiter.let_go()
        self._file.close()


class _LockFile:
    """A lock file that is open. It is closed once; at the latest when nobody has it any more."""

    def __init__(self, path: str) -> None:
        self.number = _NONE
        # no fork in between: its child would keep the file, and the lock with it
        with inside():
            self.number = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            self._close = keep_from_children(self.number)

    def close(self) -> None:
        # First: its number is another file's by the next time.
        self.number = _NONE
        self._close()

    def __del__(self) -> None:
        if self.number != _NONE:
            self.close()


class _Waiter:
    """A thread in the kernel's queue, which can't be called back. When it comes too late, it lets
    go at once.

    It is wanted from `resume` until `give_up`. Who was first is decided by `dict.setdefault`, which
    is one step: Ctrl-C in the middle of a lock's use would leave it locked.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self.file: _LockFile | None = None
        """The file with the lock on it; None when it could not be had."""
        self.told = Signal()
        self.is_over = False
        # Nobody has it yet: an interrupt may come before anybody does.
        self._attempt: dict[str, str] = {"fate": _GIVEN_UP}

    def begin(self) -> None:
        begin_thread(self._run, "holdfast-lock")

    def _run(self) -> None:
        with suppress(OSError):
            file = _LockFile(self._path)
            fcntl.flock(file.number, fcntl.LOCK_EX)
            self.file = file
        # First: who resumes it after this knows that it may have missed that.
        self.is_over = True
        if self._attempt.setdefault("fate", _GOT) == _GOT:
            self.told.set()
        else:
            self.let_go()

    def resume(self) -> None:
        """It is wanted again, unless it is over."""
        self._attempt = {}

    def give_up(self) -> bool:
        """It is wanted no more; False when it has come by now, and was."""
        return self._attempt.setdefault("fate", _GIVEN_UP) == _GIVEN_UP

    def let_go(self) -> None:
        """Closes its file, and so lets go of the lock. After it has come, it is nobody else's."""
        if self.file is not None:
            self.file.close()
