"""The poller: looks whether other processes have written to the sessions that are watched in this
one.

There is one for each engine, however many watch. It asks for all watched sessions with one query
and wakes those who watch a session that has moved. It asks more often while something moves, and
not at all when nobody watches: then it has no connection either.

    watchers ──begin──►  poller ──"by which transactions were these written last?"──► database
        ▲                   │  ▲
        └──── has moved ────┘  └── a hint (NOTIFY): look now, not at the end of the pause

A hint only makes the next look come sooner. Where there are none (a pooler that takes connections
away between transactions, a database that knows no LISTEN), looking serves. When it can't ask, it
wakes all that watch, who then look for themselves, and tries again until it can.

That nothing is missed: a watcher begins to watch before it reads. What the reading does not see is
later than that, so later than any stamp that was remembered before; and the first stamp of a
session that was not remembered is news.
"""

import threading
from collections.abc import Callable
from typing import Any

import psycopg

from holdfast.engine.postgres.background.notifier import is_meant
from holdfast.engine.postgres.kept_connection import KeptConnection
from holdfast.engine.postgres.server.binary_arrays import Blobs, Ids
from holdfast.engine.postgres.server.cluster import Cluster
from holdfast.engine.postgres.server.connection import ServerConnection
from holdfast.engine.postgres.server.driver_errors import verdict
from holdfast.engine.postgres.tenant_cache import TenantCache
from holdfast.engine.wake_signal import Signal
from holdfast.engine.watchers import Watchers
from holdfast.errors import HoldfastError

LIVELY_S, CALM_S = 0.02, 0.25
"""How long it rests between two looks, while something moves and when nothing has moved lately."""
HINTED_S = 1.0
"""How long it rests when nothing has moved lately and hints come: they make it look at once."""
LIVELY_LOOKS = 50
LOOKS_AFTER = 40
"""So many looks more at a session that nobody watches now: who waits in short pauses comes back."""
GAP_S = 0.005
"""The least rest, however many hints come."""
TROUBLE_S, TROUBLE_MAX_S = 0.02, 1.0


class Poller:
    """The poller of one engine. `is_ours` tells whether a stamp is of a transaction of this engine:
    its commits are told to watchers by the writers.
    """

    def __init__(
        self,
        cluster: Cluster,
        tenants: TenantCache,
        *,
        watchers: Watchers,
        is_ours: Callable[[int], bool],
    ) -> None:
        self._kept = KeptConnection(cluster, self._listen)
        self._tenants = tenants
        self._watchers, self._is_ours = watchers, is_ours
        self._gate, self._serving = threading.RLock(), threading.Lock()
        self._roused, self._closed = Signal(), Signal()
        self._thread: threading.Thread | None = None
        self._listens = True
        self._looks_left: dict[str, int] = {}
        self._stamps: dict[str, int] = {}

    def rouse(self) -> None:
        """Somebody begins to watch."""
        self._roused.set()
        if self._thread is None or not self._thread.is_alive():
            with self._gate:
                # its start may have been interrupted
                is_there = self._thread is not None and self._thread.is_alive()
                if not is_there and not self._closed.is_set():
                    self._thread = threading.Thread(
                        target=self._run, name="holdfast-poller", daemon=True
                    )
                    self._thread.start()

    def close(self) -> None:
        with self._gate:
            self._closed.set()
        self._roused.set()
        line = self._kept.line
        if line is not None:
            line.hang_up()  # its answer is of no use to anybody
        thread = self._thread
        if (
            thread is not None
            and thread.is_alive()
            and thread is not threading.current_thread()
        ):
            # one whose start was interrupted may begin yet, and finds that it is over
            thread.join()

    def _run(self) -> None:
        # One at a time: a thread whose start was interrupted may begin after all.
        with self._serving:
            while not self._closed.is_set():
                self._roused.wait()
                self._roused.clear()
                self._serve()
                self._kept.drop()

    def _serve(self) -> None:
        """Looks until nobody watches any more."""
        idle = troubles = 0
        while not self._closed.is_set() and self._choose():
            try:
                moved = self._look(list(self._looks_left))
                self._watchers.wake_those(moved)
                idle = 0 if moved else idle + 1
                troubles = 0
                self._rest(pace(idle, hinted=self._is_hinted))
            except (psycopg.Error, HoldfastError) as error:
                self._give_up(error)
                self._closed.wait(min(TROUBLE_MAX_S, TROUBLE_S * 2**troubles))
                troubles = min(troubles + 1, 10)

    @property
    def _is_hinted(self) -> bool:
        line = self._kept.line
        return self._listens and line is not None and not line.pooled

    def _choose(self) -> bool:
        """Which sessions are to be looked at: those that are watched, or were until a
        moment ago.
        """
        watched = dict.fromkeys(self._watchers.watched(), LOOKS_AFTER)
        self._looks_left = {
            id: left - 1 for id, left in self._looks_left.items() if left > 1
        } | watched
        self._stamps = {
            id: stamp for id, stamp in self._stamps.items() if id in self._looks_left
        }
        return bool(self._looks_left)

    def _look(self, sessions: list[str]) -> list[str]:
        """Those of these sessions that others have written to since the last look."""
        line = self._kept.get()
        found: dict[str, int] = dict(line.run("stamps", self._places(line, sessions)))
        moved = news(self._stamps, found, self._is_ours)
        self._stamps |= found
        return moved

    def _places(self, line: ServerConnection, sessions: list[str]) -> dict[str, Any]:
        tenants = self._tenants.find(
            sessions, lambda ids: line.run("tenants", {"id": ids})
        )
        return {"tenant": Blobs(tenants.values()), "id": Ids(tenants)}

    def _rest(self, pause_s: float) -> None:
        """Until the pause is over, or there is a hint that concerns somebody here."""
        # many hints in a row are one look
        self._closed.wait(GAP_S)
        line = self._kept.line
        if not self._listens or line is None:
            self._roused.wait(pause_s - GAP_S)
            return
        for hint in line.connection.notifies(timeout=pause_s - GAP_S):
            if is_meant(hint.payload, self._looks_left):
                return

    def _listen(self, line: ServerConnection) -> None:
        if not self._listens or line.pooled:
            return
        try:
            line.run_all([("listen", None)])
        except psycopg.Error as error:
            if verdict(error) != "senseless":
                raise
            self._listens = False  # a database without it

    def _give_up(self, error: Exception) -> None:
        """For this time. Those who watch look for themselves meanwhile."""
        if isinstance(error, psycopg.Error):
            self._kept.note(error)
        self._kept.drop()
        self._watchers.wake_those(self._looks_left)


def pace(idle: int, *, hinted: bool) -> float:
    """How long to rest after so many looks in a row that have found nothing."""
    if idle < LIVELY_LOOKS:
        return LIVELY_S
    return max(HINTED_S, CALM_S) if hinted else CALM_S


def news(
    known: dict[str, int], found: dict[str, int], is_ours: Callable[[int], bool]
) -> list[str]:
    """The sessions whose stamp is not the known one and not ours."""
    return [
        id
        for id, stamp in found.items()
        if known.get(id) != stamp and not is_ours(stamp)
    ]
