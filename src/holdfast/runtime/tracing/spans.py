"""The spans of one store: turns and the tools they run, as long as they are open; commits.

    invoke_agent             a turn, from the commit that starts it to its one end
      execute_tool NAME      a call, from the commit before it is run to that of its outcome
      holdfast.commit        what was written, and what it waited for

They are made by whoever waits for a commit, when it is answered: never on the thread that writes.
Nothing that goes wrong here reaches a caller (`harmless`): a span may be lost, a turn never is.
"""

import logging
import threading
from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple, TypeVar, cast

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer

from holdfast.domain.message import MessageNote
from holdfast.domain.turn import TurnRecord
from holdfast.engine.protocol import Outcome, Refused, Written
from holdfast.errors import HoldfastError
from holdfast.runtime.clock import wall_ns
from holdfast.runtime.tracing import attributes as names
from holdfast.runtime.tracing.attributes import Attributes, short
from holdfast.runtime.tracing.commit_facts import (
    BegunCall,
    CommitFacts,
    EndedTurn,
    SaidMessage,
)
from holdfast.runtime.tracing.spoken_content import Content, arguments_of, result_of

TurnKey = tuple[str, int]
Function = TypeVar("Function", bound=Callable[..., Any])
OPEN_MAX = 50_000
"""So many turns are open at once; the one that began first is given up for the next."""
BEGINNINGS_MAX = 256
SERVER, CLIENT = SpanKind.SERVER, SpanKind.CLIENT
_log = logging.getLogger("holdfast.tracing")
_complained: set[str] = set()


def harmless(work: Function) -> Function:
    """The same, but nothing is raised: tracing never breaks what it tells of. Each kind of error is
    logged once, by its name.
    """

    @wraps(work)
    def guarded(*given: Any, **named: Any) -> Any:
        try:
            return work(*given, **named)
        # Processors and exporters are other people's code, and may raise anything.
        except Exception as error:
            kind = type(error).__name__
            if kind not in _complained:
                _complained.add(kind)
                _log.warning("a span was lost (%s)", kind)
            return None

    return cast(Function, guarded)


class Began(NamedTuple):
    """A commit under way: since when, and in whose context."""

    facts: CommitFacts
    at: int
    context: Any


class TurnSpan:
    """A turn that this process runs, and its span."""

    def __init__(self, span: Span, *, content: bool) -> None:
        self.span = span
        self.lock = threading.RLock()
        """Tools of one turn may run on several threads."""
        self.chunks = 0
        self.tools: dict[str, Span] = {}
        self.calls: dict[str, SaidCall] = {}
        self.usage: dict[str, int] = {}
        self.said: Attributes = {}
        # Put together only for somebody: most of many turns may not be sampled.
        content = content and span.is_recording()
        self.asked = Content() if content else None
        self.answered = Content() if content else None

    def take(self, message: SaidMessage) -> None:
        """Something was said in it."""
        note = message.note
        body = message.body if self.answered is not None else b""
        with self.lock:
            for call in note.calls:
                self.calls[call.id] = SaidCall(call.name, note.format, body)
            if note.role == "assistant":
                self._count(note)
            if note.role == "user" and self.asked is not None:
                self.asked.add(note, body)
            if note.role == "assistant" and self.answered is not None:
                self.answered.add(note, body)

    def _count(self, note: MessageNote) -> None:
        if note.usage is not None:
            for name, count in names.usage_in(note.usage, note.format).items():
                self.usage[name] = self.usage.get(name, 0) + count
        if note.finish is not None:
            self.said[names.FINISH] = [short(note.finish)]
        if note.model is not None:
            self.said[names.RESPONSE_MODEL] = short(note.model)
            provider = names.provider_of(note.format)
            if provider is not None:
                self.said[names.PROVIDER] = provider

    def attributes(self) -> Attributes:
        """What is known of it at its end."""
        found = {**self.said, **names.of_usage(self.usage), names.CHUNKS: self.chunks}
        for name, content in (
            (names.INPUT_MESSAGES, self.asked),
            (names.OUTPUT_MESSAGES, self.answered),
        ):
            told = None if content is None else content.json()
            if told is not None:
                found[name] = told
        return found


class SaidCall(NamedTuple):
    """A call that was made in a message."""

    name: str
    format: str
    body: bytes


