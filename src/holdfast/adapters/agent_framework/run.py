"""One run of an agent in a turn of Holdfast.

The turn begins before the history is read, so that what the model is told is what the turn follows
on, and waits for the turns of other processes. A chat middleware stands around every call of the
model: results that the tools have brought are stored before it, updates as they pass, and the whole
message when it is over, which is before a tool of it runs (I-22).

Nobody tells a provider that a run was given up. The turn is held by the run, the run by the
framework's context of it: when that is dropped, the keeper ends the turn.
"""

import asyncio
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import Any

from agent_framework import (
    ChatContext,
    ChatMiddleware,
    ChatResponse,
    FunctionInvocationContext,
    FunctionMiddleware,
    ResponseStream,
)

from holdfast.adapters.agent_framework.prompts import as_one, prompts_in_a_row
from holdfast.adapters.framework import asynchronous
from holdfast.formats.frameworks.agent_framework import NAME
from holdfast.formats.reading import dumped, fields, text
from holdfast.runtime.live.message import Message
from holdfast.runtime.session import Session
from holdfast.runtime.turn_async import AsyncTurn
from holdfast.runtime.turns import turn_owner

Payload = dict[str, Any]

_around: "ContextVar[weakref.ref[AgentRun] | None]" = ContextVar(
    "holdfast_agent_run", default=None
)
"""The run whose tool is being run."""


class AgentRun:
    """A run, its turn, and what of it is stored."""

    def __init__(self, session: Session, turn: AsyncTurn, author: str | None) -> None:
        self.session = session
        self.turn = turn
        self.is_asking = False
        """Whether the model is being asked, and has not said all."""
        self.is_ending = False
        self.is_left = False
        self.opening: Callable[[], list[Payload]] | None = None
        """What is to be stored before the model is first asked, where that is not known yet."""
        self._author = author
        self._event_id: str | None = None
        self._brought: set[str] = set()
        self._stream: Any = None
        self._stored = StoredContents()

        self.is_here()

    def is_here(self) -> None:
        """The running task works on this run now."""
        # Weakly: a task that is gone must not be kept, and that it is gone is what is
        # asked later.
        self._task = weakref.ref(asyncio.current_task() or self)

    @property
    def is_around(self) -> bool:
        """Whether the caller works inside this run."""
        return turn_owner.is_around(self.session.id, self.turn._work.number)

    @property
    def runs_a_tool_here(self) -> bool:
        """Whether the caller is in a tool of this run."""
        known = _around.get()
        return known is not None and known() is self

    @property
    def was_given_up(self) -> bool:
        """Whether nobody goes on with it, though nobody has left it: its task does something else,
        or is over. The stream of a model may be read by several tasks, one after the other.
        """
        if self._task() is asyncio.current_task():
            return True
        return self.has_no_reader and not self.is_asking

    @property
    def has_no_reader(self) -> bool:
        """Whether the task that has worked on it last is over."""
        task = self._task()
        return task is None or (isinstance(task, asyncio.Task) and task.done())

    def has_begun_with(self, payload: Payload, event_id: str | None) -> None:
        """The turn has begun with this message, under this name."""
        self._event_id = event_id
        self._stored.note(payload)

    async def open(self, payloads: list[Payload]) -> None:
        """Stores what the run begins with, in one commit."""
        self.opening = None
        if payloads:
            self._brought.update(await self.turn.add_all(payloads, NAME))
        for payload in payloads:
            self._stored.note(payload)

    def has_brought(self, message: Message) -> bool:
        """Whether this is a message of the run's own: the framework adds its input itself, and a
        history has what was said before.
        """
        if message.turn != self.turn.id:
            return False
        is_request = self._event_id is not None and message.event_id == self._event_id
        return is_request or message.id in self._brought or message.role != "user"

    async def add(self, payloads: Sequence[Payload]) -> None:
        """Stores what is new in these messages, in one commit."""
        new = []
        for payload in payloads:
            rest = self._stored.rest(payload)
            if rest is not None:
                new.append(rest)
                self._stored.note(rest)
        if new:
            await self.turn.add_all(new, NAME)

    async def add_results(self, messages: Sequence[Any]) -> None:
        """Stores what tools have answered since the model was last asked."""
        found = []
        for message in messages:
            kinds = {content.type for content in message.contents}
            if "function_result" in kinds and _is_new(message):
                found.append(message.to_dict())
        await self.add(found)

    async def keep(self, update: Any) -> None:
        """Stores an update of the model's stream."""
        self.is_here()
        if self._stream is None:
            self._stream = self.turn.stream(NAME)
        contents = [content.to_dict() for content in update.contents]
        chunk = {
            "contents": contents,
            "role": update.role,
            "author_name": update.author_name or self._author,
            "message_id": update.message_id,
            "model": update.model,
            "finish_reason": update.finish_reason,
        }
        await self._stream.push(chunk)

    async def keep_response(self, response: Any) -> None:
        """Stores what the model has said in one call, as the framework puts it together. Its first
        message takes the place of what was streamed.
        """
        self.is_here()
        payloads = []
        for message in response.messages:
            payload = message.to_dict()
            if self._author is not None:
                payload.setdefault("author_name", self._author)
            payloads.append(payload)
        stream = self._stream or self.turn.stream(NAME)
        self._stream = None
        if payloads:
            final = {"final": payloads[0], "usage": response.usage_details}
            told = {"model": response.model, "finish_reason": response.finish_reason}
            await stream.push({**final, **told})
            self._stored.note(payloads[0])
        await stream.close()
        await self.add(payloads[1:])

    async def leave(self, error: BaseException | None) -> None:
        """Ends the turn as leaving its block would."""
        self.is_left = True
        self._stream = None
        kind = None if error is None else type(error)
        await self.turn._leave(kind, error, None)

    async def begin_again(self) -> None:
        """A middleware asks the model again after an error: that is another turn."""
        if not self.is_left:
            return
        self.turn = await asynchronous(self.session).turn(format=NAME)
        self.is_left = False


