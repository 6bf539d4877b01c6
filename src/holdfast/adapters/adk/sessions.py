"""The sessions of the kit in a store: made, read, listed, deleted.

All of it is plans and plain reading: nothing here belongs to an event loop.
"""

import threading
from collections import OrderedDict
from functools import partial
from typing import Any, NamedTuple

from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event

from holdfast.adapters.adk.places import SESSION, STATE, AdkPlace, Seen
from holdfast.adapters.adk.reading import ALL, Events, WantedEvents, read_events
from holdfast.adapters.adk.states import ScopedStates, Values, scoped
from holdfast.adapters.framework import names_of, sessions_under
from holdfast.engine.protocol import Refused, SessionState
from holdfast.runtime.changes.erase import erase
from holdfast.runtime.changes.open_session import successor
from holdfast.runtime.live.session_log import SessionLog
from holdfast.runtime.plans.plan import Plan, read, wait_for
from holdfast.runtime.store import Store
from holdfast.runtime.turns.recovery import settle_to_read

LOGS_MAX = 1024
STALE = (
    "The session has been modified in storage since it was loaded. "
    "Reload it before appending more events."
)


class Loaded(NamedTuple):
    """A session as it was read."""

    place: AdkPlace
    seen: Seen
    state: Values
    events: list[Event]
    updated: float


