"""The connection to the provider: a request as the client has made it, an answer as it comes.

HTTP/1.1 over asyncio, by the library that the server itself is built on. What is sent is the client's
method, path, headers and body, but for those headers that are about one connection alone; the answer
is given in pieces as they arrive. A connection whose answer was read to its end is used again.
"""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Iterable
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import h11

from holdfast.errors import BadArgument

Header = tuple[bytes, bytes]

READ_BYTES = 1 << 16
CONNECT_S = 30.0
SILENT_S = 1800.0
"""A provider that says nothing for so long is taken for gone."""
IDLE_S = 4.0
"""A connection that has not been used for so long is not used again: servers close theirs after five
seconds, or later.
"""
IDLE_MAX = 32
HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
"""Headers that are about one connection, and are not passed on."""
_HARMLESS = ("GET", "HEAD", "OPTIONS")
_ANSWERED_HERE = (b"host", b"content-length", b"expect")
"""Said anew to the provider; or, as `Expect: 100-continue`, answered when the body was read."""


class UpstreamFailed(Exception):
    """The provider could not be reached, or broke off."""


class Origin(NamedTuple):
    """Where the provider is."""

    host: str
    port: int
    is_secure: bool
    prefix: str

    @property
    def named(self) -> bytes:
        """As the header `Host` says it."""
        usual = 443 if self.is_secure else 80
        named = f"[{self.host}]" if ":" in self.host else self.host
        if self.port != usual:
            named = f"{named}:{self.port}"
        return named.encode("ascii")

    def path(self, asked: str) -> str:
        """The path there of what a client asks for here."""
        # Both may end and begin with the version: it is one.
        if self.prefix.endswith("/v1") and asked.startswith("/v1/"):
            return self.prefix.removesuffix("/v1") + asked
        return self.prefix + asked


def origin_of(address: str) -> Origin:
    """A provider by its address, such as `https://api.openai.com`."""
    try:
        parts = urlsplit(address)
        port = parts.port
        host = (parts.hostname or "").encode("idna").decode()
    except ValueError:
        host, port = "", None
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not host or parts.query:
        takes = "the address of a provider, such as https://api.openai.com"
        raise BadArgument(parameter="upstream", takes=takes, given=repr(address))
    is_secure = parts.scheme == "https"
    port = port or (443 if is_secure else 80)
    return Origin(host, port, is_secure, parts.path.rstrip("/"))


class ProviderRequest(NamedTuple):
    """A request to the provider."""

    method: str
    path: str
    headers: list[Header]
    body: bytes


