"""A graph whose runs are turns: streamed text is durable before it is shown.

A checkpointer sees whole steps; what a model says meanwhile it never sees. Here each run holds a
turn of its thread's session, from before its state is loaded until its end. So runs of one thread
follow each other, in however many processes; the words of the model are stored chunk by chunk, by a
callback that comes before LangGraph's own; and what a run that was cut off has left open is settled
before the next one begins (`settle`).
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
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
        with self._turn(input, config, event_id) as (thread_id, config):
            options.setdefault("durability", "sync")
            for event in self._graph.stream(input, config, **options):
                for _ in range(LOOKS_MAX):
                    if not self._is_on_its_way(thread_id, event, options):
                        break
                    time.sleep(LOOK_S)
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
        async with self._aturn(input, config, event_id) as (thread_id, config):
            options.setdefault("durability", "sync")
            async for event in self._graph.astream(input, config, **options):
                for _ in range(LOOKS_MAX):
                    if not self._is_on_its_way(thread_id, event, options):
                        break
                    await asyncio.sleep(LOOK_S)
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
                yield thread_id, _with_handler(merged, _Recorder(turn))
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
                yield thread_id, _with_handler(merged, _AsyncRecorder(turn))
            finally:
                turns.pop(thread_id, None)

    def _merged(self, config: Any) -> tuple[Any, str]:
        merged = merge_configs(getattr(self._graph, "config", None), config)
        thread_id = merged.get("configurable", {}).get("thread_id")
        if thread_id is None:
            takes = "a config with `configurable` and a `thread_id` in it"
            raise BadArgument(parameter="config", takes=takes, given="one without")
        return merged, str(thread_id)

    def _is_on_its_way(self, thread_id: str, event: Any, options: Any) -> bool:
        """Whether an event shows messages that are not in the transcript yet. LangGraph hands on
        what a node gives while it is being stored.
        """
        if options["durability"] == "exit":
            return False  # as its caller has asked for
        if _is_custom(event, options):
            return False
        thread = self._saver._threads.known(thread_id)
        if thread is None:
            return True
        return any(not thread.words.has(message) for message in _messages_in(event))


def _is_custom(event: Any, options: Any) -> bool:
    """Whether a node has written an event by itself, for the reader alone: it is not stored."""
    mode = options.get("stream_mode")
    if options.get("version") == "v2":
        mode = event["type"]
    elif isinstance(mode, list):
        # The mode stands before the data, and behind the name of a subgraph.
        mode = event[-2]
    return bool(mode == "custom")


def _is_new(input: Any, config: Any) -> bool:
    """Whether this begins something new, rather than going on where the graph stopped."""
    if config.get("configurable", {}).get("checkpoint_id"):
        return False
    return input is not None and not isinstance(input, Command)


def _with_handler(config: Any, handler: Any) -> Any:
    # First of all: what comes after it shows what it has stored.
    return merge_configs({"callbacks": [handler]}, config)


def _messages_in(value: Any, depth: int = 0) -> Iterator[Any]:
    """The whole messages that an event holds. Chunks were stored before they came."""
    if is_message(value):
        if not type(value).__name__.endswith("Chunk") and value.id is not None:
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


class _Recorder(BaseCallbackHandler):
    """Stores what models say, as they say it."""

    # In order, before the handlers that show what was said; and a word that can't be
    # stored is not shown.
    run_inline = True
    raise_error = True

    def __init__(self, turn: Any) -> None:
        self._turn = turn
        self._streams: dict[Any, Any] = {}
        self._hidden: set[Any] = set()

    def on_chat_model_start(
        self, serialized: Any, messages: Any, *, run_id: Any, **about: Any
    ) -> None:
        if HIDDEN in (about.get("tags") or ()):
            self._hidden.add(run_id)

    def on_llm_new_token(self, token: Any, *, run_id: Any, **about: Any) -> None:
        if run_id not in self._hidden:
            stream = self._streams.get(run_id)
            if stream is None:
                stream = self._streams[run_id] = self._turn.stream(FORMAT)
            stream.push(_chunk(token, about.get("chunk")))

    def on_llm_end(self, response: Any, *, run_id: Any, **about: Any) -> None:
        stream = self._streams.pop(run_id, None)
        if stream is not None:
            stream.push(_final(response))
            stream.close()

    def on_llm_error(self, error: Any, *, run_id: Any, **about: Any) -> None:
        stream = self._streams.pop(run_id, None)
        if stream is not None:
            run(stream._open.leave(error))


class _AsyncRecorder(AsyncCallbackHandler):
    """As `_Recorder`, for asyncio."""

    run_inline = True
    raise_error = True

    def __init__(self, turn: Any) -> None:
        self._turn = turn
        self._streams: dict[Any, Any] = {}
        self._hidden: set[Any] = set()

    async def on_chat_model_start(
        self, serialized: Any, messages: Any, *, run_id: Any, **about: Any
    ) -> None:
        if HIDDEN in (about.get("tags") or ()):
            self._hidden.add(run_id)

    async def on_llm_new_token(self, token: Any, *, run_id: Any, **about: Any) -> None:
        if run_id not in self._hidden:
            stream = self._streams.get(run_id)
            if stream is None:
                stream = self._streams[run_id] = self._turn.stream(FORMAT)
            await stream.push(_chunk(token, about.get("chunk")))

    async def on_llm_end(self, response: Any, *, run_id: Any, **about: Any) -> None:
        stream = self._streams.pop(run_id, None)
        if stream is not None:
            await stream.push(_final(response))
            await stream.close()

    async def on_llm_error(self, error: Any, *, run_id: Any, **about: Any) -> None:
        stream = self._streams.pop(run_id, None)
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
