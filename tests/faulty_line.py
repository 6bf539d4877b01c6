"""A line between a client and a server that loses, delays and cuts: TCP, byte by byte.

    with FaultyLine(server.port) as line:
        line.port                                   # where clients connect
        line.trouble = Trouble(latency_s=0.01, jitter_s=0.01, bytes_per_s=200_000)
        line.trouble = Trouble(cut_up=100)          # each connection is cut after 100 bytes of what is asked
        line.trouble = Trouble(cut_down=100)        # … of what is answered
        line.lose_next(b"/v1/turns")                # the next such request arrives, and its answer is lost
        held = line.hold_next(b"/v1/turns")         # the next such request waits in the line until its client
        held.caught.wait(60); held.release()        # gives it up, and then for this, and arrives all the same
        held.answered.wait(60)
        line.deafen()                               # half open: nothing passes any more, and nobody is told
        line.trouble = Trouble(slow_close_s=0.5)    # that one side has closed is told late
        line.trouble = lambda dice: Trouble(cut_down=dice.randrange(9000))     # another one for each connection

`trouble` is that of connections that are made from then on. `lost` counts what was cut or lost.
"""

import random
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from go_between import GoBetween

PIECE = 1 << 16
LIMIT_S = 60.0


@dataclass(frozen=True)
class Trouble:
    """What happens on a connection; nothing unless it is said."""

    latency_s: float = 0
    jitter_s: float = 0
    bytes_per_s: float = 0
    cut_up: int | None = None
    cut_down: int | None = None
    slow_close_s: float = 0


@dataclass(frozen=True)
class HeldRequest:
    """A request that waits in the line."""

    about: bytes
    caught: threading.Event = field(default_factory=threading.Event)
    answered: threading.Event = field(default_factory=threading.Event)
    _go_on: threading.Event = field(default_factory=threading.Event)

    def release(self) -> None:
        self._go_on.set()

    def hold(self) -> None:
        self.caught.set()
        assert self._go_on.wait(LIMIT_S)


class FaultyLine(GoBetween):
    """Listens on a port of its own on loopback, and hands on to the server's."""

    def __init__(self, port: int, *, seed: int = 1) -> None:
        self.target = port
        self.trouble: Trouble | Callable[[random.Random], Trouble] = Trouble()
        self.lost = 0
        self._dice = random.Random(seed)
        self._losing: bytes | None = None
        self._holding: HeldRequest | None = None
        self._connections: set[_Connection] = set()
        super().__init__()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def lose_next(self, about: bytes) -> None:
        """The answer to the next request with these words in it is lost."""
        with self._gate:
            self._losing = about

    def hold_next(self, about: bytes) -> HeldRequest:
        """The next request with these words in it waits."""
        with self._gate:
            self._holding = HeldRequest(about)
            return self._holding

    def deafen(self) -> None:
        """From now on nothing passes on the connections that there are; new ones are well."""
        with self._gate:
            for each in self._connections:
                each.is_deaf = True

    def cut_all(self) -> None:
        """All connections are cut, on both sides."""
        with self._gate:
            found = list(self._connections)
        for each in found:
            each.cut()

    def serve(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(("127.0.0.1", self.target))
        except OSError:
            client.close()  # nobody is there
            return
        with self._gate:
            trouble = (
                self.trouble if isinstance(self.trouble, Trouble) else self.trouble(self._dice)
            )
            connection = _Connection(self, client, server, trouble, self._dice.random())
            self._connections.add(connection)
        connection.run()
        with self._gate:
            self._connections.discard(connection)

    def close(self) -> None:
        super().close()
        self.cut_all()

    def is_losing(self, asked: bytes) -> bool:
        """Whether the answer to this is to be lost."""
        with self._gate:
            if self._losing is None or self._losing not in asked:
                return False
            self._losing = None
            return True

    def held(self, asked: bytes) -> HeldRequest | None:
        """What this has to wait for."""
        with self._gate:
            if self._holding is None or self._holding.about not in asked:
                return None
            held, self._holding = self._holding, None
            return held

    def count(self) -> None:
        with self._gate:
            self.lost += 1


class _Connection:
    """One connection through the line."""

    def __init__(
        self,
        line: FaultyLine,
        client: socket.socket,
        server: socket.socket,
        trouble: Trouble,
        seed: float,
    ) -> None:
        self._line, self._client, self._server = line, client, server
        self._trouble, self._dice = trouble, random.Random(seed)
        self.is_deaf = False
        self._is_losing = False
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def run(self) -> None:
        answering = threading.Thread(target=self._answers, daemon=True)
        answering.start()
        self._questions()
        answering.join()
        for end in (self._client, self._server):
            end.close()

    def _questions(self) -> None:
        left = self._trouble.cut_up
        with suppress(OSError):
            while data := self._client.recv(PIECE):
                held = self._line.held(data)
                if held is not None:
                    self._deliver_late(held, data)
                    return
                self._is_losing = self._is_losing or self._line.is_losing(data)
                if not self._passed(self._server, data, left):
                    return
                left = None if left is None else left - len(data)
        self._ended(self._server)

    def _deliver_late(self, held: HeldRequest, data: bytes) -> None:
        held.hold()
        while more := self._client.recv(PIECE):
            data += more
        # The server may have been started anew since.
        with socket.create_connection(("127.0.0.1", self._line.target)) as server:
            server.sendall(data)
            assert server.recv(PIECE)
        held.answered.set()

    def _answers(self) -> None:
        left = self._trouble.cut_down
        with suppress(OSError):
            while data := self._server.recv(PIECE):
                if self._is_losing:
                    self._lose()
                    return
                if not self._passed(self._client, data, left):
                    return
                left = None if left is None else left - len(data)
        self._ended(self._client)

    def _passed(self, to: socket.socket, data: bytes, left: int | None) -> bool:
        """Hands on, late and slowly; False when the connection was cut."""
        trouble = self._trouble
        wait_s = trouble.latency_s + trouble.jitter_s * self._dice.random()
        if trouble.bytes_per_s:
            wait_s += len(data) / trouble.bytes_per_s
        if wait_s:
            threading.Event().wait(wait_s)
        if self.is_deaf:
            return True
        if left is not None and len(data) >= left:
            with suppress(OSError):
                to.sendall(data[:left])
            self._lose()
            return False
        to.sendall(data)
        return True

    def _lose(self) -> None:
        self._line.count()
        self.cut()

    def cut(self) -> None:
        """Both sides are told at once, by a reset."""
        for end in (self._client, self._server):
            with suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                end.shutdown(socket.SHUT_RDWR)

    def _ended(self, other: socket.socket) -> None:
        """One side has closed: the other is told, if it is told anything at all."""
        if self.is_deaf:
            return
        if self._trouble.slow_close_s:
            threading.Event().wait(self._trouble.slow_close_s)
        with suppress(OSError):
            other.shutdown(socket.SHUT_WR)
