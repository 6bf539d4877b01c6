"""An engine's way to its search index. Until somebody searches, or has searched before, there is
none: a process that only writes does not even load it.
"""

import os
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdfast.engine.late_import import loading
from holdfast.engine.sqlite.search.indexer import SqliteIndexer
from holdfast.engine.sqlite.search.log_source import LogSource
from holdfast.engine.wake_signal import alone
from holdfast.process_fork import making

if TYPE_CHECKING:
    from holdfast.engine.sqlite.search.index import SearchIndex


class SqliteSearch:
    """The search index of one engine and its indexer, made when they are needed."""

    def __init__(self, path: str, log: LogSource, *, lock_s: float) -> None:
        self._path, self._log, self._lock_s = path, log, lock_s
        self._gate = threading.RLock()
        self._index: SearchIndex | None = None
        self._indexer: SqliteIndexer | None = None
        self._resting = False

    def begin(self) -> None:
        """Has an index that is there already kept up to date from now on."""
        if os.path.lexists(self._path):
            self._keep()

    @property
    def index(self) -> "SearchIndex":
        """The index; it is kept up to date from now on."""
        self._keep()
        return self._made()

    def stir(self) -> None:
        """There was a commit. Called by the writer after it has answered."""
        if self._indexer is not None:
            self._indexer.stir()

    def forget(self, sessions: list[int], blanked: Sequence[int] = ()) -> None:
        """After this, nothing of these sessions is in any byte of the search file, nor of messages
        of those that were `blanked` that have no words any more.
        """
        # without loading the index: a store that nobody searches has nothing to forget
        if self._index is not None or any(
            os.path.lexists(self._path + end) for end in ("", "-new", "-new-journal")
        ):
            self._made().forget(sessions, blanked)

    def rest(self) -> None:
        """Nothing is read in idle time from now on."""
        with self._gate:
            self._resting = True
        if self._indexer is not None:
            self._indexer.stop()

    def gates(self) -> list[Any]:
        """The locks that are held while the index is used."""
        return self._index.gates() if self._index is not None else []

    def abandon(self) -> None:
        """In a child that was forked."""
        if self._index is not None:
            self._index.abandon()

    def close(self) -> None:
        self.rest()
        if self._index is not None:
            self._index.close()

    def _keep(self) -> None:
        with alone(self._gate, self._path):
            is_due = self._indexer is None and not self._resting
            # A process that ends starts no thread, and would wait for it.
            if is_due and not sys.is_finalizing():
                self._indexer = SqliteIndexer(self._made)

    def _made(self) -> "SearchIndex":
        with alone(self._gate, self._path):
            if self._index is None:
                with loading(self._path):
                    from holdfast.engine.sqlite.search.index import SearchIndex

                # no fork in between: it would not know of the index's lock
                with making.lock():
                    self._index = SearchIndex(
                        self._path, self._log, lock_s=self._lock_s
                    )
            return self._index
