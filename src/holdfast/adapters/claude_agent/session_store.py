"""`HoldfastSessionStore`: Claude Code's transcripts as sessions.

The SDK mirrors each line that Claude Code writes, and resumes a session from what a store loads. A
transcript is a session of its own, a line is a message; beside a main transcript lies its summary,
which the SDK folds and which changes in the commit that stores the lines it was folded from.

The SDK runs on asyncio and on trio: every call here is a synchronous one on a thread.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from claude_agent_sdk import ClaudeSDKClient, SessionStore

from holdfast.adapters.claude_agent.lines import TranscriptPlace, Transcripts, on_thread
from holdfast.adapters.claude_agent.settle import settle
from holdfast.adapters.claude_agent.shown import Showing
from holdfast.adapters.framework import GivenStore, store_of
from holdfast.domain.arguments import kind_of
from holdfast.errors import BadArgument


class HoldfastSessionStore(SessionStore):
    """The Claude Agent SDK's session store, on a Holdfast store: one that is open, a path or an
    address. It may be used from several threads and event loops.
    """

    def __init__(self, store: GivenStore) -> None:
        self._transcripts = Transcripts(store_of(store))

    async def append(self, key: Any, entries: Any) -> None:
        """Stores a batch of lines in one commit; those whose uuid is known are there already.

        A transcript that somebody else has deleted, after this store has loaded or written it, is
        not begun anew by what still comes in for it: `SessionEnded`.
        """
        place = TranscriptPlace.of(key)
        if not isinstance(entries, list):
            raise _wrong("entries", "a list of lines", entries)
        for line in entries:
            if not isinstance(line, dict):
                raise _wrong("entries", "lines, each a dict", line)
        if entries:
            await on_thread(self._transcripts.append, place, entries)

    async def load(self, key: Any) -> list[Any] | None:
        """All lines of a transcript as they were appended, None when there is none. What a process
        that is gone had shown and not mirrored is stored first.
        """
        return await on_thread(self._load, TranscriptPlace.of(key))

    def _load(self, place: TranscriptPlace) -> list[Any] | None:
        if place.subpath is None:
            settle(self._transcripts, place)
        return self._transcripts.load(place)

    async def list_sessions(self, project_key: str) -> list[Any]:
        """The main transcripts of a project, each with the time of its last line."""
        states = await on_thread(self._transcripts.of_project, _name(project_key))
        return [{"session_id": id, "mtime": at} for id, at in states.items()]

    async def list_session_summaries(self, project_key: str) -> list[Any]:
        """What the SDK has folded of each main transcript of a project."""
        return await on_thread(self._transcripts.summaries, _name(project_key))

    async def delete(self, key: Any) -> None:
        """Erases a transcript; a main one with those of its sub-agents."""
        await on_thread(self._transcripts.delete, TranscriptPlace.of(key))

    async def list_subkeys(self, key: Any) -> list[str]:
        """The subpaths of a session's sub-agents."""
        return await on_thread(self._transcripts.subpaths, TranscriptPlace.of(key))

    async def query(
        self,
        *,
        prompt: Any,
        options: Any = None,
        transport: Any = None,
        event_id: str | int | None = None,
    ) -> AsyncGenerator[Any, None]:
        """The SDK's `query` on this store, with the prompt durable before Claude Code starts, and
        each piece of an answer before it is yielded. Another query of the same session, in any
        process, waits until this one is over. `prompt` is a text, or the blocks of a message.

        `event_id` is the sender's own name for the request: one that came before in this session
        raises `AlreadyAccepted`, and Claude Code is not started.
        """
        if not isinstance(prompt, str | list) or not prompt:
            raise _wrong("prompt", "a text, or a list of blocks", prompt)
        if event_id is not None and not isinstance(event_id, str | int):
            raise _wrong("event_id", "text or a number", event_id)
        name = None if event_id is None else str(event_id)
        showing = await Showing.begin(self._transcripts, prompt, options, name)
        client = ClaudeSDKClient(showing.options(self), transport)
        # Closed with this one, in its task: what it holds must not wait for the garbage collector.
        async with aclosing(showing.shown(client)) as messages:
            async for message in messages:
                yield message


def _name(project_key: Any) -> str:
    if not isinstance(project_key, str):
        raise _wrong("project_key", "a name", project_key)
    return project_key


def _wrong(parameter: str, takes: str, given: Any) -> BadArgument:
    return BadArgument(parameter=parameter, takes=takes, given=kind_of(given))
