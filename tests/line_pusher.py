"""A client that holds a request open and pushes a message line by line, on a socket of its own.

with LinePusher(port, token, f"/v1/turns/{turn}/streams/{message}") as pusher:
    pusher.say(0, "Half ", "of ")      # one line
    pusher.answer()                    # the next line of the answer
    pusher.cut()                       # the connection is gone, without a word
"""

import itertools
import json
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self

from wire_server import ask

LIMIT_S = 60
NUMBERS = itertools.count(1)


class LinePusher:
    """One request."""

    def __init__(self, port: int, token: str, path: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), LIMIT_S)
        self._got = b""
        self.status = 0
        head = f"POST {path} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {token}\r\n"
        head += "Content-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n"
        self.send(head.encode())

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def line(self, data: bytes) -> None:
        """These bytes, as a piece of the body."""
        self.send(b"%x\r\n%b\r\n" % (len(data), data))

    def say(self, index: int, *chunks: Any, close: bool = False) -> None:
        said = {"index": index, "chunks": chunks, "close": close}
        self.line(json.dumps(said).encode() + b"\n")

    def finish(self) -> None:
        """The request ends."""
        self.send(b"0\r\n\r\n")

    def answer(self) -> Any:
        """The next line of the answer; None at its end."""
        while True:
            head, found, rest = self._got.partition(b"\r\n")
            if not self.status:
                head, found, rest = self._got.partition(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].split(b"\r")[0] or 0)
                if found and len(rest) >= length:
                    self.status, self._got = int(head.split()[1]), rest
                    if self.status != 200:
                        return json.loads(rest)
                    continue
            elif found:
                size = int(head, 16)
                if size == 0:
                    return None
                if len(rest) >= size + 2:
                    self._got = rest[size + 2 :]
                    return json.loads(rest[:size])
            data = self._socket.recv(1 << 16)
            if not data:
                raise ConnectionError("the answer was cut off")
            self._got += data

    def answers(self) -> list[Any]:
        """All that is left of the answer."""
        found = []
        while (line := self.answer()) is not None:
            found.append(line)
        return found

    def talked(self, end: Callable[[], Any]) -> list[Any]:
        """Talks on and on, calls `end` meanwhile, and gives all that was answered: numbers as words,
        from 0 on.
        """
        over = threading.Event()

        def talk() -> None:
            with suppress(OSError):
                for index in itertools.count(1):
                    self.say(index, f"{index} ")
                    if over.is_set():
                        break

        self.say(0, "0 ")
        told = [self.answer()]
        talking = threading.Thread(target=talk)
        talking.start()
        try:
            end()
            told += self.answers()
        finally:
            over.set()
            talking.join()
        return told

    def cut(self) -> None:
        """Closes the connection at once: the other side is told by a reset."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


class Line:
    """A turn with an open message, and how to push it."""

    def __init__(self, server, **start):
        self.port, self.token = server
        self.key = f"k{next(NUMBERS)}"
        start = {"key": self.key, "message": "Hello.", **start}
        self.turn = self.ask("POST", "/v1/turns", start).done
        self.path = f"/v1/turns/{self.turn['id']}"
        self.message = self.ask("POST", f"{self.path}/streams").done["message_id"]

    def ask(self, *words, **more):
        return ask(self.port, self.token, *words, **more)

    def pusher(self):
        return LinePusher(self.port, self.token, f"{self.path}/streams/{self.message}")

    def said(self):
        """The words of the message, and its state."""
        path = f"/v1/sessions/{self.turn['session_id']}/transcript"
        return [(each["text"], each["state"]) for each in self.ask("GET", path).done["items"]][1:]