class ToolMiddleware(FunctionMiddleware):
    """Stands around each tool of a run: what is begun there belongs to it."""

    def __init__(self, run: AgentRun) -> None:
        self._run = weakref.ref(run)

    async def process(
        self,
        context: FunctionInvocationContext,
        call_next: Callable[[], Awaitable[None]],
    ) -> None:
        token = _around.set(self._run)
        try:
            await call_next()
        except Exception:
            # The framework tells the model.
            raise
        except BaseException as error:
            run = self._run()
            if run is not None:
                await _left(run, error)
            raise
        finally:
            _around.reset(token)


class ModelMiddleware(ChatMiddleware):
    """Stands around each call of the model in a run. The framework's clients keep the middleware of
    their last run: this one does not hold it.
    """

    def __init__(self, run: AgentRun, source_id: str) -> None:
        self._run = weakref.ref(run)
        self._source_id = source_id

    async def process(
        self, context: ChatContext, call_next: Callable[[], Awaitable[None]]
    ) -> None:
        run = self._run()
        if run is None:
            await call_next()
            return
        await run.begin_again()
        if run.opening is not None:
            await run.open(run.opening())
        await run.add_results(context.messages)
        _join_prompts(context, self._source_id)
        run.is_asking = True
        try:
            await call_next()
            if isinstance(context.result, ChatResponse):
                await run.keep_response(context.result)
        except BaseException as error:
            await _left(run, error)
            raise
        if isinstance(context.result, ResponseStream):
            inner = context.result
            context.result = ResponseStream(
                _kept(self._run, inner), finalizer=lambda _: inner.get_final_response()
            )
        else:
            run.is_asking = False


def _join_prompts(context: ChatContext, source_id: str) -> None:
    """Has prompts that stand next to each other sent as one, in this request alone."""
    sent = []
    for prompts in prompts_in_a_row(context.messages, source_id):
        message = prompts[0]
        if len(prompts) > 1:
            message = context.record_message_replacement(as_one(prompts), prompts)
        sent.append(message)
    if len(sent) < len(context.messages):
        context.messages = sent


async def _kept(known: "weakref.ref[AgentRun]", inner: Any) -> AsyncIterator[Any]:
    """The updates of a stream, each after it is stored."""
    try:
        async with inner:
            async for update in inner:
                run = _alive(known)
                await run.keep(update)
                yield update
            run = _alive(known)
            await run.keep_response(await inner.get_final_response())
            run.is_asking = False
    except BaseException as error:
        run_left = known()
        if run_left is not None:
            await _left(run_left, error)
        raise


async def _left(run: AgentRun, error: BaseException) -> None:
    run.is_asking = False
    if not run.is_left:
        await run.leave(error)


def _alive(known: "weakref.ref[AgentRun]") -> AgentRun:
    run = known()
    assert run is not None, "whoever reads this stream holds its run"
    return run


def _is_new(message: Any) -> bool:
    """Whether a message came up in this run: what providers have brought is marked."""
    return "_attribution" not in message.additional_properties


class StoredContents:
    """What the messages of a run have, content by content: the framework joins and extends messages
    when a run is over.
    """

    def __init__(self) -> None:
        self._names: set[tuple[str, str]] = set()
        self._words: dict[str, list[str]] = {}

    def note(self, payload: Payload) -> None:
        for content in payload["contents"]:
            if fields(content).get("type") == "text":
                words = self._words.setdefault(text(payload.get("role")), [])
                words.append(text(content.get("text")))
            else:
                self._names.add(_name(content))

    def rest(self, payload: Payload) -> Payload | None:
        """This message without what is known of it; None when nothing is left."""
        kept = []
        for content in payload["contents"]:
            if not self._has(text(payload.get("role")), content):
                kept.append(content)
        if not kept and payload["contents"]:
            return None
        return {**payload, "contents": kept}

    def _has(self, role: str, content: Any) -> bool:
        if fields(content).get("type") != "text":
            return _name(content) in self._names
        return _is_made_of(text(content.get("text")), self._words.get(role, []))


def _is_made_of(words: str, said: list[str]) -> bool:
    """Whether these words are some of the texts in a row: the framework joins neighbours. A piece
    of one of them is something else.
    """
    for first in range(len(said)):
        joined = ""
        for each in said[first:]:
            joined += each
            if joined == words:
                return True
            if not words.startswith(joined):
                break
    return False


def _name(content: Any) -> tuple[str, str]:
    said = fields(content)
    kind, call_id, own = (text(said.get(key)) for key in ("type", "call_id", "id"))
    if kind == "function_call" and call_id:
        return kind, call_id
    if call_id or own:
        # Two calls of a run may have one id; the framework gives each another of its own.
        return kind, f"{call_id}/{own}"
    return kind, dumped(content)
