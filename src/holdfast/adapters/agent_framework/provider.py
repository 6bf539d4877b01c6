"""`HoldfastHistoryProvider`: the framework's `HistoryProvider` on a Holdfast store."""

import asyncio
import gc
import weakref
from collections.abc import Sequence
from typing import Any

from agent_framework import HistoryProvider, Message, _sessions

from holdfast.adapters.agent_framework.messages import (
    Payload,
    in_one_go,
    named,
    named_by,
    payloads_of,
    restored,
)
from holdfast.adapters.agent_framework.run import (
    AgentRun,
    ModelMiddleware,
    ToolMiddleware,
)
from holdfast.adapters.framework import (
    GivenStore,
    KnownSessions,
    Named,
    append_once,
    asynchronous,
    is_named,
    key_of,
    standing,
    store_of,
    stored,
)
from holdfast.domain.arguments import kind, kind_of, optional
from holdfast.errors import BadArgument, NotFound, SessionEnded
from holdfast.formats.frameworks.agent_framework import NAME
from holdfast.formats.reading import text
from holdfast.runtime.plans.plan import read
from holdfast.runtime.plans.plan_asyncio import arun
from holdfast.runtime.session import Session

DEFAULT = "default"
"""Under this name is kept what has no session id, as in the framework's own providers."""
BOUND = "holdfast_session"
_STATE = optional(kind("a dict", dict))
"""In the state of an `AgentSession`: the Holdfast session whose history it was given last."""
ANOTHER = "its task has begun another run of this session"


