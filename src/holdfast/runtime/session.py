"""A session: one conversation, from its first message to its end; what can be asked of it and done
with it.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.domain.arguments import OnBusy
from holdfast.domain.entry import Entry
from holdfast.domain.turn import ToolCall
from holdfast.engine.late_import import loading
from holdfast.runtime.border import bordered
from holdfast.runtime.catalog import read_session
from holdfast.runtime.catalog.follow_session import follow
from holdfast.runtime.changes.append import append, append_all, instructions, label
from holdfast.runtime.changes.approve import decide
from holdfast.runtime.changes.end_session import end, stop
from holdfast.runtime.changes.fork_rewind import fork, rewind
from holdfast.runtime.live.context import Context
from holdfast.runtime.live.follow import Event
from holdfast.runtime.live.message import Message
from holdfast.runtime.live.session_log import SessionLog
from holdfast.runtime.live.totals import SessionInfo, TurnInfo
from holdfast.runtime.live.transcript import TELLING, Transcript
from holdfast.runtime.plans.plan import run
from holdfast.runtime.turn import Turn
from holdfast.runtime.turns.outbox import Receipt
from holdfast.runtime.turns.start_turn import TurnRequest, start

if TYPE_CHECKING:
    from holdfast.domain.record.memory import Memory
    from holdfast.runtime.changes.compact import Compaction, Summary
    from holdfast.runtime.changes.record import Recorded


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

    def __init__(self, log: SessionLog) -> None:
        self._log = log
        self._memory: Memory | None = None
        self.id = log.id
        self.key = log.key
        self.epoch = log.epoch
        self.tenant = log.tenant

    def turn(
        self,
        message: Any = None,
        *,
        format: str = "openai.chat",
        event_id: str | int | None = None,
        on_busy: OnBusy = "wait",
        reply_to: str | int | None = None,
        lease_s: float = 30,
        take: Sequence[str | Message | Receipt] | None = None,
    ) -> Turn:
        """Starts a turn: takes what waits in the inbox and then `message`, which is durable when
        this returns.

        While another turn runs, `on_busy` says whether to "wait" for it (the message is in the
        inbox meanwhile), to "interrupt" it and take over, or to "refuse" with `SessionBusy`. An
        `event_id` that came before raises `AlreadyAccepted`.

        With `take`, just those messages of the inbox are taken. A receipt may be of another
        session: its message is brought along in the same transaction. One that does not wait, or
        that another caller waits with, raises `NotFound`: nothing is written, and no turn is
        interrupted. So `message` is stored when the turn starts, not while it waits.
        """
        wish = TurnRequest(
            self._log.world,
            message,
            format=format,
            event_id=event_id,
            on_busy=on_busy,
            reply_to=reply_to,
            lease_s=lease_s,
            take=take,
        )
        return Turn(run(start(self._log, wish)))

    def append(
        self,
        message: Any,
        *,
        format: str = "openai.chat",
        event_id: str | int | None = None,
    ) -> str:
        """Stores one message outside a turn and returns its id. While a turn runs, one's own too,
        it stands after all of that turn in the context; `Turn.add` puts one into the turn.
        """
        return run(append(self._log, message, format=format, event_id=event_id))

    def append_all(
        self, messages: Sequence[Any], *, format: str = "openai.chat"
    ) -> list[str]:
        """Stores several messages outside a turn in one commit, all or none, and returns
        their ids.
        """
        return run(append_all(self._log, messages, format=format))

    def record(
        self, messages: Sequence[Any], *, format: str = "openai.chat"
    ) -> "Recorded":
        """For agents that keep their own list of messages: stores what is new in the list, and
        keeps its shape as the context. Recording a list again, merged, trimmed, reloaded or copied,
        loses nothing and doubles nothing.
        """
        # loaded by those who record: most programs don't
        with loading(self._log.engine.where):
            from holdfast.domain.record.memory import Memory
            from holdfast.runtime.changes.record import record

        self._memory = self._memory or Memory()
        return run(record(self._log, self._memory, messages, format=format))

    def context(self, format: str = "openai.chat", *, prefill: bool = False) -> Context:
        """What the model sees, ready to send; valid for its format, whatever the log holds.

        While a turn runs it ends with something for the model to answer: after a message of the
        model's own, with one that says to continue. With `prefill` the model's own message stays
        the last, for providers that go on with it.
        """
        return run(read_session.context(self._log, format, prefill=prefill))

    def transcript(self, after: int = 0, limit: int | None = None) -> Iterator[Message]:
        """Iterates over all messages after seq `after`, in order, nothing left out."""
        transcript = Transcript(self._log)
        left = limit
        while left is None or left > 0:
            page, seq = run(read_session.messages(transcript, after, TELLING))
            # Not `if not page`: a page of entries may have no message among them, and
            # more may follow.
            if seq == after:
                return
            yield from page[:left]
            after = seq
            left = None if left is None else left - len(page)

    def head(self) -> int:
        """The seq of the session's last entry."""
        return run(read_session.head(self._log))

    def entries(self, after: int = 0) -> Iterator[Entry]:
        """Iterates over the entries of the log after seq `after`."""
        while page := run(read_session.entries(self._log, after)):
            yield from page
            after = page[-1].seq

    def follow(self, after: str | None = None) -> Iterator[Event]:
        """Iterates over events until the session is over: those of the log, then live ones as they
        happen, chunks included, each once. It begins at the first entry, or after the event whose
        cursor is given. What is noted of a session that is over, an erasure or the result of a call
        that came late, is told to whoever follows it again.
        """
        return follow(self._log, after)

    def pending(self) -> list[Message]:
        """The messages in the inbox: accepted, and not yet taken into a turn. Those that callers of
        `turn` wait with are among them: only their own turns take them.
        """
        return run(read_session.pending(self._log))

    def calls(self) -> list[ToolCall]:
        """Every tool call of the session with its state: open, waiting, approved, rewound, denied,
        done, failed or unknown.
        """
        return run(read_session.calls(self._log))

    def info(self) -> SessionInfo:
        """The session at a glance: its state, counts, title and usage."""
        return run(read_session.info(self._log))

    def turns(self, after: int = 0, limit: int | None = None) -> list[TurnInfo]:
        """The turns with numbers above `after`: how each ended, and the tokens it spent."""
        return run(read_session.turns(self._log, after, limit))

    def instructions(self, text: str | None = None) -> str | None:
        """Reads the system prompt or, given a text, sets a new version of it."""
        return run(instructions(self._log, text))

    def label(self, message_id: str | int, **labels: Any) -> None:
        """Puts labels on a message, values of JSON by name; `visible_to_model=False` takes it out
        of the context.
        """
        run(label(self._log, message_id, labels))

    def decide(
        self,
        call_id: str | int,
        approved: bool,
        *,
        by: str | int,
        message: str | None = None,
        index: int | None = None,
    ) -> None:
        """Answers a call that waits for approval. An approval is for its exact arguments, and is
        used once. Where several calls with this id wait, `message` is the id of the message that
        makes the call, and `index` its place among the calls of that; `calls` gives both.
        """
        run(decide(self._log, call_id, approved, by, message, index))

    def compact(
        self, summary: "Summary", *, keep_turns: int = 4
    ) -> "Compaction | None":
        """Puts a summary in the place of all but the last turns; `summary` is text, or a function
        of the messages covered.

        What is covered stays in the transcript. None when there is nothing to cover; waits for a
        running turn of others. In one's own running turn it covers what lies before the turn's open
        calls, and the turn goes on: that turn is the last one, so `keep_turns=0` cuts inside it.
        `Conflict` when somebody has changed what it covers while the summary was made: compact
        again.
        """
        # Loaded when it is used, as `record` is.
        with loading(self._log.engine.where):
            from holdfast.runtime.changes.compact import compact

        return run(compact(self._log, summary, keep_turns=keep_turns))

    def rewind(self, to_message: str) -> None:
        """Lets the model's view end with this message from now on; the transcript keeps what came
        after, and rewinding to a later message brings it back. `SessionBusy` while a turn runs,
        `NotFound` when the session has no such message.
        """
        run(rewind(self._log, to_message))

    def fork(self, at: str | None = None, key: str | None = None) -> "Session":
        """Makes a new session that shares the past of this one, up to message `at`, with the labels
        that it was accepted with, or all of it, without copying it.
        """
        return Session(run(fork(self._log, at=at, key=key)))

    def stop(self, reason: str = "user") -> bool:
        """Ends the running turn as interrupted, whichever process it runs in; False when none was
        running.
        """
        return run(stop(self._log, reason))

    def end(self, reason: str) -> None:
        """Ends the session: what runs is interrupted, and no more turns can start. It can still be
        read, and the next `Store.session` of its key makes a new one. Ending it again changes
        nothing.
        """
        run(end(self._log, reason))

    def __repr__(self) -> str:
        return f"<Session {self.id[:8]} key={self.key!r} epoch={self.epoch}>"
