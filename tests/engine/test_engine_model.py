"""SQLite and PostgreSQL do what the reference engine does, whatever the story.

Hypothesis tells both the same random commits, right ones and wrong ones, in batches, through two
engines that share the store as two processes would, with the store closed and opened again in
between; after every step both must have given the same answers and must read alike. A `Plan` says
what a write is to be in relation to what is so at the time (the fence, or one off it), so that a
story stays meaningful while it is made shorter.
"""

import itertools
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from holdfast.domain.entry import STARTING, Draft
from holdfast.engine import writer
from holdfast.engine.open import open_engine
from holdfast.engine.postgres import batch as postgres_ledger
from holdfast.engine.postgres.engine import PostgresEngine
from holdfast.engine.protocol import (
    Chunk,
    Commit,
    Engine,
    Opening,
    Outcome,
    SessionState,
    Start,
    Waiting,
    Write,
    Written,
)
from holdfast.engine.sqlite import apply_commit
from holdfast.engine.sqlite import engine as sqlite_engine
from holdfast.testing.conformance.builders import mint, named
from holdfast.testing.reference import ReferenceEngine, Ticks
from thorough import examples

SESSIONS = [named(number) for number in (0xA1, 0xA2, 0xB1, 0xC1)]
TENANTS = ("red", "blue")
KEYS = (None, "door", "window")
EVENTS = [(scope, event) for scope in "xy" for event in "12"]
PREFIXES = ("", "a", "c1", "d")
STORIES = settings(
    max_examples=examples(30),
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)

rarely = st.sampled_from([False] * 7 + [True])
often_right = st.sampled_from([None] * 4 + [0] * 4 + [-1, 1])


@dataclass(frozen=True)
class Plan:
    """A write in relation to what is so when it is made; offsets of 0 are right, others wrong."""

    session: str
    act: str
    tenant: str
    key: str | None
    contrary: bool
    ended_too: bool
    idle: bool
    fence_off: int | None
    head_off: int | None
    epoch_off: int
    event: tuple[str, str] | None
    bodies: list[bytes]
    admits: bool
    waiter: str | None
    takes: list[int]
    gives_back: int | None
    chunk: bytes | None
    base: bool


plans = st.builds(
    Plan,
    session=st.sampled_from(SESSIONS),
    act=st.sampled_from(["say", "start"] * 6 + ["finish", "seize", "renew", "hand over", "close"]),
    tenant=st.sampled_from(TENANTS),
    key=st.sampled_from(KEYS),
    contrary=rarely,
    ended_too=rarely,
    idle=rarely,
    fence_off=often_right,
    head_off=st.sampled_from([None] * 6 + [0, 0, -1, 1]),
    epoch_off=st.sampled_from([0, 0, 0, 0, 1, -1]),
    event=st.none() | st.none() | st.sampled_from(EVENTS),
    bodies=st.lists(st.binary(max_size=3), max_size=3),
    admits=st.booleans(),
    waiter=st.sampled_from([None, "ann", "bob"]),
    takes=st.lists(st.integers(0, 9), max_size=2, unique=True),
    gives_back=st.none() | st.none() | st.integers(0, 5),
    chunk=st.none() | st.binary(max_size=3),
    base=rarely,
)
# One write for each session in a commit, one for each event and for each key.
commits = st.lists(
    plans,
    min_size=1,
    max_size=3,
    unique_by=(lambda p: p.session, lambda p: p.event or p.session, lambda p: p.key or p.session),
)
batches = st.lists(commits, min_size=1, max_size=4)


