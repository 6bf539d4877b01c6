"""A TCP proxy in front of a PostgreSQL that loses exactly the message a test names.

    with DeafProxy(server.port) as proxy:
        dsn = proxy.through(dsn)                        # the same database, by way of the proxy
        loss = proxy.lose(answers("COMMIT"), nth=3)     # the third commit is done, and its client never hears
        …
        loss.wait()                                     # returns when it has happened

It reads the wire protocol of both sides, message by message, and hands each on whole. A message is
a `Message`: which `side` it comes from, its `kind` (the protocol's letter) and its `text`: the
statement of a question, the command tag of an answer. Statements are known for `Execute` too,
however they were prepared. `asks` and `answers` make the conditions; any function of a message will
do.

What can happen to the nth message that fits, counted over all connections since the rule was made:

    lose     neither it nor anything after it passes, and the connection is cut: closed on both sides
    deafen   neither it nor anything after it passes that way; the connection stays up, silent, until `proxy.cut()`
    hold     it, and what follows it that way, waits for `rule.release()`

A message from a server that is lost was true nevertheless: the server had done the work when it
sent it. A TCP connection never loses one message and keeps the next, and neither does this.
"""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from go_between import GoBetween

LIMIT_S = 60.0
"""How long anything is waited for before the test is taken to hang."""

Side = Literal["client", "server"]

_STARTUP_CODES = {80877103: "ssl", 80877104: "gss", 80877102: "cancel"}


@dataclass(frozen=True)
class Message:
    """One message of the protocol."""

    side: Side
    kind: str
    text: str = ""


Fits = Callable[[Message], bool]


def asks(words: str) -> Fits:
    """A statement that begins with these words is to be executed."""
    return lambda message: (
        message.side == "client" and message.kind in "QE" and _begins(message.text, words)
    )


def answers(words: str) -> Fits:
    """A statement was executed, and its command tag begins with these words ("COMMIT", "INSERT 0
    1").
    """
    return lambda message: (
        message.side == "server" and message.kind == "C" and _begins(message.text, words)
    )


def any_answer(message: Message) -> bool:
    """The server is done with what it was asked, and ready for the next question."""
    return message.side == "server" and message.kind == "Z"


def _begins(text: str, words: str) -> bool:
    return " ".join(text.upper().split()).startswith(words.upper())


class Rule:
    """What is to happen to the nth message that fits; `struck` when it has."""

    def __init__(self, fits: Fits, *, nth: int, fate: str) -> None:
        self._fits, self.nth, self.fate = fits, nth, fate
        self._changed = threading.Condition()
        self._seen = 0
        self._released = threading.Event()
        if fate != "hold":
            self._released.set()

    @property
    def seen(self) -> int:
        """How many messages that fit have come."""
        return self._seen

    @property
    def struck(self) -> bool:
        return 0 < self.nth <= self._seen

    def wait(self, times: int | None = None) -> None:
        """Returns when so many messages that fit have come; without a number, when the rule has
        struck.
        """
        wanted = self.nth if times is None else times
        with self._changed:
            came = self._changed.wait_for(lambda: self._seen >= wanted, LIMIT_S)
        assert came, f"waited {LIMIT_S:g} s for message {wanted} that fits; {self._seen} came"

    def release(self) -> None:
        """What is held goes on."""
        self._released.set()

    def meet(self, message: Message) -> bool:
        """Whether this message is the one. For the proxy."""
        if not self._fits(message):
            return False
        with self._changed:
            self._seen += 1
            mine = self._seen == self.nth
            self._changed.notify_all()
        return mine

    def linger(self) -> None:
        """Waits until a held message may go on. For the proxy."""
        assert self._released.wait(LIMIT_S), "a held message was never released"


