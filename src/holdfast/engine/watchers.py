"""Who wants to know about a session: in-process wake-ups, after a commit and never before."""

import threading
from collections.abc import Callable, Iterable
from typing import Any

from holdfast.engine.protocol import Commits, writes_in

Callback = Callable[[], None]


class Watchers:
    """Callbacks by session. A wake-up is a hint: whoever gets one looks for itself."""

    def __init__(self) -> None:
        # whoever is dropped in there stops watching, on the same thread
        self._lock = threading.RLock()
        self._callbacks: dict[str, dict[object, Callback]] = {}

    def add(self, session: str, callback: Callback) -> Callable[[], None]:
        """Starts telling; returns how to stop."""
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

    def watched(self) -> list[str]:
        """The sessions that somebody watches."""
        with self._lock:
            return list(self._callbacks)

    def wake(self, commits: Commits) -> None:
        """Tells those who watch a session that these commits touched."""
        # without the lock: most programs watch nothing, and every batch comes by here
        if self._callbacks:
            self.wake_those({write.session for write in writes_in(commits)})

    def wake_those(self, sessions: Iterable[str]) -> None:
        """Tells those who watch one of these sessions."""
        with self._lock:
            callbacks = [
                callback
                for session in sessions
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
