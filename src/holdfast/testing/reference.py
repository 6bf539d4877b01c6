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

from msgspec.structs import asdict, replace

from holdfast.domain.accepted_events import AcceptedEvent, event_name
from holdfast.domain.entry import Entry
from holdfast.domain.search.query import Found, SearchableText, SearchScope, answers
from holdfast.engine.protocol import (
    Accepted,
    Commit,
    JournalRow,
    Opening,
    Outcome,
    OwedReply,
    Pending,
    RowsCallback,
    SessionState,
    State,
    Ticket,
    Waiting,
    Weight,
    WordsOf,
    Written,
    state_after,
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
    # How often a follower looks by itself; here it is always woken before.
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
        callbacks: list[Callable[[], None]] = []
        with self._lock:
            for commit in commits:
                self._world, outcome = after_commit(self._world, commit, self.tick())
                outcomes.append(outcome)
                if isinstance(outcome, Written):
                    touched.update(write.session for write in commit)
            for session in touched:
                callbacks += self._watchers.get(session, ())
        # Outside the lock: a watcher may write, or stop watching.
        for callback in callbacks:
            # A lost reader stops nothing (I-16).
            with contextlib.suppress(Exception):
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
        found = [s for s in self._world.of(tenant) if s.id.startswith(prefix)]
        found.sort(key=lambda s: s.id)
        return [self._seen(s) for s in found[:limit]]

    def entries(
        self, session: str, *, after: int = 0, limit: int = 1000, bodies: bool = True
    ) -> list[Entry]:
        page = []
        for entry in self._session(session).log:
            if entry.seq > after:
                if entry.kind == "message" and not bodies:
                    entry = replace(entry, body=b"")
                page.append(entry)
        return page[:limit]

    def beginnings(
        self, sessions: Sequence[str], *, limit: int, bodies: bool = True
    ) -> dict[str, list[Entry]]:
        found = {}
        for id in sessions:
            entries = self.entries(id, limit=limit, bodies=bodies)
            if entries:
                found[id] = entries
        return found

    def labels(self, session: str, *, after: int = 0) -> list[Entry]:
        entries = self._session(session).log
        return [
            entry for entry in entries if entry.seq > after and entry.kind == "label"
        ]

    def inbox(self, session: str) -> list[Waiting]:
        page = []
        for _, waiting in sorted(self._session(session).inbox.items()):
            if waiting.mark is not None:
                waiting = replace(waiting, left_s=waiting.mark - self.tick())
            page.append(waiting)
        return page

    def journal(
        self, session: str, *, after: int = 0, limit: int = 1000
    ) -> list[JournalRow]:
        rows = self._session(session).rows
        return [row for row in rows if row.position > after][:limit]

    def outbox(
        self,
        tenant: str,
        *,
        after: OwedReply | None = None,
        limit: int = 50,
        free: bool = False,
    ) -> list[OwedReply]:
        owed = []
        for session in self._world.of(tenant):
            for debt in session.owed.values():
                is_claimed = claimed_by(session, debt.id, self.tick()) is not None
                is_later = after is None or age_of_reply(debt) > age_of_reply(after)
                if is_later and not (free and is_claimed):
                    owed.append(debt)
        return sorted(owed, key=age_of_reply)[:limit]

    def pending(
        self,
        tenant: str,
        *,
        after: tuple[bytes, str, int] | None = None,
        limit: int = 50,
    ) -> list[Pending]:
        waiting = {}
        for session in self._world.of(tenant):
            for seq, one in session.inbox.items():
                # Ids begin with their time, so this is an order of age.
                mark = (one.message, session.id, seq)
                if after is None or mark > after:
                    entry = session.entry(seq)
                    waiting[mark] = Pending(session.id, session.key, entry)
        return [waiting[mark] for mark in sorted(waiting)[:limit]]

    def running(self, tenant: str) -> list[str]:
        return [s.id for s in self._world.of(tenant) if s.turn is not None]

    def debts(self, session: str) -> list[OwedReply]:
        return sorted(self._session(session).owed.values(), key=age_of_reply)

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
        # Of equal times, the session that was made later is the newer one.
        made = {id: number for number, id in enumerate(self._world.sessions)}
        marks = {}
        for session in self._world.of(tenant):
            if key in (None, session.key) and state in (None, session.state):
                marks[session.active_at, made[session.id]] = session
        newest_first = sorted(marks, reverse=True)
        if before is not None:
            end = (before[0], made.get(before[1], -1))
            newest_first = [mark for mark in newest_first if mark < end]
        return [self._seen(marks[mark]) for mark in newest_first[:limit]]

    def under(
        self, tenant: str, prefix: str, *, after: str = "", limit: int = 50
    ) -> list[SessionState]:
        found = {}
        for session in self._world.of(tenant):
            if session.key is not None and session.key.startswith(prefix):
                current = self.current(tenant, session.key)
                if current is not None and not current.ended and session.key > after:
                    found[session.key] = current
        return [found[key] for key in sorted(found)[:limit]]

    def kept(
        self, tenant: str, *, before: tuple[int, str], limit: int
    ) -> list[SessionState]:
        listed = self.sessions(tenant, before=before, limit=len(self._world.sessions))
        return [state for state in listed if not state.erased][:limit]

    def tenants(self) -> list[str]:
        return sorted({s.tenant for s in self._world.sessions.values()})

    def events(self, *, after: bytes = b"", limit: int = 1000) -> list[AcceptedEvent]:
        page = []
        names = sorted(name for name in self._world.events if name > after)
        for name in names[:limit]:
            event = self._world.events[name]
            page.append(AcceptedEvent(name, event.session, event.seq, event.message))
        return page

    def forks(self, tenant: str, parents: Sequence[str]) -> list[SessionState]:
        found = [s for s in self._world.of(tenant) if s.parent in parents]
        found.sort(key=lambda s: (s.opened_at, s.id))
        return [self._seen(s) for s in found]

    def weigh(self, sessions: Sequence[str]) -> dict[str, Weight]:
        known = self._world.sessions
        return {id: weight_of(known[id].log) for id in sessions if id in known}

    def search(self, sought: SearchScope, *, limit: int = 20) -> list[Found]:
        return list(islice(self._found(sought), limit))

    def matching(self, sought: SearchScope, *, limit: int) -> list[str]:
        # A dict, and not a set: sessions stand in the order of their newest answer.
        sessions = dict.fromkeys(found.session for found in self._found(sought))
        return list(sessions)[:limit]

    def _found(self, sought: SearchScope) -> Iterator[Found]:
        """A look at every message there is, the newest first."""
        world = self._world
        for id, seq in reversed(world.arrivals):
            session = world.sessions[id]
            entry = session.entry(seq)
            if not is_sought(session, entry, sought):
                continue
            words: SearchableText | None = None
            before = partial(notes_before, session, seq)
            # A message that makes no sense hides no other (I-18).
            with contextlib.suppress(Exception):
                words = self._words_of(entry.kind, entry.note, entry.body, before)
            if words is None:
                continue
            places = answers(words, sought)
            if places is not None:
                yield Found(id, session.key, entry, words, tuple(places))

    def watch(self, session: str, callback: Callable[[], None]) -> Callable[[], None]:
        # One of its own for each watcher: two may give the same callback.
        def wake() -> None:
            callback()

        def stop() -> None:
            with self._lock:
                # Stopping twice is fine.
                if wake in self._watchers.get(session, ()):
                    self._watchers[session].remove(wake)

        with self._lock:
            self._watchers.setdefault(session, []).append(wake)
        return stop

    def watch_rows(self, session: str, callback: RowsCallback) -> Callable[[], None]:
        """Knows nothing without looking."""
        return self.watch(session, lambda: callback(None))

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
            active_at=max(
                (session.log[-1].at for session in sessions if session.log),
                default=None,
            ),
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

    def _session(self, id: str) -> ReferenceSession:
        """One that is not there has nothing in it."""
        return self._world.sessions.get(id, _NO_SESSION)

    def _seen(self, session: ReferenceSession) -> SessionState:
        return session.seen(self.tick())


_NO_SESSION = ReferenceSession(**asdict(state_after("", Opening("", None, 1))))


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