class AdkSessions:
    """All sessions of the kit in a store. Safe to use from many threads."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.states = ScopedStates(store)
        self._work = store._work
        self._logs: OrderedDict[str, SessionLog] = OrderedDict()
        self._lock = threading.Lock()

    def create(self, place: AdkPlace, state: Values) -> Plan[Loaded]:
        """Makes a session, with what its state sets, in one commit."""
        changes = changes_of(place, state)
        engine = self._work.engine
        while True:
            last = yield from read(partial(self._current, place.key))
            if last is not None and not last.ended:
                problem = f"Session with id {place.session} already exists."
                raise AlreadyExistsError(problem)
            also = yield from read(partial(self.states.writes, changes))
            made = yield from read(
                partial(successor, self._work, last, place.key, "created anew")
            )
            # Somebody else has taken along what waited in the old session: it is looked
            # at again.
            if made is None:
                continue
            commit = (*also, *made.closing, made.opening)
            outcome = yield from wait_for(engine.submit(commit))
            if isinstance(outcome, Refused):
                self.forget_states(place)
                continue
            log = self._remember(made.session)
            drafts = made.opening.drafts
            seen = Seen(log.id, len(drafts))
            values = yield from read(partial(self.merged, place))
            return Loaded(place, seen, values, [], drafts[0].at / 1000)

    def load(self, place: AdkPlace, wanted: WantedEvents = ALL) -> Plan[Loaded | None]:
        """A session with the events that are asked for; None when there is none."""
        state = yield from read(partial(self._current, place.key))
        if state is None or state.ended:
            return None
        log = self._log_of(state)
        if state.turn is not None:
            # What a process that is gone has shown is stored first.
            state = yield from settle_to_read(log)
        return (yield from read(partial(self._loaded, place, log, state, wanted)))

    def reload(
        self, place: AdkPlace, seen: Seen, wanted: WantedEvents
    ) -> Plan[Loaded | None]:
        """The session once more, if more has come to it than the turn that has just begun."""
        log = yield from read(partial(self.log, seen.id))
        page = yield from read(lambda: log.page(seen.head, bodies=False))
        if all(entry.kind == "turn" for entry in page):
            return None
        return (yield from self.load(place, wanted))

    def _loaded(
        self,
        place: AdkPlace,
        log: SessionLog,
        state: SessionState,
        wanted: WantedEvents,
    ) -> Loaded:
        found = read_events(log, state.head, wanted)
        seen = Seen(log.id, state.head)
        values = self.merged(place)
        return Loaded(place, seen, values, found.events, _updated(found, state))

    def listed(self, app: str, user: str | None) -> list[Loaded]:
        """The sessions of an app, or of one user in it, without events; that which was used last is
        the last.
        """
        names = (app,) if user is None else (app, user)
        states = {}
        for state in sessions_under(self.store, STATE, *names):
            states[tuple(names_of(state.key or "")[1:])] = state
        shared: dict[str, Values] = {}
        found = []
        for state in sessions_under(self.store, SESSION, *names):
            place = AdkPlace.of_key(state.key or "")
            if place.user not in shared:
                shared[place.user] = self._shared(place)
            own: Values = {}
            if place in states:
                own = self.states.values(place.state_key, states[place])
            last = read_events(self._log_of(state), state.head, WantedEvents(recent=0))
            seen = Seen(state.id, state.head)
            values = {**own, **shared[place.user]}
            found.append(Loaded(place, seen, values, [], _updated(last, state)))
        found.sort(key=lambda each: (each.updated, each.place.user, each.place.session))
        return found

    def delete(self, place: AdkPlace) -> Plan[None]:
        """Erases a session and its state. The session itself comes last: killed before that, it is
        still there to be deleted again.
        """
        for key in (place.state_key, place.key):
            state = yield from read(partial(self._current, key))
            if state is not None and not state.erased:
                yield from erase(self._work, state.id, preview=False)
        self.states.forget(place.state_key)

    def merged(self, place: AdkPlace) -> Values:
        """What a session of the kit shows as its state."""
        return {**self.states.values(place.state_key), **self._shared(place)}

    def _shared(self, place: AdkPlace) -> Values:
        found = {}
        for name, value in self.states.values(place.app_key).items():
            found[f"app:{name}"] = value
        for name, value in self.states.values(place.user_key).items():
            found[f"user:{name}"] = value
        return found

    def gone(self, place: AdkPlace) -> Exception:
        """The kit's error for a session object whose session is over."""
        state = self._current(place.key)
        told: Exception = StaleSessionError(STALE)
        if state is None or state.ended:
            told = SessionNotFoundError(f"Session {place.session} not found.")
        return told

    def adopted(self, session: Any) -> Seen:
        """For a session object that was rebuilt from its fields: it is up to date if its last event
        is that of the store.
        """
        place = AdkPlace.of(session.app_name, session.user_id, session.id)
        state = self._current(place.key)
        if state is None or state.ended:
            raise SessionNotFoundError(f"Session {place.session} not found.")
        last = read_events(self._log_of(state), state.head, WantedEvents(recent=0)).last
        known = session.events[-1].id if session.events else None
        if known != (None if last is None else last.id):
            raise StaleSessionError(STALE)
        return Seen(state.id, state.head)

    def current_log(self, place: AdkPlace) -> SessionLog:
        """The session that is there now."""
        state = self._current(place.key)
        if state is None or state.ended:
            raise SessionNotFoundError(f"Session {place.session} not found.")
        return self._log_of(state)

    def _current(self, key: str) -> SessionState | None:
        return self._work.engine.current(self._work.tenant, key)

    def known_log(self, id: str) -> SessionLog | None:
        """The session with this id, if it was used here before."""
        return self._logs.get(id)

    def log(self, id: str) -> SessionLog:
        known = self._logs.get(id)
        if known is None:
            state = self._work.engine.state(id)
            if state is None:
                raise SessionNotFoundError(f"Session {id} not found.")
            known = self._log_of(state)
        return known

    def _log_of(self, state: SessionState) -> SessionLog:
        known = self._logs.get(state.id)
        return known or self._remember(self._work.session_log(state))

    def _remember(self, log: SessionLog) -> SessionLog:
        with self._lock:
            log = self._logs.setdefault(log.id, log)
            self._logs.move_to_end(log.id)
            if len(self._logs) > LOGS_MAX:
                self._logs.popitem(last=False)
        return log

    def forget_states(self, place: AdkPlace) -> None:
        for key in (place.state_key, place.user_key, place.app_key):
            self.states.forget(key)


def _updated(found: Events, state: SessionState) -> float:
    if found.last is None:
        return state.opened_at / 1000
    return float(found.last.timestamp)


def changes_of(place: AdkPlace, state: Values) -> dict[str, Values]:
    """What is set in each state, by its key; nothing where nothing is."""
    if not state:
        return {}
    values = scoped(state)
    return {
        place.app_key: values["app"],
        place.user_key: values["user"],
        place.state_key: values["session"],
    }
