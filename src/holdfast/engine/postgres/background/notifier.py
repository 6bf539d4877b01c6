"""The notifier: hints to other processes that sessions have moved, so that their pollers look
sooner.

Hints are sent after the commits were acknowledged, by a thread of its own, and all sessions that
have moved meanwhile are one hint: inside a commit, NOTIFY takes a lock of the whole database and
costs nearly all throughput. A hint that can't be sent is not sent again: nothing depends on it.
"""

from collections.abc import Callable, Collection, Container

import psycopg

from holdfast.engine.postgres.background.worker import BackgroundWorker
from holdfast.engine.postgres.server.driver_errors import verdict
from holdfast.engine.postgres.server.text_as_bytes import is_id
from holdfast.engine.protocol import Commits, writes_in
from holdfast.errors import HoldfastError

REST_S = 0.02
"""Between two hints."""
SESSIONS_MAX = 200
"""More than so many are not named: a hint is shorter than 8000 bytes."""


class Notifier(BackgroundWorker):
    """The notifier of one engine. `send` sends a hint, once. When it is closed, what was not told
    yet is told, if that is at all possible.
    """

    name = "notifier"
    moved_max = SESSIONS_MAX + 1

    def __init__(self, send: Callable[[str], object]) -> None:
        super().__init__()
        self._send = send
        self._mute = False

    def note(self, commits: Commits) -> None:
        """These were acknowledged."""
        moved = [write.session for write in writes_in(commits) if not write.fleeting]
        if moved and not self._mute:
            self._gather(moved)

    def _run(self) -> None:
        while not self._mute:
            self._news.wait()
            self._news.clear()
            moved = self._take()
            if moved:
                self._hint(moved)
            # what was acknowledged before the closing is still told
            if self._closed.wait(REST_S) and not self._moved:
                return

    def _hint(self, moved: Collection[str]) -> None:
        try:
            self._send(payload(moved))
        except psycopg.Error as error:
            self._mute = verdict(error) == "senseless"  # a database without it
        except HoldfastError:
            pass  # it was closed


def payload(moved: Collection[str]) -> str:
    """What a hint says: which sessions have moved, or nothing when there are too many of them."""
    return " ".join(sorted(filter(is_id, moved))) if len(moved) <= SESSIONS_MAX else ""


def is_meant(payload: str, watched: Container[str]) -> bool:
    """Whether a hint may concern one of these sessions."""
    return not payload or any(id in watched for id in payload.split(" "))
