"""A graph whose runs are turns: streamed text is durable before it is shown.

A checkpointer sees whole steps; what a model says meanwhile it never sees. Here each run holds a
turn of its thread's session, from before its state is loaded until its end. So runs of one thread
follow each other, in however many processes; the words of the model are stored chunk by chunk, by a
callback that comes before LangGraph's own; and what a run that was cut off has left open is settled
before the next one begins (`settle`).
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, closing, contextmanager
from typing import Any

from langchain_core.callbacks import AsyncCallbackHandler, BaseCallbackHandler
from langchain_core.runnables.config import merge_configs
from langgraph.types import Command

from holdfast.adapters.framework import asynchronous
from holdfast.adapters.langchain_payloads import is_message, payload_of
from holdfast.adapters.langgraph.settle import settle
from holdfast.adapters.langgraph.thread import words_key
from holdfast.adapters.langgraph.words import FORMAT
from holdfast.errors import BadArgument
from holdfast.formats.reading import fields
from holdfast.runtime.plans.plan import run
from holdfast.runtime.plans.plan_asyncio import arun

HIDDEN = "nostream"
"""LangGraph's tag for a model whose words nobody is shown."""
LOOK_S = 0.002
LOOKS_MAX = 1000
"""How often one looks whether what a node has made is stored: it is on its way."""


class DurableGraph:
    """A compiled graph, with `invoke`, `stream`, `ainvoke` and `astream` in turns. Everything else is
    the graph's own. `event_id` names a request: the same one again raises `AlreadyAccepted`.
    """

    def __init__(self, saver: Any, graph: Any) -> None:
        checkpointer = getattr(graph, "checkpointer", None)
        # LangGraph makes copies of a checkpointer; they share what it knows.
        if getattr(checkpointer, "_threads", None) is not saver._threads:
            takes = "a graph that was compiled with this checkpointer"
            given = "one without any" if checkpointer is None else "one with another"
            raise BadArgument(parameter="graph", takes=takes, given=given)
        self._saver = saver
        self._graph = graph

    def __getattr__(self, name: str) -> Any:
        return getattr(self._graph, name)

    def invoke(
        self, input: Any, config: Any = None, *, event_id: Any = None, **options: Any
    ) -> Any:
        """Runs the graph in a turn; what it gives in the end."""
        with self._turn(input, config, event_id) as (_, config):
            # Else LangGraph goes on to the next step while this one is still being
            # stored.
            options.setdefault("durability", "sync")
            return self._graph.invoke(input, config, **options)

    def stream(
        self, input: Any, config: Any = None, *, event_id: Any = None, **options: Any
    ) -> Iterator[Any]:
        """Runs the graph in a turn; each event once what it shows is durable."""
        with self._turn(input, config, event_id) as (recorder, config):
            options.setdefault("durability", "sync")
            # Closed before the turn ends: nothing of the run goes on behind it.
            with closing(self._graph.stream(input, config, **options)) as events:
                for event in events:
                    recorder.comes(event, options)
                    for _ in range(LOOKS_MAX):
                        if not self._is_on_its_way(recorder, event, options):
                            break
                        time.sleep(LOOK_S)
                    if not recorder.shows_lost_words():
                        yield event

    async def ainvoke(
        self, input: Any, config: Any = None, *, event_id: Any = None, **options: Any
    ) -> Any:
        """As `invoke`."""
        async with self._aturn(input, config, event_id) as (_, config):
            options.setdefault("durability", "sync")
            return await self._graph.ainvoke(input, config, **options)

    async def astream(
        self, input: Any, config: Any = None, *, event_id: Any = None, **options: Any
    ) -> AsyncIterator[Any]:
        """As `stream`."""
        async with self._aturn(input, config, event_id) as (recorder, config):
            options.setdefault("durability", "sync")
            async with aclosing(
                self._graph.astream(input, config, **options)
            ) as events:
                async for event in events:
                    recorder.comes(event, options)
                    for _ in range(LOOKS_MAX):
                        if not self._is_on_its_way(recorder, event, options):
                            break
                        await asyncio.sleep(LOOK_S)
                    if not recorder.shows_lost_words():
                        yield event

    @contextmanager
    def _turn(self, input: Any, config: Any, event_id: Any) -> Iterator[Any]:
        merged, thread_id = self._merged(config)
        session = self._saver.store.session(words_key(thread_id))
        turns = self._saver._threads.turns
        with session.turn(format=FORMAT, event_id=event_id) as turn:
            turns[thread_id] = turn._work
            try:
                if _is_new(input, merged):
                    run(settle(self._saver, thread_id))
                recorder = _Recorder(turn, thread_id)
                yield recorder, _with_handler(merged, recorder)
            finally:
                turns.pop(thread_id, None)

    @asynccontextmanager
    async def _aturn(
        self, input: Any, config: Any, event_id: Any
    ) -> AsyncIterator[Any]:
        merged, thread_id = self._merged(config)
        key = words_key(thread_id)
        opened = await asyncio.to_thread(self._saver.store.session, key)
        session = asynchronous(opened)
        turns = self._saver._threads.turns
        async with session.turn(format=FORMAT, event_id=event_id) as turn:
            turns[thread_id] = turn._work
            try:
                if _is_new(input, merged):
                    await arun(settle(self._saver, thread_id))
                recorder = _AsyncRecorder(turn, thread_id)
                yield recorder, _with_handler(merged, recorder)
            finally:
                turns.pop(thread_id, None)

    def _merged(self, config: Any) -> tuple[Any, str]:
        merged = merge_configs(getattr(self._graph, "config", None), config)
        thread_id = merged.get("configurable", {}).get("thread_id")
        if thread_id is None:
            takes = "a config with `configurable` and a `thread_id` in it"
            raise BadArgument(parameter="config", takes=takes, given="one without")
        return merged, str(thread_id)

    def _is_on_its_way(self, recorder: "_Heard", event: Any, options: Any) -> bool:
        """Whether an event shows words that are not stored yet. LangGraph hands on what a node gives
        while it is being stored.
        """
        if recorder.is_behind():
            return True
        if options["durability"] == "exit":
            return False  # as its caller has asked for
        if _mode(event, options) == "custom":
            # A node has written it by itself, for the reader alone: it is not stored.
            return False
        thread = self._saver._threads.known(recorder.thread_id)
        if thread is None:
            return True
        return any(
            not thread.words.has(message)
            for message in _messages_in(event)
            if not _is_chunk(message) and message.id is not None
        )


