"""A session: one conversation, from its first message to its end; what can be asked of it and done
with it.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from holdfast.domain.arguments import Checked, OnBusy
from holdfast.domain.entry import Closed, Decided, Draft, Entry, Labelled
from holdfast.domain.log.fold import Log
from holdfast.domain.message import freeze, target_of
from holdfast.domain.turn import Ask, ToolCall
from holdfast.engine.protocol import Commit, Refused, Write
from holdfast.errors import NotFound
from holdfast.formats import registry
from holdfast.runtime.border import bordered
from holdfast.runtime.changes.fork_rewind import fork, rewind
from holdfast.runtime.live.context import Context
from holdfast.runtime.live.damage import readable
from holdfast.runtime.live.follow import Event, follow
from holdfast.runtime.live.message import Message
from holdfast.runtime.live.session_log import SessionLog, speak
from holdfast.runtime.live.tool_calls import calls
from holdfast.runtime.live.totals import SessionInfo, TurnInfo, info, turns
from holdfast.runtime.live.transcript import TELLING, find, messages
from holdfast.runtime.plans.plan import Plan, read, run, wait_for
from holdfast.runtime.turn import Turn
from holdfast.runtime.turns.recovery import settle, settle_if_dead, settle_to_read
from holdfast.runtime.turns.running_turn import TurnWork
from holdfast.runtime.turns.start_turn import TurnRequest, already, start

if TYPE_CHECKING:
    from holdfast.domain.record.memory import Memory
    from holdfast.runtime.changes.compact import Compaction, Summary
    from holdfast.runtime.changes.record import Recorded


class SessionWork:
    """The plans of a session; `Session` and `AsyncSession` are its faces."""

    def __init__(self, room: SessionLog) -> None:
        self.room = room
        self._memory: Memory | None = None

    def turn(self, message: Any, **options: Any) -> Plan[TurnWork]:
        return start(self.room, TurnRequest(self.room.world, message, **options))

    def append(self, message: Any, *, format: str, event_id: Checked) -> Plan[str]:
        return self._append(
            speak(message, format, **({"event": event_id} if event_id else {})), event_id
        )

    def _append(self, spoken: Any, event_id: str | None) -> Plan[str]:
        room = self.room
        draft = room.message(spoken, turn=None)
        event = (room.scope, event_id) if event_id is not None else None
        outcome = yield from wait_for(room.engine.submit((Write(room.id, (draft,), event=event),)))
        if isinstance(outcome, Refused):
            if outcome.why == "accepted":
                raise (yield from read(lambda: already(room, event_id or "", outcome.detail)))
            raise (yield from read(room.ended))
        return draft.id.hex()

    def append_all(self, messages: Sequence[Any], *, format: str) -> Plan[list[str]]:
        return self._append_all([speak(message, format) for message in messages])

    def _append_all(self, spoken: list[Any]) -> Plan[list[str]]:
        drafts = tuple(self.room.message(each, turn=None) for each in spoken)
        if drafts and isinstance(
            (yield from self.room.commit(Write(self.room.id, drafts=drafts))), Refused
        ):
            raise (yield from read(self.room.ended))
        return [draft.id.hex() for draft in drafts]

    def record(self, messages: Sequence[Any], *, format: str) -> "Plan[Recorded]":
        # for those who record: most programs don't
        from holdfast.domain.record.memory import Memory
        from holdfast.runtime.changes.record import record

        self._memory = self._memory or Memory()
        return record(self.room, self._memory, messages, format=format)

    def context(self, format: str, *, prefill: bool = False) -> Plan[Context]:
        yield from settle_to_read(self.room)
        return (yield from read(lambda: self.room.context(format, prefill=prefill)))

    def instructions(self, text: str | None) -> Plan[str | None]:
        if text is not None:
            yield from self._note("instructions", body=freeze(text))
            return text
        log = yield from read(self.room.log)
        return log.instructions

    def label(self, message_id: Checked, labels: dict[str, Any]) -> Plan[None]:
        labels = registry.plain(labels)
        freeze(labels)
        known = yield from read(partial(find, self.room, message_id))
        if known is None:
            raise NotFound(
                what="message", name=message_id, hint="take the id from Session.transcript()"
            )
        yield from self._note("label", Labelled(message_id, labels, known.seq))

    def _note(self, kind: str, note: Any = None, *, body: bytes = b"") -> Plan[None]:
        outcome = yield from self.room.commit(
            Write(self.room.id, drafts=(self.room.draft(kind, note, body=body),))
        )
        if isinstance(outcome, Refused):
            raise (yield from read(self.room.ended))

    def decide(self, call_id: Checked, approved: bool, by: Checked) -> Plan[None]:
        """Answers the newest call of this id that waits. A denial is also the call's outcome."""
        while True:
            log = yield from read(self.room.history)
            with self.room.lock:
                waiting = [
                    ask
                    for ask in log.asks.values()
                    if ask.call_id == call_id and ask.approved is None
                ]
                head = log.head
            if not waiting:
                raise NotFound(
                    what="call that waits for approval", name=call_id, hint=_decided(log, call_id)
                )
            drafts = self._decision(waiting[-1], approved, by)
            outcome = yield from self.room.commit(Write(self.room.id, drafts=drafts, head=head))
            if not isinstance(outcome, Refused):
                return
            if outcome.why == "ended":
                raise (yield from read(self.room.ended))

    def _decision(self, ask: Ask, approved: bool, by: str) -> tuple[Draft, ...]:
        decided = self.room.draft(
            "decision", Decided(ask.call_id, ask.message, approved, by, ask.index)
        )
        if approved:
            return (decided,)
        part = {
            "type": "result",
            "call_id": ask.call_id,
            "content": f"Denied by {by}.",
            "error": True,
        }
        target = target_of(ask.message, ask.index)
        spoken = speak({"role": "tool", "parts": [part]}, "holdfast", failed=True, target=target)
        return decided, self.room.message(spoken, turn=None)

    def compact(self, summary: Any, keep_turns: int) -> "Plan[Compaction | None]":
        from holdfast.runtime.changes.compact import compact

        return compact(self.room, summary, keep_turns=keep_turns)

    def rewind(self, to_message: str) -> Plan[None]:
        return rewind(self.room, to_message)

    def fork(self, at: str | None, key: str | None) -> "Plan[SessionWork]":
        return SessionWork((yield from fork(self.room, at=at, key=key)))

    def stop(self, reason: str) -> Plan[bool]:
        """Ends the running turn; False when there was none."""
        while True:
            state = yield from settle_if_dead(self.room)
            if state.turn is None:
                return False
            if (
                yield from settle(self.room, state, end="interrupted", reason=f"stopped: {reason}")
            ):
                return True

    def end(self, reason: str) -> Plan[None]:
        """Ends the session. What runs is stopped in the same commit: whoever waits gets no turn
        that would be ended at once. Ending an ended session changes nothing.
        """
        room = self.room

        def close(last: Write) -> Plan[Commit]:
            closed = room.draft("closed", Closed(reason))
            return (replace(last, drafts=(*last.drafts, closed), close=True),)
            yield  # a plan that waits for nothing

        while True:
            state = yield from settle_if_dead(room)
            if state.ended:
                return
            if state.turn is None:
                yield from room.commit(
                    Write(
                        room.id,
                        drafts=(room.draft("closed", Closed(reason)),),
                        idle=True,
                        close=True,
                    )
                )
            else:
                yield from settle(
                    room, state, end="interrupted", reason=f"stopped: {reason}", also=close
                )

    def calls(self) -> Plan[list[ToolCall]]:
        yield from settle_to_read(self.room)
        return (yield from read(lambda: self.room.reading(lambda: calls(self.room))))

    def info(self) -> Plan[SessionInfo]:
        state = yield from settle_to_read(self.room)
        return (yield from read(lambda: self.room.reading(lambda: info(self.room, state))))

    def turns(self, after: int, limit: int | None) -> Plan[list[TurnInfo]]:
        yield from settle_to_read(self.room)
        return (
            yield from read(
                lambda: self.room.reading(lambda: turns(self.room, after=after, limit=limit))
            )
        )

    def messages(self, after: int, limit: int) -> Plan[tuple[list[Message], int]]:
        if after == 0:
            yield from settle_to_read(self.room)
        return (
            yield from read(
                lambda: self.room.reading(lambda: messages(self.room, after=after, limit=limit))
            )
        )

    def head(self) -> Plan[int]:
        return (yield from read(lambda: self.room.state().head))

    def entries(self, after: int) -> Plan[list[Entry]]:
        return (yield from read(lambda: [readable(entry) for entry in self.room.page(after)]))

    def pending(self) -> Plan[list[Message]]:
        yield from settle_to_read(self.room)
        return (yield from read(self.room.pending))