class Spans:
    """All spans of one store. Safe to use from many threads."""

    def __init__(self, tracer: Tracer, *, content: bool) -> None:
        self.tracer, self.content = tracer, content
        self._open: dict[TurnKey, TurnSpan] = {}
        self._beginnings: dict[TurnKey, int] = {}
        """When turns began that somebody else runs and that are about to be settled here."""

    # Commits.

    @harmless
    def begin(self, facts: CommitFacts) -> Began:
        """A commit is about to be submitted."""
        return Began(facts, wall_ns(), contexts.get_current())

    @harmless
    def chunk(self, session: str, number: int | None) -> None:
        """A row of the journal is submitted: there are too many of them for a span each."""
        turn = self._open.get((session, number or 0))
        if turn is not None:
            turn.chunks += 1

    @harmless
    def answer(self, began: Began, outcome: Outcome | BaseException) -> None:
        """What became of a commit."""
        facts = began.facts
        key = (facts.session, facts.turn or 0)
        if isinstance(outcome, Written) and facts.starts:
            key = (facts.session, outcome.turn)
            self._start(began, key)
        turn = self._open.get(key)
        # Each of these is harmless to the others: a span that is lost is no reason to take a turn
        # for one that was.
        self._tell_commit(began, outcome, turn, key[1])
        if isinstance(outcome, Written):
            if turn is not None:
                self._go_on(turn, facts)
            for ended in facts.ends:
                self._end(ended)

    @harmless
    def _tell_commit(
        self,
        began: Began,
        outcome: Outcome | BaseException,
        turn: TurnSpan | None,
        number: int,
    ) -> None:
        facts, context = began.facts, began.context
        has_parent = trace.get_current_span(context).get_span_context().is_valid
        # In the block of a turn the current span is the turn's own, or one below it.
        # Only a commit from elsewhere, or the one that starts the turn, has to be put
        # there.
        if turn is not None and (facts.starts or not has_parent):
            context = trace.set_span_in_context(turn.span, context)
        told: Attributes = {
            names.SESSION: facts.session,
            names.ENTRIES: len(facts.kinds),
            names.KINDS: sorted(set(facts.kinds)),
        }
        if number:
            told |= names.of_turn(facts.session, number)
        if isinstance(outcome, Refused):
            told[names.REFUSED] = outcome.why
        span = self.tracer.start_span(
            names.COMMIT, context, attributes=told, start_time=began.at
        )
        if isinstance(outcome, BaseException):
            fail(span, code_of(outcome))
        span.end()

    # Turns.

    @harmless
    def _start(self, began: Began, key: TurnKey) -> None:
        told = {names.OPERATION: names.INVOKE_AGENT, **names.of_turn(*key)}
        span = self.tracer.start_span(
            names.INVOKE_AGENT, began.context, attributes=told, start_time=began.at
        )
        if len(self._open) >= OPEN_MAX:
            self.over(next(iter(self._open)))
        self._open[key] = TurnSpan(span, content=self.content)

    def _go_on(self, turn: TurnSpan, facts: CommitFacts) -> None:
        for message in facts.messages:
            self._take(turn, message)
        for call in facts.calls:
            self._begin_call(facts.session, turn, call)
        for message in facts.messages:
            self._end_calls(turn, message)

    @harmless
    def _take(self, turn: TurnSpan, message: SaidMessage) -> None:
        turn.take(message)

    @harmless
    def belongs_to(self, key: TurnKey, tenant: str) -> None:
        """Whose turn it is."""
        turn = self._open.get(key)
        if turn is not None:
            turn.span.set_attribute(names.TENANT, tenant)

    def context_of(self, key: TurnKey) -> Any:
        """What a span of somebody else's is linked to; None when the turn is not open here."""
        turn = self._open.get(key)
        return None if turn is None else turn.span.get_span_context()

    @harmless
    def enter(self, key: TurnKey) -> Any:
        """The turn's block is entered: what is traced in it is part of the turn. Gives what `leave`
        takes.
        """
        turn = self._open.get(key)
        if turn is None:
            return None
        before = contexts.get_current()
        contexts.attach(trace.set_span_in_context(turn.span, before))
        return before, turn.span

    @harmless
    def leave(self, entered: Any) -> None:
        """The block is left. Wherever that is: a context that is not the block's own stays as it
        is.
        """
        if entered is not None:
            before, span = entered
            if trace.get_current_span() is span:
                # Not `detach`, which complains where a task was entered in one context and is left
                # in a copy of it.
                contexts.attach(before)

    @harmless
    def over(self, key: TurnKey) -> None:
        """Whoever runs this turn knows that it is over. If nobody here has written its end, it was
        taken from them.
        """
        turn = self._open.pop(key, None)
        if turn is not None:
            turn.span.set_attributes({**turn.attributes(), names.SUPERSEDED: True})
            fail(turn.span, "turn_interrupted")
            self._close_tools(turn)
            turn.span.end()

    @harmless
    def remember_start(self, key: TurnKey, record: TurnRecord | None) -> None:
        """This turn is about to be ended, and the log says when it began."""
        if record is None or not record.started_at or key in self._open:
            return
        # Those of turns that somebody else was quicker to settle stay behind.
        if len(self._beginnings) >= BEGINNINGS_MAX:
            self._beginnings.clear()
        self._beginnings[key] = record.started_at

    @harmless
    def _end(self, ended: EndedTurn) -> None:
        key = (ended.session, ended.number)
        told = names.of_ending(ended.ending, content=self.content)
        began_ms = self._beginnings.pop(key, None)
        turn = self._open.pop(key, None)
        if turn is None:
            if not ended.is_own:
                self._tell_settled(key, told, began_ms)
            return
        span = turn.span
        span.set_attributes({**turn.attributes(), **told})
        if not ended.is_own:
            span.set_attribute(names.SETTLED, True)
        fail(span, told.get(names.ERROR))
        self._close_tools(turn)
        span.end()

    def _tell_settled(
        self, key: TurnKey, told: Attributes, began_ms: int | None
    ) -> None:
        """A turn of a process that is gone, or that has lost it: its own span may never be told."""
        facts = {names.OPERATION: names.INVOKE_AGENT, **names.of_turn(*key), **told}
        span = self.tracer.start_span(
            names.INVOKE_AGENT,
            attributes={**facts, names.SETTLED: True},
            start_time=None if began_ms is None else began_ms * 1_000_000,
        )
        fail(span, told.get(names.ERROR))
        span.end()

    # Tools.

    @harmless
    def _begin_call(self, session: str, turn: TurnSpan, call: BegunCall) -> None:
        if call.call_id in turn.tools:
            return
        said = turn.calls.get(call.call_id)
        name = call.name or (said.name if said is not None else "")
        told: Attributes = {
            names.OPERATION: names.EXECUTE_TOOL,
            names.SESSION: session,
            names.TOOL_ID: short(call.call_id),
            "gen_ai.tool.type": "function",
        }
        if name:
            told[names.TOOL_NAME] = short(name)
        if said is not None and said.body:
            given = arguments_of(call.call_id, said.format, said.body)
            if given is not None:
                told[names.TOOL_ARGUMENTS] = given
        turn.tools[call.call_id] = self.tracer.start_span(
            f"{names.EXECUTE_TOOL} {short(name)}".strip(),
            # In an empty context and not in the current one: whoever answers the commit
            # may be in another task's.
            trace.set_span_in_context(turn.span, contexts.Context()),
            attributes=told,
        )

    @harmless
    def _end_calls(self, turn: TurnSpan, message: SaidMessage) -> None:
        for id in message.note.answers:
            span = turn.tools.pop(id, None)
            if span is not None:
                fail(span, "tool_error" if message.note.failed else None)
                if turn.answered is not None:
                    self._tell_result(span, id, message)
                span.end()

    @harmless
    def _tell_result(self, span: Span, id: str, message: SaidMessage) -> None:
        said = result_of(id, message.note.format, message.body)
        if said is not None:
            span.set_attribute(names.TOOL_RESULT, said)

    @harmless
    def _close_tools(self, turn: TurnSpan) -> None:
        """Calls without an outcome: whether they were done is not known (I-22)."""
        while turn.tools:
            _, span = turn.tools.popitem()
            fail(span, "unknown")
            span.end()


def fail(span: Span, kind: str | None) -> None:
    if kind is not None:
        span.set_attribute(names.ERROR, kind)
        span.set_status(Status(StatusCode.ERROR))


def code_of(error: BaseException) -> str:
    """An error by its kind alone: its words may quote somebody."""
    return error.code if isinstance(error, HoldfastError) else type(error).__name__
