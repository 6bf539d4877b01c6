"""The reference engine: what an engine does, said as plainly as it can be.

A whole store is one value, `_World`. A commit is a function from a world to the next one or to a
refusal, so "all or nothing" needs no undoing: a refused commit's world is let go. One lock makes
commits stand in a row. Nothing is durable and nothing is fast; it is the oracle of the property
tests and passes the same conformance suite as its betters.

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
from holdfast.domain.entry import STARTING, Entry
from holdfast.domain.search.query import Found, SearchableText, SearchScope, answers
from holdfast.engine.protocol import (
    ACTIVE_STEP_MS,
    Accepted,
    Commit,
    JournalRow,
    Laid,
    Outcome,
    OwedReply,
    Pending,
    Refused,
    SessionState,
    State,
    Ticket,
    Waiting,
    Weight,
    WordsOf,
    Write,
    Written,
)
from holdfast.engine.store_info import Backup, Problem, StoreInfo
from holdfast.errors import StoreUnavailable


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
        self, tick: Callable[[], float] | None = None, *, words_of: WordsOf | None = None
    ) -> None:
        self.tick = tick or Ticks()
        self._words_of = words_of or (lambda *entry: None)
        self._world = _World()
        self._lock = threading.RLock()
        self._watchers: dict[str, list[Callable[[], None]]] = {}

    def commit(self, commits: Sequence[Commit]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        touched: set[str] = set()
        with self._lock:
            for commit in commits:
                self._world, outcome = _after(self._world, commit, self.tick())
                outcomes.append(outcome)
                if isinstance(outcome, Written):
                    touched.update(write.session for write in commit)
            callbacks = [
                callback for session in touched for callback in self._watchers.get(session, ())
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
        page = [entry for entry in known.log if entry.seq > after][:limit] if known else []
        if bodies:
            return page
        return [
            msgspec.structs.replace(entry, body=b"") if entry.kind == "message" else entry
            for entry in page
        ]

    def beginnings(
        self, sessions: Sequence[str], *, limit: int, bodies: bool = True
    ) -> dict[str, list[Entry]]:
        return {
            id: found for id in sessions if (found := self.entries(id, limit=limit, bodies=bodies))
        }

    def labels(self, session: str, *, after: int = 0) -> list[Entry]:
        return [
            entry
            for entry in self.entries(session, after=after, limit=1 << 30)
            if entry.kind == "label"
        ]

    def inbox(self, session: str) -> list[Waiting]:
        known = self._world.sessions.get(session)
        return [self._waiting(known.inbox[seq]) for seq in sorted(known.inbox)] if known else []

    def _waiting(self, waiting: Waiting) -> Waiting:
        until = waiting.mark
        return (
            waiting
            if until is None
            else msgspec.structs.replace(waiting, left_s=until - self.tick())
        )

    def journal(self, session: str, *, after: int = 0, limit: int = 1000) -> list[JournalRow]:
        known = self._world.sessions.get(session)
        return [row for row in known.rows if row.position > after][:limit] if known else []

    def outbox(
        self, tenant: str, *, after: OwedReply | None = None, limit: int = 50, free: bool = False
    ) -> list[OwedReply]:
        owed = [
            debt
            for s in self._world.sessions.values()
            if s.tenant == tenant
            for debt in s.owed.values()
            if not (free and _claimed(s, debt.id, self.tick()))
        ]
        in_order = sorted(owed, key=_age)
        return [debt for debt in in_order if after is None or _age(debt) > _age(after)][:limit]

    def pending(
        self, tenant: str, *, after: tuple[bytes, str, int] | None = None, limit: int = 50
    ) -> list[Pending]:
        waiting = [
            ((one.message, s.id, seq), Pending(s.id, s.key, s.log[seq - s.origin - 1]))
            for s in self._world.sessions.values()
            if s.tenant == tenant
            for seq, one in s.inbox.items()
        ]
        in_order = sorted(waiting, key=lambda each: each[0])
        return [each for mark, each in in_order if after is None or mark > after][:limit]

    def running(self, tenant: str) -> list[str]:
        return [
            s.id for s in self._world.sessions.values() if s.tenant == tenant and s.turn is not None
        ]

    def debts(self, session: str) -> list[OwedReply]:
        known = self._world.sessions.get(session)
        return sorted(known.owed.values(), key=_age) if known else []

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
        newest_first = sorted(theirs, key=lambda s: (s.active_at, made[s.id]), reverse=True)
        return [self._seen(s) for s in newest_first[:limit]]

    def kept(self, tenant: str, *, before: tuple[int, str], limit: int) -> list[SessionState]:
        listed = self.sessions(tenant, before=before, limit=len(self._world.sessions))
        return [state for state in listed if not state.erased][:limit]

    def tenants(self) -> list[str]:
        return sorted({s.tenant for s in self._world.sessions.values()})

    def events(self, *, after: bytes = b"", limit: int = 1000) -> list[AcceptedEvent]:
        known = sorted((name, event) for name, event in self._world.events.items() if name > after)
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
            id: _weight(known.log) for id in sessions if (known := self._world.sessions.get(id))
        }

    def search(self, sought: SearchScope, *, limit: int = 20) -> list[Found]:
        return list(islice(self._found(sought), limit))

    def matching(self, sought: SearchScope, *, limit: int) -> list[str]:
        return list(dict.fromkeys(found.session for found in self._found(sought)))[:limit]

    def _found(self, sought: SearchScope) -> Iterator[Found]:
        """A look at every message there is, the newest first."""
        world = self._world
        for id, seq in reversed(world.arrivals):
            session = world.sessions[id]
            entry = session.log[seq - session.origin - 1]
            if _is_sought(session, entry, sought):
                words: SearchableText | None = None
                # a message that makes no sense hides no other (I-18)
                with contextlib.suppress(Exception):
                    words = self._words_of(
                        entry.kind, entry.note, entry.body, partial(_notes, session, seq)
                    )
                places = answers(words, sought) if words is not None else None
                if words is not None and places is not None:
                    yield Found(id, session.key, entry, words, tuple(places))

    def watch(self, session: str, callback: Callable[[], None]) -> Callable[[], None]:
        def wake() -> None:  # one of its own for each watcher: two may give the same callback
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
            where=to, problem="a store in memory is not copied", remedy="Keep it in a file"
        )

    def close(self) -> None:
        """Nothing is ever under way, and there is nothing to let go of."""

    def _seen(self, session: "_ReferenceSession") -> SessionState:
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


class _ReferenceSession(msgspec.Struct, frozen=True):
    """All there is to a session. The inbox is by seq: a message that is given back stands where it
    stood.
    """

    id: str
    tenant: str
    key: str | None
    epoch: int
    opened_at: int
    active_at: int
    ended: bool = False
    erased: bool = False
    fence: int = 0
    turn: int | None = None
    holder: str | None = None
    lease_until: float = 0.0
    lease_s: float = 0.0
    journal: int = 0
    base: int = 0
    origin: int = 0
    parent: str | None = None
    log: tuple[Entry, ...] = ()
    inbox: dict[int, Waiting] = {}
    rows: tuple[JournalRow, ...] = ()
    owed: dict[bytes, OwedReply] = {}
    claims: dict[bytes, tuple[bytes, float]] = {}

    @property
    def state(self) -> State:
        return "ended" if self.ended else "open" if self.turn is None else "running"


class _World(msgspec.Struct, frozen=True):
    """All there is: sessions in the order they were made, accepted events, the last journal
    position, and entries, by session and seq, in the order they came.
    """

    sessions: dict[str, _ReferenceSession] = {}
    events: dict[bytes, Accepted] = {}
    position: int = 0
    arrivals: tuple[tuple[str, int], ...] = ()

    def current(self, tenant: str, key: str) -> _ReferenceSession | None:
        bound = [s for s in self.sessions.values() if (s.tenant, s.key) == (tenant, key)]
        return max(bound, key=lambda s: s.epoch, default=None)


def _after(world: _World, commit: Commit, now: float) -> tuple[_World, Outcome]:
    """The world after this commit, each write seeing those before it; the same world when one of
    them is refused.
    """
    after, outcome = world, Written()
    for write in commit:
        refused = _refusal(after, write, now)
        if refused is not None:
            return world, refused
        after, outcome = _done(after, write, now)
    return after, outcome


def _refusal(world: _World, write: Write, now: float) -> Refused | None:
    """Why this write can't be done in this world; None when it can."""

    def no(why: Any, detail: Any = None) -> Refused:
        return Refused(why, write.session, detail)

    session = _opened(world, write) if write.open else world.sessions.get(write.session)
    if session is None and not write.open:
        return no("missing")
    if write.event is not None and event_name(*write.event) in world.events:
        return no("accepted", world.events[event_name(*write.event)])
    if session is None:
        return no("bound")
    if (
        session.ended
        and not write.ended_too
        or session.erased
        and write.erase is None
        and write.lay is None
    ):
        return no("ended")
    if write.fence is not None and (session.turn is None or write.fence != session.fence):
        return no("superseded")
    if write.idle and session.turn is not None:
        return no("busy")
    if write.head is not None and write.head != session.origin + len(session.log):
        return no("moved")
    if write.position not in (
        None,
        max([session.journal, *(row.position for row in session.rows)]),
    ):
        return no("moved")
    if not {waiting.message for waiting in session.inbox.values()}.issuperset(write.takes):
        return no("taken")
    if write.pays is not None and write.pays not in session.owed:
        return no("taken")
    if write.claim is not None:
        sender = _claimed(session, write.claim.id, now)
        if write.claim.id not in session.owed or sender not in (None, write.claim.token):
            return no("taken")
    return None


