"""A connection that one thread keeps: made when it is needed, and again when it was lost or its
server was replaced.
"""

from collections.abc import Callable

import psycopg

from holdfast.engine.postgres.maintenance.migrate import reach
from holdfast.engine.postgres.server.cluster import Cluster
from holdfast.engine.postgres.server.connection import ServerConnection
from holdfast.engine.postgres.server.driver_errors import UNPREPARED


class KeptConnection:
    """At most one connection to the server that leads. `greet` is called with each new one."""

    def __init__(
        self, cluster: Cluster, greet: Callable[[ServerConnection], None] | None = None
    ) -> None:
        self._cluster, self._greet = cluster, greet
        self._prepared = True
        self.line: ServerConnection | None = None

    def get(self) -> ServerConnection:
        """The connection, made if there is none. Raises the driver's errors."""
        # a server that was replaced still answers, from a past that the others have
        # left
        if self.line is not None and self._cluster.primary.is_outdated(
            self.line.identity
        ):
            self.drop()
        if self.line is None or self.line.connection.closed:
            self.line = reach(self._cluster, prepared=self._prepared)
            if self._greet is not None:
                self._greet(self.line)
        return self.line

    def note(self, error: psycopg.Error) -> None:
        """After an error: a pooler that does not keep prepared statements apart gets none."""
        if error.sqlstate in UNPREPARED:
            self._prepared = False

    def drop(self) -> None:
        if self.line is not None:
            self.line.close()
            self.line = None
