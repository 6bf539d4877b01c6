"""A fair lock in front of SQLite's own, so that no process starves.

SQLite waits for its write lock by sleeping and trying again, which starved one of eight processes fifteen thousand to
one. The kernel queues those who wait for a file lock, so whoever writes takes this one first. A wait that takes too
long is given up: the kernel's lock has no timeout, so a second thread does the waiting and lets go again when it
comes too late.
"""

import fcntl
import os
import threading


class FairLock:
    """A lock among processes, on a file of its own beside the database."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = self._open()

    def _open(self) -> int:
        return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def acquire(self, timeout_s: float) -> bool:
        """True when held; False when it could not be had in time."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            return self._queue_up(timeout_s)

    def release(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_UN)

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