def _claimed(session: _ReferenceSession, reply: bytes, now: float) -> bytes | None:
    """The token of the sender that has this reply now."""
    token, until = session.claims.get(reply, (None, 0.0))
    return token if until > now else None


def _age(debt: OwedReply) -> tuple[int, str, int, bytes]:
    """What replies are ordered by: their time, and a session's by their turns."""
    return debt.at, debt.session, debt.turn, debt.id


def _opened(world: _World, write: Write) -> _ReferenceSession | None:
    """The session that this write makes; None when its id is in use or its epoch is not the key's
    next.
    """
    asked = write.open
    assert asked is not None
    bound = world.current(asked.tenant, asked.key) if asked.key is not None else None
    next_epoch = bound.epoch + 1 if bound else 1
    if write.session in world.sessions or (asked.key is not None and asked.epoch != next_epoch):
        return None
    at = write.drafts[0].at if write.drafts else 0
    own = _ReferenceSession(
        write.session, asked.tenant, asked.key, asked.epoch, opened_at=at, active_at=at
    )
    return _with(own, origin=asked.head, fence=asked.fence, parent=asked.parent)


def _done(world: _World, write: Write, now: float) -> tuple[_World, Written]:
    """The world after a write that nothing stands against."""
    session = _opened(world, write) if write.open else world.sessions[write.session]
    assert session is not None
    first, events, position = session.origin + len(session.log) + 1, world.events, world.position
    session = _turned(session, write, now, position)
    if write.erase is not None:
        session = _erased(session, dict(write.erase))
    if write.forget_events:
        events = {name: event for name, event in events.items() if event.session != session.id}
    if write.blank:
        session = _blanked(session, dict(write.blank))
    session = _logged(session, write, first, now)
    if write.event is not None:
        draft = write.drafts[write.event_draft]
        events = {
            **events,
            event_name(*write.event): Accepted(session.id, first + write.event_draft, draft.id),
        }
    if write.lay is not None:
        session = _laid(session, write.lay)
        events = {
            event.name: Accepted(event.session, event.seq, event.message)
            for event in write.lay.events
        } | events
    if write.owes or write.pays is not None:
        session = _with(session, owed=_owed(session, write))
    if write.claim is not None:
        claim = {write.claim.id: (write.claim.token, now + write.claim.seconds)}
        session = _with(session, claims=session.claims | claim)
    if write.chunk is not None:
        position += 1
        row = JournalRow(
            position, session.turn or 0, write.chunk.message, write.chunk.index, write.chunk.body
        )
        session = _with(session, rows=(*session.rows, row))
    written = Written(
        seq=first if write.drafts else 0,
        turn=session.fence if write.start else 0,
        position=position if write.chunk else 0,
    )
    arrivals = (
        *world.arrivals,
        *((session.id, first + index) for index in range(len(write.drafts))),
    )
    return _World({**world.sessions, session.id: session}, events, position, arrivals), written


