"""A turn at work.

Everything a turn stores carries its fence, judged inside the transaction: once another has taken
over, nothing more of it is delivered and no state of it changes. What it had done before it knew (a
tool's outcome, a finished message) is stored all the same, under its own turn and marked late, and
the caller is told (I-7).
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from holdfast.domain.approval import Verdict, digests_of, judge_call
from holdfast.domain.arguments import Checked
from holdfast.domain.entry import (
    Asked,
    CallStarted,
    Draft,
    Posted,
    Retracted,
    Taken,
)
from holdfast.domain.message import CallNote, MessageNote, Spoken, freeze, target_of
from holdfast.domain.reset_policy import asking_scope
from holdfast.domain.turn import Ask, CallId, CallToRun
from holdfast.engine.protocol import Write, Written
from holdfast.errors import (
    NotApproved,
    NotFound,
    OperatorNeeded,
    TurnInterrupted,
)
from holdfast.formats import registry
from holdfast.runtime.live.context import Context
from holdfast.runtime.live.message import Message
from holdfast.runtime.live.session_log import speak
from holdfast.runtime.plans.plan import Plan, read
from holdfast.runtime.turns.end_turn import EndingTurn
from holdfast.runtime.turns.outbox import OwedWork
from holdfast.runtime.turns.turn_calls import answered, to_run, was_asked


class TurnWork(EndingTurn):
    """The plans of a turn; `Turn` and `AsyncTurn` are its faces."""

    # What every write goes through.

    def _write(
        self, *drafts: Draft, event: tuple[str, str] | None = None
    ) -> Plan[Written]:
        """Stores under this turn's fence, after what its left streams have said; or tells that the
        turn is over. With an `event`, the last draft is what it was accepted as.
        """
        if self._streams:
            yield from self.close_left()
        write = Write(
            self.session.id,
            drafts,
            fence=self.number,
            event=event,
            event_draft=len(drafts) - 1,
        )
        return (yield from self._store(write))

    def _write_message(self, spoken: Spoken, id: bytes | None = None) -> Plan[str]:
        """Stores a finished message; late, if the turn is over by now."""
        draft = self.session.message(spoken, turn=self.number, id=id)
        try:
            yield from self._write(draft)
        except TurnInterrupted:
            late = Spoken(replace(spoken.note, late=True), spoken.body)
            yield from self.session.commit(
                Write(
                    self.session.id,
                    drafts=(self.session.message(late, turn=self.number, id=draft.id),),
                    ended_too=True,
                )
            )
            raise
        self._calls.note(draft.id.hex(), spoken.note)
        return draft.id.hex()

    # Speaking.

    def context(
        self, format: str | None = None, *, prefill: bool = False
    ) -> Plan[Context]:
        yield from self.close_left()
        return (
            yield from read(
                lambda: self.session.context(format or self.format, prefill=prefill)
            )
        )

    def say(self, text: str) -> Plan[str]:
        """Text, whole and durable; given back to be shown."""
        if self.ended:
            raise (yield from self.interrupted())
        spoken = speak(text, self.format, role="assistant")
        yield from self._write(self.session.message(spoken, turn=self.number))
        self._cut_off = None
        return text

    def add(self, message: Any, *, format: str | None = None) -> Plan[str]:
        return self._add(speak(message, format or self.format, role="assistant"))

    def _add(self, spoken: Spoken) -> Plan[str]:
        id = yield from self._write_message(spoken)
        self._cut_off = None
        return id

    def add_all(
        self, messages: Sequence[Any], *, format: str | None = None
    ) -> Plan[list[str]]:
        spoken = [
            speak(message, format or self.format, role="assistant")
            for message in messages
        ]
        return self._add_all(spoken)

    def _add_all(self, spoken: list[Spoken]) -> Plan[list[str]]:
        """Several messages at once: all of them are stored, or none; late, if the turn is over by
        now.
        """
        if not spoken:
            return []
        drafts = tuple(self.session.message(each, turn=self.number) for each in spoken)
        try:
            yield from self._write(*drafts)
        except TurnInterrupted:
            late = tuple(
                self.session.message(
                    Spoken(replace(each.note, late=True), each.body),
                    turn=self.number,
                    id=draft.id,
                )
                for each, draft in zip(spoken, drafts, strict=True)
            )
            yield from self.session.commit(
                Write(self.session.id, drafts=late, ended_too=True)
            )
            raise
        for draft, each in zip(drafts, spoken, strict=True):
            self._calls.note(draft.id.hex(), each.note)
        self._cut_off = None
        return [draft.id.hex() for draft in drafts]

    # Tools.

    def call(
        self,
        name: str,
        arguments: Any,
        *,
        call_id: Checked = None,
        needs_approval: bool = False,
    ) -> Plan[CallId]:
        """Stores that this call is about to be run, or that it waits for approval and must not be
        (I-22).
        """
        return self._call(name, _frozen(arguments), call_id or None, needs_approval)

    def _call(
        self, name: str, text: str, call_id: str | None, needs_approval: bool
    ) -> Plan[CallId]:
        digests = digests_of(name, text)
        if call_id is None:
            id = "call_" + self.session.world.chance(12).hex()
            return (
                yield from self._begin(
                    id, name, text, asks=needs_approval, digest=digests[0]
                )
            )
        verdict, was_bound = yield from self._judged(call_id, digests, needs_approval)
        if verdict.act == "refuse":
            raise NotApproved(call_id=call_id, why=verdict.why)
        if verdict.act == "wait":
            return CallId(call_id, waiting=True)
        if verdict.ask is not None:
            return (yield from self._use_approval(verdict.ask))
        asks = verdict.act == "ask"
        return (
            yield from self._begin(
                call_id, name, text, asks=asks, digest=digests[0], bind=not was_bound
            )
        )

    def _judged(
        self, call_id: str, digests: tuple[str, str], needs_approval: bool
    ) -> Plan[tuple[Verdict, bool]]:
        """What is to be done about this call, and whether its id was bound before."""
        log = yield from read(self.session.log)
        with self.session.lock:
            asks = log.asks_of(call_id)
        is_bound = bool(asks) or (
            yield from read(partial(was_asked, self.session, call_id))
        )
        done: set[tuple[str, int]] = set()
        if is_bound:
            # what was asked before the last compaction counts, too
            log = yield from read(self.session.history)
            with self.session.lock:
                asks, done = log.asks_of(call_id), answered(log, call_id)
        verdict = judge_call(
            asks,
            digests,
            needs_approval=needs_approval,
            is_made=self._calls.is_made(call_id),
            here=self._calls.here(call_id),
            was_asked=is_bound,
            answered=done,
        )
        return verdict, is_bound

    def _begin(
        self,
        id: str,
        name: str,
        text: str,
        *,
        asks: bool,
        digest: str,
        bind: bool = True,
    ) -> Plan[CallId]:
        """Stores that a call is started, or asked about; `bind`: for the first time."""
        payload = {
            "role": "assistant",
            "parts": [{"type": "call", "id": id, "name": name, "arguments": text}],
        }
        note = MessageNote(
            role="assistant",
            format="holdfast",
            plain=False,
            calls=(CallNote(id, name),),
        )
        message = self.session.message(Spoken(note, freeze(payload)), turn=self.number)
        begun = self._calls.begin(id, message.id.hex(), asks=asks)
        if begun is None:
            raise NotApproved(call_id=id, why="it was started in this turn already")
        call, is_new = begun
        drafts: tuple[Draft, ...] = (message,) if is_new else ()
        if not is_new and not asks:
            drafts = (self._begun(id, call.message, call.index),)
        event = None
        if asks:
            asked = Asked(id, call.message, digest, call.index)
            drafts += (self.session.draft("ask", asked, turn=self.number),)
            if bind:
                event = (asking_scope(self.session.scope), id)
        try:
            yield from self._write(*drafts, event=event)
        except OperatorNeeded:
            if is_new:
                self._calls.forget(call)
            else:
                self._calls.take_back(call)
            raise
        self._calls.stored(call)
        return CallId(id, waiting=asks)

    def _use_approval(self, ask: Ask) -> Plan[CallId]:
        """An approval is good for one start of exactly this call."""
        call = self._calls.begin_approved(ask.call_id, ask.message, ask.index)
        if call is None:
            raise NotApproved(call_id=ask.call_id, why="its approval was used")
        try:
            yield from self._write(self._begun(ask.call_id, ask.message, ask.index))
        except OperatorNeeded:
            self._calls.forget(call)
            raise
        return CallId(ask.call_id)

    def _begun(self, call_id: str, message: str, index: int) -> Draft:
        return self.session.draft(
            "call", CallStarted(call_id, message, index), turn=self.number
        )

    def calls(self) -> Plan[list[CallToRun]]:
        """The calls that are to be run now."""
        if self.ended:
            raise (yield from self.interrupted())
        yield from self.close_left()
        return (
            yield from read(
                lambda: to_run(self.session, self.number, self._calls.begun())
            )
        )

    def result(
        self, call_id: Checked, content: Any, *, error: bool = False
    ) -> Plan[str]:
        """Stores what the tool answered; late, if the turn is over by now."""
        return self._result(call_id, _frozen(content), error)

    def _result(self, call_id: str, text: str, error: bool) -> Plan[str]:
        known = self._calls.answer(call_id)
        if known is None and not (yield from self._called_elsewhere(call_id)):
            raise NotFound(
                what="tool call",
                name=call_id,
                hint="store it with Turn.call before the tool runs",
            )
        part = {"type": "result", "call_id": call_id, "content": text} | (
            {"error": True} if error else {}
        )
        target = target_of(known.message, known.index) if known is not None else None
        note = MessageNote(
            role="tool",
            format="holdfast",
            plain=False,
            answers=(call_id,),
            target=target,
            failed=error,
        )
        try:
            return (
                yield from self._write_message(
                    Spoken(note, freeze({"role": "tool", "parts": [part]}))
                )
            )
        except OperatorNeeded:
            if known is not None:
                known.answered = False  # so that it can be answered again
            raise

    def _called_elsewhere(self, call_id: str) -> Plan[bool]:
        log = yield from read(self.session.history)
        with self.session.lock:
            return any(
                call.id == call_id
                for message in log.by_seq
                for call in message.note.calls
            )

    # Steering and taking back.

    def inbox(self) -> Plan[list[Message]]:
        """Takes what came in meanwhile."""
        yield from self.close_left()
        while True:
            waiting = yield from read(
                lambda: self.session.engine.inbox(self.session.id)
            )
            free = tuple(
                w.message
                for w in waiting
                if self.session.keeper.leases.is_free(self.session.id, w)
            )
            if not free:
                if (yield from self.stopped()):
                    raise (yield from self.interrupted())
                return []
            ids = tuple(message.hex() for message in free)
            draft = self.session.draft("take", Taken(ids), turn=self.number)
            # before it is known: a caller that is cancelled here has taken them, and owes the
            # answer
            self._took = True
            outcome = yield from self.session.commit(
                Write(self.session.id, fence=self.number, drafts=(draft,), takes=free)
            )
            if isinstance(outcome, Written):
                return (yield from read(partial(self.session.pick, ids)))
            if outcome.why != "taken":
                self._over()
                raise (yield from self.interrupted())

    def retract(self, reason: str = "retried") -> Plan[None]:
        """Takes this turn's answer out of the model's view; the user did see it, and the transcript
        keeps it.
        """
        yield from self.close_left()
        log = yield from read(self.session.log)
        with self.session.lock:
            ids = tuple(
                message.id
                for message in log.of_turn(self.number)
                if message.note.role != "user"
            )
        yield from self._write(
            self.session.draft("retract", Retracted(ids, reason), turn=self.number)
        )

    def sent(self, platform_id: Checked) -> Plan[None]:
        """What this turn has said so far has arrived; if the turn is over, what it owes is paid."""
        if not self.ended:
            note = Posted(self.id, "sent", platform_id=platform_id)
            yield from self._write(self.session.draft("post", note, turn=self.number))
            return
        debts = yield from read(lambda: self.session.engine.debts(self.session.id))
        for debt in debts:
            if debt.turn == self.number:
                yield from OwedWork(self.session, debt, "").sent(platform_id)

    def stopped(self) -> Plan[bool]:
        """Whether this turn is over: stopped, taken over, or ended."""
        if not self.ended:
            state = yield from read(self.session.state)
            if state.turn != self.number or state.fence != self.number:
                self._over()
        self.owner_knows |= self.ended
        return self.ended


def _frozen(value: Any) -> str:
    """Arguments or an outcome as the text that is stored; taken when the call is made, before
    anything waits (I-3).
    """
    data = registry.plain(value)
    return data if type(data) is str else freeze(data).decode()
