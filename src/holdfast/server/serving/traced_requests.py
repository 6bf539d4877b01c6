"""Requests as spans of OpenTelemetry. The parent of one is whatever its `traceparent` names.

Of an address its pattern is told, never the address itself; of headers, none.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.runtime.tracing import attributes as names
from holdfast.runtime.tracing.attributes import Attributes
from holdfast.runtime.tracing.spans import SERVER, Spans, fail, harmless

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_PARENT = (b"traceparent", b"tracestate")
_propagator = TraceContextTextMapPropagator()


class RequestSpan(NamedTuple):
    """A request that is being answered, and the context that it came in."""

    span: Any
    before: Any


class TracedRequests:
    """Gives each request a span, which is the current one while it is answered. `route_of` says what
    pattern the address of a request has, if it is known.
    """

    def __init__(
        self, app: ASGIApp, spans: Spans, route_of: Callable[[Scope], str | None]
    ) -> None:
        self._app, self._spans, self._route_of = app, spans, route_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 0

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        request = self._begin(scope)
        try:
            await self._app(scope, receive, noting)
        finally:
            self._end(request, scope, status)

    @harmless
    def _begin(self, scope: Scope) -> RequestSpan:
        carried = {}
        for name, value in scope["headers"]:
            if name.lower() in _PARENT:
                carried[name.lower().decode()] = value.decode("latin-1")
        before = contexts.get_current()
        # Not in the context of whatever runs this server: the request alone says whose it is.
        parent = _propagator.extract(carried, contexts.Context())
        method = _method(scope)
        told = {
            "http.request.method": method,
            "url.scheme": scope.get("scheme", "http"),
        }
        span = self._spans.tracer.start_span(
            _name(method), parent, kind=SERVER, attributes=told
        )
        contexts.attach(trace.set_span_in_context(span, parent))
        return RequestSpan(span, before)

    @harmless
    def _end(self, request: RequestSpan | None, scope: Scope, status: int) -> None:
        if request is None:
            return
        contexts.attach(request.before)
        told: Attributes = {}
        route = self._route_of(scope)
        if route is not None:
            told["http.route"] = route
            request.span.update_name(f"{_name(_method(scope))} {route}")
        if status:
            told["http.response.status_code"] = status
        # Whoever is refused may have named what is another's.
        if 0 < status < 400:
            told |= _asked_about(scope)
        request.span.set_attributes(told)
        if not status:
            fail(request.span, "cut_off")
        elif status >= 500:
            fail(request.span, str(status))
        request.span.end()


def _method(scope: Scope) -> str:
    return scope["method"] if scope["method"] in METHODS else names.OTHER


def _name(method: str) -> str:
    return "HTTP" if method == names.OTHER else method


def _asked_about(scope: Scope) -> Attributes:
    """The tenant, and the session or the turn that the address names."""
    found: Attributes = {}
    who = scope.get("state", {}).get("identity")
    if who is not None:
        found[names.TENANT] = who.tenant
    asked = scope.get("path_params", {})
    session, turn = asked.get("session"), asked.get("turn")
    if isinstance(turn, str):
        found[names.TURN] = names.short(turn)
        session = session or turn.rpartition(":")[0]
    if isinstance(session, str) and session:
        found[names.SESSION] = names.short(session)
    return found
