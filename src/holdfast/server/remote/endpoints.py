"""The addresses of the engine's verbs: `POST /v1/engine/<verb>`, values as in `engine.remote`."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from holdfast.engine.remote.verbs import (
    COMMIT_ID_BYTES,
    PATH,
    PROCESS_HEADER,
    PROTOCOL,
    PROTOCOL_HEADER,
    VERBS,
    WAIT_MAX_S,
    WATCHED_MAX,
    CommitsAsked,
    Verb,
    WatchAnswer,
    WatchAsked,
)
from holdfast.engine.remote.wire import PACKED, read, written
from holdfast.errors import BadArgument
from holdfast.server.auth import Identity, needs
from holdfast.server.problems import WireProblem
from holdfast.server.remote.served_engine import ServedEngine
from holdfast.server.waiting import cut_short, insist_still

Endpoint = Callable[[Request], Awaitable[Response]]


def routes() -> list[Route]:
    """All verbs; each says which scope it needs."""
    table: dict[str, Endpoint] = {"commit": _commit, "watch": _watch, "hello": _hello}
    for name, verb in VERBS.items():
        table[name] = _reading(verb)
    found = []
    for name, endpoint in table.items():
        found.append(Route(PATH + name, endpoint, methods=["POST"]))
    return found


def _reading(verb: Verb[Any]) -> Endpoint:
    @needs(verb.needs)
    async def endpoint(request: Request) -> Response:
        asked = await _asked(request, verb.asked)
        return _answer(request, await _served(request).read(verb, asked, _who(request)))

    made: Endpoint = endpoint
    return made


@needs("read")
async def _hello(request: Request) -> Response:
    await _asked(request, dict[str, Any])
    return _answer(request, _served(request).hello(_who(request)))


@needs("write")
async def _commit(request: Request) -> Response:
    asked = await _asked(request, CommitsAsked)
    if any(len(one.id) != COMMIT_ID_BYTES for one in asked.commits):
        takes = f"{COMMIT_ID_BYTES} bytes for each commit"
        raise BadArgument(parameter="id", takes=takes, given="another number")
    return _answer(request, await _served(request).commit(asked, _who(request)))


@needs("read")
async def _watch(request: Request) -> Response:
    asked = await _asked(request, WatchAsked)
    if len(asked.sessions) > WATCHED_MAX:
        takes = f"at most {WATCHED_MAX} sessions"
        given = str(len(asked.sessions))
        raise BadArgument(parameter="sessions", takes=takes, given=given)
    # `min` and `max` would let NaN through.
    wait_s = asked.wait_s if math.isfinite(asked.wait_s) else 0.0
    wait_s = min(max(wait_s, 0.0), WAIT_MAX_S)
    waiting = asyncio.ensure_future(
        _served(request).news(asked.sessions, wait_s, _who(request))
    )
    leaving = asyncio.ensure_future(cut_short(request))
    try:
        # Nobody waits any longer for an answer that can't be sent.
        await asyncio.wait({waiting, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            insist_still(request)
        # A server that is being stopped has no news: the client asks again, here or
        # elsewhere.
        news = waiting.result() if waiting.done() else {}
    finally:
        waiting.cancel()
        leaving.cancel()
    return _answer(request, WatchAnswer(news))


async def _asked(request: Request, kind: Any) -> Any:
    """What the request says; refused when its sender speaks another protocol."""
    given = request.headers.get(PROTOCOL_HEADER, "")
    if given != str(PROTOCOL):
        known = int(given) if given.isdecimal() and len(given) < 10 else 0
        detail = f"This server speaks protocol {PROTOCOL} of the engine's verbs."
        raise WireProblem("schema_mismatch", detail, found=PROTOCOL, known=known)
    content = await request.body()
    try:
        return read(request.headers.get("content-type", PACKED), content, kind)
    except (ValueError, msgspec.MsgspecError) as error:
        # Of msgspec's own errors, which name a place and a type and no value.
        given = str(error) if isinstance(error, msgspec.MsgspecError) else "another one"
        takes = "a value as docs/PROTOCOL.md has it"
        raise BadArgument(parameter="body", takes=takes, given=given[:200]) from None


def _answer(request: Request, value: Any) -> Response:
    media, content = written(value)
    headers = {PROCESS_HEADER: _served(request).process}
    return Response(content, media_type=media, headers=headers)


def _who(request: Request) -> Identity:
    identity: Identity = request.state.identity
    return identity


def _served(request: Request) -> ServedEngine:
    """One for each application: what it remembers is that of its store."""
    state = request.app.state
    known: ServedEngine | None = getattr(state, "remote", None)
    if known is None:
        work = state.tenants.all._work
        body_max = state.settings.bytes_max
        known = state.remote = ServedEngine(work.engine, work.world, body_max)
    return known
