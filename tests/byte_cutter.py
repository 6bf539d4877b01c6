"""A proxy in front of an HTTP server that cuts the connection after so many bytes of an answer.

    with ByteCutter(server.port) as cutter:
        cutter.cut_next(b"/commit", after=17)      # the next answer to such a request ends there
        cutter.cut_often(b"/engine/", after=(0, 60))   # about every third from now on, however slow they are

The request has arrived by then, and was done: its client hears part of the answer, or nothing.
`cuts` counts how often that has happened.
"""

import random
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from go_between import GoBetween


class ByteCutter(GoBetween):
    """Listens on a port of its own on loopback, and hands on to a server's."""

    def __init__(self, port: int) -> None:
        self._target = ("127.0.0.1", port)
        self._about = b""
        self._next: Callable[[], int | None] = _never
        self._ends: set[socket.socket] = set()
        self.cuts = 0
        super().__init__()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def cut_next(self, about: bytes, *, after: int) -> None:
        """The next answer to a request with these words in it is cut after so many bytes."""
        left = [after]
        with self._gate:
            self._about, self._next = about, lambda: left.pop() if left else None

    def cut_often(self, about: bytes, *, after: Sequence[int]) -> None:
        """About every third answer is cut, by lot: whatever is tried again comes through at last."""
        lot = random.Random(7)
        with self._gate:
            self._about = about
            self._next = lambda: lot.choice(after) if lot.random() < 1 / 3 else None

    def close(self) -> None:
        super().close()
        for end in list(self._ends):
            _end(end)

    def serve(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(self._target)
        except OSError:
            client.close()  # nobody is there
            return
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._ends.add(end)
        line = _CutLine(self, client, server)
        answering = threading.Thread(target=line.answers, daemon=True)
        answering.start()
        line.questions()
        answering.join()
        for end in (client, server):
            self._ends.discard(end)
            end.close()

    def doomed(self, asked: bytes) -> int | None:
        """After how many bytes the answer to this is to be cut; None for all others."""
        with self._gate:
            after = self._next() if self._about in asked else None
            self.cuts += after is not None
            return after


class _CutLine:
    """One connection through the proxy."""

    def __init__(self, cutter: ByteCutter, client: socket.socket, server: socket.socket) -> None:
        self._cutter, self._client, self._server = cutter, client, server
        self._left: int | None = None

    def questions(self) -> None:
        with suppress(OSError):
            while data := self._client.recv(1 << 20):
                after = self._cutter.doomed(data)
                if after is not None:
                    self._left = after
                self._server.sendall(data)
        _end(self._server)

    def answers(self) -> None:
        with suppress(OSError):
            while data := self._server.recv(1 << 20):
                if self._left is not None and len(data) >= self._left:
                    self._client.sendall(data[: self._left])
                    break
                if self._left is not None:
                    self._left -= len(data)
                self._client.sendall(data)
        _end(self._client)
        _end(self._server)


def _never() -> None:
    return None


def _end(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
