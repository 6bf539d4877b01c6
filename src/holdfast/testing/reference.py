"""The reference engine: what an engine does, said as plainly as it can be.

A whole store is one value, a `StoreContent`; `reference_world` says what a commit makes of it. One lock
makes commits stand in a row. Nothing is durable and nothing is fast; it is the oracle of the
property tests and passes the same conformance suite as the engines on disk.

It has no clock and no chance: leases are measured by the `tick` it is given, all other times come
with the drafts.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

import msgspec

from holdfast.domain.accepted_events import AcceptedEvent, event_name
from holdfast.domain.entry import Entry
from holdfast.domain.search.query import Found, SearchableText, SearchScope, answers
from holdfast.engine.protocol import (
    Accepted,
    Commit,
    JournalRow,
    Outcome,
    OwedReply,
    Pending,
    SessionState,
    State,
    Ticket,
    Waiting,
    Weight,
    WordsOf,
    Written,
)
from holdfast.engine.store_info import Backup, Problem, StoreInfo
from holdfast.errors import StoreUnavailable
from holdfast.testing.reference_world import (
    ReferenceSession,
    StoreContent,
    after_commit,
    age_of_reply,
    claimed_by,
    is_sought,
    notes_before,
    weight_of,
)


class Ticks:
    """A clock that stands still until a test moves it."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds

    def advance(self, seconds: float) -> None:
        self.seconds += seconds


