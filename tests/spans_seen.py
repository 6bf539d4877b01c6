"""Spans as a program's own tracer provider gets them: the real SDK, with its exporter in memory.

seen = SeenSpans()
store = holdfast.open(path, tracing=holdfast.Tracing(seen.provider))
[turn] = seen.named("invoke_agent")
"""

import json
import threading
import time
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

LIMIT_S = 60


class SeenSpans:
    """A provider, and the spans that were ended."""

    def __init__(self, *more: SpanProcessor) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        for each in more:
            self.provider.add_span_processor(each)

    @property
    def all(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.all if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        [span] = self.named(name)
        return span

    def awaited(self, name: str, count: int = 1) -> list[ReadableSpan]:
        """As many as these, once there are: what is told by another thread comes when it comes."""
        until = time.monotonic() + LIMIT_S
        while len(self.named(name)) < count:
            assert time.monotonic() < until, [span.name for span in self.all]
            time.sleep(0.01)
        return self.named(name)

    @property
    def text(self) -> str:
        """All that the spans say, to look for what must not be in it."""
        return "\n".join(span.to_json() for span in self.all)

    def clear(self) -> None:
        self._exporter.clear()


def is_error(span: ReadableSpan) -> bool:
    return span.status.status_code is StatusCode.ERROR


def is_child(span: ReadableSpan, parent: ReadableSpan) -> bool:
    return (
        span.parent is not None
        and span.parent.span_id == parent.context.span_id
        and span.context.trace_id == parent.context.trace_id
    )


def said(span: ReadableSpan, name: str) -> Any:
    return json.loads(span.attributes[name])


class Raising(SpanProcessor):
    """Somebody's processor that raises whatever it is told."""

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        raise RuntimeError("on_start")

    def on_end(self, span: Any) -> None:
        raise RuntimeError("on_end")


class Flaky(SpanProcessor):
    """Somebody's processor that raises at the end of every other span."""

    def __init__(self) -> None:
        self._ended = self.raised = 0

    def on_end(self, span: Any) -> None:
        self._ended += 1
        if self._ended % 2:
            self.raised += 1
            raise RuntimeError("on_end")


class Failing(SpanExporter):
    """An exporter whose receiver is gone."""

    def export(self, spans: Any) -> SpanExportResult:
        raise ConnectionError("nobody is there")

    def shutdown(self) -> None:
        return


class Stuck(SpanExporter):
    """An exporter that hangs until it is let go."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.asked = threading.Event()

    def export(self, spans: Any) -> SpanExportResult:
        self.asked.set()
        self.go_on.wait(LIMIT_S)
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        self.go_on.set()
