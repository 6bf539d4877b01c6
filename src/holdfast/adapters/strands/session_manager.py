"""`HoldfastSessionManager`: Strands' repository session manager, with invocations in turns.

AgentInitialized      the agent is restored, as Strands' own manager does it
BeforeInvocation      a turn begins; what others have said since is read
a model's stream      each event is stored, then handed on
MessageAdded          the message is stored, and the agent's state if it has changed
AfterInvocation       the state is stored, and the turn ends
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

from strands.hooks import (
    AfterInvocationEvent,
    AgentInitializedEvent,
    BeforeInvocationEvent,
    HookRegistry,
    MessageAddedEvent,
)
from strands.hooks.events import (
    AfterMultiAgentInvocationEvent,
    AfterNodeCallEvent,
    MultiAgentInitializedEvent,
)
from strands.middleware import InvokeModelStage
from strands.session.repository_session_manager import RepositorySessionManager
from strands.types.exceptions import SessionException

from holdfast.adapters.framework import GivenStore
from holdfast.adapters.strands.agent_messages import AgentMessages
from holdfast.adapters.strands.invocation import InvocationTurn
from holdfast.adapters.strands.repository import HoldfastRepository
from holdfast.domain.arguments import kind_of
from holdfast.errors import BadArgument, HoldfastError
from holdfast.formats.anthropic.messages import EARLIER

INTERRUPTED = "Tool was interrupted."
EVENT_ID = "event_id"
"""The name in `invocation_state` of the caller's own name for a request."""


