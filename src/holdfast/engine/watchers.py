"""Who wants to know about a session: in-process wake-ups, after a commit and never before."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

from holdfast.engine.protocol import Commit

Callback = Callable[[], None]


class Watchers:
    """Callbacks by session. A wake-up is a hint: whoever gets one looks for itself."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._callbacks: dict[str, dict[object, Callback]] = {}

    def add(self, session: str, callback: Callback) -> Callable[[], None]:
        """Starts telling; returns how to stop."""
        token = object()
        with self._lock:
            self._callbacks.setdefault(session, {})[token] = callback

        def stop() -> None:
            with self._lock:
                callbacks = self._callbacks.get(session, {})
                callbacks.pop(token, None)
                if not callbacks:
                    self._callbacks.pop(session, None)

        return stop

    def wake(self, commits: Sequence[Commit]) -> None:
        """Tells those who watch a session that these commits touched."""
        if not self._callbacks:
            return
        with self._lock:
            touched = {write.session for commit in commits for write in commit}
            callbacks = [callback for session in touched for callback in self._callbacks.get(session, {}).values()]
        for callback in callbacks:
            tell(callback)


def tell(callback: Callable[[], Any]) -> Any:
    """Calls back. What the other side does wrong must not stop the writer: it is logged, and the work goes on."""
    try:
        return callback()
    except Exception:
        import logging  # only in this rare case: it takes longer to load than this package

        logging.getLogger("holdfast").exception("A callback raised; the store goes on without it.")
        return None
