"""What takes the place of a store's plain parts when it is opened with tracing. A store that is
opened without it has nothing of this, and nowhere asks whether it has.
"""

from collections.abc import Callable
from typing import Any

from holdfast.domain.entry import Draft
from holdfast.engine.protocol import ChunkWrite, Commit, Outcome, Ticket
from holdfast.runtime.live.session_log import SessionLog
from holdfast.runtime.plans.plan import Plan
from holdfast.runtime.tracing.commit_facts import CommitFacts, facts_of
from holdfast.runtime.tracing.spans import Began, Spans, harmless
from holdfast.runtime.turns.running_turn import RunningTurn

Submit = Callable[[Commit], Ticket]


def traced_submit(submit: Submit, spans: Spans) -> Submit:
    """An engine's `submit` that tells of each commit."""

    def traced(commit: Commit) -> Ticket:
        first = commit[0]
        if type(first) is ChunkWrite:
            spans.chunk(first.session, first.fence)
            return submit(commit)
        facts = _facts(commit)
        began = None if facts is None else spans.begin(facts)
        if began is None:
            return submit(commit)
        try:
            return TracedTicket(submit(commit), began, spans)
        except Exception as error:
            spans.answer(began, error)
            raise

    return traced


@harmless
def _facts(commit: Commit) -> CommitFacts | None:
    return facts_of(commit)


class TracedTicket:
    """A commit under way. Whoever asks for its outcome first tells of it."""

    __slots__ = ("_spans", "_ticket", "_untold")

    def __init__(self, ticket: Ticket, began: Began, spans: Spans) -> None:
        self._ticket, self._spans = ticket, spans
        self._untold = [began]

    @property
    def done(self) -> bool:
        return self._ticket.done

    def result(self, timeout: float | None = None) -> Outcome:
        try:
            outcome = self._ticket.result(timeout)
        except Exception as error:
            # One that has only taken too long is still under way.
            if self._ticket.done:
                self._answer(error)
            raise
        self._answer(outcome)
        return outcome

    def then(self, callback: Callable[[Any], Any]) -> None:
        self._ticket.then(lambda _: callback(self))

    def _answer(self, outcome: Outcome | BaseException) -> None:
        try:
            # One step: of two threads that ask at once, one tells.
            began = self._untold.pop()
        except IndexError:
            return
        self._spans.answer(began, outcome)


class TracedLog(SessionLog):
    """A session whose turns are told of."""

    def __init__(self, spans: Spans, *parts: Any) -> None:
        super().__init__(*parts)
        self._spans = spans

    def draft(
        self, kind: str, note: Any = None, *, turn: int | None = None, body: bytes = b""
    ) -> Draft:
        if kind == "end" and turn is not None:
            record = self._derived.log.turns.get(turn)
            self._spans.remember_start((self.id, turn), record)
        return super().draft(kind, note, turn=turn, body=body)


class TracedTurn(RunningTurn):
    """A turn with a span, which is the current one in its block."""

    def __init__(self, spans: Spans, session: SessionLog, **facts: Any) -> None:
        self._spans = spans
        self._entered: Any = None
        super().__init__(session, **facts)

    @property
    def _key(self) -> tuple[str, int]:
        return self.session.id, self.number

    def begin(self, number: int) -> None:
        super().begin(number)
        self._spans.belongs_to(self._key, self.session.tenant)

    def watch_block(self, block: Any) -> None:
        super().watch_block(block)
        self._entered = self._spans.enter(self._key)

    def leave_block(self, error: BaseException | None) -> Plan[None]:
        self._leave_span()
        return super().leave_block(error)

    def leave_later(self, error: BaseException | None) -> None:
        self._leave_span()
        super().leave_later(error)

    def _leave_span(self) -> None:
        entered, self._entered = self._entered, None
        self._spans.leave(entered)

    def close(self) -> None:
        super().close()
        # One that this process is settling is told with its end: whoever seizes a turn first does so
        # under the fence behind it.
        seizure = (self.session.id, self.number + 1)
        if self.number and not self.session.keeper.is_seizing(seizure):
            self._spans.over(self._key)