def _mode(event: Any, options: Any) -> Any:
    mode = options.get("stream_mode")
    if options.get("version") == "v2":
        mode = event["type"]
    elif isinstance(mode, list):
        # The mode stands before the data, and behind the name of a subgraph.
        mode = event[-2]
    return mode


def _is_chunk(message: Any) -> bool:
    return type(message).__name__.endswith("Chunk")


def _is_new(input: Any, config: Any) -> bool:
    """Whether this begins something new, rather than going on where the graph stopped."""
    if config.get("configurable", {}).get("checkpoint_id"):
        return False
    return input is not None and not isinstance(input, Command)


def _with_handler(config: Any, handler: Any) -> Any:
    # First of all: what comes after it shows what it has stored.
    return merge_configs({"callbacks": [handler]}, config)


def _messages_in(value: Any, depth: int = 0) -> Iterator[Any]:
    """The messages that an event holds, and chunks of messages."""
    if is_message(value):
        yield value
    # Messages stand in lists and dicts near the top of an event; values of a state may
    # be as deep as they like.
    elif depth > 6:
        return
    elif isinstance(value, dict):
        for item in value.values():
            yield from _messages_in(item, depth + 1)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _messages_in(item, depth + 1)


class _Heard:
    """What models say in a run: which of it is stored, and which has come out of the graph.

    A graph inside another one may call its handlers in any order: LangChain merges them as sets. So
    a chunk may come out before it is stored; whoever hands it on waits until as many chunks of its
    message are stored as have come.
    """

    def __init__(self, turn: Any, thread_id: str) -> None:
        self.thread_id = thread_id
        self._turn = turn
        self._streams: dict[Any, Any] = {}
        self._hidden: set[Any] = set()
        self._speaking: set[Any] = set()
        self._stored: Counter[Any] = Counter()
        self._came: Counter[Any] = Counter()
        self._now: set[Any] = set()
        self._lost: set[Any] = set()

    def starts(self, run_id: Any, about: Any) -> None:
        """A model begins to speak."""
        if HIDDEN in (about.get("tags") or ()):
            self._hidden.add(run_id)
        else:
            self._speaking.add(run_id)

    def stream_of(self, run_id: Any) -> Any:
        """Where the words of this model go."""
        stream = self._streams.get(run_id)
        if stream is None:
            stream = self._streams[run_id] = self._turn.stream(FORMAT)
        return stream

    def ends(self, run_id: Any) -> Any:
        """A model has spoken: the stream of its words, if it had any."""
        self._speaking.discard(run_id)
        return self._streams.pop(run_id, None)

    @contextmanager
    def told_of(self, chunk: Any) -> Iterator[None]:
        """While a chunk is being stored."""
        name = getattr(getattr(chunk, "message", None), "id", None)
        try:
            yield
        except BaseException:
            self._lost.add(name)
            raise
        self._stored[name] += 1

    def comes(self, event: Any, options: Any) -> None:
        """An event has come out of the graph."""
        self._now.clear()
        if _mode(event, options) == "messages":
            for message in _messages_in(event):
                if _is_chunk(message):
                    self._came[message.id] += 1
                    self._now.add(message.id)

    def is_behind(self) -> bool:
        """Whether the event that came shows a chunk that is not stored yet. Nobody but a model that
        speaks has its words stored so.
        """
        return bool(self._speaking) and bool(self._missing() - self._lost)

    def shows_lost_words(self) -> bool:
        """Whether the event that came shows a chunk that could not be stored: its model fails."""
        return bool(self._missing() & self._lost)

    def _missing(self) -> set[Any]:
        return {name for name in self._now if self._stored[name] < self._came[name]}