class ReferenceEngine:
    """An engine in memory, for one process and as long as it lives."""

    where = "reference"
    read_only = False
    look_s = 0.02

    def __init__(
        self,
        tick: Callable[[], float] | None = None,
        *,
        words_of: WordsOf | None = None,
    ) -> None:
        self.tick = tick or Ticks()
        self._words_of = words_of or (lambda *entry: None)
        self._world = StoreContent()
        self._lock = threading.RLock()
        self._watchers: dict[str, list[Callable[[], None]]] = {}

    def commit(self, commits: Sequence[Commit]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        touched: set[str] = set()
        with self._lock:
            for commit in commits:
                self._world, outcome = after_commit(self._world, commit, self.tick())
                outcomes.append(outcome)
                if isinstance(outcome, Written):
                    touched.update(write.session for write in commit)
            callbacks = [
                callback
                for session in touched
                for callback in self._watchers.get(session, ())
            ]
        for callback in callbacks:
            with contextlib.suppress(Exception):  # a lost reader stops nothing (I-16)
                callback()
        return outcomes

    def submit(self, commit: Commit) -> Ticket:
        return _Done(self.commit([commit])[0])

    def state(self, session: str) -> SessionState | None:
        known = self._world.sessions.get(session)
        return self._seen(known) if known else None

    def current(self, tenant: str, key: str) -> SessionState | None:
        known = self._world.current(tenant, key)
        return self._seen(known) if known else None

    def find(self, tenant: str, prefix: str, limit: int = 2) -> list[SessionState]:
        found = [
            s
            for s in self._world.sessions.values()
            if s.tenant == tenant and s.id.startswith(prefix)
        ]
        return [self._seen(s) for s in sorted(found, key=lambda s: s.id)[:limit]]

    def entries(
        self, session: str, *, after: int = 0, limit: int = 1000, bodies: bool = True
    ) -> list[Entry]:
        known = self._world.sessions.get(session)
        page = (
            [entry for entry in known.log if entry.seq > after][:limit] if known else []
        )
        if bodies:
            return page
        return [
            msgspec.structs.replace(entry, body=b"")
            if entry.kind == "message"
            else entry
            for entry in page
        ]

    def beginnings(
        self, sessions: Sequence[str], *, limit: int, bodies: bool = True
    ) -> dict[str, list[Entry]]:
        return {
            id: found
            for id in sessions
            if (found := self.entries(id, limit=limit, bodies=bodies))
        }

    def labels(self, session: str, *, after: int = 0) -> list[Entry]:
        return [
            entry
            for entry in self.entries(session, after=after, limit=1 << 30)
            if entry.kind == "label"
        ]

    def inbox(self, session: str) -> list[Waiting]:
        known = self._world.sessions.get(session)
        return (
            [self._waiting(known.inbox[seq]) for seq in sorted(known.inbox)]
            if known
            else []
        )

    def _waiting(self, waiting: Waiting) -> Waiting:
        until = waiting.mark
        return (
            waiting
            if until is None
            else msgspec.structs.replace(waiting, left_s=until - self.tick())
        )

    def journal(
        self, session: str, *, after: int = 0, limit: int = 1000
    ) -> list[JournalRow]:
        known = self._world.sessions.get(session)
        return (
            [row for row in known.rows if row.position > after][:limit] if known else []
        )

    def outbox(
        self,
        tenant: str,
        *,
        after: OwedReply | None = None,
        limit: int = 50,
        free: bool = False,
    ) -> list[OwedReply]:
        owed = [
            debt
            for s in self._world.sessions.values()
            if s.tenant == tenant
            for debt in s.owed.values()
            if not (free and claimed_by(s, debt.id, self.tick()))
        ]
        in_order = sorted(owed, key=age_of_reply)
        return [
            debt
            for debt in in_order
            if after is None or age_of_reply(debt) > age_of_reply(after)
        ][:limit]

    def pending(
        self,
        tenant: str,
        *,
        after: tuple[bytes, str, int] | None = None,
        limit: int = 50,
    ) -> list[Pending]:
        waiting = [
            ((one.message, s.id, seq), Pending(s.id, s.key, s.log[seq - s.origin - 1]))
            for s in self._world.sessions.values()
            if s.tenant == tenant
            for seq, one in s.inbox.items()
        ]
        in_order = sorted(waiting, key=lambda each: each[0])
        return [each for mark, each in in_order if after is None or mark > after][
            :limit
        ]

    def running(self, tenant: str) -> list[str]:
        return [
            s.id
            for s in self._world.sessions.values()
            if s.tenant == tenant and s.turn is not None
        ]

    def debts(self, session: str) -> list[OwedReply]:
        known = self._world.sessions.get(session)
        return sorted(known.owed.values(), key=age_of_reply) if known else []

    def accepted(self, scope: str, event: str) -> Accepted | None:
        return self._world.events.get(event_name(scope, event))

    def sessions(
        self,
        tenant: str,
        *,
        key: str | None = None,
        state: State | None = None,
        before: tuple[int, str] | None = None,
        limit: int = 50,
    ) -> list[SessionState]:
        world = self._world.sessions
        made = {id: number for number, id in enumerate(world)}
        mark = (before[0], made.get(before[1], -1)) if before is not None else None
        theirs = [
            s
            for s in world.values()
            if s.tenant == tenant and key in (None, s.key) and state in (None, s.state)
            if mark is None or (s.active_at, made[s.id]) < mark
        ]
        newest_first = sorted(
            theirs, key=lambda s: (s.active_at, made[s.id]), reverse=True
        )
        return [self._seen(s) for s in newest_first[:limit]]

    def kept(
        self, tenant: str, *, before: tuple[int, str], limit: int
    ) -> list[SessionState]:
        listed = self.sessions(tenant, before=before, limit=len(self._world.sessions))
        return [state for state in listed if not state.erased][:limit]

    def tenants(self) -> list[str]:
        return sorted({s.tenant for s in self._world.sessions.values()})

    def events(self, *, after: bytes = b"", limit: int = 1000) -> list[AcceptedEvent]:
        known = sorted(
            (name, event) for name, event in self._world.events.items() if name > after
        )
        return [
            AcceptedEvent(name, event.session, event.seq, event.message)
            for name, event in known[:limit]
        ]

    def forks(self, tenant: str, parents: Sequence[str]) -> list[SessionState]:
        found = [
            s
            for s in self._world.sessions.values()
            if s.tenant == tenant and s.parent in {*parents}
        ]
        return [self._seen(s) for s in sorted(found, key=lambda s: (s.opened_at, s.id))]

    def weigh(self, sessions: Sequence[str]) -> dict[str, Weight]:
        return {
            id: weight_of(known.log)
            for id in sessions
            if (known := self._world.sessions.get(id))
        }

    def search(self, sought: SearchScope, *, limit: int = 20) -> list[Found]:
        return list(islice(self._found(sought), limit))

    def matching(self, sought: SearchScope, *, limit: int) -> list[str]:
        return list(dict.fromkeys(found.session for found in self._found(sought)))[
            :limit
        ]

    def _found(self, sought: SearchScope) -> Iterator[Found]:
        """A look at every message there is, the newest first."""
        world = self._world
        for id, seq in reversed(world.arrivals):
            session = world.sessions[id]
            entry = session.log[seq - session.origin - 1]
            if is_sought(session, entry, sought):
                words: SearchableText | None = None
                # a message that makes no sense hides no other (I-18)
                with contextlib.suppress(Exception):
                    words = self._words_of(
                        entry.kind,
                        entry.note,
                        entry.body,
                        partial(notes_before, session, seq),
                    )
                places = answers(words, sought) if words is not None else None
                if words is not None and places is not None:
                    yield Found(id, session.key, entry, words, tuple(places))

    def watch(self, session: str, callback: Callable[[], None]) -> Callable[[], None]:
        def wake() -> (
            None
        ):  # one of its own for each watcher: two may give the same callback
            callback()

        def stop() -> None:
            with self._lock:
                if wake in self._watchers.get(session, ()):
                    self._watchers[session].remove(wake)

        with self._lock:
            self._watchers.setdefault(session, []).append(wake)
        return stop

    def scrub(self) -> None:
        """What is erased here is gone at once."""

    def info(self) -> StoreInfo:
        sessions = self._world.sessions.values()
        return StoreInfo(
            where=self.where,
            bytes=0,
            files={},
            sessions=len(sessions),
            entries=sum(len(session.log) for session in sessions),
            tenants=len({session.tenant for session in sessions}),
            journal_rows=sum(len(session.rows) for session in sessions),
            active_at=max((session.log[-1].at for session in sessions), default=None),
            version=0,
            engine="a dict",
            page_bytes=0,
            pages=0,
            free_pages=0,
            log_pages=0,
            file_system=None,
        )

    def check(self) -> list[Problem]:
        return []  # it is right by definition

    def backup(self, to: str) -> Backup:
        raise StoreUnavailable(
            where=to,
            problem="a store in memory is not copied",
            remedy="Keep it in a file",
        )

    def close(self) -> None:
        """Nothing is ever under way, and there is nothing to let go of."""

    def _seen(self, session: ReferenceSession) -> SessionState:
        running = session.turn is not None
        return SessionState(
            id=session.id,
            tenant=session.tenant,
            key=session.key,
            epoch=session.epoch,
            ended=session.ended,
            head=session.origin + len(session.log),
            fence=session.fence,
            turn=session.turn,
            holder=session.holder,
            lease_left_s=session.lease_until - self.tick() if running else None,
            opened_at=session.opened_at,
            active_at=session.active_at,
            last_at=session.log[-1].at if session.log else session.opened_at,
            journal=session.journal,
            base=session.base,
            origin=session.origin,
            erased=session.erased,
            lease_s=session.lease_s if running else None,
            lease_mark=session.lease_until if running else None,
            parent=session.parent,
        )


class _Done:
    """A ticket whose commit is over: the reference engine does everything at once."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome

    @property
    def done(self) -> bool:
        return True

    def result(self, timeout: float | None = None) -> Outcome:
        return self.outcome

    def then(self, callback: Callable[[Ticket], Any]) -> None:
        with contextlib.suppress(Exception):
            signal = callback(self)
            if signal is not None:
                signal()
