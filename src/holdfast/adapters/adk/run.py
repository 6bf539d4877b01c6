"""One invocation of the kit in a turn of Holdfast.

The turn begins before the user's message is stored, and waits for those of other processes; so what
the model is told is what its turn follows on. Pieces of a streamed event are stored as they come.
The event itself then takes their place; if it never comes, they are what was shown.
"""

import asyncio
from typing import Any

from google.adk.events.event import Event
from msgspec.structs import replace

from holdfast.adapters.adk.events import chunk_of, thoughts_in, words_of
from holdfast.domain.entry import Labelled
from holdfast.domain.message import Spoken
from holdfast.engine.protocol import Commit, Outcome, Write
from holdfast.formats.frameworks.adk import NAME
from holdfast.runtime.live.session_log import SessionLog
from holdfast.runtime.plans.plan import Plan
from holdfast.runtime.plans.plan_asyncio import arun
from holdfast.runtime.turns.running_turn import RunningTurn
from holdfast.runtime.turns.streams.push_stream_async import AsyncPushStream
from holdfast.runtime.turns.streams.whole_message import store_whole

HIDDEN = {"visible_to_model": False}
Speaker = tuple[str, str | None]


class InvocationRun:
    """A run that holds the turn of its session."""

    def __init__(self, log: SessionLog, work: RunningTurn, *, is_owned: bool) -> None:
        self.log, self._work = log, work
        self.is_owned = is_owned
        """Whether somebody else ends its turn."""
        self.is_left = False
        """Whether it was over before its turn could be taken from it: what is appended later under its
        name is not of it.
        """
        self.invocation_id: str | None = None
        self.request: tuple[str, str] | None = None
        """The caller's name for the request, until the user's message is stored under it."""
        # A run whose invocation has no name yet belongs to the invocation that this
        # task begins.
        self._task = asyncio.current_task()
        self._reader: asyncio.Task[Any] | None = None
        self._agent: asyncio.Task[Any] | None = None
        self._streams: dict[Speaker, tuple[AsyncPushStream, list[str]]] = {}

    @property
    def is_ended(self) -> bool:
        return self._work.ended

    def takes(self, invocation_id: str) -> bool:
        """Whether this is the run of that invocation, which is one that is about to begin. One that
        was left, by a task that begins another now, is ended.
        """
        is_own = self._task is asyncio.current_task()
        if self.invocation_id is None and is_own:
            self.invocation_id = invocation_id
        if self.invocation_id == invocation_id and not self.is_ended:
            return True
        if is_own and not self.is_owned:
            self.abandon()
        return False

    def watch(self, context: Any) -> None:
        """When this context is gone, and the run with it, the turn is ended."""
        self._work.watch_block(context)

    def is_read_by(self, task: "asyncio.Task[Any] | None") -> None:
        """This task reads the run's events. When it is over and was cancelled, or the agent was, the
        run is over, too: the kit tells no plug-in of that.
        """
        if task is not None and task is not self._reader:
            self._reader = task
            task.add_done_callback(self._reader_is_done)

    def is_worked_on_by(self, task: "asyncio.Task[Any] | None") -> None:
        """This task runs the agent that has begun last."""
        self._agent = task

    def _reader_is_done(self, task: "asyncio.Task[Any]") -> None:
        # Who reads each event in a task of its own has another reader by now.
        if task is not self._reader or self.is_owned:
            return
        is_cancelled = self._agent is not None and self._agent.cancelled()
        if task.cancelled() or is_cancelled:
            self.abandon()

    def abandon(self) -> None:
        """It was left, and nobody can wait for its end."""
        self.is_left = True
        if not self._work.ended:
            self._work.leave_later(asyncio.CancelledError())

    async def leave(self, error: BaseException | None) -> None:
        """The end of the run, by this error or without any."""
        self.is_left = True
        if not self._work.ended:
            leaving = self._work.leave_block(error)
            await arun(leaving, deadline=self._work.deadline(error))

    async def push(self, event: Event) -> None:
        """Stores a piece of a streamed event, if it says anything."""
        words = words_of(event)
        if not words and not thoughts_in(event):
            return
        chunk = chunk_of(event)
        speaker = _speaker(event)
        if speaker not in self._streams:
            self._streams[speaker] = AsyncPushStream(self._work, NAME), []
        stream, shown = self._streams[speaker]
        await stream.push(chunk)
        shown.append(words)

    def store(
        self, event: Event, spoken: Spoken, name: tuple[str, str], also: Commit
    ) -> Plan[Outcome]:
        """Stores an event of this run, in the place of what was streamed of it."""
        stream = yield from self._streamed(event)
        # The user's message is stored under the caller's name for it, so that the same
        # request, sent again, is refused.
        if self.request is not None and event.author == "user":
            name = self.request
        outcome = yield from store_whole(
            self._work, spoken, stream=stream, event=name, also=also
        )
        return outcome

    def done(self, event: Event) -> None:
        """The event is stored."""
        self._streams.pop(_speaker(event), None)
        if event.author == "user":
            self.request = None

    def _streamed(self, event: Event) -> Plan[Any]:
        """The stream whose whole this event is."""
        found = self._streams.get(_speaker(event))
        if found is None or not (event.content or event.error_code):
            return None
        face, shown = found
        stream = face._open.stream
        if _squeezed("".join(shown)) in _squeezed(words_of(event)):
            return stream
        # Something else was shown than what the event says: the transcript keeps it.
        del self._streams[_speaker(event)]
        yield from self._work.close_stream(stream)
        if event.content is not None and words_of(event):
            note = Labelled(stream.id.hex(), HIDDEN)
            yield from self._work.write(self.log.draft("label", note))
        return None

    def store_late(self, spoken: Spoken) -> Plan[None]:
        """Stores what the run had done before it knew that its turn is over (I-7)."""
        late = Spoken(replace(spoken.note, late=True), spoken.body)
        draft = self.log.message(late, turn=self._work.number)
        yield from self.log.commit(Write(self.log.id, (draft,), ended_too=True))

    def interrupted(self) -> Plan[Any]:
        """The error that says why the turn is over."""
        return self._work.interrupted()


def _speaker(event: Event) -> Speaker:
    return event.author, event.branch


def _squeezed(words: str) -> str:
    """The words without blanks: models and callbacks strip."""
    return "".join(words.split())
