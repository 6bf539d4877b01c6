"""`HoldfastSession`: the SDK's session protocol, its streams, its usage and its approvals.

A handle belongs to one session of its key. Reading begins with the key's current one; a run goes on
in the one that it has read, and what it stores after somebody else has cleared that is refused with
`SessionEnded`. A run is known by its context (`wrapper`), which the runner hands to all four calls.
"""

import asyncio
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

from holdfast.adapters.framework import (
    GivenStore,
    asynchronous,
    key_of,
    session_of,
    store_of,
    stored,
)
from holdfast.adapters.openai_agents.items import (
    FORMAT,
    Item,
    answered_once,
    closed,
    items_of,
    unanswered,
    without_strays,
)
from holdfast.adapters.openai_agents.run import ReadRun, StreamedRun
from holdfast.domain.arguments import INTEGER_MAX, kind_of, optional, whole
from holdfast.domain.message import Usage, may_have_halves, without_halves
from holdfast.errors import BadArgument
from holdfast.runtime.live.message import payload_of
from holdfast.runtime.plans.plan import read
from holdfast.runtime.plans.plan_asyncio import arun
from holdfast.runtime.session import Session

try:
    from agents import RunResultStreaming, RunState
    from agents.memory.session_settings import (
        coerce_session_settings,
        resolve_session_limit,
    )
except ImportError as missing:
    raise ImportError(
        "The OpenAI Agents SDK is not installed. "
        "Run `pip install 'holdfast[openai-agents]'`"
    ) from missing

_LIMIT = optional(whole(-INTEGER_MAX))
Compactor = Callable[[list[Item]], Awaitable[list[Item]]]