class _Recorder(BaseCallbackHandler, _Heard):
    """Stores what models say, as they say it."""

    # In order, before the handlers that show what was said; and a word that can't be
    # stored is not shown.
    run_inline = True
    raise_error = True

    def on_chat_model_start(
        self, serialized: Any, messages: Any, *, run_id: Any, **about: Any
    ) -> None:
        self.starts(run_id, about)

    def on_llm_new_token(self, token: Any, *, run_id: Any, **about: Any) -> None:
        if run_id not in self._hidden:
            chunk = about.get("chunk")
            with self.told_of(chunk):
                self.stream_of(run_id).push(_chunk(token, chunk))

    def on_llm_end(self, response: Any, *, run_id: Any, **about: Any) -> None:
        stream = self.ends(run_id)
        if stream is not None:
            stream.push(_final(response))
            stream.close()

    def on_llm_error(self, error: Any, *, run_id: Any, **about: Any) -> None:
        stream = self.ends(run_id)
        if stream is not None:
            run(stream._open.leave(error))


class _AsyncRecorder(AsyncCallbackHandler, _Heard):
    """As `_Recorder`, for asyncio."""

    run_inline = True
    raise_error = True

    async def on_chat_model_start(
        self, serialized: Any, messages: Any, *, run_id: Any, **about: Any
    ) -> None:
        self.starts(run_id, about)

    async def on_llm_new_token(self, token: Any, *, run_id: Any, **about: Any) -> None:
        if run_id not in self._hidden:
            chunk = about.get("chunk")
            with self.told_of(chunk):
                await self.stream_of(run_id).push(_chunk(token, chunk))

    async def on_llm_end(self, response: Any, *, run_id: Any, **about: Any) -> None:
        stream = self.ends(run_id)
        if stream is not None:
            await stream.push(_final(response))
            await stream.close()

    async def on_llm_error(self, error: Any, *, run_id: Any, **about: Any) -> None:
        stream = self.ends(run_id)
        if stream is not None:
            await arun(stream._open.leave(error))


def _chunk(token: Any, chunk: Any) -> Any:
    message = getattr(chunk, "message", None)
    if message is None or not is_message(message):
        return {"data": {"content": token if isinstance(token, str) else ""}}
    return payload_of(message)


def _final(response: Any) -> Any:
    """The whole message as the model's class gives it: what the graph is going to store."""
    message = response.generations[0][0].message
    payload = payload_of(message)
    data = fields(payload.get("data"))
    # A stream's last word is its whole message; how it came in chunks is of no use.
    return {"final": {"type": payload["type"], "data": data}}
