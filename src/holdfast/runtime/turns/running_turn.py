"""A turn at work.

Everything a turn stores carries its fence, judged inside the transaction: once another has taken
over, nothing more of it is delivered and no state of it changes. What it had done before it knew (a
tool's outcome, a finished message) is stored all the same, under its own turn and marked late, and
the caller is told (I-7).
"""

import contextlib
import weakref
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
    End,
    Posted,
    Retracted,
    Taken,
    TurnEnded,
)
from holdfast.domain.message import CallNote, MessageNote, Spoken, freeze, target_of
from holdfast.domain.reset_policy import asking_scope
from holdfast.domain.turn import Ask, CallId, CallToRun, addresses
from holdfast.engine.protocol import Owing, Refused, Ticket, Write, Written
from holdfast.errors import HoldfastError, NotApproved, NotFound, OperatorNeeded, TurnInterrupted
from holdfast.formats import registry
from holdfast.runtime.clock import mint
from holdfast.runtime.live.context import Context
from holdfast.runtime.live.lease_keeper import WeakTurn
from holdfast.runtime.live.message import Message
from holdfast.runtime.live.session_log import SessionLog, speak
from holdfast.runtime.plans.plan import Plan, read, run, wait_for
from holdfast.runtime.turns.outbox import OwedWork, said_in
from holdfast.runtime.turns.turn_calls import answered, to_run, was_asked
from holdfast.runtime.turns.turn_owner import DESERTED, Hold, current_loop
from holdfast.runtime.turns.turn_streams import Speaking, cut_off

UNLEFT: tuple[End, str | None, str | None] = ("interrupted", "its block was left", None)
"""How a turn ends whose block was left in a way that it was not told of."""


