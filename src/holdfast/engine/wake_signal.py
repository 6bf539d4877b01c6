"""An event that a thread waits for, safe where a signal handler may raise.

`threading.Event`, `Condition` and `Semaphore` are Python code where they lock: Ctrl-C that comes in
there leaves the lock locked, and the next one who sets, or waits, waits for ever. What a caller's
thread shares with ours is made of C code where it locks.
"""

from contextlib import suppress
from queue import Empty, SimpleQueue


class Signal:
    """Unlike `threading.Event`, one thread waits for it; many may set it."""

    def __init__(self) -> None:
        self._is_set = False
        self._told: SimpleQueue[None] = SimpleQueue()

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        # Also when it is set already: whoever set it may have been interrupted before this.
        if self._told.empty():
            self._told.put(None)

    def clear(self) -> None:
        self._is_set = False
        with suppress(Empty):
            while True:
                self._told.get_nowait()

    def wait(self, seconds: float | None = None) -> bool:
        """Returns when it is set or this long has passed, and whether it is set; now and then a
        little early.
        """
        if not self._is_set:
            with suppress(Empty):
                self._told.get(timeout=seconds)
        return self._is_set
