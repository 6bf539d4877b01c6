"""A background thread for sessions changed by recent commits; writers never wait for it.

The thread is made when there is something to do. Writers name the sessions of commits that were
acknowledged, which costs them next to nothing; those that come while it works are gathered for its
next round.
"""

import threading
from collections.abc import Iterable

from holdfast.engine.wake_signal import Signal

CLOSE_S = 5.0
"""How long what is under way is waited for. Nobody needs it: a server that stands still is not
waited for, and the thread ends when its connection does.
"""


class BackgroundWorker:
    """One background thread of one engine. A subclass says in `_run` what is done, until `_closed`
    is set.
    """

    name: str
    moved_max: int
    """More than so many sessions are not remembered."""

    def __init__(self) -> None:
        self._gate = threading.RLock()
        self._moved: dict[str, None] = {}
        self._news, self._closed = Signal(), Signal()
        self._thread: threading.Thread | None = None

    def close(self) -> None:
        """Waits for what is under way, no longer, and not for ever."""
        with self._gate:
            self._closed.set()
        self._news.set()
        if self._thread is not None:
            self._thread.join(CLOSE_S)

    def _gather(self, moved: Iterable[str]) -> None:
        with self._gate:
            if len(self._moved) < self.moved_max:
                self._moved |= dict.fromkeys(moved)
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(
                    target=self._run, name=f"holdfast-{self.name}", daemon=True
                )
                self._thread.start()
        # looked at without the lock: setting it costs more than looking
        if not self._news.is_set():
            self._news.set()

    def _take(self) -> list[str]:
        with self._gate:
            moved, self._moved = list(self._moved), {}
        return moved

    def _run(self) -> None:
        raise NotImplementedError