class TurnWork(Speaking):
    """The plans of a turn; `Turn` and `AsyncTurn` are its faces."""

    def __init__(
        self,
        room: SessionLog,
        *,
        holder: str,
        format: str,
        lease_s: float,
        reply_to: str | None = None,
        took: bool = False,
    ) -> None:
        super().__init__(room, holder=holder, format=format, lease_s=lease_s)
        self._reply_to, self._took = reply_to, took
        self._leaving: tuple[End, str | None, str | None] = UNLEFT
        self._block: WeakTurn | None = None
        self._asked_on = current_loop()
        # Before it is started: from then on it may be running, and whoever has asked for it may be
        # interrupted.
        room.keeper.hold(self, self._claim.release)

    def begin(self, number: int) -> None:
        super().begin(number)
        self.hold = Hold(self.room.id, number)

    # What every write goes through.

    def _write(self, *drafts: Draft, event: tuple[str, str] | None = None) -> Plan[Written]:
        """Stores under this turn's fence, after what its left streams have said; or tells that the
        turn is over. With an `event`, the last draft is what it was accepted as.
        """
        if self._streams:
            yield from self.close_left()
        write = Write(
            self.room.id, drafts, fence=self.number, event=event, event_draft=len(drafts) - 1
        )
        return (yield from self._store(write))

    def _over(self) -> None:
        super()._over()
        self.room.keeper.drop(self)
        self._block = None

    def _write_message(self, spoken: Spoken, id: bytes | None = None) -> Plan[str]:
        """Stores a finished message; late, if the turn is over by now."""
        draft = self.room.message(spoken, turn=self.number, id=id)
        try:
            yield from self._write(draft)
        except TurnInterrupted:
            late = Spoken(replace(spoken.note, late=True), spoken.body)
            yield from self.room.commit(
                Write(
                    self.room.id,
                    drafts=(self.room.message(late, turn=self.number, id=draft.id),),
                    ended_too=True,
                )
            )
            raise
        self._calls.note(draft.id.hex(), spoken.note)
        return draft.id.hex()

    # Speaking.

    def context(self, format: str | None = None, *, prefill: bool = False) -> Plan[Context]:
        yield from self.close_left()
        return (yield from read(lambda: self.room.context(format or self.format, prefill=prefill)))

    def say(self, text: str) -> Plan[str]:
        """Text, whole and durable; given back to be shown."""
        if self.ended:
            raise (yield from self.interrupted())
        spoken = speak(text, self.format, role="assistant")
        yield from self._write(self.room.message(spoken, turn=self.number))
        self._cut_off = None
        return text

    def add(self, message: Any, *, format: str | None = None) -> Plan[str]:
        return self._add(speak(message, format or self.format, role="assistant"))

    def _add(self, spoken: Spoken) -> Plan[str]:
        id = yield from self._write_message(spoken)
        self._cut_off = None
        return id

    def add_all(self, messages: Sequence[Any], *, format: str | None = None) -> Plan[list[str]]:
        spoken = [speak(message, format or self.format, role="assistant") for message in messages]
        return self._add_all(spoken)

    def _add_all(self, spoken: list[Spoken]) -> Plan[list[str]]:
        """Several messages at once: all of them are stored, or none; late, if the turn is over by
        now.
        """
        if not spoken:
            return []
        drafts = tuple(self.room.message(each, turn=self.number) for each in spoken)
        try:
            yield from self._write(*drafts)
        except TurnInterrupted:
            late = tuple(
                self.room.message(
                    Spoken(replace(each.note, late=True), each.body), turn=self.number, id=draft.id
                )
                for each, draft in zip(spoken, drafts, strict=True)
            )
            yield from self.room.commit(Write(self.room.id, drafts=late, ended_too=True))
            raise
        for draft, each in zip(drafts, spoken, strict=True):
            self._calls.note(draft.id.hex(), each.note)
        self._cut_off = None
        return [draft.id.hex() for draft in drafts]

    # Tools.

    def call(
        self, name: str, arguments: Any, *, call_id: Checked = None, needs_approval: bool = False
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
            id = "call_" + self.room.world.chance(12).hex()
            return (yield from self._begin(id, name, text, asks=needs_approval, digest=digests[0]))
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
        log = yield from read(self.room.log)
        with self.room.lock:
            asks = log.asks_of(call_id)
        is_bound = bool(asks) or (yield from read(partial(was_asked, self.room, call_id)))
        done: set[tuple[str, int]] = set()
        if is_bound:
            # what was asked before the last compaction counts, too
            log = yield from read(self.room.history)
            with self.room.lock:
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
        self, id: str, name: str, text: str, *, asks: bool, digest: str, bind: bool = True
    ) -> Plan[CallId]:
        """Stores that a call is started, or asked about; `bind`: for the first time."""
        payload = {
            "role": "assistant",
            "parts": [{"type": "call", "id": id, "name": name, "arguments": text}],
        }
        note = MessageNote(
            role="assistant", format="holdfast", plain=False, calls=(CallNote(id, name),)
        )
        message = self.room.message(Spoken(note, freeze(payload)), turn=self.number)
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
            drafts += (self.room.draft("ask", asked, turn=self.number),)
            if bind:
                event = (asking_scope(self.room.scope), id)
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
        return self.room.draft("call", CallStarted(call_id, message, index), turn=self.number)

    def calls(self) -> Plan[list[CallToRun]]:
        """The calls that are to be run now."""
        if self.ended:
            raise (yield from self.interrupted())
        yield from self.close_left()
        return (yield from read(lambda: to_run(self.room, self.number, self._calls.begun())))

    def result(self, call_id: Checked, content: Any, *, error: bool = False) -> Plan[str]:
        """Stores what the tool answered; late, if the turn is over by now."""
        return self._result(call_id, _frozen(content), error)

    def _result(self, call_id: str, text: str, error: bool) -> Plan[str]:
        known = self._calls.answer(call_id)
        if known is None and not (yield from self._called_elsewhere(call_id)):
            raise NotFound(
                what="tool call", name=call_id, hint="store it with Turn.call before the tool runs"
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
        log = yield from read(self.room.history)
        with self.room.lock:
            return any(call.id == call_id for message in log.by_seq for call in message.note.calls)

    # Steering and taking back.

    def inbox(self) -> Plan[list[Message]]:
        """Takes what came in meanwhile."""
        yield from self.close_left()
        while True:
            waiting = yield from read(lambda: self.room.engine.inbox(self.room.id))
            free = tuple(
                w.message for w in waiting if self.room.keeper.leases.is_free(self.room.id, w)
            )
            if not free:
                if (yield from self.stopped()):
                    raise (yield from self.interrupted())
                return []
            ids = tuple(message.hex() for message in free)
            draft = self.room.draft("take", Taken(ids), turn=self.number)
            # before it is known: a caller that is cancelled here has taken them, and owes the
            # answer
            self._took = True
            outcome = yield from self.room.commit(
                Write(self.room.id, fence=self.number, drafts=(draft,), takes=free)
            )
            if isinstance(outcome, Written):
                return (yield from read(partial(self.room.pick, ids)))
            if outcome.why != "taken":
                self._over()
                raise (yield from self.interrupted())

    def retract(self, reason: str = "retried") -> Plan[None]:
        """Takes this turn's answer out of the model's view; the user did see it, and the transcript
        keeps it.
        """
        yield from self.close_left()
        log = yield from read(self.room.log)
        with self.room.lock:
            ids = tuple(
                message.id for message in log.of_turn(self.number) if message.note.role != "user"
            )
        yield from self._write(self.room.draft("retract", Retracted(ids, reason), turn=self.number))

    def sent(self, platform_id: Checked) -> Plan[None]:
        """What this turn has said so far has arrived; if the turn is over, what it owes is paid."""
        if not self.ended:
            note = Posted(self.id, "sent", platform_id=platform_id)
            yield from self._write(self.room.draft("post", note, turn=self.number))
            return
        debts = yield from read(lambda: self.room.engine.debts(self.room.id))
        for debt in debts:
            if debt.turn == self.number:
                yield from OwedWork(self.room, debt, "").sent(platform_id)

    # Ending.

    @property
    def clean_end(self) -> tuple[End, str | None]:
        """How this turn ends if nothing went wrong: a stream left before its end, with nothing said
        after, cuts it off.
        """
        reasons = [self._cut_off, *map(cut_off, self._streams)]
        reason = next((reason for reason in reasons if reason is not None), None)
        return ("completed", None) if reason is None else ("interrupted", reason)

    def finish(self, end: End, reason: str | None = None, error: str | None = None) -> Plan[None]:
        """The turn's one end, with what its open streams had said. Raises `TurnInterrupted` if it
        was over before and its owner does not know: then what it was asked for may not have been
        done, and nothing is owed for it (I-23).
        """
        if not self.number or (self.ended and self.owner_knows):
            return
        if self.ended:
            raise (yield from self.interrupted())
        try:
            owes = (yield from self._owes()) if end == "completed" else ()
        except BaseException as cut:
            if not isinstance(cut, Exception | GeneratorExit):
                with contextlib.suppress(HoldfastError):
                    # its caller is leaving: nobody else would end it
                    yield from self._finish(*ending_of(cut))
            raise
        yield from self._finish(end, reason, error, owes)

    def _finish(
        self, end: End, reason: str | None, error: str | None, owes: tuple[Owing, ...] = ()
    ) -> Plan[None]:
        if self.ended:
            raise (yield from self.interrupted())
        last = self.room.draft("end", TurnEnded(end, reason=reason, error=error), turn=self.number)
        ticket = None
        while ticket is None:
            for stream in list(self._streams):
                if not (yield from self._is_entered(stream)):
                    yield from self._drafted(stream)
            ticket = self._submit_end(last, owes)
        outcome = yield from wait_for(ticket)
        open_streams = [stream for stream in self._streams if not stream.closed]
        self._over()
        if isinstance(outcome, Refused):
            raise (yield from self.interrupted())
        self.owner_knows = True
        for stream in open_streams:
            stream.let_go()

    def _submit_end(self, last: Draft, owes: tuple[Owing, ...]) -> Ticket | None:
        """Submits the turn's end with what its open streams have said; None when somebody else is
        storing one of them: the end waits for that.
        """
        with self._lock:
            streams = [stream for stream in self._streams if stream.draft is not None]
            if any(stream.submitted for stream in streams):
                return None
            drafts = [stream.draft for stream in streams if stream.draft is not None]
            for stream in streams:
                stream.submitted = True
            ticket = self.room.submit(
                Write(
                    self.room.id, fence=self.number, drafts=(*drafts, last), finish=True, owes=owes
                )
            )
            for stream in streams:
                stream.ticket = ticket
        return ticket

    def leave(self, end: End, reason: str | None = None, error: str | None = None) -> Plan[None]:
        """The block is left: `finish`. If the store can't take the turn's end now, it is stored as
        soon as it can, by whoever looks next or by the keeper: nobody works on the turn any more,
        so nobody should wait for it.
        """
        self._leaving = (end, reason, error)
        try:
            yield from self.finish(end, reason, error)
        except HoldfastError:
            if not self.ended:
                self.room.keeper.leave((self.room.id, self.number), self)
                self._block = None
            raise
        except BaseException:
            self.hand_over()
            raise

    def leave_block(self, error: BaseException | None) -> Plan[None]:
        """The turn's block is left, by this exception or cleanly."""
        return (
            yield from self.leave(*((*self.clean_end, None) if error is None else ending_of(error)))
        )

    def hand_over(self) -> None:
        """Whoever ends this turn was interrupted: the keeper does it, and at once, for the store is
        well.
        """
        if not self.number:
            self.room.keeper.forsake(self)  # whether it was started at all is not known
        elif not self.ended:
            self.room.keeper.leave((self.room.id, self.number), self)
            self._block = None
            self.room.keeper.wake()

    def watch_block(self, block: Any) -> None:
        """When this is dropped while the turn runs, the turn is left."""
        self.hold.in_block = True
        self._block = self.room.keeper.tie(block, partial(_unblocked, weakref.ref(self)))

    @property
    def is_deserted(self) -> bool:
        """Whether the task that asks for this turn, or is in its block, will never go on; see
        `own_turns`.
        """
        return (
            self.hold.is_deserted
            if self.number
            else self._asked_on is not None and self._asked_on.is_closed()
        )

    def desert(self) -> None:
        """Nobody will ever go on with this turn: the keeper ends it, as it was being left if it
        was.
        """
        if self._leaving is UNLEFT:
            self._leaving = ("interrupted", DESERTED, None)
        self.hand_over()

    def is_cut_loose(self, error: BaseException | None) -> bool:
        """Whether the block is left because its coroutine is dropped, wherever Python happens to
        be: nothing can be waited for there. A generator that is closed on its own event loop can
        wait.
        """
        return isinstance(error, GeneratorExit) and not self.hold.is_on_its_loop

    def leave_later(self, error: BaseException | None) -> None:
        """The turn's block is left, and nobody can wait for its end: the keeper sees to it."""
        self._leaving = (*self.clean_end, None) if error is None else ending_of(error)
        self.hand_over()

    def leave_again(self) -> Plan[None]:
        """Leaves as it was left."""
        return self.leave(*self._leaving)

    def _owes(self) -> Plan[tuple[Owing, ...]]:
        """Whom this turn's answer is owed to: those who asked for it with an address."""
        if self._reply_to is None and not self._took:
            return ()
        return (yield from read(self._debts))

    def _debts(self) -> tuple[Owing, ...]:
        log = self.room.log()
        if not any(stream.said for stream in self._streams) and not said_in(
            self.room, log, self.number
        ):
            return ()
        with self.room.lock:
            asked = addresses(log.of_turn(self.number), self._reply_to)
        now = self.room.world.now()
        # they are sent in the order of their ids
        ids = sorted(mint(self.room.world, now) for _ in asked)
        return tuple(map(Owing, ids, asked))

    def stopped(self) -> Plan[bool]:
        """Whether this turn is over: stopped, taken over, or ended."""
        if not self.ended:
            state = yield from read(self.room.state)
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


def ending_of(error: BaseException) -> tuple[End, str | None, str | None]:
    """How a turn ends that is left by this exception: (end, reason, error)."""
    if isinstance(error, Exception) and not isinstance(error, TimeoutError | InterruptedError):
        return "failed", None, words_of(error)
    return "interrupted", type(error).__name__, None


def words_of(error: BaseException | str) -> str:
    """An error as it is recorded: its class and what it says. One that can't say it keeps no turn
    from ending.
    """
    if isinstance(error, str):
        return error
    name = type(error).__name__
    try:
        said = str.__str__(str(error))
    except Exception:
        said = "(what it says can't be read)"
    return f"{name}: {said}" if said else name


def _unblocked(work: "weakref.ref[TurnWork]") -> None:
    """The turn's block was left without an end."""
    turn = work()
    if turn is not None and not turn.ended:
        run(turn.leave("interrupted", "its block was left"))