def _is_sought(session: _ReferenceSession, entry: Entry, sought: SearchScope) -> bool:
    """What has nothing to do with the words of a message."""
    return (
        session.tenant == sought.tenant
        and sought.session in (None, session.id)
        and sought.key in (None, session.key)
        and sought.state in (None, session.state)
        and (sought.since is None or entry.at >= sought.since)
        and (sought.until is None or entry.at < sought.until)
    )


def _notes(session: _ReferenceSession, seq: int, needle: bytes) -> list[bytes]:
    """Notes of messages before this one that have these bytes in them, newest first."""
    before = [entry for entry in session.log if entry.seq < seq and entry.kind == "message"]
    return [entry.note for entry in reversed(before) if needle and needle in entry.note][:8]


def _erased(session: _ReferenceSession, notes: dict[int, bytes]) -> _ReferenceSession:
    """Nothing is left but the entries' places and these notes."""
    log = [
        msgspec.structs.replace(entry, note=notes.get(entry.seq, b""), body=b"")
        for entry in session.log
    ]
    return _with(session, erased=True, log=tuple(log), inbox={}, rows=(), owed={})


def _blanked(session: _ReferenceSession, notes: dict[int, bytes]) -> _ReferenceSession:
    """Nothing is left of these entries but their places and these notes."""
    log = [
        msgspec.structs.replace(entry, note=notes[entry.seq], body=b"")
        if entry.seq in notes
        else entry
        for entry in session.log
    ]
    return _with(session, log=tuple(log))


