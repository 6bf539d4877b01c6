"""The proxy's life: the store is opened, requests pass until the process is told to end, the store is
closed.
"""

import asyncio
import logging
import socket
from typing import Any

import msgspec
import uvicorn
from msgspec.structs import replace

from holdfast.runtime.aio import AsyncStore, open_async
from holdfast.server.proxy.app import Proxy, ProxySettings, route_of_dialect
from holdfast.server.proxy.upstream import origin_of
from holdfast.server.serving.event_loop import run_server, serve_until_told
from holdfast.server.serving.json_log import LogForm, log_as_json
from holdfast.server.serving.listening import (
    address_of,
    insist_on_loopback,
    listening,
)
from holdfast.server.serving.otel import OtelForm, told_at_end, traced, tracing_for
from holdfast.server.serving.serve import Tell
from holdfast.server.serving.uvicorn_config import uvicorn_config

HOST, PORT = "127.0.0.1", 8643
GRACE_S = 3.0
"""For so long, answers that are under way when the process is told to end may go on; then they are
cut.
"""


class ProxyPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where a proxy stores what passes, and where it listens."""

    store: str
    settings: ProxySettings
    durability: Any = "power"
    host: str = HOST
    port: int = PORT
    log: LogForm = "text"
    otel: OtelForm = "off"


def serve(place: ProxyPlace, tell: Tell) -> None:
    """Passes requests on until the process is told to end. `tell` is called with the address once it
    listens.
    """
    insist_on_loopback(place.host, place.settings.tokens)
    # Before anything is opened: a wrong address is told at once.
    origin_of(place.settings.upstream)
    if place.log == "json":
        log_as_json()
    settings = place.settings
    if place.otel != "off":
        settings = replace(settings, tracing=tracing_for(place.otel))
    end = told_at_end(settings.tracing)
    with end, listening(place.host, place.port) as listener:
        run_server(_serve(place, settings, listener, tell))


async def _serve(
    place: ProxyPlace, settings: ProxySettings, listener: socket.socket, tell: Tell
) -> None:
    opening = open_async(
        place.store,
        tenant=settings.tenant,
        durability=place.durability,
        tracing=settings.tracing,
    )
    async with opening as store:
        tell(address_of(listener, place.host), None)
        server = server_of(store, settings, log=place.log)
        await serve_until_told(server, listener)


def server_of(
    store: AsyncStore, settings: ProxySettings, *, log: LogForm = "text"
) -> uvicorn.Server:
    """What passes requests on; `serve(sockets=…)` does so until the process is told to end."""
    logging.getLogger("uvicorn.error").addFilter(_is_no_cut)
    proxy = Proxy(store, settings)
    # The provider's own date is passed on.
    config = uvicorn_config(
        traced(proxy, settings.tracing, route_of_dialect),
        level="error",
        log=log,
        date_header=False,
    )
    return _ProxyServer(config, proxy)


class _ProxyServer(uvicorn.Server):
    """Answers are cut when their time is over: it would wait for them as long as they take."""

    def __init__(self, config: uvicorn.Config, proxy: Proxy) -> None:
        super().__init__(config)
        self._proxy = proxy

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().call_later(GRACE_S, self._proxy.cut)
        await super().shutdown(sockets)


def _is_no_cut(record: logging.LogRecord) -> bool:
    """Answers that break off are cut on purpose."""
    return "without completing response" not in record.getMessage()
