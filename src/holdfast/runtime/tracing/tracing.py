"""The switch: what a store is opened with to be traced."""

from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.runtime.live.session_log import Kinds

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from holdfast.runtime.tracing.spans import Spans

NAME = "holdfast"
INSTALL = "opentelemetry is not there. Install it with: pip install 'holdfast[otel]'"


class Tracing:
    """Traces a store that is opened with it: turns, the tools they run and commits, as spans of
    OpenTelemetry by its GenAI conventions.

    Spans go to `provider`, or else to the one that the program has set for all. What was said is in
    no span, unless `content` says so; what looks like a secret is left out even then.
    """

    def __init__(
        self, provider: "TracerProvider | None" = None, *, content: bool = False
    ) -> None:
        try:
            from opentelemetry import trace
        except ImportError:
            raise ModuleNotFoundError(INSTALL, name="opentelemetry") from None
        self.content = content
        self._provider = provider or trace.get_tracer_provider()
        self._spans: Spans | None = None

    @property
    def _is_heard(self) -> bool:
        """Whether anything takes the spans: a program has to set a provider."""
        from opentelemetry import trace

        silent = (trace.ProxyTracerProvider, trace.NoOpTracerProvider)
        return not isinstance(self._provider, silent)

    def _all_spans(self) -> "Spans":
        if self._spans is None:
            from holdfast.runtime.tracing.spans import Spans

            tracer = self._provider.get_tracer(NAME)
            self._spans = Spans(tracer, content=self.content)
        return self._spans

    def _flush(self, seconds: float) -> None:
        """Has what was traced told, if its provider can do that, and waits so long at most."""
        from holdfast.runtime.tracing.spans import harmless

        flush = getattr(self._provider, "force_flush", None)
        if flush is not None:
            harmless(flush)(int(seconds * 1000))

    def _over(self, engine: Any) -> Kinds:
        """Has a store's handle on its engine tell of commits; gives what its sessions and turns are
        made of.
        """
        from holdfast.runtime.tracing.traced import (
            TracedLog,
            TracedTurn,
            traced_submit,
        )

        spans = self._all_spans()
        engine.untraced_submit = engine.submit
        engine.submit = traced_submit(engine.submit, spans)
        return Kinds(partial(TracedLog, spans), partial(TracedTurn, spans))
