"""`HoldfastSessionService`: the kit's sessions, kept by Holdfast."""

import threading
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from functools import partial
from typing import Any

from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.events.event import Event
from google.adk.runners import Runner
from google.adk.sessions.base_session_service import (
    BaseSessionService,
    GetSessionConfig,
    ListSessionsResponse,
)
from google.adk.sessions.session import Session

from holdfast.adapters.adk.appending import Appending
from holdfast.adapters.adk.events import spoken_of
from holdfast.adapters.adk.places import AdkPlace, Seen, name_of
from holdfast.adapters.adk.plugin import HoldfastPlugin, HoldsTurns
from holdfast.adapters.adk.reading import WantedEvents
from holdfast.adapters.adk.run import InvocationRun
from holdfast.adapters.adk.sessions import AdkSessions, Loaded
from holdfast.adapters.framework import GivenStore, asynchronous, store_of, uuid_of
from holdfast.domain.arguments import kind_of
from holdfast.errors import AlreadyAccepted, BadArgument, SessionEnded
from holdfast.formats.frameworks.adk import NAME
from holdfast.runtime.live.session_log import SessionLog
from holdfast.runtime.plans.plan import read
from holdfast.runtime.plans.plan_asyncio import arun
from holdfast.runtime.session import Session as HoldfastSession

RUNS_MAX = 1024
"""So many runs are remembered before those that are over are forgotten."""


