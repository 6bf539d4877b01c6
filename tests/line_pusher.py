"""A client that holds a request open and pushes a message line by line, on a socket of its own.

with LinePusher(port, token, f"/v1/turns/{turn}/streams/{message}") as pusher:
    pusher.say(0, "Half ", "of ")      # one line
    pusher.answer()                    # the next line of the answer
    pusher.cut()                       # the connection is gone, without a word
"""

import json
import socket
import struct
from typing import Any, Self

LIMIT_S = 60


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

    def cut(self) -> None:
        """Closes the connection at once: the other side is told by a reset."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