class HoldfastSession:
    """A session of the OpenAI Agents SDK in a store of Holdfast's.

    `compact_with`, when it is set, is asked for the items that stand for a history, after each run
    and by `run_compaction`.
    """

    session_id: str
    session_settings: Any
    compact_with: Compactor | None = None

    def __init__(
        self, session_id: str, store: GivenStore, *, session_settings: Any = None
    ) -> None:
        if not isinstance(session_id, str) or not session_id:
            takes = "a text"
            given = kind_of(session_id)
            raise BadArgument(parameter="session_id", takes=takes, given=given)
        self.session_id = session_id
        # As the SDK's own sessions have it, who are given none.
        given_settings = {} if session_settings is None else session_settings
        self.session_settings = coerce_session_settings(given_settings)
        self.store = store_of(store)
        self._bound: Session | None = None
        self._runs: dict[int, StreamedRun | ReadRun] = {}

    async def get_items(
        self, limit: int | None = None, *, wrapper: Any = None
    ) -> list[Item]:
        """The latest `limit` items, or all of them, oldest first."""
        # Less than nothing is no limit to the SDK.
        limit = _LIMIT("limit", limit)
        wanted = resolve_session_limit(limit, self.session_settings)
        session = await self._reading(wrapper)
        # The runner says which run asks: that one will send them. By a thread of ours: it has a
        # connection open.
        reading = partial(_items, session, to_send=wrapper is not None)
        items = await arun(read(reading))
        if wanted is None or wanted < 0:
            return items
        return items[len(items) - min(wanted, len(items)) :]

    async def add_items(self, items: list[Item], *, wrapper: Any = None) -> None:
        """Stores items, all of them in one commit."""
        # A list in it would be a response of several items, or of none, to the store.
        if not isinstance(items, list | tuple) or any(
            isinstance(item, list) for item in items
        ):
            takes = "a list of items"
            raise BadArgument(parameter="items", takes=takes, given=kind_of(items))
        run = self._runs.get(id(wrapper)) if wrapper is not None else None
        if isinstance(run, StreamedRun):
            await run.add(items)
        elif items:
            if run is not None:
                run.given += items
            session = await self._current() if run is None else run.session
            await asynchronous(session).append_all(items, format=FORMAT)

    async def pop_item(self, *, wrapper: Any = None) -> Item | None:
        """Takes the latest item out of the session and gives it; the transcript keeps it."""
        session = await self._writing(wrapper)
        while True:
            found = await asyncio.to_thread(_last, session)
            if found is None:
                return None
            message, items = found
            # The transcript keeps what was said: it leaves the view.
            await asynchronous(session).label(message, visible_to_model=False)
            if items:
                # A response of several items stands again without its last one.
                if items[:-1]:
                    rest = items[:-1]
                    await asynchronous(session).append_all(rest, format=FORMAT)
                return items[-1]

    async def clear_session(self, *, wrapper: Any = None) -> None:
        """Begins the session anew. What runs in the old one is ended, and can store nothing
        in the new one; the old one stays in the store, under its id.
        """
        self._bound = await asyncio.to_thread(
            self.store.reset, self.session_id, reason="clear_session"
        )
        run = self._runs.get(id(wrapper)) if wrapper is not None else None
        if isinstance(run, ReadRun):
            run.session = self._bound

    def stream(
        self, result: Any, *, event_id: str | int | None = None
    ) -> AsyncIterator[Any]:
        """The events of a streamed run, each after it is stored: what is shown from them is there
        after a kill. Call it right after `Runner.run_streamed`: the run then is one turn of the
        session, which waits for those of other processes. A stream that is closed or dropped, also
        before its first event, cancels the run. A run is streamed once.

        `event_id` is your name for the request: the same one again raises `AlreadyAccepted`.
        """
        if not isinstance(result, RunResultStreaming):
            takes = "what `Runner.run_streamed` gives"
            raise BadArgument(parameter="result", takes=takes, given=kind_of(result))
        run = self._streamed_run(result, event_id)
        self._runs[id(result.context_wrapper)] = run
        run.listen(result._event_queue)
        if result.run_loop_task is not None:
            # Who never reads to the end has the turn wait for nobody.
            result.run_loop_task.add_done_callback(lambda task: _ended(result, run))
        events = self._streamed(result, run)
        # Up to its first `yield`, which waits for nothing: whoever leaves a generator
        # that has not begun would leave the turn open.
        with suppress(StopIteration):
            events.asend(None).send(None)
        return events

    def _streamed_run(self, result: Any, event_id: str | int | None) -> StreamedRun:
        read = self._runs.get(id(result.context_wrapper))
        if isinstance(read, StreamedRun):
            takes = "a run that is not streamed yet"
            raise BadArgument(
                parameter="result", takes=takes, given="one that is streamed already"
            )
        if event_id is not None and read is not None and read.given:
            # Its request is stored by now, without that name.
            result.cancel()
            takes = "a run that was just made: call `stream` right after `run_streamed`"
            raise BadArgument(
                parameter="result", takes=takes, given="one that is under way"
            )
        return StreamedRun(self.store, self.session_id, event_id, read)

    async def _streamed(self, result: Any, run: StreamedRun) -> AsyncGenerator[Any]:
        try:
            yield
            async for event in result.stream_events():
                await run.wait_for(event)
                yield event
        except BaseException as error:
            # Who left is not waiting for the rest: the model is not asked for more.
            result.cancel()
            await run.end([], error)
            raise
        else:
            await run.end(_calls(result.interruptions), _cancellation(result))
        finally:
            self._runs.pop(id(result.context_wrapper), None)

    async def usage(self) -> Usage:
        """The tokens of all streamed runs, as the provider counted them."""
        info = await asynchronous(await self._current()).info()
        return info.usage

    async def run_compaction(self, args: Any = None) -> None:
        """Puts what `compact_with` makes of the items in their place, in one commit."""
        if self.compact_with is None:
            return
        items = await self.get_items(limit=-1)
        if items:
            await self._atomic_replace_items(await self.compact_with(items))

    async def _atomic_replace_items(self, items: list[Item]) -> bool:
        """The SDK's name for it: these items stand in the session from now on. What stood there is
        in the transcript.
        """
        session = await self._current()
        await asynchronous(session).record(items, format=FORMAT)
        return True

    async def save_state(self, state: Any) -> None:
        """Keeps a `RunState`, that of a run which waits for approval, beside the session."""
        words = _run_state(state).to_string()
        await asyncio.to_thread(self._states().append, words, format="openai.chat")

    async def load_state(self, agent: Any) -> Any:
        """The `RunState` that was kept last, with what was decided since; None when there
        is none. `agent` is the one that the run began with.
        """
        kept = await asyncio.to_thread(lambda: list(self._states().transcript()))
        if not kept:
            return None
        state = await RunState.from_string(agent, kept[-1].text)
        await self.apply_decisions(state)
        return state

    async def apply_decisions(self, state: Any) -> None:
        """Approves and rejects in a `RunState` what was decided with `Session.decide`."""
        session = asynchronous(await self._current())
        decided = {call.call_id: call.state for call in await session.calls()}
        for waiting in _run_state(state).get_interruptions():
            [(call_id, _, _)] = _calls([waiting])
            if decided.get(call_id) == "approved":
                state.approve(waiting)
            elif decided.get(call_id) == "denied":
                state.reject(waiting)

    def _states(self) -> Session:
        """Where run states are kept: a session of its own, which no model sees."""
        return self.store.session(key_of("openai-agents", "state", self.session_id))

    async def _reading(self, wrapper: Any) -> Session:
        """The session to read: that of the run, or the key's current one."""
        if wrapper is None:
            self._bound = await session_of(self.store, self.session_id)
            return self._bound
        run = self._runs.get(id(wrapper))
        if isinstance(run, StreamedRun):
            return await run.begin()
        if run is None:
            session = await session_of(self.store, self.session_id)
            # A stream may have been asked for meanwhile: the run is its turn then.
            run = self._runs.get(id(wrapper))
            if isinstance(run, StreamedRun):
                return await run.begin()
            run = run or self._bind(wrapper, session)
        return run.session

    async def _writing(self, wrapper: Any) -> Session:
        run = self._runs.get(id(wrapper)) if wrapper is not None else None
        if isinstance(run, StreamedRun):
            return await run.begin()
        return await self._current() if run is None else run.session

    async def _current(self) -> Session:
        if self._bound is None:
            self._bound = await session_of(self.store, self.session_id)
        return self._bound

    def _bind(self, wrapper: Any, session: Session) -> ReadRun:
        """Remembers which session a run has read, for as long as its context lives."""
        name, runs = id(wrapper), self._runs
        runs[name] = run = ReadRun(session)
        # An id is used again once its object is gone: then it must not mean this run
        # any more.
        weakref.finalize(wrapper, runs.pop, name, None)
        return run


