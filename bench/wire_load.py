"""Load on a server, from one process: streams that each say something twenty times a second, and a
reader for each of them.

A chunk's clock runs from the moment it is due until its words have come to the reader: one that has to
wait for its turn waits on the clock. Chunks that are due while an answer is awaited go together in
the next request, as a client's do.
"""

import asyncio
import random
import time
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from bench.sample import CHUNK_BYTES, text

PER_SECOND = 20
WAIT_S = 20.0
LINES = "application/x-ndjson"


class Spoken(NamedTuple):
    """A stream: where its chunks are posted, and where they are read."""

    push: str
    read: str


class Load:
    """All streams of one run, each for so many seconds."""

    def __init__(self, port: int, token: str, *, held: bool, seconds: float) -> None:
        self.port, self.held = port, held
        self.each = int(seconds * PER_SECOND)
        self.latencies: list[float] = []
        self.requests = 0
        self.head = f"Host: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n"

    async def run(self, streams: list[Spoken], began: Callable[[], None]) -> float:
        """Seconds from the first chunk to the last one's arrival; `began` is called before it."""
        loop, dice = asyncio.get_running_loop(), random.Random(1)
        pushers: list[Pusher] = []
        readers: list[Reader] = []
        for stream in streams:
            due: list[float] = []
            reader = Reader(self, due)
            await loop.create_connection(lambda made=reader: made, "127.0.0.1", self.port)
            reader.ask(stream.read)
            pusher = (HeldPusher if self.held else Pusher)(self, stream.push, due)
            await loop.create_connection(lambda made=pusher: made, "127.0.0.1", self.port)
            pusher.open()
            readers.append(reader)
            pushers.append(pusher)
        await asyncio.gather(*(each.opened.wait() for each in (*readers, *pushers)))
        began()
        first = time.perf_counter()
        phases = sorted((dice.random() / PER_SECOND, each) for each in range(len(pushers)))
        await self._talk(first, [(phase, pushers[each]) for phase, each in phases])
        try:
            async with asyncio.timeout(WAIT_S):
                await asyncio.gather(*(reader.done.wait() for reader in readers))
        except TimeoutError:
            pass  # what did not come is told by the count
        took = time.perf_counter() - first
        for each in (*readers, *pushers):
            each.transport.abort()
        return took

    async def _talk(self, first: float, phases: "list[tuple[float, Pusher]]") -> None:
        """All that is said, each when it is due: one clock for all streams costs least."""
        for number in range(self.each):
            words = text(CHUNK_BYTES, number)
            for place, (phase, pusher) in enumerate(phases):
                due = first + number / PER_SECOND + phase
                wait = due - time.perf_counter()
                # Those who come late let the answers in, too: what has come and is not read would
                # wait on the clock.
                if wait > 0 or place % 8 == 0:
                    await asyncio.sleep(max(0, wait))
                pusher.due.append(due)
                pusher.say(words)


class Wire(asyncio.Protocol):
    """One connection."""

    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport


class Pusher(Wire):
    """Posts its chunks: a request for whatever is due, and the next when that is answered."""

    def __init__(self, load: Load, path: str, due: list[float]) -> None:
        self.load, self.path, self.due = load, path, due
        self.index = 0
        self._waiting: list[str] = []
        self._asked = False
        self._got = b""
        self.opened = asyncio.Event()

    def open(self) -> None:
        """Before the clock runs."""
        self.opened.set()

    def say(self, chunk: str) -> None:
        self._waiting.append(chunk)
        if not self._asked:
            self._ask()

    def batch(self) -> bytes:
        """What is due now, as JSON."""
        chunks, self._waiting = self._waiting, []
        said = msgspec.json.encode({"index": self.index, "chunks": chunks})
        self.index += len(chunks)
        self.load.requests += 1
        return said

    def _ask(self) -> None:
        self._asked = True
        body = self.batch()
        head = f"POST {self.path} HTTP/1.1\r\n{self.load.head}Content-Length: {len(body)}\r\n\r\n"
        self.transport.write(head.encode() + body)

    def data_received(self, data: bytes) -> None:
        self._got += data
        head, end, body = self._got.partition(b"\r\n\r\n")
        if not end:
            return
        assert head.startswith(b"HTTP/1.1 200"), self._got
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        if len(body) >= length:
            self._got, self._asked = b"", False
            if self._waiting:
                self._ask()


class HeldPusher(Pusher):
    """Posts its chunks as lines of one request, which it holds open."""

    def open(self) -> None:
        head = f"POST {self.path} HTTP/1.1\r\n{self.load.head}Content-Type: {LINES}\r\n"
        self.transport.write(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())

    def say(self, chunk: str) -> None:
        self._waiting.append(chunk)
        line = self.batch() + b"\n"
        self.transport.write(b"%x\r\n%b\r\n" % (len(line), line))

    def data_received(self, data: bytes) -> None:
        self.opened.set()
        assert b"problem" not in data and not data.startswith(b"HTTP/1.1 4"), data


class Reader(Wire):
    """Reads the stream, and stops the clock of each chunk that has come."""

    def __init__(self, load: Load, due: list[float]) -> None:
        self._load, self._due = load, due
        self.opened, self.done = asyncio.Event(), asyncio.Event()
        self._rest = b""
        self._seen = self._count = 0

    def ask(self, path: str) -> None:
        self.transport.write(f"GET {path} HTTP/1.1\r\n{self._load.head}\r\n".encode())

    def data_received(self, data: bytes) -> None:
        self.opened.set()
        now = time.perf_counter()
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            _, found, words = line.partition(b'"text":"')
            if found and line.startswith(b'data: {"message_id"'):
                self._seen += len(words) - len(b'"}')
        while self._seen >= (self._count + 1) * CHUNK_BYTES:
            self._load.latencies.append(now - self._due[self._count])
            self._count += 1
        if self._count == self._load.each:
            self.done.set()
