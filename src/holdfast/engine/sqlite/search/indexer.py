"""The indexer reads the log into the search index while nobody writes, so that a search finds
little left to do.

It is one thread for each engine, and there only if somebody has searched the store before. It waits
until there were no commits for a while, then works in short pieces with pauses between them:
whoever writes next waits for one piece of interpreter time at most. The writer tells it of commits
with a plain assignment; it is woken only from its sleep. What it can't do now, the next search
does.
"""

import contextlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.engine.wake_signal import Signal

if TYPE_CHECKING:
    from holdfast.engine.sqlite.search.index import SearchIndex

QUIET_S = 0.5
PAUSE_S = 0.005


class SqliteIndexer:
    """The thread that indexes, for one engine. `index` gives the index, when there is something to
    do.
    """

    def __init__(self, index: "Callable[[], SearchIndex]") -> None:
        self._index = index
        self._news = True
        self._asleep = False
        self._stopped = False
        self._wake = Signal()
        self._thread = threading.Thread(
            target=self._run, name="holdfast-indexer", daemon=True
        )
        self._thread.start()

    def stir(self) -> None:
        """There was a commit. Called by the writer, so it costs next to nothing."""
        self._news = True
        # a wake-up costs a system call, and the writer comes by with every batch
        if self._asleep:
            self._wake.set()

    def stop(self) -> None:
        """Waits for the piece that is under way, no longer."""
        self._stopped = True
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped:
            self._sleep()
            while self._news and not self._stopped:
                self._news = False
                self._wake.wait(QUIET_S)
            # Any exception: what can't be indexed now, the next search tells of.
            with contextlib.suppress(Exception):
                while not self._news and not self._stopped and self._index().advance():
                    # so that a thread of the program gets the interpreter in between
                    self._wake.wait(PAUSE_S)

    def _sleep(self) -> None:
        """Until there is news. It is looked for once more after saying so: a commit may have come
        in between.
        """
        self._wake.clear()
        self._asleep = True
        if not self._news and not self._stopped:
            self._wake.wait()
        self._asleep = False
        if not self._stopped:
            self._wake.clear()