class HoldfastHistoryProvider(HistoryProvider):
    """History of the Agent Framework in `store`: a Store, a path or an address. It may be used by
    several agents, threads and event loops. The other arguments are those of `HistoryProvider`.
    """

    DEFAULT_SOURCE_ID = "holdfast"

    def __init__(
        self, store: GivenStore, *, source_id: str = DEFAULT_SOURCE_ID, **options: Any
    ) -> None:
        opened = store_of(store)
        super().__init__(source_id, **options)
        self.store = opened
        self._known = KnownSessions()
        # A run lives as long as the framework's context of it.
        self._runs: weakref.WeakKeyDictionary[Any, AgentRun] = (
            weakref.WeakKeyDictionary()
        )
        self._running: weakref.WeakValueDictionary[str, AgentRun] = (
            weakref.WeakValueDictionary()
        )

    def session(self, session_id: str | None) -> Session:
        """The Holdfast session that has the history of this one, made if there is none."""
        return self._known.remember(self.store.session(_key(session_id)))

    async def clear(self, session_id: str | None) -> None:
        """Begins a session anew. What runs in the old one is ended, and can store nothing in the
        new one; the old one stays in the store, under its Holdfast id.
        """
        key = _key(session_id)
        await arun(read(lambda: self.store.reset(key, reason="clear")))

    async def get_messages(
        self,
        session_id: str | None,
        *,
        state: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> list[Message]:
        """What was said, oldest first. Inside a run: what was said before it."""
        key = _key(session_id)
        state = _STATE("state", state)
        run = self._running.get(key)
        inside = run if run is not None and run.is_around else None
        session, messages = await arun(read(lambda: self._read(key, inside)))
        if state is not None:
            state[BOUND] = None if session is None else session.id
        return messages

    def _read(
        self, key: str, inside: AgentRun | None
    ) -> tuple[Session | None, list[Message]]:
        try:
            session = self._known.remember(self.store.session(key, create=False))
        except NotFound:
            return None, []
        # A key leads to its last session even when that is over: the next begins anew.
        if session._log.state().ended:
            return None, []
        messages = in_one_go(stored(session)) if inside is None else None
        if messages is not None:
            return session, messages
        said = []
        for message in standing(session):
            if inside is None or not inside.has_brought(message):
                said.append(message)
        return session, restored(said, lambda: _cut_off(session))

    async def save_messages(
        self,
        session_id: str | None,
        messages: Sequence[Message],
        *,
        state: dict[str, Any] | None = None,
        event_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Stores messages in one commit. Those whose ids are known are there already; `event_id`
        names a batch whose messages have none, and which may come again with more at its end. In a
        run: what of them it has not stored yet.
        """
        key, payloads = _key(session_id), payloads_of(messages)
        run = self._running.get(key)
        if run is not None and run.is_ending:
            await run.add(payloads)
            return
        if payloads:
            bound = None if state is None else state.get(BOUND)
            session = await arun(read(lambda: self._bound(key, bound)))
            offered = await arun(read(lambda: _offered(session, payloads, event_id)))
            await arun(append_once(session, offered, format=NAME))

    def _bound(self, key: str, bound: Any) -> Session:
        """The session to store in: the one whose history was given out for this run."""
        session = self._known.remember(self.store.session(key))
        if bound is not None and bound != session.id:
            reason = "it was begun anew"
            raise SessionEnded(session_id=bound, reason=reason, current_id=session.id)
        return session

    async def before_run(
        self, *, agent: Any, session: Any, context: Any, state: dict[str, Any]
    ) -> None:
        """Begins a turn, which waits for that of another process, stores the input in it and gives
        the history.
        """
        if await self._is_a_turn(agent, context):
            run = await self._begin(agent, context)
            self._runs[context] = run
            self._running[_key(context.session_id)] = run
            if self.store_outputs:
                model = ModelMiddleware(run, self.source_id)
                around = [model, ToolMiddleware(run)]
                context.extend_middleware(self.source_id, around)
        await super().before_run(
            agent=agent, session=session, context=context, state=state
        )

    async def after_run(
        self, *, agent: Any, session: Any, context: Any, state: dict[str, Any]
    ) -> None:
        """Stores what is not stored yet, and ends the turn."""
        run = self._runs.pop(context, None)
        facts = {"agent": agent, "session": session, "context": context}
        if run is None or run.is_left:
            await super().after_run(**facts, state=state)
            return
        run.is_ending = True
        try:
            await super().after_run(**facts, state=state)
        except BaseException as error:
            await run.leave(error)
            raise
        await run.leave(None)

    async def _is_a_turn(self, agent: Any, context: Any) -> bool:
        # The framework asks for every call of the model then, in a context of its own.
        if getattr(agent, "require_per_service_call_history_persistence", False):
            return False
        # What is said here may be stored only when somebody has allowed it, after the run.
        gate = getattr(_sessions, "_DEFERRED_RUN_PERSISTENCE", None)
        if gate is not None and gate.get() is not None:
            return False
        known = self._running.get(_key(context.session_id))
        if known is None or known.is_left:
            return True
        # Its turn goes on when this run is over.
        if known.runs_a_tool_here:
            return False
        if known.was_given_up:
            await known.leave(asyncio.CancelledError(ANOTHER))
        elif known.has_no_reader:
            # The framework's streams hold themselves: one that was dropped ends its run
            # when Python looks for such, which may be never.
            del known
            gc.collect()
        return True

    async def _begin(self, agent: Any, context: Any) -> AgentRun:
        payloads: list[Payload] = []
        if self.store_inputs and not self.store_context_messages:
            payloads = payloads_of(context.input_messages)
        # A message with an id is a request, which is accepted once.
        request = _request(payloads)
        first = payloads.pop() if request is not None else None
        while True:
            session = await arun(read(lambda: self.session(context.session_id)))
            starting = asynchronous(session).turn(first, format=NAME, event_id=request)
            try:
                turn = await starting
                break
            except SessionEnded:
                # Begun anew while this run waited: it begins there, too.
                continue
        run = AgentRun(session, turn, getattr(agent, "name", None) or "UnnamedAgent")
        if first is not None:
            run.has_begun_with(first, request)
        if self.store_context_messages:
            self._opens_later(run, context)
        else:
            await run.open(payloads)
        return run

    def _opens_later(self, run: AgentRun, context: Any) -> None:
        """What other providers bring stands before the input; it is known when all have run."""
        # Weakly: the run is held by its context, and must not hold it in turn.
        known = weakref.ref(context)

        def opening() -> list[Payload]:
            context: Any = known()
            given = [*self._get_context_messages_to_store(context)]
            return payloads_of(
                given + (context.input_messages if self.store_inputs else [])
            )

        run.opening = opening


def _offered(
    session: Session, payloads: list[Payload], event_id: str | None
) -> list[Named]:
    """A batch, by the names by which it is known when it comes again."""
    nameless = named(payloads)
    if event_id is None:
        return nameless
    # Some of it may have come before without the name of the batch.
    batch = zip(named_by(payloads, event_id), nameless, strict=True)
    found = []
    for message, before in batch:
        if before.name is None or not is_named(session, before.name):
            found.append(message)
    return found


def _cut_off(session: Session) -> set[str]:
    """The turns of a session that have come to no good end."""
    return {turn.id for turn in session.turns() if turn.end not in (None, "completed")}


def _request(payloads: list[Payload]) -> str | None:
    """The caller's name for a request: the id of its message."""
    if len(payloads) != 1 or payloads[0].get("role") != "user":
        return None
    return text(payloads[0].get("message_id")) or None


def _key(session_id: str | None) -> str:
    if session_id is not None and not isinstance(session_id, str):
        given = kind_of(session_id)
        raise BadArgument(parameter="session_id", takes="a text", given=given)
    return key_of(NAME, session_id or DEFAULT)
