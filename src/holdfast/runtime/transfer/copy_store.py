"""Copying a store into another: every session, many at once, and what came of it.

What many sessions send together is one transaction in the target. Memory is bounded by the pages
under way (I-24), but for the names of the sessions.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import ExitStack, closing, suppress
from functools import partial

import msgspec
from msgspec.structs import replace

from holdfast.domain.entry import note_of
from holdfast.engine.address import is_postgres, is_remote, shown
from holdfast.engine.open import is_writable
from holdfast.engine.protocol import Engine, SessionState
from holdfast.engine.sql.reads import MISLED
from holdfast.errors import Damaged, HoldfastError, InvalidMessage, StoreUnavailable
from holdfast.runtime.border import checked
from holdfast.runtime.live.session_log import SessionLog
from holdfast.runtime.open_store import OpenStore, open_at
from holdfast.runtime.plans.plan import Plan, run
from holdfast.runtime.transfer.compare_logs import summed
from holdfast.runtime.transfer.copy_events import bring_events
from holdfast.runtime.transfer.copy_order import PARENT_MISSING, Order
from holdfast.runtime.transfer.copy_session import (
    Carried,
    Difference,
    NotTheSameSession,
    Sent,
    carry,
)
from holdfast.runtime.transfer.vet import vet_state
from holdfast.runtime.turns.recovery import settle_if_dead

WIDTH = 64
# So many sessions, or so much of them, are under way at once.
BYTES_MAX = 16 << 20
SPOILT_KEY = "its key is damaged; the target has the one that its first entry tells"


class Salvaged(msgspec.Struct, frozen=True):
    """A session of which some entries can't be read in the source as they were written, those at
    these `seqs`. The target has placeholders in their places, and all else of it; a message that
    only lacks a large part says so in it. `problem` is what is wrong with the first of them, or
    with the session itself, if there are none.
    """

    session_id: str
    tenant: str
    key: str | None
    seqs: tuple[int, ...]
    problem: str


class Copied(msgspec.Struct, frozen=True):
    """What a copy did. `entries` are in the target as they are in the source, `added` of them by
    this copy; all were read back and compared. `digest` is of all these sessions together, the same
    in both stores. `in_use`: sessions in which a turn is running, copied up to there, and forks
    that wait for that turn; copy again when it is over. `differences`: sessions that were left as
    they are. `salvaged`: sessions that were copied but for entries that can't be read; the digest
    is then of the target, with its placeholders.
    """

    sessions: int
    entries: int
    added: int
    digest: str
    in_use: tuple[str, ...]
    differences: tuple[Difference, ...]
    salvaged: tuple[Salvaged, ...]


class Progress(msgspec.Struct, frozen=True):
    """How far a copy has come: the sessions and entries that are done, and how many there are in
    all.
    """

    sessions: int
    sessions_total: int
    entries: int
    entries_total: int


@checked
def copy(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    tenant: str | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Copied:
    """Copies the sessions of one tenant, or of all, from one store into another, which is made if
    there is none.

    Sessions come out the same: entries, inbox, outbox, keys and epochs, events that were accepted.
    Both stores may be in use. Copying again brings over what is new, and resumes a copy that was
    cut short. What is in the target stays: a session that has gone on there by itself is left as it
    is, and told in `Copied.differences`. In the place of an entry that can't be read comes a
    placeholder, told in `Copied.salvaged`.
    """
    for where in (source, target):
        _insist_on_store_itself(where)
    _insist(source)
    whose = "default" if tenant is None else tenant
    with ExitStack() as stack:
        # A source that may only be read is only read: a disk that can't be written, a folder of
        # somebody else.
        here = open_at(source, tenant=whose, read_only=not is_writable(source))
        stack.enter_context(closing(here))
        there = stack.enter_context(closing(open_at(target, tenant=whose)))
        tenants = [tenant] if tenant is not None else here.engine.tenants()
        return _Copy(
            here, there.engine, tenants, progress or (lambda progress: None)
        ).copied()


def _insist_on_store_itself(where: str | os.PathLike[str]) -> None:
    """What is copied is read and laid down as it is kept, not as a server tells it."""
    if is_remote(where):
        raise StoreUnavailable(
            where=shown(where),
            problem="a copy is made of the store itself, not through a server",
            remedy="Copy on the server's machine, from or into the store that it serves",
        )


def _insist(where: str | os.PathLike[str]) -> None:
    """Looking for a store makes none."""
    # Opening makes a store where there is none: of a source that would be a silent mistake.
    name = os.fsdecode(where)
    if not is_postgres(name) and not os.path.exists(name.removeprefix("sqlite:///")):
        raise StoreUnavailable(
            where=shown(name), problem="there is no store", remedy="Check the path"
        )


class _Copy:
    """One copy under way."""

    def __init__(
        self,
        here: OpenStore,
        there: Engine,
        tenants: list[str],
        tell: Callable[[Progress], None],
    ) -> None:
        self._here = here
        self._there = there
        self._tenants = set(tenants)
        self._tell = tell
        self._misled: dict[str, str] = {}
        self._spoilt_keys: dict[str, str] = {}
        ids: list[str] = []
        # A server sees to its own indexes.
        if hasattr(here.engine, "roll"):
            ids, self._misled, self._spoilt_keys = here.engine.roll(tenants)
        self._order = Order(here.engine, tenants, ids, self._mended)
        self._done = 0
        self._advanced = 0
        self._same = 0
        self._entries = 0
        self._added = 0
        self._digest = summed()
        self._in_use: list[str] = []
        self._differences: dict[str, Difference] = {}
        self._salvaged: list[Salvaged] = []

    def copied(self) -> Copied:
        for group in self._order.groups():
            self._together(group)
        for id, problem in self._misled.items():
            # It is in no list.
            self._differences.setdefault(id, Difference(id, "", None, 1, problem))
        # After all sessions: an event belongs to an entry that has to be there.
        bring_events(self._here.engine, self._there, self._is_copied)
        return Copied(
            sessions=self._same,
            entries=self._entries,
            added=self._added,
            digest=self._digest,
            in_use=tuple(self._in_use),
            differences=tuple(self._differences.values()),
            salvaged=tuple(self._salvaged),
        )

    def _together(self, ids: Iterable[str]) -> None:
        plans = _PlansAtOnce()
        for id in ids:
            plans.add(self._carry(id))
        plans.finish()

    def _carry(self, id: str) -> Plan[None]:
        """Carries one session over and notes what came of it. What is wrong with one stops no
        other.
        """
        state = self._here.engine.state(id)
        if state is None:
            # No session is ever taken out of a store: an index of it is damaged.
            self._differences[id] = Difference(id, "", None, 1, MISLED)
            self._done += 1
            return
        state = self._mended(state)
        try:
            if id in self._misled:
                raise NotTheSameSession(state, state.origin + 1, self._misled[id])
            # What the row of a session says is believed no more than its entries.
            vet_state(state)
            if self._is_ready(state):
                carried = yield from carry(
                    self._here.engine,
                    self._there,
                    state,
                    settled=partial(self._settled, self._here.session_log(state)),
                    advance=self._advance,
                )
                self._note(state, carried)
            else:
                # The past that it shares is not over yet at the source: another copy brings it.
                self._in_use.append(id)
        except NotTheSameSession as apart:
            self._differences[id] = apart.difference
        except (Damaged, InvalidMessage) as error:
            self._differences[id] = Difference(
                id, state.tenant, state.key, state.origin + 1, str(error)
            )
        self._done += 1
        self._advance(0)

    def _mended(self, state: SessionState) -> SessionState:
        """The session with a key that it can have: the one that its log tells, if its own is no
        text any more.
        """
        if state.id not in self._spoilt_keys:
            return state
        try:
            [opened] = self._here.engine.entries(state.id, after=state.origin, limit=1)
            key = note_of("opened", opened.note).key
        except (Damaged, ValueError):
            key = self._spoilt_keys[state.id]
        return replace(state, key=key)

    def _settled(self, log: SessionLog, state: SessionState | None) -> SessionState:
        return self._mended(_settled(log, state))

    def _is_ready(self, state: SessionState) -> bool:
        """Whether what a session needs is in the target; a past that is in a turn that is running
        is not there yet.
        """
        seq = state.origin + 1
        if state.id in self._order.broken:
            raise NotTheSameSession(state, seq, self._order.broken[state.id])
        bound = self._order.bound.get(state.id)
        if bound is None:
            return True
        current = self._there.current(*bound.key) if bound.key is not None else None
        if current is not None and current.id in self._differences:
            problem = (
                f"its key's session {current.id} is not the same there, and is kept"
            )
            raise NotTheSameSession(state, seq, problem)
        if bound.parent is None:
            return True
        apart = self._differences.get(bound.parent)
        if apart is not None and apart.seq <= bound.origin:
            problem = f"the past that it shares with session {bound.parent} is not the same there"
            raise NotTheSameSession(state, apart.seq, problem)
        parent = self._there.state(bound.parent)
        if parent is None:
            return False
        # Another tenant's session has that id there.
        if parent.tenant != state.tenant:
            raise NotTheSameSession(state, seq, PARENT_MISSING)
        return parent.head >= bound.origin

    def _is_copied(self, state: SessionState) -> bool:
        return state.tenant in self._tenants and state.id not in self._differences

    def _note(self, state: SessionState, carried: Carried) -> None:
        self._same += 1
        self._entries += carried.entries
        self._added += carried.added
        self._digest = summed(self._digest, carried.digest)
        if carried.in_use:
            self._in_use.append(carried.session_id)
        seqs = tuple(sorted(carried.lost))
        problem = carried.lost[seqs[0]] if seqs else None
        if problem is None and state.id in self._spoilt_keys:
            problem = SPOILT_KEY
        if problem is not None:
            self._salvaged.append(
                Salvaged(state.id, state.tenant, state.key, seqs, problem)
            )

    def _advance(self, entries: int) -> None:
        self._advanced += entries
        order = self._order
        self._tell(Progress(self._done, order.sessions, self._advanced, order.entries))


def _settled(log: SessionLog, state: SessionState | None) -> SessionState:
    """How a session stands, or stood just now. A turn whose writer is gone is ended first: every
    reader does that.
    """
    if state is not None and state.turn is None:
        return state
    return run(settle_if_dead(log))


class _PlansAtOnce:
    """Plans side by side: each goes on when what it has sent is written."""

    def __init__(self) -> None:
        self._plans: deque[tuple[Plan[None], Sent]] = deque()
        self._bytes = 0

    def add(self, plan: Plan[None]) -> None:
        self._go_on(partial(next, plan), plan)
        # The oldest is waited for first: it was sent first, and is answered first.
        while len(self._plans) >= WIDTH or self._bytes >= BYTES_MAX:
            self._wait()

    def finish(self) -> None:
        while self._plans:
            self._wait()

    def _wait(self) -> None:
        plan, sent = self._plans.popleft()
        self._bytes -= sent.bytes
        try:
            outcome = sent.ticket.result()
        except HoldfastError as error:
            self._go_on(partial(plan.throw, error), plan)
        else:
            self._go_on(partial(plan.send, outcome), plan)

    def _go_on(self, step: Callable[[], Sent], plan: Plan[None]) -> None:
        with suppress(StopIteration):
            sent = step()
            self._plans.append((plan, sent))
            self._bytes += sent.bytes
