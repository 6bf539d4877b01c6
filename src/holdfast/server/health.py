"""Whether the server is well, and what it has done: for load balancers, and for Prometheus.

Numbers only: no key, no id, no token and no word of anybody is among them, and nothing tells one
tenant from another.
"""

import logging
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.runtime.plans.plan import Plan, read
from holdfast.runtime.plans.plan_asyncio import arun
from holdfast.server.operations import (
    EVENTS,
    WireRequest,
    answer,
    pattern_of,
    route,
)
from holdfast.server.waiting import AWAITED, ENDLESS

BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
REQUESTS = "holdfast.requests"
"""The logger with a line for each request, where logs are for machines."""
FACTS = "facts"
"""What a record of it says beside its words, by name."""
_request_log = logging.getLogger(REQUESTS)


class Meter:
    """How many requests there were, and how long they took."""

    def __init__(self) -> None:
        self.answered: Counter[tuple[str, str, int]] = Counter()
        self.buckets = [0] * (len(BUCKETS_S) + 1)
        self.seconds = 0.0
        self.under_way = 0

    def count(self, method: str, path: str, status: int, seconds: float | None) -> None:
        """A request was answered; a stream takes as long as somebody reads it, and a wait for news
        as long as there are none: no time is counted.
        """
        self.answered[method, path, status] += 1
        if seconds is None:
            return
        # Prometheus' bounds are inclusive (`le`), hence not `bisect_right`.
        self.buckets[bisect_left(BUCKETS_S, seconds)] += 1
        self.seconds += seconds


class Metering:
    """Counts each request by its method, the pattern of its address and its status."""

    def __init__(
        self, app: ASGIApp, *, meter: Meter, tick: Callable[[], float]
    ) -> None:
        self._app, self._meter, self._tick = app, meter, tick

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # A request that is cut before it is answered counts, too.
        status, since = 0, self._tick()

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        self._meter.under_way += 1
        try:
            await self._app(scope, receive, noting)
        finally:
            self._meter.under_way -= 1
            # Not the address itself: it names a session, and there may be any number of them.
            path = pattern_of(scope) or "other"
            method = scope["method"] if path != "other" else "other"
            took_s = None if _goes_on(scope) else self._tick() - since
            self._meter.count(method, path, status, took_s)
            log_request(method, path, status, took_s)


def _goes_on(scope: Scope) -> bool:
    """Whether a request took as long as somebody read, or as there were no news."""
    operation = getattr(scope.get("endpoint"), "operation", None)
    streams = operation is not None and operation.media == EVENTS
    return streams or ENDLESS in scope or AWAITED in scope


def log_request(
    method: str, path: str, status: int, took_s: float | None, **more: Any
) -> None:
    """A line for a request, where logs are for machines. `path` is a pattern, and names nobody."""
    if _request_log.isEnabledFor(logging.INFO):
        facts = {"method": method, "path": path, "status": status, **more}
        if took_s is not None:
            facts["ms"] = round(took_s * 1000, 3)
        _request_log.info("request", extra={FACTS: facts})


class Health(msgspec.Struct, frozen=True):
    """All is well."""

    status: str = "ok"


async def health(request: WireRequest) -> Response:
    """Whether the process answers at all."""
    return answer(Health())


async def ready(request: WireRequest) -> Response:
    """Whether the store answers, too: 503 while it does not."""
    await arun(_look(request.tenants.all._work.engine))
    return answer(Health())


def _look(engine: Any) -> Plan[Any]:
    # No session has this id. It is the cheapest question that reaches the store.
    return (yield from read(lambda: engine.state("00000000")))


async def metrics(request: WireRequest) -> Response:
    """Counters for Prometheus, in its text format."""
    state = request.request.app.state
    info = await request.tenants.all.info()
    lines = [*_requests(state.meter)]
    lines += _gauge("turns_held", "Turns that are held for clients.", len(state.turns))
    followers = getattr(state, "followers", None)
    reading = 0 if followers is None else followers.readers
    lines += _gauge("streams_open", "Streams that somebody reads.", reading)
    abandoned = state.turns.abandoned
    lines += _metric(
        "turns_abandoned_total", "counter", "Turns whose clients were gone.", abandoned
    )
    lines += _gauge("store_bytes", "The size of the store.", info.bytes)
    lines += _gauge("store_sessions", "Sessions in the store.", info.sessions)
    lines += _gauge("store_entries", "Entries in the store.", info.entries)
    return PlainTextResponse("\n".join(lines) + "\n", media_type=MEDIA_TYPE)


def _requests(meter: Meter) -> Iterator[str]:
    name = "holdfast_requests_total"
    yield f"# HELP {name} Requests that were answered."
    yield f"# TYPE {name} counter"
    for (method, path, status), count in sorted(meter.answered.items()):
        labels = f'method="{method}",path="{path}",status="{status}"'
        yield f"{name}{{{labels}}} {count}"
    yield from _gauge("requests_under_way", "Requests being answered.", meter.under_way)
    name = "holdfast_request_seconds"
    yield f"# HELP {name} How long requests took."
    yield f"# TYPE {name} histogram"
    total = 0
    for most, count in zip((*BUCKETS_S, "+Inf"), meter.buckets, strict=True):
        # Each bucket includes the ones below it.
        total += count
        yield f'{name}_bucket{{le="{most}"}} {total}'
    yield f"{name}_sum {meter.seconds:.6f}"
    yield f"{name}_count {total}"


def _gauge(name: str, about: str, value: float) -> list[str]:
    return _metric(name, "gauge", about, value)


def _metric(name: str, kind: str, about: str, value: float) -> list[str]:
    whole = f"holdfast_{name}"
    return [f"# HELP {whole} {about}", f"# TYPE {whole} {kind}", f"{whole} {value}"]


def routes() -> list[Route]:
    """The routes of this module."""
    return [
        route("GET", "/health", health, scope=None, gives=Health),
        route("GET", "/ready", ready, scope=None, gives=Health),
        route("GET", "/metrics", metrics, scope="admin", gives=str, media="text/plain"),
    ]
