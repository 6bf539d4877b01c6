"""The server's life: the store is opened, served until the process is told to end, and closed."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import msgspec
import uvicorn

from holdfast.runtime.aio import AsyncStore, open_async
from holdfast.server.app import Settings, make_app
from holdfast.server.auth import Tokens, digest_of, fresh_token, identity
from holdfast.server.limits import BODY_MAX
from holdfast.server.operations import pattern_of
from holdfast.server.serving.event_loop import run_server, serve_until_told
from holdfast.server.serving.json_log import LogForm, log_as_json
from holdfast.server.serving.listening import (
    address_of,
    insist_on_loopback,
    listening,
)
from holdfast.server.serving.otel import (
    OtelForm,
    told_at_end,
    traced,
    tracing_for,
)
from holdfast.server.serving.uvicorn_config import uvicorn_config

HOST, PORT = "127.0.0.1", 8642
GRACE_S = 5
"""For so long, requests that are under way when the process is told to end may go on."""
Tell = Callable[[str, str | None], None]


class ServedPlace(msgspec.Struct, frozen=True, kw_only=True):
    """What is served, and where."""

    store: str
    tenant: str = "default"
    read_only: bool = False
    durability: Any = "power"
    host: str = HOST
    port: int = PORT
    tokens: Tokens | None = None
    bytes_max: int = BODY_MAX
    rate: float = 0
    log: LogForm = "text"
    otel: OtelForm = "off"


def serve(place: ServedPlace, tell: Tell) -> None:
    """Serves a store until the process is told to end. `tell` is called with the address once it is
    served, and with the token if one was made.

    Without tokens, one is made for all of `tenant`; an address that others can reach needs some.
    """
    insist_on_loopback(place.host, place.tokens)
    if place.log == "json":
        log_as_json()
    tracing = tracing_for(place.otel)
    with told_at_end(tracing), listening(place.host, place.port) as listener:
        run_server(_serve(place, tracing, listener, tell))


async def _serve(
    place: ServedPlace, tracing: Any, listener: socket.socket, tell: Tell
) -> None:
    opening = open_async(
        place.store,
        tenant=place.tenant,
        read_only=place.read_only,
        durability=place.durability,
        tracing=tracing,
    )
    async with opening as store:
        tokens, made = place.tokens, None
        if tokens is None:
            made = fresh_token(store._work.world)
            tokens = Tokens({digest_of(made): identity(place.tenant, "admin")})
        settings = Settings(
            tokens=tokens,
            bytes_max=place.bytes_max,
            rate=place.rate,
            tracing=tracing,
        )
        # The socket listens already: whoever is told now is answered, if a moment later.
        tell(address_of(listener, place.host), made)
        server = server_of(store, settings, log=place.log)
        await serve_until_told(server, listener)


def server_of(
    store: AsyncStore, settings: Settings, *, log: LogForm = "text"
) -> uvicorn.Server:
    """What serves an open store; `serve(sockets=…)` does so until the process is told to end."""
    app = make_app(store, settings)
    config = uvicorn_config(
        traced(app, settings.tracing, pattern_of),
        level="warning",
        log=log,
        timeout_graceful_shutdown=GRACE_S,
    )
    return _Server(config, app.state.closing)


class _Server(uvicorn.Server):
    """Waits are cut short when it is told to end: it would wait for them, and then cut them off
    without an answer.
    """

    def __init__(self, config: uvicorn.Config, closing: asyncio.Event) -> None:
        super().__init__(config)
        self._closing = closing

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._closing.set()
        await super().shutdown(sockets)
