"""The servers of a store: from an address to a connection that can write.

An address may name several servers; of those that can be written (`target_session_attrs`) the one
that leads is found by `primary`.
"""

import contextlib
from typing import Any

import psycopg
from psycopg.adapt import Loader
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Format
from psycopg.types.numeric import Int8BinaryDumper

from holdfast.engine.address import shown
from holdfast.engine.postgres.server.binary_arrays import register
from holdfast.engine.postgres.server.connection import ServerConnection, Watchdog
from holdfast.engine.postgres.server.driver_errors import OnlyReads
from holdfast.engine.postgres.server.primary import Connection, Primary
from holdfast.engine.postgres.server.retry import Retry
from holdfast.engine.protocol import Chance, Tick
from holdfast.errors import StoreUnavailable

RETRY_S, ANSWER_S = 30.0, 15.0
SERVER_NEEDED = 130000
USUAL = {
    "target_session_attrs": "read-write",
    "application_name": "holdfast",
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
"""What a connection is told unless the address says otherwise."""

Options = dict[str, Any]
"""Words of an address, by libpq's names for them."""


class _UuidAsText(Loader):
    """Ids of sessions are text everywhere but in the database."""

    format = Format.BINARY

    def load(self, data: Any) -> str:
        digits = bytes(data).hex()
        return (
            f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
        )


class Cluster:
    """Where the servers are, and what all of an engine's connections to them share. `where` is what
    may be shown of the address: it has no password in it.
    """

    def __init__(
        self,
        dsn: str,
        *,
        tick: Tick,
        chance: Chance,
        retry_s: float = RETRY_S,
        answer_s: float = ANSWER_S,
        read_only: bool = False,
    ) -> None:
        try:
            given = conninfo_to_dict(dsn)
        except psycopg.Error:  # whose words may be those of a password
            raise StoreUnavailable(
                where=shown(dsn),
                problem="this is not a PostgreSQL address",
                remedy="Say postgresql://user@host/database",
            ) from None
        self._dsn = dsn
        self._options = _options(given, read_only)
        self._servers = _servers(given)
        self.where = _where(given, self._servers)
        self.chance = chance
        self._tick, self._retry_s = tick, retry_s
        self.primary = Primary(tick)
        self.watchdog = Watchdog(answer_s)

    def retry(self) -> Retry:
        """For one thing that is to be tried until it is done."""
        return Retry(self.where, self._retry_s, tick=self._tick, chance=self.chance)

    def line(self, *, prepared: bool = True) -> ServerConnection:
        """A connection to the server that leads. Raises the driver's errors."""
        if len(self._servers) > 1:
            names = [
                f"{server['host']!r}, port: {server['port']!r}"
                for server in self._servers
            ]
            found = self.primary.survey(
                names, lambda number: self._connect(prepared, self._servers[number])
            )
        else:
            found = self.primary.only(lambda: self._connect(prepared, {}))
        return ServerConnection(*found, self.watchdog)

    def _connect(self, prepared: bool, server: Options) -> Connection:
        """A connection that can write."""
        options = self._options | {
            name: value for name, value in server.items() if value
        }
        try:
            connection = psycopg.connect(
                self._dsn,
                autocommit=True,
                prepare_threshold=1 if prepared else None,
                **options,
            )
        except psycopg.OperationalError as error:
            # libpq has no code for this
            if "session is read-only" in str(error) and self._is_leading(options):
                raise OnlyReads("default_transaction_read_only is on") from error
            raise
        connection.adapters.register_loader("uuid", _UuidAsText)
        register(connection)
        # one type whatever the value: one statement
        connection.adapters.register_dumper(int, Int8BinaryDumper)
        version = connection.info.server_version
        if version < SERVER_NEEDED:
            connection.close()
            problem = f"its server has version {version // 10000}"
            raise StoreUnavailable(
                where=self.where, problem=problem, remedy="Use PostgreSQL 13 or newer"
            )
        return connection

    def _is_leading(self, options: Options) -> bool:
        """Whether it is a primary that lets us only read: then waiting for another would
        not help.
        """
        asked = options | {"target_session_attrs": "any"}
        with (
            contextlib.suppress(psycopg.Error),
            psycopg.connect(self._dsn, autocommit=True, **asked) as connection,
        ):
            row = connection.execute("SELECT pg_is_in_recovery()").fetchone()
            return row is not None and not row[0]
        return False


def _options(given: Options, read_only: bool) -> Options:
    """What a connection is told beside the address."""
    usual: Options = dict(USUAL)
    if read_only:
        # a server that only reads will do, and no statement of ours can write
        usual["target_session_attrs"] = "any"
    options = {name: value for name, value in usual.items() if not given.get(name)}
    if read_only:
        options["options"] = (
            f"{given.get('options') or ''} -c default_transaction_read_only=on".strip()
        )
    return options


def _servers(given: Options) -> list[Options]:
    """Each server that the address names. Its number is known where the address has them all."""
    hosts, ports, numbers = (
        f"{given.get(name) or ''}".split(",") for name in ("host", "port", "hostaddr")
    )
    # one port stands for all servers
    if len(ports) < len(hosts):
        ports = ports[:1] * len(hosts)
    if len(numbers) != len(hosts):
        numbers = [""] * len(hosts)
    return [
        {"host": host, "port": port, "hostaddr": number}
        for host, port, number in zip(hosts, ports, numbers, strict=False)
    ]


def _where(given: Options, servers: list[Options]) -> str:
    user = f"{given['user']}@" if given.get("user") else ""
    at: list[str] = []
    for server in servers:
        port = f":{server['port']}" if server["port"] else ""
        at.append(server["host"] + port)
    return f"postgresql://{user}{','.join(at)}/{given.get('dbname') or ''}"