class ProviderAnswer:
    """An answer of the provider. Its body is read once, piece by piece."""

    def __init__(
        self, pool: "Upstream", connection: "_Connection", head: h11.Response
    ) -> None:
        self._pool, self._connection = pool, connection
        self.is_read = False
        self.status = head.status_code
        self.headers: list[Header] = [
            (bytes(name), bytes(value)) for name, value in head.headers
        ]

    def header(self, name: bytes) -> str:
        """The first header of this name, in small letters; empty when there is none."""
        for each, value in self.headers:
            if each == name:
                return value.decode("latin-1").strip().lower()
        return ""

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body, as it arrives. `UpstreamFailed` when it breaks off before its end."""
        while True:
            event = await self._connection.next_event()
            if isinstance(event, h11.Data):
                yield bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                self.is_read = True
                self._pool.give_back(self._connection)
                return
            else:
                raise UpstreamFailed("the connection was closed")

    def close(self) -> None:
        """Nobody reads on."""
        self._connection.close()


class Upstream:
    """The provider, and the connections to it that can be used again."""

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self._idle: list[tuple[_Connection, float]] = []
        self._context = ssl.create_default_context() if origin.is_secure else None

    async def ask(self, asked: ProviderRequest) -> ProviderAnswer:
        """The head of the answer to this."""
        known = self._known()
        if known is not None:
            try:
                return await self._ask(known, asked)
            except UpstreamFailed:
                # It was closed just then. What may have been begun is not asked again.
                if asked.method not in _HARMLESS:
                    raise
        return await self._ask(await self._connect(), asked)

    async def _ask(
        self, connection: "_Connection", asked: ProviderRequest
    ) -> ProviderAnswer:
        try:
            head = await connection.ask(asked, self.origin)
        except (OSError, h11.RemoteProtocolError, EOFError) as error:
            connection.close()
            raise UpstreamFailed(type(error).__name__) from error
        except BaseException:
            connection.close()
            raise
        return ProviderAnswer(self, connection, head)

    async def _connect(self) -> "_Connection":
        origin = self.origin
        try:
            async with asyncio.timeout(CONNECT_S):
                reader, writer = await asyncio.open_connection(
                    origin.host, origin.port, ssl=self._context, limit=READ_BYTES
                )
        except (OSError, TimeoutError) as error:
            raise UpstreamFailed(f"no connection ({type(error).__name__})") from error
        return _Connection(reader, writer)

    def _known(self) -> "_Connection | None":
        now = asyncio.get_running_loop().time()
        while self._idle:
            # The one that was used last: it is the least likely to have been closed.
            connection, since = self._idle.pop()
            if now - since < IDLE_S and connection.is_open:
                return connection
            connection.close()
        return None

    def give_back(self, connection: "_Connection") -> None:
        """A connection whose answer was read to its end."""
        if connection.begin_again() and len(self._idle) < IDLE_MAX:
            now = asyncio.get_running_loop().time()
            self._idle.append((connection, now))
        else:
            connection.close()

    def close(self) -> None:
        """Lets go of all connections that wait."""
        for connection, _ in self._idle:
            connection.close()
        self._idle.clear()


class _Connection:
    """One connection, with one request at a time."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._reader, self._writer = reader, writer
        # Room for heads of 128 KB: h11's own limit is 16.
        self._http = h11.Connection(
            h11.CLIENT, max_incomplete_event_size=READ_BYTES * 2
        )

    @property
    def is_open(self) -> bool:
        return not (self._reader.at_eof() or self._writer.is_closing())

    async def ask(self, asked: ProviderRequest, origin: Origin) -> h11.Response:
        """Sends a request and gives the head of its answer."""
        target = origin.path(asked.path).encode("ascii", "surrogateescape")
        headers = [(b"host", origin.named), *_end_to_end(asked.headers)]
        # With a length of zero, too: servers may refuse one of these that has none.
        if asked.body or asked.method in ("POST", "PUT", "PATCH"):
            headers.append((b"content-length", str(len(asked.body)).encode()))
        request = h11.Request(method=asked.method, target=target, headers=headers)
        self._send(request)
        if asked.body:
            self._send(h11.Data(data=asked.body))
        self._send(h11.EndOfMessage())
        await self._writer.drain()
        while True:
            event = await self._event()
            if isinstance(event, h11.Response):
                return event
            # Any number of these (100, 103) may come before the answer itself.
            if not isinstance(event, h11.InformationalResponse):
                raise EOFError

    def _send(self, event: h11.Event) -> None:
        data = self._http.send(event)
        if data:
            self._writer.write(data)

    async def next_event(self) -> Any:
        try:
            return await self._event()
        except (OSError, h11.RemoteProtocolError, EOFError) as error:
            raise UpstreamFailed(type(error).__name__) from error

    async def _event(self) -> Any:
        while True:
            event = self._http.next_event()
            if event is not h11.NEED_DATA:
                return event
            async with asyncio.timeout(SILENT_S):
                data = await self._reader.read(READ_BYTES)
            # At the end of the connection, h11 tells whether the message was at its end, too.
            self._http.receive_data(data)

    def begin_again(self) -> bool:
        """Whether another request can be sent."""
        if not self.is_open:
            return False
        try:
            self._http.start_next_cycle()
        except h11.ProtocolError:
            return False
        return True

    def close(self) -> None:
        with contextlib.suppress(Exception):
            # Not `close`, which would send first what is still to be written.
            self._writer.transport.abort()


def _end_to_end(headers: Iterable[Header]) -> list[Header]:
    kept = end_to_end(headers)
    return [(name, value) for name, value in kept if name not in _ANSWERED_HERE]


def end_to_end(headers: Iterable[Header]) -> list[Header]:
    """Those headers that are not about one connection."""
    headers = [(name.lower(), value) for name, value in headers]
    named = set(HOP_BY_HOP)
    for name, value in headers:
        if name == b"connection":
            named |= {each.strip().lower() for each in value.split(b",")}
    return [(name, value) for name, value in headers if name not in named]
