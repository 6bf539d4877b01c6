"""Who wants to know about a session: in-process wake-ups, after a commit and never before."""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from holdfast.engine.protocol import (
    ChunkWrite,
    Commits,
    JournalRow,
    NewRows,
    RowsCallback,
    Write,
    Written,
)


def new_rows(commits: Commits, answers: Sequence[Any]) -> Mapping[str, NewRows]:
    """The sessions that these commits touch, each with the rows that its journal has from them; None
    where they may have done anything else.
    """
    found: dict[str, list[JournalRow] | None] = {}
    for commit, answer in zip(commits, answers, strict=True):
        for write in commit:
            row = _new_row(write, answer) if len(commit) == 1 else None
            if row is None:
                found[write.session] = None
                continue
            rows = found.setdefault(write.session, [])
            if rows is not None:
                rows.append(row)
    return found


def _new_row(write: Write, answer: Any) -> JournalRow | None:
    """The row that all of this write has become; None if it is more than that, or not known."""
    if type(write) is not ChunkWrite or type(answer) is not Written:
        return None
    said, turn = write.chunk, write.fence or 0
    return JournalRow(answer.position, turn, said.message, said.index, said.body)


class Watchers:
    """Callbacks by session. A wake-up is a hint: whoever gets one looks for itself, unless it is told
    all there is to see.
    """

    def __init__(self) -> None:
        # whoever is dropped in there stops watching, on the same thread
        self._lock = threading.RLock()
        self._callbacks: dict[str, dict[object, RowsCallback]] = {}

    def add_for_rows(self, session: str, callback: RowsCallback) -> Callable[[], None]:
        """Starts telling, also what is new, where that is known; returns how to stop."""
        token = object()
        with self._lock:
            watchers = self._callbacks.setdefault(session, {})
            watchers[token] = callback
            # the last one before may have been dropped just now
            self._callbacks[session] = watchers

        def stop() -> None:
            with self._lock:
                callbacks = self._callbacks.get(session, {})
                callbacks.pop(token, None)
                if not callbacks:
                    self._callbacks.pop(session, None)

        return stop

    @property
    def are_there(self) -> bool:
        """Whether anybody watches."""
        return bool(self._callbacks)

    def watched(self) -> list[str]:
        """The sessions that somebody watches."""
        with self._lock:
            return list(self._callbacks)

    def wake(self, commits: Commits, answers: Sequence[Any]) -> None:
        """Tells those who watch a session that these commits touched; the answers are what became of
        each of them, as far as that is known.
        """
        # without the lock: most programs watch nothing, and every batch comes by here
        if self._callbacks:
            self._tell(new_rows(commits, answers))

    def wake_those(self, sessions: Iterable[str]) -> None:
        """Tells those who watch one of these sessions."""
        self._tell(dict.fromkeys(sessions))

    def _tell(self, sessions: Mapping[str, NewRows]) -> None:
        with self._lock:
            callbacks = [
                partial(callback, rows)
                for session, rows in sessions.items()
                for callback in self._callbacks.get(session, {}).values()
            ]
        # outside of the lock: a callback may begin or stop watching
        for callback in callbacks:
            call_back(callback)


def call_back(callback: Callable[[], Any]) -> Any:
    """Calls back. What the other side does wrong must not stop the writer: it is logged, and the
    work goes on.
    """
    try:
        return callback()
    except Exception:
        import logging  # only in this rare case: it takes longer to load than this package

        logging.getLogger("holdfast").exception(
            "A callback raised; the store goes on without it."
        )
        return None