class DeafProxy(GoBetween):
    """Listens on a port of its own on loopback, and hands on to a server's."""

    def __init__(self, port: int, *, host: str = "127.0.0.1") -> None:
        self._target = (host, port)
        self._rules: list[Rule] = []
        self._lines: set[_Line] = set()
        super().__init__()

    def lose(self, fits: Fits, *, nth: int = 1) -> Rule:
        return self._rule(fits, nth, "lose")

    def deafen(self, fits: Fits, *, nth: int = 1) -> Rule:
        return self._rule(fits, nth, "deafen")

    def hold(self, fits: Fits, *, nth: int = 1) -> Rule:
        return self._rule(fits, nth, "hold")

    def count(self, fits: Fits) -> Rule:
        """A rule under which nothing happens: for its `seen` and `wait`."""
        return self._rule(fits, 0, "count")

    def cut(self) -> None:
        """Closes all connections there are, on both sides. New ones are taken."""
        with self._gate:
            lines = list(self._lines)
        for line in lines:
            line.cut()

    def close(self) -> None:
        """Listens no more, and cuts what there is."""
        super().close()
        for rule in self._rules:
            rule.release()
        self.cut()

    def _rule(self, fits: Fits, nth: int, fate: str) -> Rule:
        rule = Rule(fits, nth=nth, fate=fate)
        with self._gate:
            self._rules = [*self._rules, rule]
        return rule

    def serve(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(self._target)
        except OSError:
            client.close()  # nobody is there
            return
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        line = _Line(
            client, server, lambda message: [rule for rule in self._rules if rule.meet(message)]
        )
        with self._gate:
            self._lines.add(line)
        line.run()
        with self._gate:
            self._lines.discard(line)


@dataclass(eq=False)
class _Line:
    """One connection through the proxy: two pumps, and what they know of its statements."""

    client: socket.socket
    server: socket.socket
    meet: Callable[[Message], list[Rule]]
    statements: dict[bytes, str] = field(default_factory=dict)
    portals: dict[bytes, str] = field(default_factory=dict)

    def run(self) -> None:
        """Until either side closes, or the line is cut."""
        answering = threading.Thread(
            target=self._pump, args=("server", self.server, self.client), daemon=True
        )
        try:
            if not self._start_up():
                return
            answering.start()
            self._pump("client", self.client, self.server)
            answering.join()
        except OSError:
            pass  # a side is gone; so is the line
        finally:
            self.cut()

    def cut(self) -> None:
        for end in (self.client, self.server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _start_up(self) -> bool:
        """The first messages have no letter. Encryption is declined here, so that the rest can be
        read.
        """
        while True:
            head = _exactly(self.client, 8)
            if head is None:
                return False
            length, code = struct.unpack("!II", head)
            rest = _exactly(self.client, length - 8) if length > 8 else b""
            if _STARTUP_CODES.get(code) in ("ssl", "gss"):
                self.client.sendall(b"N")
                continue
            self.server.sendall(head + (rest or b""))
            if _STARTUP_CODES.get(code) == "cancel":
                _exactly(self.server, 1)  # the server closes when it has seen to it
                return False
            return True

    def _pump(self, side: Side, source: socket.socket, target: socket.socket) -> None:
        deaf = False
        try:
            for kind, raw in _messages(source):
                if deaf:
                    continue
                for rule in self.meet(self._read(side, kind, raw[5:])):
                    if rule.fate == "lose":
                        return
                    deaf = deaf or rule.fate == "deafen"
                    rule.linger()
                if not deaf:
                    target.sendall(raw)
        except OSError:
            pass
        finally:
            if not deaf:
                self.cut()

    def _read(self, side: Side, kind: str, body: bytes) -> Message:
        if side == "server":
            return Message(side, kind, _first(body) if kind == "C" else "")
        if kind == "P":
            name, statement = body.split(b"\0", 2)[:2]
            self.statements[name] = statement.decode(errors="replace")
        elif kind == "B":
            portal, name = body.split(b"\0", 2)[:2]
            self.portals[portal] = self.statements.get(name, "")
        text = (
            _first(body)
            if kind == "Q"
            else self.portals.get(body.split(b"\0", 1)[0], "")
            if kind == "E"
            else ""
        )
        return Message(side, kind, text)


def _first(body: bytes) -> str:
    return body.split(b"\0", 1)[0].decode(errors="replace")


def _messages(source: socket.socket) -> Iterator[tuple[str, bytes]]:
    """Whole messages as they come: the letter, and all the bytes."""
    while (head := _exactly(source, 5)) is not None:
        body = _exactly(source, struct.unpack("!I", head[1:])[0] - 4)
        if body is None:
            return
        yield chr(head[0]), head + body


def _exactly(source: socket.socket, size: int) -> bytes | None:
    """So many bytes; None when the other side closes before."""
    parts = b""
    while len(parts) < size:
        part = source.recv(size - len(parts))
        if not part:
            return None
        parts += part
    return parts