def _run_state(given: Any) -> Any:
    if not isinstance(given, RunState):
        given = kind_of(given)
        raise BadArgument(parameter="state", takes="a RunState", given=given)
    return given


def _items(session: Session, *, to_send: bool) -> list[Item]:
    """What stands in a session, as items."""
    items: list[Item] = []
    denials: list[Item] = []
    # A call that was hidden leaves its output in the view, which the API refuses.
    may_stray, in_turns = to_send, False
    for seen in stored(session):
        payload = payload_of(seen)
        may_stray = may_stray or payload is None
        in_turns = in_turns or seen.turn is not None
        if to_send and may_have_halves(seen.body):
            # The client can't send half of a character: no run would ever get further.
            payload = without_halves(payload)
        if type(payload) is dict and seen.note.format == FORMAT:
            items.append(payload)  # as nearly all are
            continue
        said = items_of(seen, payload)
        items += said
        if seen.note.format != FORMAT:
            denials += [item for item in said if "output" in item]
    if denials:
        items = answered_once(items, denials)
    if in_turns and unanswered(items):
        items = closed(items, _unknown(session))
    return without_strays(items) if may_stray else items


def _unknown(session: Session) -> list[str]:
    """The calls whose outcome nobody knows."""
    unknown = []
    for call in session.calls():
        # One that was stored outside a turn is its caller's: it may be answered any
        # time.
        if call.state == "unknown" and call.turn is not None:
            unknown.append(call.call_id)
    return unknown


def _last(session: Session) -> tuple[str, list[Item]] | None:
    """The id of the last message that stands, and its items; none when it can't be read."""
    messages = stored(session)
    if not messages:
        return None
    last = messages[-1]
    payload = payload_of(last)
    return last.id, [] if payload is None else items_of(last, payload)


def _calls(interruptions: list[Any]) -> list[tuple[str, str, Any]]:
    """The calls that wait for approval: id, name and arguments of each."""
    found = []
    for waiting in interruptions:
        raw = waiting.raw_item
        said = raw if isinstance(raw, dict) else raw.model_dump(exclude_unset=True)
        arguments = said.get("arguments") or "{}"
        found.append((said.get("call_id") or said["id"], said["name"], arguments))
    return found


def _cancellation(result: Any) -> BaseException | None:
    """What ended a run that was cancelled."""
    task = result.run_loop_task
    if task is not None and task.done() and task.cancelled():
        return asyncio.CancelledError()
    return None


def _ended(result: Any, run: StreamedRun) -> None:
    """Ends the turn of a run that is over. Whoever still reads it finds that done."""
    task = result.run_loop_task
    error = _cancellation(result)
    if error is None and task.done():
        error = task.exception()
    run.ended(_calls(result.interruptions), error)
