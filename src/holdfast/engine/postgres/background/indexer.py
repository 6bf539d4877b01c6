"""The indexer reads the words of what this process has written while it writes nothing, so that a
search finds little left to do.

It is one thread for each engine. It waits until there were no commits for a while, then works in
short pieces and stops for the next commit. A tenant that nobody has searched has no words in the
store, and gets none here. What it can't do now, the next search does.
"""

import contextlib
from collections.abc import Callable, Sequence

from holdfast.engine.postgres.background.worker import BackgroundWorker
from holdfast.engine.protocol import Commits, writes_in

QUIET_S = 0.5


class PostgresIndexer(BackgroundWorker):
    """The indexer of one engine. `advance` reads a piece of what is unread in these sessions; False
    when nothing is.
    """

    name = "indexer"
    moved_max = 10_000

    def __init__(self, advance: Callable[[Sequence[str]], bool]) -> None:
        super().__init__()
        self._advance = advance

    def note(self, commits: Commits) -> None:
        """These were acknowledged."""
        moved = [write.session for write in writes_in(commits) if write.drafts]
        if moved:
            self._gather(moved)

    def _run(self) -> None:
        while not self._closed.is_set():
            self._news.wait()
            while self._news.is_set() and not self._closed.is_set():
                self._news.clear()
                self._closed.wait(QUIET_S)
            # Any exception: what can't be indexed now, the next search tells of.
            with contextlib.suppress(Exception):
                self._work(self._take())

    def _work(self, moved: list[str]) -> None:
        while not self._closed.is_set() and self._advance(moved):
            if self._news.is_set():
                self._gather(moved)  # somebody writes: the rest is for later
                return
