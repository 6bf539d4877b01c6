"""Reading beside the writers: a few connections, lent to whoever reads.

Reads are single statements, so each is of one moment, and one whose connection was lost is asked
again on another, until the time to retry is over: a fail-over is a pause to a reader.
"""

import threading
import weakref
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

import psycopg

from holdfast.engine.blobs import join, names_in
from holdfast.engine.closed_engine import closed
from holdfast.engine.named_sql import Rows
from holdfast.engine.postgres.maintenance.migrate import reach
from holdfast.engine.postgres.server.binary_arrays import Ints
from holdfast.engine.postgres.server.cluster import Cluster
from holdfast.engine.postgres.server.connection import ServerConnection
from holdfast.engine.postgres.server.driver_errors import UNPREPARED, translate, verdict
from holdfast.engine.postgres.server.retry import Retry

Check = Callable[[Rows], None]

LOOK_S = 0.05
"""After so long without a permit, it is looked whether any were lost."""


def whole_body(read: Callable[..., Rows], place: dict[str, Any], body: bytes) -> bytes:
    """A body with its large parts put back, which are read from its session."""
    parts: dict[int, bytes] = dict(read("blob", **place, name=Ints(names_in(body))))
    return join(body, parts.get)


class _Permit:
    """The right to use one connection."""

    __slots__ = ("__weakref__",)


class Permits:
    """So many permits, each held by one thread at a time.

    They are taken from a queue made of C code, not from a semaphore, whose lock Ctrl-C can leave
    locked. One whose holder is interrupted before it can give it back is dropped, and another is
    made in its place when somebody has to wait.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._free: SimpleQueue[_Permit] = SimpleQueue()
        self._made: list[weakref.ref[_Permit]] = []
        self._gate = threading.RLock()
        self._make_up()

    def take(self) -> _Permit:
        """One of them, as soon as there is one."""
        while True:
            try:
                return self._free.get(timeout=LOOK_S)
            except Empty:
                self._make_up()

    def give(self, permit: _Permit) -> None:
        self._free.put(permit)

    def _make_up(self) -> None:
        """Makes those that are missing."""
        with self._gate:
            self._made = [made for made in self._made if made() is not None]
            while len(self._made) < self._size:
                permit = _Permit()
                self._made.append(weakref.ref(permit))
                self._free.put(permit)
                del permit  # else this frame would keep it from being missed


class PostgresReaders:
    """The reading connections of one engine."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        size: int,
    ) -> None:
        self._cluster = cluster
        self._idle: list[ServerConnection] = []
        self._permits = Permits(size)
        self._prepared = True
        self._closed = False

    def read(
        self,
        name: str,
        values: dict[str, Any],
        *,
        slow: bool = False,
        check: Check | None = None,
    ) -> Rows:
        """All rows of a query. One that is slow by nature may take its time. If `check` raises that
        the server knows too little, another is looked for.
        """
        retry: Retry | None = None
        while True:
            try:
                rows = self.once(name, values, slow=slow, check=check)
                if retry is not None:
                    retry.over()
                return rows
            except psycopg.Error as error:
                if error.sqlstate in UNPREPARED:
                    self._prepared = False
                if verdict(error) == "senseless" or self._closed:
                    raise translate(error, self._cluster.where) from error
                retry = retry or self._cluster.retry()
                retry.pause(error)

    def once(
        self,
        name: str,
        values: dict[str, Any],
        *,
        slow: bool = False,
        check: Check | None = None,
    ) -> Rows:
        """All rows of a query that is asked once. Raises the driver's errors."""
        permit = self._permits.take()
        try:
            return self._ask(name, values, slow=slow, check=check)
        finally:
            self._permits.give(permit)
            # An error knows this frame: it would keep a permit that was not given back.
            del permit

    def _ask(
        self, name: str, values: dict[str, Any], *, slow: bool, check: Check | None
    ) -> Rows:
        line = self._take()
        try:
            rows = line.run(name, values, slow=slow)
            if check is not None:
                check(rows)
        # An interrupted one may still have its answer to come.
        except BaseException:
            line.close()
            raise
        self._give(line)
        return rows

    def _take(self) -> ServerConnection:
        if self._closed:
            raise closed(self._cluster.where)
        while self._idle:
            try:
                line = self._idle.pop()
            except IndexError:  # another thread was quicker
                break
            if not self._cluster.primary.is_outdated(line.identity):
                return line
            line.close()
        return reach(self._cluster, prepared=self._prepared)

    def _give(self, line: ServerConnection) -> None:
        # first: a close that comes in between finds it here
        self._idle.append(line)
        if self._closed:
            self.close()

    def close(self) -> None:
        self._closed = True
        while self._idle:
            self._idle.pop().close()