def _decided(log: Log, call_id: str) -> str:
    """Why no call of this id waits, for somebody who wants to answer it."""
    asked = [ask for ask in log.asks.values() if ask.call_id == call_id]
    if not asked:
        return "Session.calls() lists those that wait"
    return "it was approved before" if asked[-1].approved else "it was denied before"


@bordered
class Session:
    """One conversation. A handle is cheap and safe to share among threads. `id` is for life; `key`
    is the name that it is found by, None for a fork without one; `epoch` counts the sessions that
    the key has had.
    """

    id: str
    key: str | None
    epoch: int
    tenant: str

    def __init__(self, work: SessionWork) -> None:
        self._work = work
        self.id, self.key = work.room.id, work.room.key
        self.epoch, self.tenant = work.room.epoch, work.room.tenant

    def turn(
        self,
        message: Any = None,
        *,
        format: str = "openai.chat",
        event_id: str | int | None = None,
        on_busy: OnBusy = "wait",
        reply_to: str | int | None = None,
        lease_s: float = 30,
    ) -> Turn:
        """Starts a turn: takes what waits in the inbox and then `message`, which is durable when
        this returns.

        While another turn runs, `on_busy` says whether to "wait" for it (the message is in the
        inbox meanwhile), to "interrupt" it and take over, or to "refuse" with `SessionBusy`. An
        `event_id` that came before raises `AlreadyAccepted`.
        """
        options = {
            "event_id": event_id,
            "on_busy": on_busy,
            "reply_to": reply_to,
            "lease_s": lease_s,
        }
        return Turn(run(self._work.turn(message, format=format, **options)))

    def append(
        self, message: Any, *, format: str = "openai.chat", event_id: str | int | None = None
    ) -> str:
        """Stores one message outside a turn and returns its id."""
        return run(self._work.append(message, format=format, event_id=event_id))

    def append_all(self, messages: Sequence[Any], *, format: str = "openai.chat") -> list[str]:
        """Stores several messages outside a turn in one commit, all or none, and returns
        their ids.
        """
        return run(self._work.append_all(messages, format=format))

    def record(self, messages: Sequence[Any], *, format: str = "openai.chat") -> "Recorded":
        """For agents that keep their own list of messages: stores what is new in the list, and
        keeps its shape as the context. Recording a list again, merged, trimmed, reloaded or copied,
        loses nothing and doubles nothing.
        """
        return run(self._work.record(messages, format=format))

    def context(self, format: str = "openai.chat", *, prefill: bool = False) -> Context:
        """What the model sees, ready to send; valid for its format, whatever the log holds.

        While a turn runs it ends with something for the model to answer: after a message of the
        model's own, with one that says to continue. With `prefill` the model's own message stays
        the last, for providers that go on with it.
        """
        return run(self._work.context(format, prefill=prefill))

    def transcript(self, after: int = 0, limit: int | None = None) -> Iterator[Message]:
        """Iterates over all messages after seq `after`, in order, nothing left out."""
        left = limit
        while left is None or left > 0:
            page, seq = run(self._work.messages(after, TELLING))
            if seq == after:
                return
            yield from page[:left]
            after = seq
            left = None if left is None else left - len(page)

    def head(self) -> int:
        """The seq of the session's last entry."""
        return run(self._work.head())

    def entries(self, after: int = 0) -> Iterator[Entry]:
        """Iterates over the entries of the log after seq `after`."""
        while page := run(self._work.entries(after)):
            yield from page
            after = page[-1].seq

    def follow(self, after: str | None = None) -> Iterator[Event]:
        """Iterates over events without end: those of the log, then live ones as they happen, chunks
        included, each once. It begins at the first entry, or after the event whose cursor is given.
        """
        return follow(self._work.room, after)

    def pending(self) -> list[Message]:
        """The messages in the inbox: accepted, and not yet taken into a turn."""
        return run(self._work.pending())

    def calls(self) -> list[ToolCall]:
        """Every tool call of the session with its state: open, waiting, approved, denied, done,
        failed or unknown.
        """
        return run(self._work.calls())

    def info(self) -> SessionInfo:
        """The session at a glance: its state, counts, title and usage."""
        return run(self._work.info())

    def turns(self, after: int = 0, limit: int | None = None) -> list[TurnInfo]:
        """The turns with numbers above `after`: how each ended, and the tokens it spent."""
        return run(self._work.turns(after, limit))

    def instructions(self, text: str | None = None) -> str | None:
        """Reads the system prompt or, given a text, sets a new version of it."""
        return run(self._work.instructions(text))

    def label(self, message_id: str | int, **labels: Any) -> None:
        """Puts labels on a message, values of JSON by name; `visible_to_model=False` takes it out
        of the context.
        """
        run(self._work.label(message_id, labels))

    def decide(self, call_id: str | int, approved: bool, *, by: str | int) -> None:
        """Answers a call that waits for approval. An approval is for its exact arguments, and is
        used once.
        """
        run(self._work.decide(call_id, approved, by))

    def compact(self, summary: "Summary", *, keep_turns: int = 4) -> "Compaction | None":
        """Puts a summary in the place of all but the last turns; `summary` is text, or a function
        of the messages covered.

        What is covered stays in the transcript. None when there is nothing to cover; waits for a
        running turn of others. In one's own running turn it covers what lies before the turn's open
        calls, and the turn goes on: that turn is the last one, so `keep_turns=0` cuts inside it.
        """
        return run(self._work.compact(summary, keep_turns))

    def rewind(self, to_message: str) -> None:
        """Lets the model's view end with this message from now on; the transcript keeps what came
        after, and rewinding to a later message brings it back.
        """
        run(self._work.rewind(to_message))

    def fork(self, at: str | None = None, key: str | None = None) -> "Session":
        """Makes a new session that shares the past of this one, up to message `at` or all of it,
        without copying it.
        """
        return Session(run(self._work.fork(at, key)))

    def stop(self, reason: str = "user") -> bool:
        """Ends the running turn as interrupted, whichever process it runs in; False when none was
        running.
        """
        return run(self._work.stop(reason))

    def end(self, reason: str) -> None:
        """Ends the session: what runs is interrupted, and no more turns can start. It can still be
        read, and the next `Store.session` of its key makes a new one. Ending it again changes
        nothing.
        """
        run(self._work.end(reason))

    def __repr__(self) -> str:
        return f"<Session {self.id[:8]} key={self.key!r} epoch={self.epoch}>"
