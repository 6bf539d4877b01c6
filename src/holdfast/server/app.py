"""The server put together: routes, and what stands around them.

    security headers → counting → problems → authentication → limits → the routes of each module

Everything that is asked of the store is awaited: nothing blocks the event loop, and a request that
waits for a sync keeps no other from being answered.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast import __version__
from holdfast.runtime.aio import AsyncStore
from holdfast.server import (
    delivery,
    durable,
    health,
    openapi,
    page,
    reading,
    remote,
    sessions,
    streams,
)
from holdfast.server.auth import Authentication, Tokens
from holdfast.server.limits import BODY_MAX, BODY_S, Limits
from holdfast.server.operations import name_patterns
from holdfast.server.problems import Problems
from holdfast.server.serving.straight_body import STRAIGHT, StraightBody
from holdfast.server.tenants import Tenants
from holdfast.server.turns import steps
from holdfast.server.turns.held import LeasedTurns
from holdfast.server.waiting import TokenWatch

SECURITY = [
    # But for the files of the page, which say their own, nothing that is served here is one, and no
    # page may show it, run it or read it.
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    # What is answered is somebody's words.
    (b"cache-control", b"no-store"),
]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How a store is served."""

    tokens: Tokens
    bytes_max: int = BODY_MAX
    body_s: float = BODY_S
    rate: float = 0
    """Requests a second and sender; 0 for as many as come."""
    tracing: Any = None
    """The `Tracing` that the store was opened with, if it is to be traced."""


MODULES = (
    steps,
    remote,
    sessions,
    delivery,
    reading,
    streams,
    durable,
    page,
    health,
    openapi,
)
"""Each has `routes()`. They are tried one after the other: those first that are asked most."""


def make_app(store: AsyncStore, settings: Settings) -> Starlette:
    """The application that serves this store; the store is its caller's to close."""
    tenants = Tenants(store)
    meter = health.Meter()
    routes: list[BaseRoute] = []
    for module in MODULES:
        routes += module.routes()
    name_patterns(routes)
    app = Starlette(
        routes=routes,
        middleware=_around(settings, tenants, meter),
        lifespan=_life,
        # Starlette's own answers are plain text: what it raises is told by `Problems`.
        exception_handlers={404: _raised, 405: _raised},
    )
    app.router.redirect_slashes = False
    app.state.tenants = tenants
    app.state.turns = LeasedTurns(tenants.world)
    app.state.meter = meter
    # Set when the process is told to end. What waits or streams without end looks at
    # it.
    app.state.closing = asyncio.Event()
    app.state.token_watch = TokenWatch(settings.tokens)
    app.state.settings = settings
    app.state.document = openapi.document(routes, __version__)
    return app


def _around(
    settings: Settings, tenants: Tenants, meter: health.Meter
) -> list[Middleware]:
    return [
        Middleware(SecurityHeaders),
        Middleware(health.Metering, meter=meter, tick=tenants.world.tick),
        Middleware(Problems),
        Middleware(Authentication, tokens=settings.tokens),
        Middleware(
            Limits,
            bytes_max=settings.bytes_max,
            body_s=settings.body_s,
            rate=settings.rate,
            tick=tenants.world.tick,
        ),
    ]


async def _raised(request: Any, error: Exception) -> Any:
    raise error


@asynccontextmanager
async def _life(app: Starlette) -> AsyncIterator[None]:
    """Turns whose clients are gone are settled for as long as the application runs."""
    async with app.state.turns.watched():
        yield


class SecurityHeaders:
    """Puts the headers of `SECURITY` on every answer that does not have its own."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # A server that is not ours has not set it.
        scope.setdefault(STRAIGHT, StraightBody(send))

        async def secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = message.setdefault("headers", [])
                own = {name.lower() for name, _ in headers}
                for name, value in SECURITY:
                    if name not in own:
                        headers.append((name, value))
            await send(message)

        await self._app(scope, receive, secured)
