"""The reference engine: what an engine does, said as plainly as it can be.

A whole store is one value, `_World`. A commit is a function from a world to the next one or to a refusal, so "all or
nothing" needs no undoing: a refused commit's world is let go. One lock makes commits stand in a row. Nothing is durable
and nothing is fast; it is the oracle of the property tests and passes the same conformance suite as its betters.

It has no clock and no chance: leases are measured by the `tick` it is given, all other times come with the drafts.
"""

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from holdfast.domain.entry import STARTING, Entry
from holdfast.engine.protocol import (
    Accepted,
    Commit,
    Debt,
    Outcome,
    Refused,
    Row,
    SessionState,
    Ticket,
    Waiting,
    Write,
    Written,
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

    def __init__(self, tick: Callable[[], float] | None = None) -> None:
        self.tick = tick or Ticks()
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
            callbacks = [callback for session in touched for callback in self._watchers.get(session, ())]
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
        found = [s for s in self._world.sessions.values() if s.tenant == tenant and s.id.startswith(prefix)]
        return [self._seen(s) for s in sorted(found, key=lambda s: s.id)[:limit]]

    def entries(self, session: str, *, after: int = 0, limit: int = 1000) -> list[Entry]:
        known = self._world.sessions.get(session)
        return [entry for entry in known.log if entry.seq > after][:limit] if known else []

    def inbox(self, session: str) -> list[Waiting]:
        known = self._world.sessions.get(session)
        return [known.inbox[seq] for seq in sorted(known.inbox)] if known else []

    def journal(self, session: str, *, after: int = 0, limit: int = 1000) -> list[Row]:
        known = self._world.sessions.get(session)
        return [row for row in known.rows if row.position > after][:limit] if known else []

    def outbox(self, tenant: str, *, limit: int = 50) -> list[Debt]:
        owed = [debt for s in self._world.sessions.values() if s.tenant == tenant for debt in s.owed.values()]
        return sorted(owed, key=lambda debt: (debt.at, debt.id))[:limit]

    def accepted(self, scope: str, event: str) -> Accepted | None:
        return self._world.events.get((scope, event))

    def sessions(self, tenant: str, *, before: int | None = None, limit: int = 50) -> list[SessionState]:
        theirs = [s for s in self._world.sessions.values() if s.tenant == tenant]
        earlier = [s for s in theirs if before is None or s.active_at < before]
        newest_first = sorted(reversed(earlier), key=lambda s: s.active_at, reverse=True)
        return [self._seen(s) for s in newest_first[:limit]]

    def watch(self, session: str, callback: Callable[[], None]) -> Callable[[], None]:
        def told() -> None:
            callback()

        def stop() -> None:
            with self._lock:
                if told in self._watchers.get(session, ()):
                    self._watchers[session].remove(told)

        with self._lock:
            self._watchers.setdefault(session, []).append(told)
        return stop

    def close(self) -> None:
        """Nothing is ever under way, and there is nothing to let go of."""

    def _seen(self, session: "_Session") -> SessionState:
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


class _Session(msgspec.Struct, frozen=True):
    """All there is to a session. The inbox is by seq: a message that is given back stands where it stood."""

    id: str
    tenant: str
    key: str | None
    epoch: int
    opened_at: int
    active_at: int
    ended: bool = False
    fence: int = 0
    turn: int | None = None
    holder: str | None = None
    lease_until: float = 0.0
    journal: int = 0
    base: int = 0
    origin: int = 0
    log: tuple[Entry, ...] = ()
    inbox: dict[int, Waiting] = {}
    rows: tuple[Row, ...] = ()
    owed: dict[bytes, Debt] = {}


class _World(msgspec.Struct, frozen=True):
    """All there is: sessions in the order they were made, accepted events, the last journal position."""

    sessions: dict[str, _Session] = {}
    events: dict[tuple[str, str], Accepted] = {}
    position: int = 0

    def current(self, tenant: str, key: str) -> _Session | None:
        bound = [s for s in self.sessions.values() if (s.tenant, s.key) == (tenant, key)]
        return max(bound, key=lambda s: s.epoch, default=None)


def _after(world: _World, commit: Commit, now: float) -> tuple[_World, Outcome]:
    """The world after this commit, each write seeing those before it; the same world when one of them is refused."""
    after, outcome = world, Written()
    for write in commit:
        refused = _refusal(after, write)
        if refused is not None:
            return world, refused
        after, outcome = _done(after, write, now)
    return after, outcome


def _refusal(world: _World, write: Write) -> Refused | None:
    """Why this write can't be done in this world; None when it can."""

    def no(why: Any, detail: Any = None) -> Refused:
        return Refused(why, write.session, detail)

    session = _opened(world, write) if write.open else world.sessions.get(write.session)
    if session is None and not write.open:
        return no("missing")
    if write.event in world.events:
        return no("accepted", world.events[write.event])
    if session is None:
        return no("bound")
    if session.ended and not write.ended_too:
        return no("ended")
    if write.fence is not None and (session.turn is None or write.fence != session.fence):
        return no("superseded")
    if write.idle and session.turn is not None:
        return no("busy")
    if write.head is not None and write.head != session.origin + len(session.log):
        return no("moved")
    if not {waiting.message for waiting in session.inbox.values()}.issuperset(write.takes):
        return no("taken")
    if write.pays is not None and write.pays not in session.owed:
        return no("taken")
    return None


def _opened(world: _World, write: Write) -> _Session | None:
    """The session that this write makes; None when its id is in use or its epoch is not the key's next."""
    asked = write.open
    assert asked is not None
    bound = world.current(asked.tenant, asked.key) if asked.key is not None else None
    next_epoch = bound.epoch + 1 if bound else 1
    if write.session in world.sessions or (asked.key is not None and asked.epoch != next_epoch):
        return None
    at = write.drafts[0].at if write.drafts else 0
    own = _Session(write.session, asked.tenant, asked.key, asked.epoch, opened_at=at, active_at=at)
    return _with(own, origin=asked.head, fence=asked.fence)


def _done(world: _World, write: Write, now: float) -> tuple[_World, Written]:
    """The world after a write that nothing stands against."""
    session = _opened(world, write) if write.open else world.sessions[write.session]
    assert session is not None
    first, events, position = session.origin + len(session.log) + 1, world.events, world.position
    session = _turned(session, write, now, position)
    session = _logged(session, write, first)
    if write.event is not None:
        draft = write.drafts[write.event_draft]
        events = {**events, write.event: Accepted(session.id, first + write.event_draft, draft.id)}
    if write.owes or write.pays is not None:
        session = _with(session, owed=_owed(session, write))
    if write.chunk is not None:
        position += 1
        row = Row(position, session.turn or 0, write.chunk.message, write.chunk.index, write.chunk.body)
        session = _with(session, rows=(*session.rows, row))
    written = Written(
        seq=first if write.drafts else 0,
        turn=session.fence if write.start else 0,
        position=position if write.chunk else 0,
    )
    return _World({**world.sessions, session.id: session}, events, position), written


def _owed(session: _Session, write: Write) -> dict[bytes, Debt]:
    """What the session owes after this write."""
    owed = {id: debt for id, debt in session.owed.items() if id != write.pays}
    for owing in write.owes:
        last = write.drafts[-1]
        owed[owing.id] = Debt(owing.id, session.id, last.turn or 0, owing.reply_to, last.at)
    return owed


def _turned(session: _Session, write: Write, now: float, position: int) -> _Session:
    """The turn is finished or seized, the next one started, its lease renewed, the base moved, the session closed: in
    this order."""
    if write.finish:
        session = _with(session, turn=None, holder=None)
    if write.seize:
        session = _with(session, fence=session.fence + 1)
    if write.start is not None:
        session = _with(session, fence=session.fence + 1, turn=session.fence + 1, holder=write.start.holder)
        session = _with(session, lease_until=now + write.start.lease_s, journal=position)
        session = _with(session, active_at=write.drafts[0].at if write.drafts else session.active_at)
    if write.renew_s is not None:
        session = _with(session, lease_until=now + write.renew_s)
    if write.unbase:
        session = _with(session, base=0)
    if write.base:
        session = _with(session, base=session.origin + len(session.log) + 1)
    return _with(session, ended=True, turn=None, holder=None) if write.close else session


def _logged(session: _Session, write: Write, first: int) -> _Session:
    """The drafts are entries; the inbox has lost what was taken and gained what was admitted."""
    started = session.turn if write.start else STARTING
    log = list(session.log)
    inbox = {seq: waiting for seq, waiting in session.inbox.items() if waiting.message not in write.takes}
    for seq, draft in enumerate(write.drafts, first):
        turn = started if draft.turn == STARTING else draft.turn
        log.append(Entry(seq, draft.kind, turn, draft.id, draft.at, draft.note, draft.body))
    seqs = {entry.id: entry.seq for entry in log}
    for waiting in write.admits:
        seq = waiting.seq or seqs[waiting.message]
        inbox[seq] = Waiting(waiting.message, waiting.waiter, seq)
    return _with(session, log=tuple(log), inbox=inbox)


def _with(session: _Session, **changes: Any) -> _Session:
    return msgspec.structs.replace(session, **changes)
