"""A run of a LlamaIndex agent inside a turn.

An agent tells its memory of the prompt when it begins, and of all that it said when it has ended.
So the turn stores what the run says as it says it, and when the memory brings the same at the end,
it is claimed: it stands there already. While the agent works it reads its memory between two steps,
and adds what it has said by itself: until something is claimed, the run's own reads leave it out.

    agent ──events──► EventPump ──stored──► queue ──► whoever reads the run
      │ a tool is called: waits until the call is stored
"""

import asyncio
import copy
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextvars import ContextVar
from typing import Any

from llama_index.core.agent.workflow import AgentOutput, AgentStream, ToolCallResult
from llama_index.core.llms import ChatMessage

from holdfast.adapters.framework import asynchronous
from holdfast.runtime.live.message import Message
from holdfast.runtime.session import Session
from holdfast.runtime.turn_async import AsyncTurn

Payload = dict[str, Any]

running: ContextVar["ClaimedRun | None"] = ContextVar(
    "holdfast_llama_run", default=None
)
"""The run that the calling task works for."""


def dumped(message: ChatMessage) -> Payload:
    """A message as it is stored."""
    payload: Payload = message.model_dump(mode="json")
    return payload


class ClaimedRun:
    """What one run has said so far. `key`: whose list its memory writes to."""

    def __init__(
        self, key: str, session: Session, turn: AsyncTurn, prompt: Payload
    ) -> None:
        self.key = key
        self.session = session
        self.turn = turn
        self._prompt: Payload | None = prompt
        self._said: list[tuple[str, Payload]] = []
        self._claimed: set[str] = set()
        self._push: Any = None
        self._words = ""
        self._made: Counter[str] = Counter()
        self._news = asyncio.Event()
        self._failure: BaseException | None = None

    def claims(self, payload: Payload) -> bool:
        """Whether what the memory brings is stored already."""
        if payload == self._prompt:
            self._prompt = None
            return True
        for number, (id, said) in enumerate(self._said):
            if said == payload:
                del self._said[number]
                self._claimed.add(id)
                return True
        return False

    def leaves_out(self, message: Message) -> bool:
        """Whether the agent has this by itself: it was said in this run, and is not claimed."""
        is_said = message.turn == self.turn.id and message.role != "user"
        return is_said and message.id not in self._claimed

    async def store(self, event: Any) -> None:
        """Stores what an event says."""
        if isinstance(event, AgentStream):
            if event.delta:
                await self._say(event.delta)
        elif isinstance(event, AgentOutput):
            await self._end_message(event.response)
            self._made.update(call.tool_name for call in event.tool_calls)
            # After the message with the calls is stored: now their tools may run.
            self._news.set()
        elif isinstance(event, ToolCallResult):
            blocks = event.tool_output.blocks
            beside = {"tool_call_id": event.tool_id}
            answer = ChatMessage(role="tool", blocks=blocks, additional_kwargs=beside)
            await self._add(dumped(answer))

    async def _say(self, words: str) -> None:
        if self._push is None:
            self._push = self.turn.stream()
        await self._push.push(words)
        self._words += words

    async def _end_message(self, whole: ChatMessage) -> None:
        """The model's message is whole: with its calls, which no stream of words has."""
        payload = dumped(whole)
        push, self._push = self._push, None
        words, self._words = self._words, ""
        if push is None:
            if payload["blocks"]:
                await self._add(payload)
            return
        await push.close()
        if payload == dumped(ChatMessage(role="assistant", content=words)):
            self._said.append((push.message_id, payload))
            return
        await self._add(payload)
        # After it: whoever is killed in between has the words twice, and they are known by that.
        await self._hide(push.message_id)

    async def _add(self, payload: Payload) -> None:
        self._said.append((await self.turn.add(payload), payload))

    async def called(self, tool: str) -> None:
        """Returns when a call of this tool is stored; raises if it can't be."""
        while not self._made[tool]:
            if self._failure is not None:
                raise self._failure
            self._news.clear()
            await self._news.wait()
        # Counted by name: a tool is not told which call it is run for.
        self._made[tool] -= 1

    def fail(self, error: BaseException) -> None:
        """Nothing more is stored: no tool runs whose call would be forgotten."""
        self._failure = error
        self._news.set()

    async def end(self) -> None:
        """The run has ended, and its memory has brought what it wants to keep."""
        for id, _ in self._said:
            await self._hide(id)
        if self._push is not None:
            await self._hide(self._push.message_id)

    async def _hide(self, id: str) -> None:
        await asynchronous(self.session).label(id, visible_to_model=False)


class EventPump:
    """Takes the events of a run, stores each, and hands it on. Storing waits for nobody who reads:
    a tool would wait for them.
    """

    def __init__(self, run: ClaimedRun, handler: Any) -> None:
        self._run, self._handler = run, handler
        self._stored: asyncio.Queue[Any] = asyncio.Queue()

    async def events(self) -> AsyncGenerator[Any, None]:
        """The events, each durable; raises what the run has raised."""
        pumping = asyncio.ensure_future(self._pump())
        try:
            while (event := await self._stored.get()) is not None:
                yield event
            await pumping
            await self._handler
        finally:
            pumping.cancel()
            # Whoever has left reads no more of it: the model is not asked for the rest.
            if not self._handler.is_done():
                await self._handler.cancel_run()

    async def _pump(self) -> None:
        try:
            async for event in self._handler.stream_events():
                await self._run.store(event)
                self._stored.put_nowait(event)
        except BaseException as error:
            self._run.fail(error)
            raise
        finally:
            self._stored.put_nowait(None)


def with_stored_calls(agent: Any, run: ClaimedRun) -> Any:
    """The agent, or the workflow of agents, with tools that begin when their calls are stored. What
    a tool retriever finds is not among them.
    """
    agents = getattr(agent, "agents", None)
    if isinstance(agents, dict):
        # A copy for this run: the program's own agent may be in other runs.
        clone = copy.copy(agent)
        clone.agents = {}
        for name, each in agents.items():
            clone.agents[name] = with_stored_calls(each, run)
        return clone
    tools = getattr(agent, "tools", None)
    if not tools:
        return agent
    clone = copy.copy(agent)
    clone.tools = [_stored_first(tool, run) for tool in tools]
    return clone


def _stored_first(tool: Any, run: ClaimedRun) -> Any:
    clone = copy.copy(tool)
    inner: Callable[..., Awaitable[Any]] = tool.acall
    name = tool.metadata.get_name()

    async def acall(*arguments: Any, **named: Any) -> Any:
        await run.called(name)
        return await inner(*arguments, **named)

    clone.acall = acall
    return clone
