"""Appending an event: one commit that reads nothing, as long as nobody else writes to the session.

Its guard is the entry up to which its session object has seen the session. Appends of one object that
are on their way follow each other: each counts on those before it. Only when a guard refuses is it
looked at who has written.
"""

import threading
from functools import partial
from typing import Any

from google.adk.errors import StaleSessionError
from google.adk.events.event import Event

from holdfast.adapters.adk.events import event_of
from holdfast.adapters.adk.places import AdkPlace, Seen
from holdfast.adapters.adk.run import InvocationRun
from holdfast.adapters.adk.sessions import STALE, AdkSessions, changes_of
from holdfast.domain.entry import note_of
from holdfast.domain.message import Spoken
from holdfast.domain.repair import StoredMessage
from holdfast.engine.protocol import Accepted, Commit, Outcome, Refused, Write
from holdfast.errors import BadArgument
from holdfast.runtime.live.session_log import SessionLog
from holdfast.runtime.plans.plan import Plan, read, wait_for

Name = tuple[str, str]


class _Flight:
    """The appends of one session object that are on their way."""

    def __init__(self) -> None:
        self.users = self.head = 0
        self.ids: set[bytes] = set()


class Appending:
    """Appends events to the sessions of a store. Safe to use from many threads."""

    def __init__(self, sessions: AdkSessions) -> None:
        self._sessions = sessions
        # By the identity of the session object: the kit's sessions can't be hashed, and
        # each flight ends before its object can.
        self._flights: dict[int, _Flight] = {}
        self._lock = threading.Lock()

    def append(
        self, session: Any, event: Event, spoken: Spoken, run: InvocationRun | None
    ) -> Plan[bool]:
        """Stores an event and what it sets, in one commit; False when it was stored before."""
        sessions = self._sessions
        seen = Seen.of(session)
        if seen is None:
            seen = yield from read(partial(sessions.adopted, session))
            seen.put(session)
        log = sessions.known_log(seen.id)
        if log is None:
            log = yield from read(partial(sessions.log, seen.id))
        # A run holds the session's turn. The fence of that turn is its guard.
        if run is not None:
            return (yield from self._append(session, event, spoken, log, run))
        flight = self._board(session)
        try:
            return (yield from self._append(session, event, spoken, log, flight))
        finally:
            self._leave(session, flight)

    def _append(
        self,
        session: Any,
        event: Event,
        spoken: Spoken,
        log: SessionLog,
        by: InvocationRun | _Flight,
    ) -> Plan[bool]:
        sessions = self._sessions
        place = AdkPlace(session.app_name, session.user_id, session.id)
        changes = changes_of(place, event.actions.state_delta or {})
        # With the epoch: a session that was deleted and made anew under the same id
        # takes the same events once more.
        name = (log.scope, f"{log.epoch}/{event.id}")
        # What is refused was not stored. What stood in the way is looked at, and it is
        # tried again.
        while True:
            also: Commit = ()
            if any(changes.values()):
                also = tuple(
                    (yield from read(partial(sessions.states.writes, changes)))
                )
            if isinstance(by, InvocationRun):
                outcome = yield from by.store(event, spoken, name, also)
            else:
                outcome = yield from self._fly(session, log, spoken, name, also, by)
            if not isinstance(outcome, Refused):
                Seen(log.id, outcome.seq).put(session)
                return True
            if outcome.why == "accepted":
                yield from read(partial(self._check_same, outcome.detail, spoken))
                return False
            if outcome.session != log.id:
                # Of a state: somebody has opened it, closed it or told it whole meanwhile.
                sessions.forget_states(place)
            elif outcome.why == "moved" and isinstance(by, _Flight):
                yield from read(partial(self._look_again, session, log, by))
            elif outcome.why == "superseded" and isinstance(by, InvocationRun):
                yield from by.store_late(spoken)
                raise (yield from by.interrupted())
            else:
                raise (yield from read(partial(sessions.gone, place)))

    def _board(self, session: Any) -> _Flight:
        with self._lock:
            flight = self._flights.setdefault(id(session), _Flight())
            flight.users += 1
        return flight

    def _leave(self, session: Any, flight: _Flight) -> None:
        with self._lock:
            flight.users -= 1
            if not flight.users:
                self._flights.pop(id(session), None)

    def _fly(
        self,
        session: Any,
        log: SessionLog,
        spoken: Spoken,
        name: Name,
        also: Commit,
        flight: _Flight,
    ) -> Plan[Outcome]:
        draft = log.message(spoken, turn=None)
        seen = Seen.of(session)
        with self._lock:
            # Submitted in the order of the heads that they count on.
            flight.ids.add(draft.id)
            head = max(flight.head, 0 if seen is None else seen.head)
            flight.head = head + 1
            write = Write(log.id, (draft,), head=head, event=name)
            ticket = log.engine.submit((*also, write))
        outcome = yield from wait_for(ticket)
        return outcome

    def _look_again(self, session: Any, log: SessionLog, flight: _Flight) -> None:
        """Somebody has written to the session. Only events of others make a session object old."""
        head = log.state().head
        seen = Seen.of(session)
        after = 0 if seen is None else seen.head
        while after < head and (page := log.page(after, bodies=False)):
            for entry in page:
                if entry.kind == "message" and entry.id not in flight.ids:
                    raise StaleSessionError(STALE)
            after = page[-1].seq
        with self._lock:
            flight.head = max(after, head)

    def _check_same(self, known: Accepted, spoken: Spoken) -> None:
        """An event that comes again is the same one, or it has no right to its id."""
        log = self._sessions.log(known.session)
        for entry in log.page(known.seq - 1, 1):
            note = note_of("message", entry.note)
            if entry.body == spoken.body:
                return
            stored = StoredMessage("", entry.seq, None, note, entry.body)
            given = StoredMessage("", 0, None, spoken.note, spoken.body)
            if event_of(stored) == event_of(given):
                return
        takes = "an event with an id of its own"
        raise BadArgument(parameter="event", takes=takes, given="that of another event")