class TwoEngines(RuleBasedStateMachine):
    """The same story, told to both."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0
        self.ticks = Ticks()
        self.times = itertools.count(1_000)
        self.admitted: dict[str, list[tuple[bytes, int]]] = {session: [] for session in SESSIONS}
        self.folder = tempfile.TemporaryDirectory()
        self.reference = ReferenceEngine(self.ticks)
        self.doors = [self.open_door(), self.open_door()]

    def open_door(self) -> Engine:
        return open_engine(f"{self.folder.name}/store.db", durability="process", tick=self.ticks)

    def teardown(self) -> None:
        for door in self.doors:
            door.close()
        self.folder.cleanup()

    @initialize(count=st.sampled_from([4, 3, 0]), running=st.sampled_from([2, 4, 0]))
    def some_sessions_are_open_and_some_of_them_busy(self, count: int, running: int) -> None:
        opening, start = Opening(TENANTS[0], None, 1), Start("ann", 50.0)
        writes = [
            msgspec.structs.replace(
                self.plain(session), open=opening, start=start if place < running else None
            )
            for place, session in enumerate(SESSIONS[:count])
        ]
        self.agree_on([(write,) for write in writes], door=0, waits=True)

    @rule(batch=batches, door=st.integers(0, 1), waits=st.booleans())
    def commit(self, batch: list[list[Plan]], door: int, waits: bool) -> None:
        self.agree_on([tuple(map(self.write, commit)) for commit in batch], door=door, waits=waits)

    @rule(door=st.integers(0, 1), together=st.booleans())
    def every_session_says_two_things(self, door: int, together: bool) -> None:
        known = [session for session in SESSIONS if self.reference.state(session)]
        rounds = [[self.plain(session) for session in known] for _ in range(2)]
        apart: list[Commit] = [(write,) for writes in rounds for write in writes]
        self.agree_on(
            [tuple(writes) for writes in rounds] if together else apart, door=door, waits=True
        )

    @rule(door=st.integers(0, 1))
    def reopen(self, door: int) -> None:
        self.doors[door].close()
        self.doors[door] = self.open_door()

    @rule()
    def close_the_store_and_open_it_again(self) -> None:
        for door in self.doors:
            door.close()
        self.doors = [self.open_door(), self.open_door()]

    @rule(seconds=st.integers(1, 100))
    def time_passes(self, seconds: int) -> None:
        self.ticks.advance(seconds)

    @invariant()
    def both_read_alike(self) -> None:
        """One door is read after each step, by turns."""
        self.steps += 1
        assert reading(self.doors[self.steps % 2]) == reading(self.reference)

    def agree_on(self, commits: list[Commit], *, door: int, waits: bool) -> None:
        expected = self.reference.commit(commits)
        assert told(done(self.doors[door], commits, waits=waits)) == told(expected)
        for session, known in self.admitted.items():
            waiting = [(message.message, message.seq) for message in self.reference.inbox(session)]
            known.extend(message for message in waiting if message not in known)

    def plain(self, session: str) -> Write:
        return Write(
            session, drafts=(Draft("message", None, mint(), next(self.times)),), ended_too=True
        )

    def write(self, plan: Plan) -> Write:
        """The plan, made to fit what is so now."""
        known = self.reference.state(plan.session)
        opening = self.opening(plan) if (known is None) != plan.contrary else None
        at = next(self.times)
        starts = plan.act in ("start", "hand over")
        fenced = plan.act in ("finish", "seize", "renew", "hand over")
        fence_off = 0 if fenced and plan.fence_off is None else plan.fence_off
        bodies = plan.bodies or ([b"first"] if opening or plan.event else [])
        turn = STARTING if starts else known.turn if known else None
        drafts = tuple(Draft("message", turn, mint(), at, body[::-1], body) for body in bodies)
        fence = (
            None
            if fence_off is None or plan.act == "start"
            else (known.fence if known else 0) + fence_off
        )
        return Write(
            plan.session,
            drafts=drafts,
            fence=fence,
            idle=plan.idle or plan.act == "start",
            head=None if plan.head_off is None else (known.head if known else 0) + plan.head_off,
            ended_too=plan.ended_too and not starts,
            event=plan.event,
            event_draft=len(drafts) // 2 if plan.event else 0,
            open=opening,
            start=Start(plan.tenant, 50.0) if starts else None,
            renew_s=70.0 if plan.act == "renew" else None,
            seize=plan.act == "seize",
            finish=plan.act in ("finish", "hand over"),
            close=plan.act == "close",
            admits=self.admits(plan, drafts),
            takes=self.takes(plan),
            base=plan.base and bool(drafts),
            chunk=self.chunk(
                plan, said=starts or (fence is not None and plan.act not in ("finish", "close"))
            ),
        )

    def opening(self, plan: Plan) -> Opening:
        current = self.reference.current(plan.tenant, plan.key) if plan.key else None
        return Opening(
            plan.tenant, plan.key, max(1, (current.epoch if current else 0) + 1 + plan.epoch_off)
        )

    def admits(self, plan: Plan, drafts: tuple[Draft, ...]) -> tuple[Waiting, ...]:
        """New messages, and perhaps an old one that is given back."""
        new = [Waiting(draft.id, plan.waiter) for draft in drafts] if plan.admits else []
        old = self.admitted[plan.session]
        if plan.gives_back is not None and plan.gives_back < len(old):
            message, seq = old[plan.gives_back]
            new.append(Waiting(message, plan.waiter, seq))
        return tuple(new)

    def takes(self, plan: Plan) -> tuple[bytes, ...]:
        """Messages that wait, and perhaps one that does not."""
        waiting = [message.message for message in self.reference.inbox(plan.session)]
        chosen = [waiting[place] for place in plan.takes if place < len(waiting)]
        return (*chosen, mint()) if 9 in plan.takes else tuple(chosen)

    def chunk(self, plan: Plan, *, said: bool) -> Chunk | None:
        """A chunk is said in a turn: one that the fence vouches for, or that starts here."""
        return (
            None if plan.chunk is None or not said else Chunk(mint(), len(plan.chunk), plan.chunk)
        )


class TwoEnginesAndAServer(TwoEngines):
    """The same with PostgreSQL. Leases there run by the server's clock, which stands still for
    nobody.
    """

    databases: Callable[..., str]
    writers = 4

    def __init__(self) -> None:
        self.place = self.databases(schema=True)
        super().__init__()

    def open_door(self) -> Engine:
        return PostgresEngine(
            self.place,
            durability="process",
            tick=self.ticks,
            chance=os.urandom,
            writers=self.writers,
            spread_at=0,
        )

    @invariant()
    def both_read_alike(self) -> None:
        self.steps += 1
        assert timeless(reading(self.doors[self.steps % 2])) == timeless(reading(self.reference))


def timeless(read: Any) -> Any:
    """What was read, with no more of a lease than that there is one."""
    if isinstance(read, dict):
        return {name: timeless(value) for name, value in read.items()}
    if isinstance(read, list):
        return list(map(timeless, read))
    if isinstance(read, SessionState) and read.lease_left_s is not None:
        return msgspec.structs.replace(read, lease_left_s=1.0, lease_mark=1.0)
    return read


def done(engine: Engine, commits: list[Commit], *, waits: bool) -> list[Outcome]:
    if waits:
        return engine.commit(commits)
    tickets = [engine.submit(commit) for commit in commits]
    return [ticket.result(30.0) for ticket in tickets]


def told(outcomes: list[Outcome]) -> list[Any]:
    """Outcomes without what an engine may choose: its positions, and details other than an
    acceptance.
    """
    return [
        (outcome.seq, outcome.turn, outcome.position > 0)
        if isinstance(outcome, Written)
        else (outcome.why, outcome.session, outcome.detail if outcome.why == "accepted" else None)
        for outcome in outcomes
    ]


def reading(engine: Engine) -> dict[str, Any]:
    """All that can be read, without what an engine may choose."""
    return {
        "states": [seen(engine.state(session)) for session in SESSIONS],
        "entries": [engine.entries(session) for session in SESSIONS],
        "inboxes": [engine.inbox(session) for session in SESSIONS],
        "journals": [spoken(engine, session) for session in SESSIONS],
        "events": [engine.accepted(*event) for event in EVENTS],
        "current": [seen(engine.current(tenant, key)) for tenant in TENANTS for key in KEYS if key],
        "found": [
            [seen(s) for s in engine.find(tenant, prefix, 9)]
            for tenant in TENANTS
            for prefix in PREFIXES
        ],
        "listed": [[seen(s) for s in engine.sessions(tenant)] for tenant in TENANTS],
    }


def seen(known: SessionState | None) -> SessionState | None:
    return msgspec.structs.replace(known, journal=0) if known else None


def spoken(engine: Engine, session: str) -> list[Any]:
    """What the running turn has said so far; nothing is owed of turns that are over."""
    known = engine.state(session)
    if known is None or known.turn is None:
        return []
    rows = engine.journal(session, after=known.journal)
    assert [row.position for row in rows] == sorted({row.position for row in rows})
    return [(row.turn, row.message, row.index, row.body) for row in rows]


@pytest.mark.slow
def test_sqlite_and_the_reference_agree_on_every_story() -> None:
    run_state_machine_as_test(TwoEngines, settings=STORIES)


@pytest.mark.slow
def test_they_agree_when_every_limit_is_met_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caches overflow, batches are cut and journal generations turn over within a few steps."""
    monkeypatch.setattr(sqlite_engine, "GENERATION_ROWS_MAX", 3)
    monkeypatch.setattr(apply_commit.CommitApplier, "SESSIONS_MAX", 2)
    monkeypatch.setattr(writer, "BATCH_MAX", 2)
    run_state_machine_as_test(TwoEngines, settings=STORIES)


SHORTER = settings(STORIES, max_examples=examples(8), stateful_step_count=15)


@pytest.fixture
def with_a_server(
    databases: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> type[TwoEnginesAndAServer]:
    monkeypatch.setattr(TwoEnginesAndAServer, "databases", staticmethod(databases), raising=False)
    return TwoEnginesAndAServer


@pytest.mark.slow
def test_postgresql_and_the_reference_agree_on_every_story(
    with_a_server: type[TwoEnginesAndAServer],
) -> None:
    run_state_machine_as_test(with_a_server, settings=SHORTER)


@pytest.mark.slow
def test_they_agree_when_every_limit_is_met_at_once_there_too(
    with_a_server: type[TwoEnginesAndAServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Caches overflow and batches are cut within a few steps; all on one writer."""
    monkeypatch.setattr(postgres_ledger.BatchState, "SESSIONS_MAX", 2)
    monkeypatch.setattr(writer, "BATCH_MAX", 2)
    monkeypatch.setattr(with_a_server, "writers", 1)
    run_state_machine_as_test(with_a_server, settings=SHORTER)
