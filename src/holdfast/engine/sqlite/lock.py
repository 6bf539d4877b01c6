"""A fair lock in front of SQLite's own, so that no process starves.

SQLite waits for its write lock by sleeping and trying again, which starved one of eight processes fifteen thousand to
one. The kernel queues those who wait for a file lock, so whoever writes takes this one first. A wait that takes too
long is given up: the kernel's lock has no timeout, so a second thread does the waiting and lets go again when it
comes too late.
"""

import fcntl
import os
import threading

from holdfast.engine.sqlite.rights import make_owned
from holdfast.errors import StoreUnavailable

NOTE_BYTES = 64


class FairLock:
    """A lock among processes, on a file of its own beside the database."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = self._open()

    def _open(self) -> int:
        try:
            make_owned(self._path)
            return os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise self._unusable(error) from error

    def _unusable(self, error: OSError) -> StoreUnavailable:
        remedy = "Check that there is room on the disk, and that its folder is yours to write; then try again"
        return StoreUnavailable(where=self._path, problem=error.strerror or str(error), remedy=remedy)

    def acquire(self, timeout_s: float) -> bool:
        """True when held; False when it could not be had in time."""
        try:
            if os.fstat(self._file).st_nlink == 0:  # it was deleted: others queue up at a new one
                fresh = self._open()
                os.close(self._file)
                self._file = fresh
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            return self._queue_up(timeout_s)
        except OSError as error:
            raise self._unusable(error) from error

    def release(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def note(self) -> bytes:
        """What the last holder who had something to say has left for the next."""
        return os.pread(self._file, NOTE_BYTES, 0).rstrip()

    def leave_note(self, note: bytes) -> None:
        """Only while it is held. It is written over the last one, in one piece."""
        try:
            os.pwrite(self._file, note.ljust(NOTE_BYTES), 0)
        except OSError as error:
            raise self._unusable(error) from error

    def close(self) -> None:
        os.close(self._file)

    def _queue_up(self, timeout_s: float) -> bool:
        file = self._file
        got, settled, given_up = threading.Event(), threading.Lock(), False

        def wait() -> None:
            fcntl.flock(file, fcntl.LOCK_EX)
            with settled:
                if given_up:
                    os.close(file)  # closing lets go
                else:
                    got.set()

        threading.Thread(target=wait, name="holdfast-lock", daemon=True).start()
        if got.wait(timeout_s):
            return True
        with settled:
            if got.is_set():
                return True
            given_up = True
        self._file = self._open()  # the late waiter keeps the old one and closes it
        return False
