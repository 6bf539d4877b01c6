"""The addresses of the Durable Streams protocol: `/v1/stream/…`."""

import asyncio
import base64
import re
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote, unquote_to_bytes

import msgspec
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from holdfast.runtime.plans.plan import Listen, News
from holdfast.runtime.plans.plan_asyncio import arun
from holdfast.server.auth import needs
from holdfast.server.durable.stream_log import (
    AnyRecord,
    Append,
    AppendVerdict,
    ProducerTuple,
    StreamAppended,
    StreamCreated,
    StreamForked,
    StreamLog,
    StreamRefusal,
    beginning,
    inherited,
    is_same,
    judge,
    media_of,
    packed,
    read_offset,
    shown,
    written,
)
from holdfast.server.durable.streams_of_tenant import KnownStream, TenantStreams, moment
from holdfast.server.operations import EVENTS
from holdfast.server.waiting import ENDLESS, cut_short, insist_still, why_cut

PATH = "/v1/stream/{path:path}"
PREFIX = "/v1/stream/"
LONG_POLL_S = 10.0
# The interval and the epoch (9 October 2024) are those of the protocol.
CURSOR_S, CURSOR_EPOCH_S = 20, 1_728_432_000
# The largest integer that JavaScript counts exactly.
SAFE_MAX = (1 << 53) - 1
_NUMBER = re.compile(r"0|[1-9][0-9]*")
_OFFSET = re.compile(r"-1|now|[0-9]{1,16}_[0-9]{1,16}")
_FORK_OFFSET = re.compile(r"[0-9]{1,16}_[0-9]{1,16}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_MEDIA = re.compile(r"[\w-]+/[\w-]+")
HEADERS = {
    # A page that has a token may ask from anywhere: no cookie speaks for it.
    "access-control-allow-origin": "*",
    "access-control-allow-methods": "GET, POST, PUT, DELETE, HEAD, OPTIONS",
    "access-control-allow-headers": "authorization, content-type, if-none-match, "
    "producer-epoch, producer-id, producer-seq, stream-closed, stream-expires-at, "
    "stream-fork-offset, stream-fork-sub-offset, stream-forked-from, stream-seq, stream-ttl",
    "access-control-expose-headers": "etag, location, producer-epoch, "
    "producer-expected-seq, producer-received-seq, producer-seq, stream-closed, "
    "stream-cursor, stream-next-offset, stream-sse-data-encoding, stream-up-to-date",
    "cross-origin-resource-policy": "cross-origin",
}


def routes() -> list[Route]:
    """The routes of this package."""
    made = []
    table = (
        ("PUT", put, "write"),
        ("POST", post, "write"),
        ("DELETE", delete, "write"),
    )
    for method, handler, scope in (*table, ("GET", get, "read")):
        made.append(Route(PATH, needs(scope)(_answered(handler)), methods=[method]))
    # What a browser asks first, without a token.
    made.append(Route(PATH, needs(None)(_preflight), methods=["OPTIONS"]))
    return made


async def _preflight(request: Request) -> Response:
    return Response(status_code=204, headers=HEADERS)


def _answered(handler: Any) -> Any:
    async def endpoint(request: Request) -> Response:
        try:
            # As it was sent: a decoded one has signs of replacement for what was no text.
            raw = request.scope.get("raw_path")
            read_path(raw or quote(request.scope["path"]).encode())
            response: Response = await handler(request, streams_of(request))
        except StreamRefusal as refusal:
            response = Response(
                refusal.detail, refusal.status, refusal.headers, "text/plain"
            )
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    return endpoint


def read_path(sent: bytes) -> str:
    """A path as it was sent, percent-encoded. What is no text, or would steer whoever shows it, is
    refused: no header could say where such a stream is.
    """
    try:
        path = unquote_to_bytes(sent).decode()
    except UnicodeDecodeError:
        raise StreamRefusal(400, "The path is not UTF-8") from None
    if _CONTROL.search(path):
        raise StreamRefusal(400, "The path has control characters")
    return path


def streams_of(request: Request) -> TenantStreams:
    """Those of the tenant who asks."""
    state = request.app.state
    known: dict[str, TenantStreams] | None = getattr(state, "durable", None)
    if known is None:
        known = state.durable = {}
    tenant: str = request.state.identity.tenant
    if tenant not in known:
        known[tenant] = TenantStreams(state.tenants.store(tenant))
    return known[tenant]


async def put(request: Request, streams: TenantStreams) -> Response:
    """Creates a stream; again with the same, it is the same one."""
    path, headers = request.path_params["path"], request.headers
    wanted, offset, sub = _wanted(request)
    closed = headers.get("stream-closed") == "true"
    body = await request.body()
    source_path = wanted.source
    async with streams.alone(path, *([source_path] if source_path else ())):
        known = await streams.get(path)
        if known is not None:
            return await _existing(known, streams, wanted, closed, offset)
        records: list[AnyRecord] = []
        source = None
        if source_path is not None:
            source = await _source(streams, source_path)
            wanted = _of_source(wanted, source.log, headers.get("content-type"), offset)
            records += await _past(source, offset, sub or 0)
        is_json = media_of(wanted.content_type) == "application/json"
        data = packed(body, is_json=is_json, is_first=True) if body else b""
        if data or closed:
            records.append(StreamAppended(data, close=closed))
        made = await streams.fresh(path)
        # The source is told first. A server that is killed between the two leaves a
        # fork on the source's list that does not exist; the other way around, a source
        # could be deleted, and its address taken, while a fork of it is alive.
        if source is not None:
            await streams.write(source, lambda _: [StreamForked(path)])
        await streams.write(
            # Decided from the log as it is at each try: another server may have created
            # the stream meanwhile, and then nothing is written.
            made,
            lambda now: [] if now.log.created else [wanted, *records],
        )
        if made.log.created != wanted:
            # Another server was there first.
            return await _existing(made, streams, wanted, closed, offset)
    told = _told(made.log)
    # Of a name with `?` or `#` in it, `url` takes the rest for something else.
    address = quote(request.scope["path"])
    told["location"] = str(request.url.replace(path=address, query="", fragment=""))
    return Response(status_code=201, headers=told)


async def _past(source: KnownStream, offset: int | None, sub: int) -> list[AnyRecord]:
    """What a fork begins with: it is copied, so that both go their own way."""
    count, sub = inherited(source.log, offset, sub)
    pieces = await source.pieces(0, count)
    if sub:
        [piece] = await source.pieces(count, 1)
        pieces.append(beginning(piece, sub, is_json=source.log.is_json))
    return [StreamAppended(piece) for piece in pieces]


async def _existing(
    known: KnownStream,
    streams: TenantStreams,
    wanted: StreamCreated,
    closed: bool,
    offset: int | None,
) -> Response:
    if known.log.deleted:
        raise StreamRefusal(409, "The stream was deleted, and still has forks")
    if wanted.source is not None and known.log.created is not None:
        # A fork has what it does not say from its source. What that was when it was
        # made, only the fork itself still knows.
        wanted = _filled(wanted, known.log.created)
    if not is_same(known.log, wanted, closed=closed, has_offset=offset is not None):
        raise StreamRefusal(409, "Stream already exists with different configuration")
    return Response(status_code=200, headers=_told(known.log))


async def _source(streams: TenantStreams, path: str) -> KnownStream:
    source = await streams.get(path)
    if source is None:
        raise StreamRefusal(404, "Source stream not found")
    if source.log.deleted:
        raise StreamRefusal(409, "The source was deleted, and still has forks")
    return source


def _of_source(
    wanted: StreamCreated,
    source: StreamLog,
    content_type: str | None,
    offset: int | None,
) -> StreamCreated:
    """A fork, with what it has from its source."""
    created = source.created
    assert created is not None
    if wanted.content_type and media_of(content_type) != media_of(source.content_type):
        raise StreamRefusal(409, "Content type mismatch with source stream")
    fork_offset = source.tail if offset is None else offset
    return msgspec.structs.replace(_filled(wanted, created), fork_offset=fork_offset)


def _filled(wanted: StreamCreated, created: StreamCreated) -> StreamCreated:
    """What is wanted of a fork; where it says nothing, it is as this one."""
    fill: dict[str, Any] = {}
    if not wanted.content_type:
        fill["content_type"] = created.content_type
    if wanted.ttl_s is None and wanted.expires_at is None:
        fill.update(ttl_s=created.ttl_s, expires_at=created.expires_at)
    return msgspec.structs.replace(wanted, **fill)


def _wanted(request: Request) -> tuple[StreamCreated, int | None, int | None]:
    """What a request wants to create; where it forks off."""
    headers = request.headers
    source = headers.get("stream-forked-from")
    if source is not None:
        source = read_path(source.partition("?")[0].encode())
        source = source.removeprefix(PREFIX).lstrip("/")
    content_type = headers.get("content-type", "")
    if not _MEDIA.match(content_type):
        content_type = "" if source else "application/octet-stream"
    ttl, expires = _lifetime(headers)
    at, sub = headers.get("stream-fork-offset"), headers.get("stream-fork-sub-offset")
    if at is not None and not _FORK_OFFSET.fullmatch(at):
        raise StreamRefusal(400, "Invalid Stream-Fork-Offset format")
    if sub is not None and (source is None or not _NUMBER.fullmatch(sub)):
        raise StreamRefusal(400, "Invalid Stream-Fork-Sub-Offset")
    offset = None if at is None else read_offset(at)
    created = StreamCreated(
        content_type,
        ttl,
        expires,
        source,
        offset or 0,
        int(sub or 0),
    )
    return created, offset, None if sub is None else int(sub)


def _lifetime(headers: Headers) -> tuple[int | None, str | None]:
    """For how many seconds a stream is wanted, or until when."""
    ttl, expires = headers.get("stream-ttl"), headers.get("stream-expires-at")
    if ttl is not None and expires is not None:
        raise StreamRefusal(400, "Cannot specify both Stream-TTL and Stream-Expires-At")
    if ttl is not None and not _NUMBER.fullmatch(ttl):
        raise StreamRefusal(400, "Invalid Stream-TTL value")
    if expires is not None:
        try:
            moment(expires)
        except ValueError:
            raise StreamRefusal(400, "Invalid Stream-Expires-At timestamp") from None
    return None if ttl is None else int(ttl), expires


def _told(log: StreamLog) -> dict[str, str]:
    told = {"content-type": log.content_type, "Stream-Next-Offset": written(log.tail)}
    if log.closed:
        told["Stream-Closed"] = "true"
    return told


async def _here(streams: TenantStreams, path: str) -> KnownStream:
    known = await streams.get(path)
    if known is None:
        raise StreamRefusal(404, "Stream not found")
    if known.log.deleted:
        raise StreamRefusal(410, "Stream is gone")
    return known


async def post(request: Request, streams: TenantStreams) -> Response:
    """Appends, closes, or both at once."""
    path, headers = request.path_params["path"], request.headers
    producer = _producer(headers)
    close = headers.get("stream-closed") == "true"
    body = await request.body()
    if not body and not close:
        raise StreamRefusal(400, "Empty body")
    if body and not headers.get("content-type"):
        raise StreamRefusal(400, "Content-Type header is required")
    content_type, seq = headers.get("content-type"), headers.get("stream-seq")
    asked = Append(body, content_type, producer, seq, close)
    async with streams.alone(path):
        known = await _here(streams, path)
        known.last_at = streams.now
        verdicts: list[AppendVerdict] = []

        def decide(now: KnownStream) -> list[AnyRecord]:
            verdict = judge(now.log, asked)
            verdicts.append(verdict)
            return [] if verdict.record is None else [verdict.record]

        await streams.write(known, decide)
    # The last one counts: those before it were made from a log that has moved since.
    verdict = verdicts[-1]
    return Response(status_code=verdict.status, headers=verdict.headers)


def _producer(headers: Any) -> ProducerTuple | None:
    names = ("producer-id", "producer-epoch", "producer-seq")
    given = [headers.get(name) for name in names]
    if all(each is None for each in given):
        return None
    if any(each is None for each in given):
        raise StreamRefusal(400, "All producer headers must be provided together")
    id, epoch, seq = given
    if not id:
        raise StreamRefusal(400, "Invalid Producer-Id: must not be empty")
    for text in (epoch, seq):
        if not re.fullmatch("[0-9]{1,16}", text) or int(text) > SAFE_MAX:
            raise StreamRefusal(
                400, "Producer-Epoch and Producer-Seq are whole numbers"
            )
    return id, int(epoch), int(seq)


async def delete(request: Request, streams: TenantStreams) -> Response:
    """Takes a stream away."""
    path = request.path_params["path"]
    async with streams.alone(path):
        await streams.delete(await _here(streams, path))
    return Response(status_code=204)


def _asked_offset(request: Request, live: str | None) -> str:
    """The place to read from, as it was asked for."""
    given = request.query_params.getlist("offset")
    if len(given) > 1 or any(not _OFFSET.fullmatch(each) for each in given):
        raise StreamRefusal(400, "Invalid offset")
    if live in ("long-poll", "sse") and not given:
        raise StreamRefusal(400, "A live read requires an offset")
    return given[0] if given else "-1"


async def get(request: Request, streams: TenantStreams) -> Response:
    """Reads, at once or as it comes."""
    path = request.path_params["path"]
    known = await _here(streams, path)
    if request.method == "HEAD":
        return _head(known)
    live = request.query_params.get("live")
    text = _asked_offset(request, live)
    # A read extends a `Stream-TTL`, as a write does.
    known.last_at = streams.now
    log = known.log
    if text == "-1":
        offset = 0
    elif text == "now":
        offset = log.tail
    else:
        offset = read_offset(text)
    cursor = request.query_params.get("cursor")
    if live == "sse":
        return _sse(request, streams, known, offset, cursor)
    if text == "now" and live != "long-poll":
        told = {**_told(log), "Stream-Up-To-Date": "true"}
        return Response(shown([], is_json=log.is_json), 200, told)
    if live == "long-poll" and offset >= log.tail:
        if not log.closed:
            await _news(request, known, offset, LONG_POLL_S)
            # What was said during the wait is not for a token that was revoked
            # meanwhile.
            insist_still(request)
        known.last_at = streams.now
        if offset >= log.tail:
            told = {
                "Stream-Next-Offset": written(max(offset, log.tail)),
                "Stream-Up-To-Date": "true",
                "Stream-Cursor": next_cursor(cursor, streams.now),
            }
            if log.closed:
                told["Stream-Closed"] = "true"
            return Response(status_code=204, headers=told)
    more = {} if live is None else {"Stream-Cursor": next_cursor(cursor, streams.now)}
    return await _page(request, known, text, offset, more)


async def _page(
    request: Request, known: KnownStream, text: str, offset: int, more: dict[str, str]
) -> Response:
    log, first = known.log, known.log.first_after(offset)
    pieces = await known.pieces(first)
    end = log.ends[first + len(pieces) - 1] if pieces else log.tail
    told = {
        "content-type": log.content_type,
        "Stream-Next-Offset": written(end),
        **more,
    }
    if end == log.tail:
        told["Stream-Up-To-Date"] = "true"
        if log.closed:
            told["Stream-Closed"] = "true"
    told["etag"] = _etag(known, text, end)
    if request.headers.get("if-none-match") == told["etag"]:
        return Response(status_code=304, headers={"etag": told["etag"]})
    return Response(shown(pieces, is_json=log.is_json), 200, told)


def _etag(known: KnownStream, text: str, end: int) -> str:
    # By the session and not the path: a stream that is made anew at the same address
    # has other tags.
    name = base64.urlsafe_b64encode(known.session.id.encode()).decode()
    # The bytes stay the same when a stream is closed, but the headers do not: a client
    # that is answered 304 would never hear of it.
    closed = ":c" if known.log.closed and end == known.log.tail else ""
    return f'"{name}:{text}:{written(end)}{closed}"'


def _head(known: KnownStream) -> Response:
    created = known.log.created
    assert created is not None
    told = {**_told(known.log), "etag": _etag(known, "-1", known.log.tail)}
    if created.ttl_s is not None:
        told["Stream-TTL"] = str(created.ttl_s)
    if created.expires_at is not None:
        told["Stream-Expires-At"] = created.expires_at
    return Response(status_code=200, headers=told)


async def _news(
    request: Request, known: KnownStream, offset: int, wait_s: float
) -> None:
    """Returns when there is something after this offset, or the stream is closed; or nobody waits
    any longer.
    """
    leaving = asyncio.ensure_future(cut_short(request))
    waiting = asyncio.ensure_future(_something(known, offset))
    try:
        await asyncio.wait(
            {leaving, waiting}, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED
        )
    finally:
        leaving.cancel()
        waiting.cancel()


async def _something(known: KnownStream, offset: int) -> None:
    log = known.session._log
    with News(log.engine, log.id) as news:
        while True:
            # Cleared before the look: what is stored meanwhile ends the listening at
            # once.
            news.clear()
            await known.catch_up()
            if known.log.tail > offset or known.log.closed or known.log.deleted:
                return
            await arun(_listen(news, log.engine.look_s))


def _listen(news: News, seconds: float) -> Any:
    yield Listen(news, seconds)


def next_cursor(given: str | None, now: int) -> str:
    """A number that caches are told apart by: it grows with time, and is never the one that was
    given.
    """
    interval = (now // 1000 - CURSOR_EPOCH_S) // CURSOR_S
    if given is not None and given.isdecimal() and int(given) >= interval:
        # The client has this interval's number, or a later one, already. With the same
        # number a cache could give it the same answer for ever, so it gets one up to an
        # hour ahead.
        return str(int(given) + 1 + now % 180)
    return str(interval)


def _sse(
    request: Request,
    streams: TenantStreams,
    known: KnownStream,
    offset: int,
    cursor: str | None,
) -> Response:
    media = media_of(known.log.content_type)
    is_text = media.startswith("text/") or media == "application/json"
    headers = {
        "content-type": EVENTS,
        "cache-control": "no-cache, no-store",
    }
    # Events are UTF-8 text. Bytes of any other kind would not survive in them.
    if not is_text:
        headers["Stream-SSE-Data-Encoding"] = "base64"
    request.scope[ENDLESS] = True
    told = _events(request, streams, known, offset, cursor, is_text)
    return StreamingResponse(told, headers=headers)


async def _events(
    request: Request,
    streams: TenantStreams,
    known: KnownStream,
    offset: int,
    cursor: str | None,
    is_text: bool,
) -> AsyncIterator[bytes]:
    log = known.log
    while True:
        first = log.first_after(offset)
        pieces = await known.pieces(first)
        # A control event after each piece: a reader that is cut off between two has the
        # offset to come back with.
        for number, piece in enumerate(pieces, first):
            data = shown([piece], is_json=log.is_json)
            if not is_text:
                data = base64.b64encode(data)
            offset = log.ends[number]
            yield _event("data", data) + _control(known, offset, cursor, streams.now)
        # Tells a reader that it is up to date, and after a wait without news that the
        # server is still there.
        if not pieces:
            yield _control(known, offset, cursor, streams.now)
        if (log.closed and offset >= log.tail) or log.deleted:
            return
        known.last_at = streams.now
        await _news(request, known, offset, LONG_POLL_S)
        if why_cut(request) or await request.is_disconnected():
            return


def _control(known: KnownStream, offset: int, cursor: str | None, now: int) -> bytes:
    log = known.log
    told: dict[str, Any] = {"streamNextOffset": written(offset)}
    if log.closed and offset >= log.tail:
        told["streamClosed"] = True
    else:
        told["streamCursor"] = next_cursor(cursor, now)
        if offset >= log.tail:
            told["upToDate"] = True
    return _event("control", msgspec.json.encode(told))


def _event(name: str, data: bytes) -> bytes:
    # A reader of events ends a line at each of these. Unreplaced, the rest of the data
    # would be read as a field of its own.
    text = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    lines = b"".join(b"data:" + line + b"\n" for line in text.split(b"\n"))
    return f"event: {name}\n".encode() + lines + b"\n"
