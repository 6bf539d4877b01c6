"""The proxy as an application: requests as they come, answers as they are relayed.

An address that others can reach needs tokens, in the header `Holdfast-Token`: `Authorization` is the
provider's. Headers that are ours are not passed on, and no header is stored.
"""

import asyncio
import contextlib
import logging
import zlib
from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import urlsplit

import msgspec
from starlette.types import Message, Receive, Scope, Send

from holdfast.errors import HoldfastError, InvalidMessage
from holdfast.runtime.aio import AsyncStore
from holdfast.server.auth import Tokens
from holdfast.server.health import log_request
from holdfast.server.limits import BODY_S
from holdfast.server.proxy.answers import ENCODINGS, InflatedTooLarge, plain_body
from holdfast.server.proxy.dialects import (
    Dialect,
    Request,
    dialect_of,
    error_body,
    read_request,
)
from holdfast.server.proxy.exchange import exchange, pass_on
from holdfast.server.proxy.naming import Headers
from holdfast.server.proxy.proxied_sessions import ProxiedSessions
from holdfast.server.proxy.recording import AnswerRecording
from holdfast.server.proxy.relay import BrokenOff, Head, Relay
from holdfast.server.proxy.upstream import Header, ProviderRequest, Upstream, origin_of
from holdfast.server.serving.listening import is_loopback
from holdfast.server.waiting import TokenWatch

TOKEN = "holdfast-token"
BODY_MAX = 64 << 20
_OURS = b"holdfast-"
_log = logging.getLogger("holdfast.proxy")


class ProxySettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a proxy works."""

    upstream: str
    tenant: str = "default"
    tokens: Tokens | None = None
    bytes_max: int = BODY_MAX
    body_s: float = BODY_S
    stop_with_client: bool = False
    """Whether no more is read of an answer whose client is gone."""
    tracing: Any = None
    """The `Tracing` that the store was opened with, if it is to be traced."""


class ProxyRefusal(Exception):
    """A request that is not passed on."""

    def __init__(self, status: int, code: str, words: str, **headers: str) -> None:
        super().__init__(words)
        self.status, self.code, self.headers = status, code, headers


class Proxy:
    """The application; the store is its caller's to close."""

    def __init__(self, store: AsyncStore, settings: ProxySettings) -> None:
        self._store, self._settings = store, settings
        self._upstream = Upstream(origin_of(settings.upstream))
        self._exchange = _exchange_of(settings)
        self._watch = None if settings.tokens is None else TokenWatch(settings.tokens)
        self._tenants: dict[str, ProxiedSessions] = {}
        self._running: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._log(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                await self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return
            await send({"type": "lifespan.startup.complete"})

    def cut(self) -> None:
        """Cuts all answers that are under way."""
        for task in list(self._running):
            # One that was cut is storing its end: a second cut would cut that.
            if not task.cancelling():
                task.cancel("the proxy was told to end")

    async def close(self) -> None:
        """Ends what still runs."""
        self.cut()
        if self._running:
            await asyncio.gather(*self._running, return_exceptions=True)
        for sessions in self._tenants.values():
            await sessions.close()
        self._upstream.close()

    async def _log(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers, and logs that it has: by the API that was spoken, never by the address."""
        tick = self._store._work.world.tick
        status, is_whole, since = 0, False, tick()
        # How much of the answer is still to be sent. Below zero, it never comes to
        # zero: no length was told.
        left = -1

        async def noting(message: Message) -> None:
            nonlocal status, is_whole, left
            status = message.get("status", status)
            for name, value in message.get("headers", ()):
                if name.lower() == b"content-length" and value.isdigit():
                    left = int(value)
            left -= len(message.get("body", b""))
            await send(message)
            # A client that knows how long its answer is may go with the last byte.
            is_whole = left == 0 or message.get("more_body") is False

        dialect = dialect_of(scope["method"], scope["path"])
        try:
            await self._answer(scope, receive, noting, dialect)
        finally:
            method = "other" if dialect is None else "POST"
            path = "other" if dialect is None else dialect.path
            log_request(method, path, status, tick() - since, whole=is_whole)

    async def _answer(
        self, scope: Scope, receive: Receive, send: Send, dialect: Dialect | None
    ) -> None:
        try:
            relay, recording = await self._begin(scope, receive, dialect)
        except ProxyRefusal as refused:
            await _refuse(send, dialect, refused)
            return
        except HoldfastError as error:
            # It is not asked what can't be stored (I-4). Of the error, its kind alone is told.
            _log.warning("a request could not be stored: %s", error.code)
            words = f"Holdfast could not store this request ({error.code})."
            await _refuse(send, dialect, ProxyRefusal(503, error.code, words))
            return
        left = asyncio.create_task(_until_left(receive))
        cuts = [left, asyncio.create_task(self._until_revoked(scope))]
        try:
            has_begun = await _relayed(relay, cuts, send)
            # Cut before its first byte, and the client is still there: its token was
            # revoked.
            if not has_begun and not left.done():
                await _refuse(send, dialect, _unauthenticated())
        finally:
            # One that took nothing for too long is gone, too; and whoever may hear no more.
            is_left = relay.is_left or any(cut.done() for cut in cuts)
            for cut in cuts:
                cut.cancel()
            relay.leave()
            if recording is not None and is_left:
                recording.client_left()
                if self._settings.stop_with_client and recording.exchange is not None:
                    recording.exchange.cancel("its client left")

    async def _begin(
        self, scope: Scope, receive: Receive, dialect: Dialect | None
    ) -> tuple[Relay, AnswerRecording | None]:
        """Stores what a request brings, and asks the provider."""
        headers = _headers_of(scope)
        tenant = self._tenant(headers)
        if "websocket" in headers.get("upgrade", "").lower():
            words = "This proxy speaks no websockets: post the request instead."
            raise ProxyRefusal(426, "upgrade_refused", words, upgrade="HTTP/1.1")
        body = await self._body(receive, headers)
        asked = ProviderRequest(
            scope["method"], _target(scope), passed_headers(scope["headers"]), body
        )
        relay = Relay()
        request = None
        if dialect is not None:
            request = _read(dialect, headers, body, self._settings.bytes_max)
        if dialect is None or request is None:
            self._run(pass_on(self._upstream, asked, relay))
            return relay, None
        sessions = self._sessions_of(tenant)
        try:
            recording = await sessions.begin(headers, request)
        except InvalidMessage:
            # Nothing is wrong with the store. If the provider takes it, its answer is not stored.
            _log.warning("a request passes that can't be read: %s", dialect.path)
            self._run(pass_on(self._upstream, asked, relay))
            return relay, None
        exchanging = self._exchange(self._upstream, asked, request, recording, relay)
        recording.exchange = self._run(exchanging)
        return relay, recording

    async def _until_revoked(self, scope: Scope) -> None:
        """Returns when the token of a request counts no more; never without tokens."""
        if self._settings.tokens is None or self._watch is None:
            # Nobody sets it.
            await asyncio.Event().wait()
            return
        token = _headers_of(scope).get(TOKEN, "")
        who = self._settings.tokens.identity(token)
        # A token that is unknown by now was revoked since `_tenant` looked: this
        # returns at once.
        if who is not None:
            await self._watch.revoked(token, who)

    def _tenant(self, headers: Headers) -> str:
        tokens = self._settings.tokens
        if tokens is None:
            _insist_on_this_machine(headers)
            return self._settings.tenant
        who = tokens.identity(headers.get(TOKEN, ""))
        if who is None:
            raise _unauthenticated()
        if "write" not in who.scopes:
            raise ProxyRefusal(
                403, "forbidden", "This needs a token with the scope `write`."
            )
        return who.tenant

    def _sessions_of(self, tenant: str) -> ProxiedSessions:
        found = self._tenants.get(tenant)
        if found is None:
            store = self._store.for_tenant(tenant)
            found = self._tenants[tenant] = ProxiedSessions(store)
        return found

    async def _body(self, receive: Receive, headers: Headers) -> bytes:
        most = self._settings.bytes_max
        length = headers.get("content-length", "0")
        pieces = bytearray()
        # What says itself that it is too large is not read at all. What is read is
        # counted, whatever its headers say.
        if length.isdigit() and int(length) > most:
            raise _too_large(most)
        try:
            async with asyncio.timeout(self._settings.body_s):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ProxyRefusal(
                            400, "gone", "The request was not sent whole."
                        )
                    pieces += message.get("body", b"")
                    if len(pieces) > most:
                        raise _too_large(most)
                    if not message.get("more_body", False):
                        return bytes(pieces)
        except TimeoutError:
            words = "The body did not arrive in time."
            raise ProxyRefusal(408, "too_slow", words, connection="close") from None

    def _run(self, work: Any) -> "asyncio.Task[None]":
        task: asyncio.Task[None] = asyncio.create_task(work)
        # The event loop holds tasks weakly: without this, one could be collected while
        # it runs.
        self._running.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._running.discard(task)
        # By its kind alone: the words of an error may quote a message.
        if not task.cancelled() and task.exception() is not None:
            _log.error("an answer was given up: %s", type(task.exception()).__name__)


def _headers_of(scope: Scope) -> dict[str, str]:
    """Headers by their names in small letters, the first of each. What is UTF-8 is read as that: a name
    is the same one in a header and in JSON.
    """
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        try:
            told = value.decode()
        except UnicodeDecodeError:
            told = value.decode("latin-1")
        headers.setdefault(name.decode("latin-1").lower(), told)
    return headers


def _unauthenticated() -> ProxyRefusal:
    words = "Give a token of this proxy in the header `Holdfast-Token`."
    return ProxyRefusal(401, "unauthenticated", words)


def _exchange_of(settings: ProxySettings) -> Callable[..., Coroutine[Any, Any, None]]:
    """How a provider is asked."""
    if settings.tracing is None:
        return exchange
    # Loaded here: what it is built on is an extra.
    from holdfast.server.proxy.traced_exchange import ExchangeSpans

    spans = settings.tracing._all_spans()
    return ExchangeSpans(spans, origin_of(settings.upstream)).exchange


def route_of_dialect(scope: Scope) -> str | None:
    """The end of the address of a request that is read; of others nothing is known."""
    dialect = dialect_of(scope["method"], scope["path"])
    return None if dialect is None else dialect.path


def _insist_on_this_machine(headers: Headers) -> None:
    """Refuses what a page of somebody else's has a browser send here: it names its origin, says that it
    comes from another site, or reaches this machine under a name of its own.
    """
    asked = [f"//{headers['host']}"] if headers.get("host") else []
    origin = headers.get("origin")
    asked += [origin] if origin not in (None, "null") else []
    # A page of this machine, under another of its names, says its origin, too.
    is_foreign = origin is None and headers.get("sec-fetch-site") == "cross-site"
    for address in asked:
        try:
            host = urlsplit(address).hostname or ""
        except ValueError:
            host = ""
        is_foreign = is_foreign or not is_loopback(host) or origin == "null"
    if is_foreign:
        words = "Without tokens, this proxy is for programs on this machine."
        raise ProxyRefusal(403, "forbidden", words)


def _read(dialect: Dialect, headers: Headers, body: bytes, most: int) -> Request | None:
    """What a request asks for, read from a copy of its body; None when it can't be told, which is
    logged: nothing of it will be stored.
    """
    encoding = headers.get("content-encoding", "").strip().lower()
    request = None
    if encoding in ("", *ENCODINGS):
        try:
            request = read_request(dialect, plain_body(encoding, body, most))
        except InflatedTooLarge:
            raise _too_large(most) from None
        # Not compressed as it says. The provider is left to say so.
        except zlib.error:
            pass
    if request is None:
        _log.warning("a request passes that can't be read: %s", dialect.path)
    return request


def _too_large(most: int) -> ProxyRefusal:
    words = f"A request takes at most {most:,} bytes."
    return ProxyRefusal(413, "too_large", words, connection="close")


def _target(scope: Scope) -> str:
    # As the client has encoded it: decoded and encoded again it could be another path.
    raw: bytes = scope.get("raw_path", scope["path"].encode())
    path = raw.decode("ascii", "replace")
    query = scope.get("query_string", b"").decode("ascii", "replace")
    return f"{path}?{query}" if query else path


def passed_headers(headers: list[Header]) -> list[Header]:
    """Headers for the provider: without ours, and asking for no encoding that can't be read here."""
    kept = []
    for name, value in headers:
        if name.lower().startswith(_OURS):
            continue
        if name.lower() == b"accept-encoding":
            value = _readable(value)
        kept.append((name, value))
    return kept


def _readable(offered: bytes) -> bytes:
    kept = []
    for each in offered.decode("latin-1").split(","):
        if each.split(";")[0].strip().lower() in ENCODINGS:
            kept.append(each.strip())
    return ", ".join(kept).encode("latin-1") or b"identity"


async def _until_left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _relayed(relay: Relay, cuts: "list[asyncio.Task[None]]", send: Send) -> bool:
    """Sends an answer to its client, until it ends, breaks off, or one of the cuts is made: the client is
    gone, or may hear no more. Whether any of it was sent.
    """
    has_begun = False
    while True:
        getting = asyncio.create_task(relay.get())
        await asyncio.wait((getting, *cuts), return_when=asyncio.FIRST_COMPLETED)
        if any(cut.done() for cut in cuts):
            getting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await getting
            return has_begun
        piece = getting.result()
        # An answer that is left unended is cut by the server.
        if isinstance(piece, BrokenOff):
            return True
        if isinstance(piece, Head):
            has_begun = True
            await send(_start(piece.status, piece.headers))
        else:
            await send(_body(piece or b"", more=piece is not None))
        if piece is None:
            return True


def _start(status: int, headers: list[Header]) -> Message:
    return {"type": "http.response.start", "status": status, "headers": headers}


def _body(data: bytes, *, more: bool) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": more}


async def _refuse(send: Send, dialect: Dialect | None, refused: ProxyRefusal) -> None:
    body = error_body(dialect, str(refused), refused.code)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        # The providers' own clients obey this. Tried again, a refusal is the same; a
        # store that could not be written to may be well again.
        (b"x-should-retry", b"true" if refused.status == 503 else b"false"),
    ]
    for name, value in refused.headers.items():
        headers.append((name.encode(), value.encode()))
    await send(_start(refused.status, headers))
    await send(_body(body, more=False))
