"""Requests to a provider as spans of OpenTelemetry: `chat MODEL`, by its GenAI conventions.

Such a span lasts from the request to the last byte of the answer, whether its client is there or
not. It is below the span of the client's request, and linked to that of the turn.
"""

from typing import Any

from opentelemetry import context as contexts
from opentelemetry import trace

from holdfast.runtime.clock import wall_ns
from holdfast.runtime.tracing import attributes as names
from holdfast.runtime.tracing.attributes import Attributes, short
from holdfast.runtime.tracing.spans import CLIENT, Spans, fail, harmless
from holdfast.runtime.tracing.spoken_content import Content, list_content
from holdfast.server.proxy.dialects import Request
from holdfast.server.proxy.exchange import exchange
from holdfast.server.proxy.recording import AnswerRecording
from holdfast.server.proxy.relay import Head, Piece, Relay
from holdfast.server.proxy.upstream import Origin, ProviderRequest, Upstream

HOSTS = {
    "openai.azure.com": "azure.ai.openai",
    "openai.com": "openai",
    "anthropic.com": "anthropic",
    "x.ai": "x_ai",
    "groq.com": "groq",
    "deepseek.com": "deepseek",
    "mistral.ai": "mistral_ai",
    "perplexity.ai": "perplexity",
}
"""Providers by the end of their hosts' names; the others are told by the API that they speak."""
_NUMBERS = {"max_tokens": int, "temperature": float, "top_p": float, "top_k": float}


class ExchangeSpans:
    """Asks a provider as `exchange` does, and tells of it."""

    def __init__(self, spans: Spans, origin: Origin) -> None:
        self._spans, self._origin = spans, origin

    async def exchange(
        self,
        upstream: Upstream,
        asked: ProviderRequest,
        request: Request,
        recording: AnswerRecording,
        relay: Relay,
    ) -> None:
        span = self._begin(request, recording)
        timed = TimedRelay(relay, request.streams)
        try:
            # Duck-typed: what an exchange does with a relay is to put pieces into it.
            await exchange(upstream, asked, request, recording, timed)  # type: ignore[arg-type]
        finally:
            self._end(span, recording, timed)

    @harmless
    def _begin(self, request: Request, recording: AnswerRecording) -> Any:
        work = recording.turn._work
        told = asked_attributes(request, self._origin)
        told |= names.of_turn(work.session.id, work.number)
        told[names.TENANT] = work.session.tenant
        if self._spans.content:
            said = list_content(request.messages, request.dialect.format)
            if said is not None:
                told[names.INPUT_MESSAGES] = said
        turn = self._spans.context_of((work.session.id, work.number))
        span = self._spans.tracer.start_span(
            f"{names.CHAT} {told.get(names.REQUEST_MODEL, '')}".strip(),
            kind=CLIENT,
            attributes=told,
            links=[] if turn is None else [trace.Link(turn)],
        )
        # In the task of this exchange alone, which ends with it.
        contexts.attach(trace.set_span_in_context(span))
        return span

    @harmless
    def _end(self, span: Any, recording: AnswerRecording, timed: "TimedRelay") -> None:
        if span is None:
            return
        told = answered_attributes(recording)
        if timed.first_at is not None:
            told[names.FIRST_CHUNK] = (timed.first_at - timed.begun_at) / 1e9
        if self._spans.content:
            spoken, content = recording._spoken(), Content()
            if spoken is not None:
                content.add(spoken.note, spoken.body)
            said = content.json()
            if said:
                told[names.OUTPUT_MESSAGES] = said
        span.set_attributes(told)
        fail(span, failure_of(recording, timed.status))
        span.end()


class TimedRelay:
    """A relay that knows when the first piece of an answer passed, and with which status."""

    def __init__(self, relay: Relay, streams: bool) -> None:
        self._relay, self._streams = relay, streams
        self.begun_at = wall_ns()
        self.first_at: int | None = None
        self.status = 0

    async def put(self, piece: Piece) -> None:
        if isinstance(piece, bytes):
            if self._streams and self.first_at is None:
                self.first_at = wall_ns()
        elif isinstance(piece, Head):
            self.status = piece.status
        await self._relay.put(piece)

    async def fail(self, status: int, body: bytes) -> None:
        self.status = self.status or status
        await self._relay.fail(status, body)

    def leave(self) -> None:
        self._relay.leave()


def provider_at(host: str, format: str) -> str:
    """Whose API this is."""
    for end, name in HOSTS.items():
        if host == end or host.endswith(f".{end}"):
            return name
    return names.provider_of(format) or format


def asked_attributes(request: Request, origin: Origin) -> Attributes:
    """What a request asks for: names and numbers, never words."""
    body = request.body
    told: Attributes = {
        names.OPERATION: names.CHAT,
        names.PROVIDER: provider_at(origin.host, request.dialect.format),
        "gen_ai.request.stream": request.streams,
        "server.address": origin.host,
        "server.port": origin.port,
    }
    model = body.get("model")
    if isinstance(model, str) and model:
        told[names.REQUEST_MODEL] = short(model)
    for name, kind in _NUMBERS.items():
        value = body.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            told[f"gen_ai.request.{name}"] = kind(value)
    return told


def answered_attributes(recording: AnswerRecording) -> Attributes:
    """What is known of an answer once it is over."""
    told: Attributes = {"holdfast.message.id": recording.message_id}
    if recording.response_id is not None:
        told[names.RESPONSE_ID] = short(recording.response_id)
    note = recording.note
    if note is None:
        return told
    if note.model is not None:
        told[names.RESPONSE_MODEL] = short(note.model)
    if note.finish is not None:
        told[names.FINISH] = [short(note.finish)]
    if note.usage is not None:
        told |= names.of_usage(names.usage_in(note.usage, note.format))
    return told


def failure_of(recording: AnswerRecording, status: int) -> str | None:
    """The kind of error of an answer that is none, or not whole: a status, or how it ended."""
    if status >= 400:
        return str(status)
    return None if recording.ending.end == "completed" else recording.ending.end
