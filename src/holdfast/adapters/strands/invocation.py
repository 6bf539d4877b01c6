"""One invocation of an agent in a turn of Holdfast.

The turn begins before the agent goes on from its history, and waits for the turns of other
processes. The events of the model are stored as they come, each before the agent hands it on (I-5).
Strands adds a message to its list when it is whole: that is the end of the stream which brought it,
and what is stored then is Strands' own record.
"""

from contextlib import suppress
from typing import Any

from holdfast.adapters.framework import asynchronous
from holdfast.adapters.strands.agent_messages import AgentMessages, Record
from holdfast.errors import AlreadyAccepted, HoldfastError, NotFound
from holdfast.formats.frameworks.strands import NAME, message_of
from holdfast.formats.reading import fields, text
from holdfast.runtime.live.session_log import SessionLog, speak
from holdfast.runtime.plans.plan import Plan, read, run
from holdfast.runtime.plans.plan_asyncio import arun
from holdfast.runtime.turns.running_turn import RunningTurn
from holdfast.runtime.turns.start_turn import already
from holdfast.runtime.turns.streams.push_stream import PushStream
from holdfast.runtime.turns.turn_messages import add


class InvocationTurn:
    """An invocation that is running: its turn, and what the model is saying."""

    def __init__(self, messages: AgentMessages, work: RunningTurn) -> None:
        self.messages = messages
        self._work = work
        self._log = messages.session._log
        self._view = _view(self._log)
        self._stream: PushStream | None = None
        self._failed: str | None = None
        self._shown: list[str] = []
        self._facts: list[Any] = []
        self._finished: list[PushStream] = []
        self.event_id: str | None = None
        """The caller's name for what is added next."""

    @classmethod
    async def begin(
        cls, messages: AgentMessages, event_id: str | None
    ) -> "InvocationTurn":
        """Waits until no other turn of this session runs. An event that came before raises
        `AlreadyAccepted`, and nothing is written.
        """
        if event_id is not None:
            await arun(_refuse_known(messages, event_id))
        session = asynchronous(messages.session)
        # What waits in the inbox is for whoever asks for it.
        turn = await session.turn(format=NAME, take=[])
        self = cls(messages, turn._work)
        # Dropped with its agent, or on an event loop that was closed, it ends all the same.
        turn._work.watch_block(self)
        return self

    def follows_entry(self, seq: int) -> bool:
        """Whether this invocation began right after this entry."""
        return self._log.log().turns[self._work.number].seq == seq + 1

    def follows(self, last: "InvocationTurn") -> bool:
        """Whether nothing was said between another invocation and this one, nor hidden, rewound or
        reworded since that one began.
        """
        log = self._log.log()
        with self._log.lock:
            said = log.natural
        is_next = bool(said) and said[-1].turn == last._work.number
        return is_next and last.is_whole and self._view == last._view

    async def model_called(self) -> None:
        """The model is asked, in this invocation perhaps again: what a failed attempt has shown
        stays in the transcript, and leaves the model's view.
        """
        self.model_left()
        if self._failed is None:
            return
        failed, self._failed = self._failed, None
        await arun(self._work.close_left())
        # It may have said nothing: then there is no message.
        with suppress(NotFound):
            session = asynchronous(self.messages.session)
            await session.label(failed, visible_to_model=False)

    async def push(self, chunk: Any) -> None:
        """Returns when this event of the model is durable, if it shows anything."""
        if self._stream is None:
            self._stream = PushStream(self._work, NAME)
            self._shown.clear()
            self._facts.clear()
        if "messageStop" in chunk or "metadata" in chunk:
            # Strands makes its message next, and these facts go with it.
            self._facts.append(chunk)
            return
        opened = self._stream._open
        opened.begin(self._stream, chunk)
        self._shown.append(await arun(opened.push(chunk)))

    def model_left(self) -> None:
        """The model's stream has ended, and Strands has made no message of it. Nothing is waited for:
        what it has said becomes a message with whatever the turn stores next.
        """
        stream, self._stream = self._stream, None
        if stream is not None:
            self._failed = stream.message_id
            stream._open.stream.closed = True

    @property
    def shown(self) -> str:
        """What was shown of the message that is being spoken."""
        return "".join(self._shown)

    @property
    def is_whole(self) -> bool:
        """Whether Strands has made messages of all that was said."""
        return self._stream is None and self._failed is None

    def add(self, record: Record) -> None:
        """Stores a message of the invocation, from any thread."""
        stream = self._stream
        if stream is not None and message_of(record).get("role") == "assistant":
            self._stream = None
            self._close(stream, record)
        elif self.event_id is not None:
            event_id, self.event_id = self.event_id, None
            run(_accepted(self._work, record, event_id))
        else:
            run(add(self._work, record, NAME))

    def _close(self, stream: PushStream, record: Record) -> None:
        """What was shown is in the journal; its whole message takes its place."""
        opened = stream._open
        if _words(record) != self.shown:
            # Cancelled: Strands says more than its model did, which has to be shown, too.
            final = {"final": record}
            opened.begin(stream, final)
            run(opened.push(final))
        with opened.stream.lock:
            assembly = opened.stream._assembly
            for chunk in self._facts:
                assembly.fold(assembly.take(chunk))
            assembly.fold([("done", 0, record)])
        if speak(record, NAME).note.calls:
            stream.close()  # before the tools are run (I-22)
        else:
            # Nothing more is shown of it: it is stored with what the turn stores next.
            opened.finish()
            self._finished.append(stream)

    def leave_later(self, error: BaseException | None) -> None:
        """As `leave`, for one who can't wait for that."""
        self._work.leave_later(error)

    async def leave(self, error: BaseException | None) -> None:
        """Ends the turn, as leaving its block by this error would."""
        work = self._work
        if work.is_cut_loose(error):
            # Nothing can be awaited by what is dropped: the keeper ends the turn.
            work.leave_later(error)
            return
        try:
            await arun(work.leave_block(error), deadline=work.deadline(error))
        except HoldfastError:
            if error is None:
                raise
        except BaseException:
            work.hand_over()
            raise


def _view(log: SessionLog) -> tuple[int, set[str], int]:
    """What lies on top of the messages: how often they were rewound, what is hidden, and how many
    have other words.
    """
    folded = log.log()
    with log.lock:
        return len(folded.rewinds), set(folded.hidden), len(folded.edits)


def _words(record: Record) -> str:
    blocks = message_of(record).get("content") or ()
    return "".join(text(fields(block).get("text")) for block in blocks)


def _accepted(work: RunningTurn, record: Record, event_id: str) -> Plan[None]:
    """Stores the message that came in under its caller's name for it, in one commit."""
    draft = work.session.message(speak(record, NAME), turn=work.number)
    yield from work.write(draft, event=work.session.event(event_id))


def _refuse_known(messages: AgentMessages, event_id: str) -> Plan[None]:
    log = messages.session._log
    scope = log.event(event_id)
    assert scope is not None
    known = yield from read(lambda: log.engine.accepted(*scope))
    if known is not None:
        told: AlreadyAccepted = yield from read(lambda: already(log, event_id, known))
        raise told