class HoldfastSessionService(HoldsTurns, BaseSessionService):
    """The session service of Google's Agent Development Kit on a Holdfast store, which is given
    open, by its path or by its address. Safe to use from many threads and event loops.
    """

    def __init__(self, store: GivenStore) -> None:
        self.store = store_of(store)
        self._sessions = AdkSessions(self.store)
        self._appending = Appending(self._sessions)
        self._runs: dict[str, InvocationRun] = {}
        self._lock = threading.Lock()

    def session(
        self, *, app_name: str, user_id: str, session_id: str
    ) -> HoldfastSession:
        """The Holdfast session of a session of the kit: its transcript, its calls, its turns."""
        place = AdkPlace.of(app_name, user_id, session_id)
        return HoldfastSession(self._sessions.current_log(place))

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        """Makes a session; `AlreadyExistsError` when there is one with this id."""
        place = AdkPlace.of(app_name, user_id, session_id or "")
        if not place.session:
            drawn = uuid_of(self.store._work.world.chance(16))
            place = place._replace(session=drawn)
        if state is not None and not isinstance(state, dict):
            raise _wrong("state", "a dict", state)
        return _session(await arun(self._sessions.create(place, state or {})))

    async def get_session(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        config: GetSessionConfig | None = None,
    ) -> Session | None:
        """A session with its events, in the order in which they were stored; None when there is
        none.
        """
        place = AdkPlace.of(app_name, user_id, session_id)
        found = await arun(self._sessions.load(place, WantedEvents.of(config)))
        return None if found is None else _session(found)

    async def list_sessions(
        self, *, app_name: str, user_id: str | None = None
    ) -> ListSessionsResponse:
        """The sessions of an app or of one user in it, without events, the one used last at the
        end.
        """
        app = name_of(app_name, "app_name")
        user = None if user_id is None else name_of(user_id, "user_id")
        found = await arun(read(partial(self._sessions.listed, app, user), slow=True))
        return ListSessionsResponse(sessions=[_session(each) for each in found])

    async def delete_session(
        self, *, app_name: str, user_id: str, session_id: str
    ) -> None:
        """Erases a session, with what runs in it. One that is not there is no error."""
        place = AdkPlace.of(app_name, user_id, session_id)
        await arun(self._sessions.delete(place))

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """The state of a user, its names without their prefix."""
        place = AdkPlace.of(app_name, user_id, "")
        values = partial(self._sessions.states.values, place.user_key)
        return await arun(read(values))

    async def append_event(self, session: Session, event: Event) -> Event:
        """Stores an event and what it sets in one commit; one that is stored already is not stored
        again. `StaleSessionError` when others have appended since this session was read,
        `SessionNotFoundError` when it was deleted. In a run that holds the session's turn, others
        can't make it stale.
        """
        if not isinstance(session, Session):
            raise _wrong("session", "a session of the kit", session)
        if not isinstance(event, Event):
            raise _wrong("event", "an event of the kit", event)
        # Pieces are stored by the plug-in, which has them before they are yielded.
        if event.partial:
            return event
        spoken = spoken_of(event)
        run = self._run_of(session, event.invocation_id)
        is_new = await arun(self._appending.append(session, event, spoken, run))
        if run is not None:
            run.done(event)
        session.last_update_time = event.timestamp
        # Stored before, and perhaps by a process whose object had the event, while this
        # one has not.
        if is_new or all(each.id != event.id for each in session.events):
            await super().append_event(session=session, event=event)
        return event

    async def flush(self) -> None:
        """Nothing waits: an event is durable when `append_event` returns."""

    async def run(
        self,
        runner: Any,
        *,
        user_id: str,
        session_id: str,
        event_id: str | int | None = None,
        **options: Any,
    ) -> AsyncGenerator[Event, None]:
        """`runner.run_async` in a turn of the session, which is held from before the session is
        read until the run is over: runs of one session follow each other, in however many
        processes. Each event is stored before it is yielded, pieces of a stream, too.

        `event_id` is your name for the request: the same one again raises `AlreadyAccepted`.
        """
        if not isinstance(runner, Runner):
            given = kind_of(runner)
            raise BadArgument(parameter="runner", takes="a Runner", given=given)
        place = AdkPlace.of(runner.app_name, user_id, session_id)
        self._check_runner(runner)
        if runner.auto_create_session:
            await self._made(place)
        log = await arun(read(partial(self._sessions.current_log, place)))
        named = partial(_request_named, log, event_id)
        # Here, too: of what is known already no turn is made.
        await arun(read(named))
        try:
            starting = asynchronous(HoldfastSession(log)).turn(format=NAME, take=[])
            async with starting as turn:
                run = InvocationRun(log, turn._work, is_owned=True)
                run.request = await arun(read(named))
                self._note(run)
                try:
                    asking = runner.run_async(
                        user_id=user_id, session_id=session_id, **options
                    )
                    async with aclosing(asking) as events:
                        async for event in events:
                            yield event
                finally:
                    run.is_left = True
        except SessionEnded as ended:
            gone = await arun(read(partial(self._sessions.gone, place)))
            raise gone from ended

    def _check_runner(self, runner: Any) -> None:
        if runner.session_service is not self:
            given = "one with another session service"
            raise BadArgument(
                parameter="runner", takes="a runner on this service", given=given
            )
        manager = runner.plugin_manager
        if not any(isinstance(plugin, HoldfastPlugin) for plugin in manager.plugins):
            manager.register_plugin(HoldfastPlugin())

    async def _made(self, place: AdkPlace) -> None:
        """Makes the session if there is none."""
        if await arun(self._sessions.load(place, WantedEvents(recent=0))) is None:
            # Else somebody else was quicker.
            with suppress(AlreadyExistsError):
                await arun(self._sessions.create(place, {}))

    async def _begin(self, context: Any) -> None:
        """An invocation begins: it holds the turn of its session, and knows all that is in it."""
        session = context.session
        seen = Seen.of(session)
        if seen is None:
            return
        place = AdkPlace(session.app_name, session.user_id, session.id)
        held = self._runs.get(seen.id)
        if held is not None and held.takes(context.invocation_id):
            return
        log = await arun(read(partial(self._sessions.log, seen.id)))
        try:
            turn = await asynchronous(HoldfastSession(log)).turn(format=NAME, take=[])
        except SessionEnded as ended:
            gone = await arun(read(partial(self._sessions.gone, place)))
            raise gone from ended
        run = InvocationRun(log, turn._work, is_owned=False)
        run.takes(context.invocation_id)
        run.watch(context)
        self._note(run)
        wanted = WantedEvents.of(
            getattr(context.run_config, "get_session_config", None)
        )
        found = await arun(self._sessions.reload(place, seen, wanted))
        if found is not None:
            _refresh(session, found)

    def _note(self, run: InvocationRun) -> None:
        with self._lock:
            if len(self._runs) > RUNS_MAX:
                alive = {}
                for id, each in self._runs.items():
                    if not each.is_ended:
                        alive[id] = each
                self._runs = alive
            self._runs[run.log.id] = run

    def _run_of(self, session: Any, invocation_id: str) -> InvocationRun | None:
        """The run that this invocation of a session has, if it holds its turn."""
        seen = Seen.of(session)
        run = None if seen is None else self._runs.get(seen.id)
        if run is None or run.is_left or run.invocation_id != invocation_id:
            return None
        return run

    async def _end(self, context: Any, error: Exception | None) -> None:
        run = self._run_of(context.session, context.invocation_id)
        if run is not None and not run.is_owned:
            self._runs.pop(run.log.id, None)
            await run.leave(error)


def _request_named(
    log: SessionLog, event_id: str | int | None
) -> tuple[str, str] | None:
    """The caller's name for a request, as it is stored; `AlreadyAccepted` when it came before."""
    if event_id is None:
        return None
    request = (log.scope, f"{log.epoch}/request/{event_id}")
    known = log.engine.accepted(*request)
    if known is not None:
        raise AlreadyAccepted(
            event_id=str(event_id),
            message_id=known.message.hex(),
            session_id=known.session,
            turn_id=None,
            standing="what was answered to it is in the session",
        )
    return request


def _session(found: Loaded) -> Session:
    session = Session(
        id=found.place.session,
        app_name=found.place.app,
        user_id=found.place.user,
        state=found.state,
        events=found.events,
        last_update_time=found.updated,
    )
    found.seen.put(session)
    return session


def _refresh(session: Session, found: Loaded) -> None:
    """Brings a session object up to date: others may hold its lists."""
    session.events[:] = found.events
    session.state.clear()
    session.state.update(found.state)
    session.last_update_time = found.updated
    found.seen.put(session)


def _wrong(parameter: str, takes: str, given: Any) -> BadArgument:
    return BadArgument(parameter=parameter, takes=takes, given=kind_of(given))