class HoldfastSessionManager(RepositorySessionManager):
    """A session manager for agents, graphs and swarms on a Holdfast store. An invocation of an agent
    is a turn: it waits for those of other processes, goes on from what they have said, and what it
    streams is durable before it is shown.

    It belongs to one session: after that was deleted elsewhere, it is refused with `SessionEnded`.
    """

    def __init__(
        self, session_id: str, store: GivenStore | HoldfastRepository, **kwargs: Any
    ) -> None:
        # A repository of its own: it knows which session this manager means.
        given = store.store if isinstance(store, HoldfastRepository) else store
        self._repository = HoldfastRepository(given)
        # Where each agent was read, and the last invocation of it that went well.
        self._heads: dict[str, int] = {}
        self._last: dict[str, InvocationTurn] = {}
        self._invocations: dict[str, Any] = {}
        super().__init__(session_id, self._repository, **kwargs)

    def register_hooks(self, registry: HookRegistry, **kwargs: Any) -> None:
        add = registry.add_callback
        add(AgentInitializedEvent, self._begin_agent)
        add(BeforeInvocationEvent, self._begin_invocation)
        add(MessageAddedEvent, self._message_added)
        add(AfterInvocationEvent, self._end_invocation)
        add(MultiAgentInitializedEvent, self._begin_multi_agent)
        for event in (AfterNodeCallEvent, AfterMultiAgentInvocationEvent):
            add(event, self._multi_agent_changed)

    def _begin_agent(self, event: Any) -> None:
        agent = event.agent
        self.initialize(agent)
        if hasattr(agent, "add_middleware"):
            agent.add_middleware(InvokeModelStage, self._kept)

    def initialize(self, agent: Any, **kwargs: Any) -> None:
        super().initialize(agent, **kwargs)
        messages = self._messages(agent)
        if not agent.messages and messages.ids():
            # Its messages are there, and no state: its snapshots have brought them.
            self._latest_agent_message.pop(agent.agent_id, None)
            super().initialize(agent, **kwargs)
        self._heads[agent.agent_id] = messages.session.head()

    async def _begin_invocation(self, event: Any) -> None:
        agent = event.agent
        messages = self._messages(agent)
        event_id = self._event_id(event)
        run = await InvocationTurn.begin(messages, event_id)
        try:
            self._repository.runs[self.session_id, agent.agent_id] = run
            # On a thread: Strands' own manager, which does the reading, waits for the
            # store.
            await asyncio.to_thread(self._catch_up, run, agent, event.messages)
            run.event_id = event_id
        except BaseException as error:
            self._repository.runs.pop((self.session_id, agent.agent_id), None)
            await run.leave(error)
            raise

    def _event_id(self, event: Any) -> str | None:
        """The caller's name for this request; none for what a hook lets the same request go on
        with.
        """
        named = (event.invocation_state or {}).get(EVENT_ID)
        if named is None:
            return None
        if not isinstance(named, str | int):
            takes = "a text or a number"
            raise BadArgument(parameter=EVENT_ID, takes=takes, given=kind_of(named))
        agent = event.agent
        invocation = agent.event_loop_metrics.latest_agent_invocation
        goes_on = self._invocations.get(agent.agent_id) is invocation
        self._invocations[agent.agent_id] = invocation
        return None if goes_on else str(named)

    def _catch_up(self, run: InvocationTurn, agent: Any, given: Any) -> None:
        last = self._last.pop(agent.agent_id, None)
        head = self._heads.pop(agent.agent_id, -1)
        is_known = run.follows_entry(head) if last is None else run.follows(last)
        if not is_known:
            self._read_again(agent, given)

    def _read_again(self, agent: Any, given: Any) -> None:
        """Others have said something since, or a stream was cut: the agent goes on from there."""
        synced = self._last_synced_internal_state.get(agent.agent_id)
        state, interrupts = agent.state, agent._interrupt_state
        has_news = synced is None or synced.get("state_version") != state._get_version()
        self._latest_agent_message.pop(agent.agent_id, None)
        super().initialize(agent)
        if has_news:
            # What the program has put there since is stored with the next message.
            agent.state = state
        if interrupts.activated:
            # It holds the answers that this invocation was called with.
            agent._interrupt_state = interrupts
        elif not _calls(given or (), "toolResult"):
            self._close_calls(agent)
        self._last_synced_internal_state.pop(agent.agent_id, None)

    def _close_calls(self, agent: Any) -> None:
        """Calls that a process has left open when it was killed are closed as Strands does it for
        those that it knows of.
        """
        opened = _calls(agent.messages[-1:], "toolUse")
        if opened:
            told = [{"text": INTERRUPTED}]
            blocks = []
            for call in opened:
                said = {"toolUseId": call, "status": "error", "content": told}
                blocks.append({"toolResult": said})
            agent.messages.append({"role": "user", "content": blocks})
            self.append_message(agent.messages[-1], agent)

    async def _kept(self, context: Any, next_fn: Any) -> AsyncIterator[Any]:
        """Hands on the events of a model, each once it is durable."""
        run = self._run_of(context.agent)
        if run is None:
            async for event in next_fn(context):
                yield event
            return
        await run.model_called()
        context = replace(context, messages=_sent(context.messages))
        try:
            async for event in next_fn(context):
                if "event" in event:
                    await run.push(event["event"])
                elif "stop" in event and event["stop"][0] == "cancelled" and run.shown:
                    # Strands puts "Cancelled by user" in the place of what was shown.
                    event["stop"][1]["content"].insert(0, {"text": run.shown})
                yield event
        except BaseException:
            run.model_left()
            raise

    async def _message_added(self, event: Any) -> None:
        await asyncio.to_thread(self._added, event.message, event.agent)

    def _added(self, message: Any, agent: Any) -> None:
        if self._run_of(agent) is None and self._is_answered(message, agent):
            return
        self.append_message(message, agent)
        self.sync_agent(agent)

    def _is_answered(self, message: Any, agent: Any) -> bool:
        """Whether this closes calls that are not open. Before an invocation begins, Strands closes
        the last calls that the agent knows of; another process may be at them, or done.
        """
        closes = _calls([message], "toolResult")
        if len(closes) < len(message["content"]) or not closes:
            return False
        messages = self._messages(agent)
        # When their turn is over, it is known what became of them.
        with messages.session.turn(take=[]):
            last = [each.record["message"] for each in messages.listed()[-1:]]
        return not set(closes) & set(_calls(last, "toolUse"))

    async def _end_invocation(self, event: Any) -> None:
        agent = event.agent
        # Of the invocation that this is the end of.
        error = sys.exception()
        run = self._repository.runs.pop((self.session_id, agent.agent_id), None)
        try:
            await asyncio.to_thread(self.sync_agent, agent)
        except (HoldfastError, SessionException) as trouble:
            if run is not None:
                await run.leave(error or trouble)
            if error is None:
                raise
            return
        except BaseException as cut:
            # Cancelled, or dropped: nothing is awaited any more.
            if run is not None:
                run.leave_later(error or cut)
            raise
        if run is not None:
            await run.leave(error)
            if error is None:
                self._last[agent.agent_id] = run

    def _begin_multi_agent(self, event: Any) -> None:
        self.initialize_multi_agent(event.source)

    async def _multi_agent_changed(self, event: Any) -> None:
        await asyncio.to_thread(self.sync_multi_agent, event.source)

    def _messages(self, agent: Any) -> AgentMessages:
        return self._repository.opened(self.session_id, agent.agent_id)

    def _run_of(self, agent: Any) -> InvocationTurn | None:
        return self._repository.runs.get((self.session_id, agent.agent_id))


def _calls(messages: Any, kind: str) -> list[str]:
    """The ids of the calls that these messages make, or answer."""
    found = []
    for message in messages:
        for block in message["content"]:
            if kind in block:
                found.append(block[kind]["toolUseId"])
    return found


def _sent(messages: list[Any]) -> list[Any]:
    """What the model is sent: a prompt first, and neighbours of one role as one message. The first
    prompt may have been hidden, and one whose invocation was killed before it said anything stands
    before the next one; some providers refuse that.
    """
    found: list[Any] = []
    if messages and messages[0]["role"] == "assistant":
        found.append({"role": "user", "content": [{"text": EARLIER}]})
    for message in messages:
        if found and found[-1]["role"] == message["role"]:
            content = [*found[-1]["content"], *message["content"]]
            found[-1] = {**found[-1], "content": content}
        else:
            found.append(message)
    return found
