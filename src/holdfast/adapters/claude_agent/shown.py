"""What a query shows, before Claude Code's own lines of it are stored.

The SDK mirrors lines in batches, when an answer is over. Until then a query has a session of its
own: the prompt, the events of each answer as they come, the results of tools. When the query is
over, the mirror has brought it all, and that session is erased. What it has not brought, since the
process or the mirror failed, is written as lines of the transcript by whoever looks next.
"""

import dataclasses
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import ExitStack, suppress
from typing import Any

import anyio
from claude_agent_sdk import (
    ClaudeAgentOptions,
    StreamEvent,
    ToolResultBlock,
    UserMessage,
    project_key_for_directory,
)

from holdfast.adapters.claude_agent.lines import (
    SHOWN,
    TranscriptPlace,
    Transcripts,
    on_thread,
)
from holdfast.adapters.claude_agent.settle import refuse_known, settle, settle_one
from holdfast.adapters.framework import key_of, uuid_of
from holdfast.errors import SessionBusy, SessionEnded
from holdfast.formats.anthropic.claude_code import NAME
from holdfast.runtime.turn import Turn

PAUSES_S = (0.02, 0.05, 0.1, 0.2)
"""How long to wait before it is asked again whether the other query is over."""


class Showing:
    """One query: its place, its turn in the transcript, and what it has shown so far."""

    def __init__(
        self,
        transcripts: Transcripts,
        prompt: Any,
        place: TranscriptPlace,
        asked: Any,
        event_id: str | None,
    ) -> None:
        self.place = place
        self._event_id = event_id
        self._prompt = prompt
        self._transcripts = transcripts
        self._asked = asked
        self._is_new = False
        self._held = ExitStack()
        self._stream: Any = None
        self._turn: Turn

    @classmethod
    async def begin(
        cls, transcripts: Transcripts, prompt: Any, options: Any, event_id: str | None
    ) -> "Showing":
        """Waits until no other query of this session runs, and stores the prompt."""
        asked = options if options is not None else ClaudeAgentOptions()
        place, is_new = await on_thread(_place_of, transcripts, asked)
        self = cls(transcripts, prompt, place, asked, event_id)
        self._is_new = is_new
        tries = 0
        try:
            # Asked again and again, and not waited for on the thread, which nobody
            # could cancel.
            while not await on_thread(self._took_turn):
                await anyio.sleep(PAUSES_S[min(tries, len(PAUSES_S) - 1)])
                tries += 1
            await on_thread(self._started)
        except BaseException:
            # A turn that was taken as this was cancelled would be waited for by all others.
            self._held.close()
            raise
        return self

    def options(self, store: Any) -> Any:
        """The options to ask with: on this store, this session, with every event."""
        named: dict[str, Any] = {"resume": self.place.session}
        if self._is_new:
            named = {"session_id": self.place.session}
        return dataclasses.replace(
            self._asked,
            session_store=store,
            include_partial_messages=True,
            continue_conversation=False,
            **named,
        )

    async def shown(self, client: Any) -> AsyncGenerator[Any, None]:
        """The messages of an answer, each after what it shows is durable."""
        try:
            await client.connect()
            await client.query(self._prompts())
            async for message in client.receive_response():
                await on_thread(self._keep, message)
                is_event = isinstance(message, StreamEvent)
                if not is_event or self._asked.include_partial_messages:
                    yield message
        finally:
            with anyio.CancelScope(shield=True):
                # The mirror brings its last lines now. Not so with the SDK's `query`: it
                # leaves what it was closed in to the garbage collector.
                await client.disconnect()
                await on_thread(self._over)

    async def _prompts(self) -> AsyncIterator[Any]:
        yield {
            "type": "user",
            "message": {"role": "user", "content": self._prompt},
            "parent_tool_use_id": None,
            "session_id": self.place.session,
        }

    def _took_turn(self) -> bool:
        session = self._transcripts.store.session(self.place.key)
        try:
            self._held.enter_context(session.turn(on_busy="refuse"))
        except (SessionBusy, SessionEnded):
            return False
        return True

    def _started(self) -> None:
        store = self._transcripts.store
        session = store.session(self.place.key)
        names = [self.place.project, self.place.session]
        if self._event_id is not None:
            # What another query was cut off in may be the same request.
            settle(self._transcripts, self.place)
            refuse_known(session, self._event_id)
        # In the key: from which entry on lines of this query can be, for whoever
        # settles it.
        names += [str(session.head()), store._work.world.chance(16).hex()]
        if self._event_id is not None:
            names.append(self._event_id)
        key = key_of(SHOWN, *names)
        said = {"type": "user", "message": {"role": "user", "content": self._prompt}}
        self._turn = self._held.enter_context(store.turn(key, said, format=NAME))

    def _keep(self, message: Any) -> None:
        # What a sub-agent says is in a transcript of its own, which the mirror brings.
        if getattr(message, "parent_tool_use_id", None) is not None:
            return
        if isinstance(message, StreamEvent):
            self._keep_event(message.event)
        elif isinstance(message, UserMessage) and isinstance(message.content, list):
            results = []
            for block in message.content:
                if isinstance(block, ToolResultBlock):
                    fields = dataclasses.asdict(block)
                    results.append({"type": "tool_result", **fields})
            if results:
                said = {"role": "user", "content": results}
                self._turn.add({"type": "user", "message": said}, format=NAME)

    def _keep_event(self, event: dict[str, Any]) -> None:
        kind = event.get("type")
        if self._stream is None or kind == "message_start":
            self._closed()
            self._stream = self._turn.stream(format=NAME)
        self._stream.push(event)
        if kind == "message_stop":
            self._closed()

    def _closed(self) -> None:
        if self._stream is not None:
            self._stream.close()
        self._stream = None

    def _over(self) -> None:
        key = self._turn._work.session.key
        with suppress(SessionEnded):
            self._closed()
            self._held.close()
        settle_one(self._transcripts, self.place, str(key))


def _place_of(transcripts: Transcripts, options: Any) -> tuple[TranscriptPlace, bool]:
    """The session that a query is going to be in, and whether it begins one."""
    project = project_key_for_directory(options.cwd)
    resumed = options.resume
    if resumed is None and options.continue_conversation:
        resumed = _newest(transcripts, project)
    if resumed is not None and not options.fork_session:
        return TranscriptPlace(project, resumed), False
    drawn = uuid_of(transcripts.store._work.world.chance(16))
    return TranscriptPlace(project, options.session_id or drawn), True


def _newest(transcripts: Transcripts, project: str) -> str | None:
    times = transcripts.of_project(project)
    for session_id in sorted(times, key=times.__getitem__, reverse=True):
        place = TranscriptPlace(project, session_id)
        settle(transcripts, place)
        lines = transcripts.load(place)
        if lines and lines[0].get("isSidechain") is not True:
            return session_id
    return None
