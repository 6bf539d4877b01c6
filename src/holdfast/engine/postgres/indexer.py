"""The indexer reads the words of what this process has written while it writes nothing, so that a search finds little
left to do.

It is one thread for each engine. It waits until there were no commits for a while, then works in short pieces and stops
for the next commit. A tenant that nobody has searched has no words in the store, and gets none here. What it can't do
now, the next search does.
"""

import contextlib
import threading
from collections.abc import Callable, Sequence

from holdfast.engine.protocol import Commit
from holdfast.errors import HoldfastError

QUIET_S = 0.5
SESSIONS_MAX = 10_000
"""More than so many are not remembered: they are left to the next search."""


class Indexer:
    """The indexer of one engine. `advance` reads a piece of what is unread in these sessions; False when nothing is."""

    def __init__(self, advance: Callable[[Sequence[str]], bool]) -> None:
        self._advance = advance
        self._gate = threading.Lock()
        self._moved: dict[str, None] = {}
        self._news, self._closed = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def note(self, commits: Sequence[Commit]) -> None:
        """These were acknowledged. Called by writers, so it costs next to nothing."""
        moved = dict.fromkeys(write.session for commit in commits for write in commit if write.drafts)
        if not moved:
            return
        with self._gate:
            if len(self._moved) < SESSIONS_MAX:
                self._moved |= moved
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._run, name="holdfast-indexer", daemon=True)
                self._thread.start()
        if not self._news.is_set():
            self._news.set()

    def close(self) -> None:
        """Waits for the piece that is under way, no longer."""
        with self._gate:
            self._closed.set()
        self._news.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._closed.is_set():
            self._news.wait()
            while self._news.is_set() and not self._closed.is_set():
                self._news.clear()
                self._closed.wait(QUIET_S)
            with contextlib.suppress(HoldfastError):
                self._work()

    def _work(self) -> None:
        with self._gate:
            moved, self._moved = list(self._moved), {}
        while not self._closed.is_set() and self._advance(moved):
            if self._news.is_set():
                with self._gate:  # somebody writes: the rest is for later
                    self._moved |= dict.fromkeys(moved)
                return
