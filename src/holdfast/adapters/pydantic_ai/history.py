"""`HoldfastHistory`: a capability that keeps the messages of an agent's runs in a session.

A run is one turn of the session. What stands in the session is the run's history; each message is
stored when the run has it, each piece of a response before anybody is handed it.
"""

import copy
import hashlib
from collections.abc import AsyncIterable, AsyncIterator, Sequence
from typing import Any

from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.tools import DeferredToolResults, ToolDenied

from holdfast.adapters.framework import Named, append_once
from holdfast.adapters.pydantic_ai.closing import history_of
from holdfast.adapters.pydantic_ai.messages import FORMAT, payloads_of
from holdfast.adapters.pydantic_ai.prompts import with_prompts_joined
from holdfast.adapters.pydantic_ai.run import HistoryRun
from holdfast.domain.arguments import kind_of
from holdfast.domain.message import freeze
from holdfast.errors import BadArgument
from holdfast.runtime.aio import AsyncSession
from holdfast.runtime.plans.plan import read, run
from holdfast.runtime.plans.plan_asyncio import arun
from holdfast.runtime.session import Session


class HoldfastHistory(AbstractCapability[Any]):
    """The history of an agent in `session`, a `Session` or an `AsyncSession`: give it to an agent or to one
    run, in `capabilities`.

    It belongs to this session. After somebody has begun its key anew, a run raises `SessionEnded`.
    """

    def __init__(self, session: Session | AsyncSession) -> None:
        if not isinstance(session, Session | AsyncSession):
            takes = "a session of a store"
            given = kind_of(session)
            raise BadArgument(parameter="session", takes=takes, given=given)
        # A handle of its own: what one remembers of its last list is one caller's.
        self.session = Session(session._log)
        self.id = "holdfast_history"
        self._event_id: str | None = None
        self._run: HistoryRun | None = None

    def request(self, event_id: str | int) -> "HoldfastHistory":
        """This history for one request that has a name of yours: the same name again raises
        `AlreadyAccepted`, before a model is asked.
        """
        if not isinstance(event_id, str | int) or event_id == "":
            takes = "a name or a number"
            given = kind_of(event_id)
            raise BadArgument(parameter="event_id", takes=takes, given=given)
        named = copy.copy(self)
        named._event_id = str(event_id)
        return named

    def messages(self) -> list[Any]:
        """What was said, as it was stored: what `message_history` takes. After a run that was cut off,
        what was shown stands there as an interrupted response, and a call whose outcome nobody
        knows is closed as the framework does it.
        """
        return history_of(self.session)

    async def amessages(self) -> list[Any]:
        """As `messages`."""
        return await arun(read(self.messages))

    def append(self, messages: Sequence[Any]) -> None:
        """Stores messages that no run of this capability has made, in one commit: those of another
        store, or `result.new_messages()` of a run without it. The messages of a run are known by its
        `run_id`: the same ones again are stored once.
        """
        run(append_once(self.session, _named(messages), format=FORMAT))

    async def aappend(self, messages: Sequence[Any]) -> None:
        """As `append`."""
        await arun(append_once(self.session, _named(messages), format=FORMAT))

    def deferred_tool_results(self) -> DeferredToolResults:
        """What was decided, with `Session.decide`, about the calls that wait for approval: for
        `agent.run(deferred_tool_results=…)`.
        """
        approvals: dict[str, Any] = {}
        for call in self.session.calls():
            if call.state == "approved":
                approvals[call.call_id] = True
            elif call.state == "denied":
                approvals[call.call_id] = ToolDenied()
        return DeferredToolResults(approvals=_unanswered(self.messages(), approvals))

    def get_ordering(self) -> CapabilityOrdering:
        """The innermost: it has each event before another capability could show it."""
        return CapabilityOrdering(position="innermost")

    @classmethod
    def combine(cls, capabilities: Sequence[Any]) -> Any:
        """A run has one history: the last one named."""
        return capabilities[-1]

    async def for_run(self, ctx: Any) -> "HoldfastHistory":
        # A capability belongs to an agent, whose runs may overlap: each has its own.
        running = copy.copy(self)
        running._run = HistoryRun(self.session, ctx.run_id, self._event_id)
        return running

    async def wrap_run(self, ctx: Any, *, handler: Any) -> Any:
        assert self._run is not None
        return await self._run.around(ctx, handler)

    async def wrap_model_request(
        self, ctx: Any, *, request_context: Any, handler: Any
    ) -> Any:
        """What the model is going to be asked is stored before anything else looks at it."""
        assert self._run is not None
        await self._run.store(ctx.messages)
        return await handler(request_context)

    async def before_model_request(self, ctx: Any, request_context: Any) -> Any:
        """And once more when all others have: one of them may have changed it. After a run that was cut
        off before it had said anything, two prompts are sent as one.
        """
        assert self._run is not None
        await self._run.store(ctx.messages)
        joined = with_prompts_joined(request_context.messages)
        if joined is not None:
            request_context.messages = joined
        return request_context

    async def wrap_run_event_stream(
        self, ctx: Any, *, stream: AsyncIterable[Any]
    ) -> AsyncIterator[Any]:
        """The events of a model's response or of its tools, each after it is stored. A call is
        stored before its tool runs.
        """
        assert self._run is not None
        await self._run.store(ctx.messages)
        async for event in stream:
            await self._run.take(ctx, event)
            yield event
        await self._run.store(ctx.messages)

    async def before_tool_execute(
        self, ctx: Any, *, call: Any, tool_def: Any, args: Any
    ) -> Any:
        """An approval is for this call, and is used once."""
        assert self._run is not None
        if ctx.tool_call_approved:
            await self._run.use_approval(call)
        return args

    async def wrap_tool_execute(
        self, ctx: Any, *, call: Any, tool_def: Any, args: Any, handler: Any
    ) -> Any:
        """What a tool answers is noted: `run_stream` tells it to nobody."""
        assert self._run is not None
        try:
            answer = await handler(args)
        except Exception as error:
            self._run.outcomes.note_failure(call, error)
            raise
        self._run.outcomes.note(call, answer)
        return answer

    async def before_node_run(self, ctx: Any, *, node: Any) -> Any:
        assert self._run is not None
        self._run.outcomes.note_node(node)
        return node


def _named(messages: Sequence[Any]) -> list[Named]:
    found = []
    for payload in payloads_of(messages):
        run_id, name = payload.get("run_id"), None
        if run_id is not None:
            name = f"{run_id}/{hashlib.sha256(freeze(payload)).hexdigest()}"
        found.append(Named(payload, name))
    return found


def _unanswered(messages: list[Any], approvals: dict[str, Any]) -> dict[str, Any]:
    """Those approvals whose calls are still open in the history."""
    answered = set()
    for message in messages:
        for part in message.parts:
            if message.kind == "request":
                answered.add(getattr(part, "tool_call_id", None))
    return {id: said for id, said in approvals.items() if id not in answered}
