"""Whether a server is traced, as its command says it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from starlette.types import ASGIApp, Scope

from holdfast.errors import BadArgument

if TYPE_CHECKING:
    from holdfast.runtime.tracing.tracing import Tracing

OtelForm = Literal["off", "spans", "content"]
FLUSH_S = 5.0
"""For so long, a server that ends waits until its last spans are told."""


def tracing_for(form: OtelForm) -> "Tracing | None":
    """The tracing of a server, or none. `BadArgument` where nothing would take the spans: a process
    that was asked for them is to say so, not to be silent.
    """
    if form == "off":
        return None
    # Loaded here and below: what it is built on is an extra.
    from holdfast.runtime.tracing.tracing import Tracing

    tracing = Tracing(content=form == "content")
    if not tracing._is_heard:
        takes = (
            "a process with a tracer provider: start it with `opentelemetry-instrument`, "
            "from the package opentelemetry-distro"
        )
        raise BadArgument(parameter="--otel", takes=takes, given="one without")
    return tracing


@contextmanager
def told_at_end(tracing: "Tracing | None") -> Iterator[None]:
    """What was traced in here is told before the process ends: one that ends by a signal does
    nothing more.
    """
    try:
        yield
    finally:
        if tracing is not None:
            tracing._flush(FLUSH_S)


def traced(
    app: ASGIApp, tracing: "Tracing | None", route_of: Callable[[Scope], str | None]
) -> Any:
    """The application with a span for each request, where it is to be traced; else itself."""
    if tracing is None:
        return app
    from holdfast.server.serving.traced_requests import TracedRequests

    return TracedRequests(app, tracing._all_spans(), route_of)