def _laid(session: _ReferenceSession, laid: Laid) -> _ReferenceSession:
    """It stands as it does in another store."""
    inbox = {waiting.seq: waiting for waiting in laid.inbox}
    session = _with(session, inbox=inbox, owed={debt.id: debt for debt in laid.outbox})
    return _with(
        session,
        fence=laid.fence,
        base=laid.base,
        active_at=laid.active_at,
        ended=laid.ended,
        erased=laid.erased,
    )


def _owed(session: _ReferenceSession, write: Write) -> dict[bytes, OwedReply]:
    """What the session owes after this write."""
    owed = {id: debt for id, debt in session.owed.items() if id != write.pays}
    for owing in write.owes:
        last = write.drafts[-1]
        owed[owing.id] = OwedReply(owing.id, session.id, last.turn or 0, owing.reply_to, last.at)
    return owed


def _turned(
    session: _ReferenceSession, write: Write, now: float, position: int
) -> _ReferenceSession:
    """The turn is finished or seized, the next one started, its lease renewed, the base moved, the
    session closed: in this order.
    """
    if write.finish:
        session = _with(session, turn=None, holder=None)
    if write.seize:
        session = _with(session, fence=session.fence + 1)
    if write.start is not None:
        session = _with(
            session, fence=session.fence + 1, turn=session.fence + 1, holder=write.start.holder
        )
        lease_s = write.start.lease_s
        session = _with(session, lease_until=now + lease_s, lease_s=lease_s, journal=position)
        session = _with(
            session, active_at=max([session.active_at, *(draft.at for draft in write.drafts[:1])])
        )
    if write.renew_s is not None:
        session = _with(session, lease_until=now + write.renew_s, lease_s=write.renew_s)
    if write.unbase:
        session = _with(session, base=0)
    if write.base:
        session = _with(session, base=session.origin + len(session.log) + 1)
    return _with(session, ended=True, turn=None, holder=None) if write.close else session


def _logged(session: _ReferenceSession, write: Write, first: int, now: float) -> _ReferenceSession:
    """The drafts are entries; the inbox has lost what was taken and gained what was admitted."""
    started = session.turn if write.start else STARTING
    log = list(session.log)
    inbox = {
        seq: waiting for seq, waiting in session.inbox.items() if waiting.message not in write.takes
    }
    for seq, draft in enumerate(write.drafts, first):
        turn = started if draft.turn == STARTING else draft.turn
        log.append(Entry(seq, draft.kind, turn, draft.id, draft.at, draft.note, draft.body))
        if draft.kind == "message" and draft.at >= session.active_at + ACTIVE_STEP_MS:
            session = _with(session, active_at=draft.at)
    seqs = {entry.id: entry.seq for entry in log}
    for waiting in write.admits:
        seq = waiting.seq or seqs[waiting.message]
        until = None if waiting.lease_s is None else now + waiting.lease_s
        inbox[seq] = Waiting(waiting.message, waiting.waiter, seq, waiting.lease_s, mark=until)
    return _with(session, log=tuple(log), inbox=inbox)


def _weight(log: tuple[Entry, ...]) -> Weight:
    messages = [entry for entry in log if entry.kind == "message"]
    return Weight(
        len(log), len(messages), sum(len(entry.note) + len(entry.body) for entry in log), 0
    )


def _with(session: _ReferenceSession, **changes: Any) -> _ReferenceSession:
    return msgspec.structs.replace(session, **changes)
