"""News from the server: one thread asks what has happened to the sessions that are watched here.

    watch(session) ──► is it among those asked about?  yes: nothing to do
                                                       no:  the question is cut off and asked anew

The server keeps a count for each session that somebody asks about, and tells it as a mark; who asks
with an older mark is answered at once. So nothing is missed between two questions, nor while a
connection is made again: a mark of a server that was started anew is another one. Marks are kept for
a while when nobody watches any more: callers who wait for a session watch it again and again.
"""

import threading
from collections.abc import Callable

from holdfast.engine.protocol import RowsCallback
from holdfast.engine.remote.calls import ServerCalls, Tries, Unanswered
from holdfast.engine.remote.verbs import PATH, WatchAnswer, WatchAsked
from holdfast.engine.remote.wire import written
from holdfast.engine.wake_signal import Signal
from holdfast.engine.watchers import Watchers
from holdfast.errors import HoldfastError

WAIT_S = 20.0
LATE_S = 10.0
"""So much later an answer may come than the server was asked to wait."""
MARKS_MAX = 1000
OUTAGE_S = 1e9
"""While nobody answers, it is asked on, once a second."""


class Wakes:
    """The watchers of one engine, told of what other processes commit as well."""

    def __init__(self, calls: ServerCalls) -> None:
        self.watchers = Watchers()
        self._calls = calls
        self._connection = calls.connection()
        self._marks: dict[str, str] = {}
        self._asked: frozenset[str] = frozenset()
        self._changed = Signal()
        self._closed = False
        self._thread: threading.Thread | None = None

    def watch(self, session: str, callback: RowsCallback) -> Callable[[], None]:
        """Starts telling; returns how to stop."""
        stop = self.watchers.add_for_rows(session, callback)
        if not self._closed and session not in self._asked:
            # Its start may have been interrupted.
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._run, name="holdfast-wakes", daemon=True
                )
                self._thread.start()
            self._changed.set()
            self._connection.cut()
        return stop

    def close(self) -> None:
        """Asks no more. Whoever still watches is told, and finds that the store is closed."""
        self._closed = True
        self._changed.set()
        self._connection.cut()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        self._connection.close()
        self.watchers.wake_those(self.watchers.watched())

    def _run(self) -> None:
        tries = Tries(OUTAGE_S, self._calls.chance)
        while not self._closed:
            self._changed.clear()
            watched = self.watchers.watched()
            if not watched:
                self._asked = frozenset()
                # Somebody may have come before that was seen: then the signal is set.
                if not self.watchers.watched():
                    self._changed.wait(WAIT_S)
                continue
            try:
                self._ask(watched)
            except (Unanswered, HoldfastError):
                # Cut off by ourselves, or by somebody else.
                if not self._changed.is_set():
                    self.watchers.wake_those(watched)
                    tries.pause()
            else:
                tries = Tries(OUTAGE_S, self._calls.chance)

    def _ask(self, watched: list[str]) -> None:
        if len(self._marks) > MARKS_MAX + len(watched):
            self._marks.clear()
        marks = {session: self._marks.get(session, "") for session in watched}
        self._asked = frozenset(marks)
        media, body = written(WatchAsked(marks, WAIT_S))
        # Connected first, then looked at: whoever comes from now on finds something to cut off.
        self._connection.connect()
        if self._changed.is_set():
            return
        answer = self._connection.ask(
            "POST", PATH + "watch", body, media=media, timeout_s=WAIT_S + LATE_S
        )
        news: WatchAnswer = self._calls.value_of(answer, WatchAnswer)
        self._marks.update(news.sessions)
        self.watchers.wake_those(news.sessions)
