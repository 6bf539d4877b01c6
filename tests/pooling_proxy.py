"""A pooler in transaction mode, as strict as PgBouncer 1.18: a server is lent for one transaction,
then goes to others.

    with PoolingProxy(dsn, servers=2) as pooler:
        dsn = pooler.through(dsn)           # the same database, by way of the pooler
        …
        pooler.clinging                     # what clients said that was meant to last longer than a transaction

A client is greeted by the pooler itself, with a process number that is nobody's. It gets a server
with its first message and keeps it until that says that it is ready and in no transaction; then the
server goes to the end of the queue. So the next transaction of the same client meets another
server, which knows nothing of what this one was told: no setting, no prepared statement, nobody who
listens; or it knows a statement of somebody else by the same name. Such messages are passed on, as
PgBouncer does, and noted. Parameters of a greeting that PgBouncer does not know are refused.
"""

import os
import re
import secrets
import select
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

import psycopg

from go_between import GoBetween

KNOWN = {"user", "database", "client_encoding", "application_name", "datestyle", "timezone"}
TOLD = (
    "server_version",
    "server_encoding",
    "client_encoding",
    "DateStyle",
    "TimeZone",
    "integer_datetimes",
    "standard_conforming_strings",
)
DECLINED = {80877103, 80877104}
"""Encryption, of two kinds."""
CANCEL = 80877102
CLINGING = re.compile(
    r"\s*(SET\s+(?!LOCAL|TRANSACTION)|LISTEN|PREPARE|DEALLOCATE|DISCARD|CREATE\s+TEMP)|.*pg_(try_)?advisory_lock",
    re.IGNORECASE | re.DOTALL,
)


class PoolingProxy(GoBetween):
    """Listens on a port of its own on loopback, and shares a few servers among all who come."""

    def __init__(self, dsn: str, *, servers: int = 2) -> None:
        self._dsn = dsn
        self._idle: SimpleQueue[_Server | None] = SimpleQueue()
        for _ in range(servers):
            self._idle.put(None)
        self.clinging: list[str] = []
        self._open: set[socket.socket] = set()
        super().__init__()

    def close(self) -> None:
        super().close()
        with self._gate:
            left = list(self._open)
        for client in left:
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
        while not self._idle.empty():
            if (server := self._idle.get()) is not None:
                server.close()

    def serve(self, client: socket.socket) -> None:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._gate:
            self._open.add(client)
        try:
            if self._greet(client):
                self._attend(client)
        except OSError:
            pass  # it is gone
        finally:
            with self._gate:
                self._open.discard(client)
            client.close()

    def _greet(self, client: socket.socket) -> bool:
        """Whether this client may stay."""
        while True:
            length, code = struct.unpack("!II", _exactly(client, 8))
            rest = _exactly(client, length - 8)
            if code == CANCEL:
                return False
            if code not in DECLINED:
                break
            client.sendall(b"N")
        words = rest.rstrip(b"\0").decode().split("\0")
        for name in words[::2]:
            if name.lower() not in KNOWN:
                client.sendall(
                    _message("E", "SFATAL", "C08P01", f"Munsupported startup parameter: {name}", "")
                )
                return False
        server = self._take()
        told = [_message("S", name, server.told[name]) for name in TOLD]
        self._idle.put(server)
        client.sendall(
            b"R" + struct.pack("!II", 8, 0) + b"".join(told) + b"K" + struct.pack("!I", 12)
            + secrets.token_bytes(8) + READY
        )  # fmt: skip
        return True

    def _attend(self, client: socket.socket) -> None:
        """Lends it servers, one for each transaction."""
        said = Frames()
        while True:
            while not (messages := said.take()):
                if not said.feed(client):
                    return
            if messages[0][0] == "X":
                return
            server = self._take()
            if not self._transaction(client, said, server, messages):
                server.close()  # whatever it is doing now is nobody's business any more
                self._idle.put(None)
                return
            self._idle.put(server)

    def _transaction(
        self,
        client: socket.socket,
        said: "Frames",
        server: "_Server",
        messages: list[tuple[str, bytes]],
    ) -> bool:
        """Passes on until the server is ready for the next one; False when the client
        left before.
        """
        answers = Frames()
        unanswered = unfinished = 0
        while True:
            for kind, raw in messages:
                if kind == "X":
                    return False
                self._note(kind, raw[5:])
                unanswered += kind in "QS"
                # a flush asks for nothing
                unfinished = 0 if kind in "QS" else unfinished + (kind != "H")
                server.socket.sendall(raw)
            ready, _, _ = select.select([client, server.socket], [], [])
            if server.socket in ready:
                if not answers.feed(server.socket):
                    return False
                for kind, raw in answers.take():
                    client.sendall(raw)
                    unanswered -= kind == "Z"
                    if raw == READY and not unanswered and not unfinished and said.empty:
                        return True
            if client in ready and not said.feed(client):
                return False
            messages = said.take()

    def _take(self) -> "_Server":
        return self._idle.get() or _Server(
            psycopg.connect(self._dsn, autocommit=True, sslmode="disable")
        )

    def _note(self, kind: str, body: bytes) -> None:
        first, _, rest = body.partition(b"\0")
        if kind == "P" and first:
            self.clinging.append(
                f"a statement is called {first.decode()}: {rest.decode(errors='replace')[:80]}"
            )
        text = first if kind == "Q" else rest if kind == "P" else b""
        if CLINGING.match(text.decode(errors="replace")):
            self.clinging.append(text.decode(errors="replace")[:80])


class _Server:
    """A connection to the server. The driver greets, whatever that takes; from then on its socket
    is ours.
    """

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self.told = {name: connection.info.parameter_status(name) or "" for name in TOLD}
        self.socket = socket.socket(fileno=os.dup(connection.fileno()))
        self.socket.setblocking(True)

    def close(self) -> None:
        self.socket.close()
        self._connection.close()


@dataclass
class Frames:
    """Bytes as they come, and the whole messages in them."""

    _bytes: bytes = field(default=b"")

    @property
    def empty(self) -> bool:
        return not self._bytes

    def feed(self, source: socket.socket) -> bool:
        """False when there is no more."""
        more = source.recv(1 << 16)
        self._bytes += more
        return bool(more)

    def take(self) -> list[tuple[str, bytes]]:
        """Letters and bytes of the messages that have come whole."""
        taken = []
        while len(self._bytes) >= 5 and len(self._bytes) > (
            size := struct.unpack("!I", self._bytes[1:5])[0]
        ):
            taken.append((chr(self._bytes[0]), self._bytes[: size + 1]))
            self._bytes = self._bytes[size + 1 :]
        return taken


READY = b"Z" + struct.pack("!I", 5) + b"I"


def _message(kind: str, *words: str) -> bytes:
    body = b"".join(word.encode() + b"\0" for word in words)
    return kind.encode() + struct.pack("!I", len(body) + 4) + body


def _exactly(source: socket.socket, size: int) -> bytes:
    parts = b""
    while len(parts) < size:
        part = source.recv(size - len(parts))
        if not part:
            raise ConnectionError
        parts += part
    return parts
