"""PostgreSQL as it really is: answers get lost, others write the same rows, clocks disagree."""

import itertools
import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from clusters import Cluster
from deaf_proxy import DeafProxy, answers, asks
from holdfast.domain.entry import STARTING, Draft
from holdfast.engine.postgres.batch import BatchState
from holdfast.engine.protocol import (
    Chunk,
    Commit,
    Engine,
    Opening,
    Owing,
    Refused,
    Start,
    Waiting,
    Write,
    Written,
)
from holdfast.errors import StoreUnavailable, WeaklyReplicated
from holdfast.testing.conformance.builders import (
    PATIENCE_S,
    as_entries,
    did,
    drafts,
    mint,
    named,
    opened,
    started,
    state,
)
from holdfast.testing.reference import Ticks
from postgres_engines import Open, ask, waited
from thorough import few_cases

# Answers that get lost.


def _append(engine: Engine, session: str, turn: int) -> Commit:
    return (Write(session, drafts=drafts(2, turn=turn), fence=turn),)


def _append_one(engine: Engine, session: str, turn: int) -> Commit:
    return (Write(session, drafts=drafts(1, turn=turn), fence=turn),)


def _speak(engine: Engine, session: str, turn: int) -> Commit:
    return (Write(session, fence=turn, chunk=Chunk(mint(), 0, b"spoken")),)


def _renew(engine: Engine, session: str, turn: int) -> Commit:
    return (Write(session, fence=turn, renew_s=900.0),)


def _finish(engine: Engine, session: str, turn: int) -> Commit:
    """Without a draft: only the stamp of the row can tell that it was done."""
    return (Write(session, fence=turn, finish=True),)


def _hand_over(engine: Engine, session: str, turn: int) -> Commit:
    given = (Draft("end", turn, mint(), 3), Draft("turn", STARTING, mint(), 3))
    owing = (Owing(mint(), "somebody"),)
    return (
        Write(
            session, drafts=given, fence=turn, finish=True, start=Start("next", 600.0), owes=owing
        ),
    )


def _open_another(engine: Engine, session: str, turn: int) -> Commit:
    return (
        Write(session, drafts=drafts(), close=True),
        Write(named(2), drafts=drafts(), open=Opening("t", "k", 1), event=("scope", "e")),
    )


def _take(engine: Engine, session: str, turn: int) -> Commit:
    [waiting] = drafts()
    did(engine, Write(session, drafts=(waiting,), admits=(Waiting(waiting.id),)))
    return (Write(session, takes=(waiting.id,)),)


ACTS = [_append, _append_one, _speak, _renew, _finish, _hand_over, _open_another, _take]
SWIFT = (_append, _append_one, _speak)
"""One statement, one transaction: the answer to it is the answer to COMMIT."""


def _reading(engine: Engine, session: str) -> Any:
    known = state(engine, session)
    rows = [(row.turn, row.message, row.body) for row in engine.journal(session)]
    return (
        known.head,
        known.fence,
        known.turn,
        known.ended,
        engine.entries(session),
        rows,
        engine.inbox(session),
    )


@pytest.mark.slow
@few_cases(every=3)
@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.__name__.strip("_"))
@pytest.mark.parametrize("lost", ["answer", "question"])
def test_a_commit_whose_answer_or_question_is_lost_is_done_once(
    act: Callable[..., Commit], lost: str, place: str, proxy: DeafProxy, opening: Open
) -> None:
    """The same commit on a line that loses nothing comes to the same: same answer, same log,
    nothing twice (I-3).
    """
    engine = opening(proxy.through(place), retry_s=20.0)
    session = opened(engine, 1)
    turn = started(engine, session)
    did(engine, Write(session, drafts=drafts(), fence=turn))
    commit = act(engine, session, turn)
    head = state(engine, session).head
    swift = act in SWIFT
    fits = (
        (answers("SELECT 1") if swift else answers("COMMIT"))
        if lost == "answer"
        else (asks("WITH") if swift else asks("COMMIT"))
    )
    loss = proxy.lose(fits)
    [outcome] = engine.commit([commit])
    assert loss.struck
    assert isinstance(outcome, Written)
    given = [draft for write in commit if write.session == session for draft in write.drafts]
    assert state(engine, session).head == head + len(given)
    assert [entry.id for entry in engine.entries(session, after=head)] == [
        draft.id for draft in given
    ]
    assert len(engine.journal(session)) == (1 if act is _speak else 0)
    assert len(engine.outbox("t")) == (1 if act is _hand_over else 0)
    if act is _open_another:
        assert state(engine, named(2)).head == 1
        assert isinstance(engine.commit([commit[1:]])[0], Refused)
    assert engine.inbox(session) == []


@pytest.mark.slow
def test_a_commit_whose_answer_never_comes_is_done_once(
    place: str, proxy: DeafProxy, opening: Open
) -> None:
    """The line stays up and silent: only a limit on the answer tells."""
    engine = opening(proxy.through(place), answer_s=0.5)
    session = opened(engine, 1)
    did(engine, Write(session, drafts=drafts()))
    loss = proxy.deafen(answers("SELECT 1"))
    given = drafts()
    assert did(engine, Write(session, drafts=given)) == Written(3)
    assert loss.struck
    assert engine.entries(session, after=2) == as_entries(given, first=3)


@pytest.mark.slow
def test_a_commit_that_reaches_the_server_after_it_was_given_up_is_done_once(
    place: str, proxy: DeafProxy, opening: Open
) -> None:
    """The first one still holds its rows when the second one comes: that waits, and then finds it
    done.
    """
    engine = opening(proxy.through(place), answer_s=0.5)
    session = opened(engine, 1)
    late = proxy.hold(asks("COMMIT"))
    locks = proxy.count(asks("SELECT session.tenant, session.id"))
    before = locks.seen
    given = (Draft("turn", STARTING, mint(), 3),)
    ticket = engine.submit((Write(session, drafts=given, idle=True, start=Start("me", 600.0)),))
    late.wait()
    locks.wait(before + 1)  # it has been given up: the next try waits for the rows of the first
    late.release()
    assert ticket.result(PATIENCE_S) == Written(2, 1)
    assert engine.entries(session, after=1) == as_entries(given, first=2, turn=1)
    assert state(engine, session).fence == 1


def test_neighbours_in_a_lost_batch_are_each_done_once(
    place: str, proxy: DeafProxy, opening: Open
) -> None:
    engine = opening(proxy.through(place), writers=1)
    sessions = [opened(engine, number) for number in range(1, 9)]
    more = 0
    for nth in (1, 2, 3):
        loss = proxy.lose(answers("SELECT 1"), nth=nth)
        tickets = [
            engine.submit((Write(session, drafts=drafts()),))
            for _ in range(20)
            for session in sessions
        ]
        assert all(isinstance(ticket.result(PATIENCE_S), Written) for ticket in tickets)
        while not loss.struck:
            did(engine, Write(sessions[0], drafts=drafts()))
            more += 1
    for number, session in enumerate(sessions):
        entries = engine.entries(session)
        assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
        assert len({entry.id for entry in entries}) == len(entries) == 61 + (0 if number else more)


@pytest.mark.slow
def test_a_backend_that_is_ended_at_any_moment_loses_and_doubles_nothing(
    place: str, opening: Open
) -> None:
    """As an administrator would, or a limit on idle transactions: while batches are under way,
    again and again.
    """
    engine = opening(place, writers=2)
    sessions = [opened(engine, number) for number in range(1, 5)]
    over = threading.Event()
    counts = dict.fromkeys(sessions, 0)

    def work(session: str) -> None:
        while not over.is_set():
            did(engine, Write(session, drafts=drafts(3)))
            counts[session] += 3

    workers = [threading.Thread(target=work, args=(session,)) for session in sessions]
    for worker in workers:
        worker.start()
    kill = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = "
        "'holdfast' "
        "AND datname = current_database() AND pid <> pg_backend_pid()"
    )
    for _ in range(12):
        ask(place, kill)
        did(engine, Write(sessions[0], drafts=drafts()))
        counts[sessions[0]] += 1
    over.set()
    for worker in workers:
        worker.join(PATIENCE_S)
    for session in sessions:
        entries = engine.entries(session, limit=1 << 20)
        assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
        assert len({entry.id for entry in entries}) == len(entries) == 1 + counts[session]


@pytest.mark.slow
def test_when_no_server_answers_that_is_said_with_a_remedy(
    place: str, proxy: DeafProxy, opening: Open
) -> None:
    engine = opening(proxy.through(place), retry_s=0.3)
    session = opened(engine, 1)
    proxy.close()
    with pytest.raises(StoreUnavailable) as told:
        did(engine, Write(session, drafts=drafts()))
    assert told.value.remedy
    with pytest.raises(StoreUnavailable):
        engine.entries(session)


def test_a_pooler_that_mixes_up_prepared_statements_is_borne(place: str, opening: Open) -> None:
    engine = opening(place, writers=1)
    session = opened(engine, 1)
    for seq in range(2, 8):
        line = engine._batch_writers[0]._kept.line
        assert line is not None
        line.connection.pgconn.exec_(b"DEALLOCATE ALL")  # behind the driver's back
        assert did(engine, Write(session, drafts=drafts())).seq == seq


# Others that write.


@pytest.mark.slow
@pytest.mark.parametrize("isolation", [r"read\ committed", "serializable"])
def test_machines_that_write_one_session_at_once_lose_and_double_nothing(
    isolation: str, place: str, opening: Open
) -> None:
    isolated = f"{conninfo_to_dict(place)['options']} -c default_transaction_isolation={isolation}"
    dsn = make_conninfo(place, options=isolated)
    engines = [opening(dsn) for _ in range(2)]
    session = opened(engines[0], 1)
    refused = itertools.count()

    def work(engine: Engine, mine: tuple[Draft, ...]) -> None:
        for draft in mine:
            did(engine, Write(session, drafts=(draft,)))
            head = state(engine, session).head
            [outcome] = engine.commit([(Write(session, head=head - 1, drafts=drafts()),)])
            if isinstance(outcome, Refused):
                next(refused)

    given = [drafts(15) for _ in range(4)]
    workers = [
        threading.Thread(target=work, args=(engines[n % 2], mine)) for n, mine in enumerate(given)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(PATIENCE_S)
    kept = engines[0].entries(session, after=1)
    assert [entry.seq for entry in kept] == list(range(2, 62))
    for mine in ([draft.id for draft in theirs] for theirs in given):
        assert [entry.id for entry in kept if entry.id in mine] == mine
    assert next(refused) == 60
    assert engines[1].entries(session, after=1) == kept


def test_the_same_event_brought_to_two_machines_is_accepted_once(place: str, opening: Open) -> None:
    engines = [opening(place) for _ in range(2)]
    sessions = [opened(engines[0], number) for number in (1, 2)]
    for number in range(20):
        gate = threading.Barrier(2)
        outcomes: list[Any] = []

        def bring(
            engine: Engine, session: str, event: str, gate: threading.Barrier, told: list[Any]
        ) -> None:
            gate.wait(PATIENCE_S)
            told += engine.commit([(Write(session, drafts=drafts(), event=("scope", event)),)])

        workers = [
            threading.Thread(target=bring, args=(engine, session, f"e{number}", gate, outcomes))
            for engine, session in zip(engines, sessions, strict=True)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(PATIENCE_S)
        assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Refused", "Written"]
        [refused] = [outcome for outcome in outcomes if isinstance(outcome, Refused)]
        assert refused.why == "accepted"
        assert refused.detail == engines[0].accepted("scope", f"e{number}")


def test_of_machines_that_open_one_key_at_once_one_wins(place: str, opening: Open) -> None:
    engines = [opening(place) for _ in range(3)]
    gate = threading.Barrier(3)
    outcomes: list[Any] = []

    def bind(engine: Engine, number: int) -> None:
        gate.wait(PATIENCE_S)
        outcomes.extend(
            engine.commit([(Write(named(number), drafts=drafts(), open=Opening("t", "k", 1)),)])
        )

    workers = [
        threading.Thread(target=bind, args=(engine, n)) for n, engine in enumerate(engines, 1)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(PATIENCE_S)
    refused = [outcome for outcome in outcomes if isinstance(outcome, Refused)]
    assert [outcome.why for outcome in refused] == ["bound", "bound"]
    current = engines[0].current("t", "k")
    assert current is not None
    assert {outcome.detail for outcome in refused} == {current.id}


def test_a_renewal_undoes_nothing_that_another_machine_did_meanwhile(
    place: str, opening: Open
) -> None:
    """It writes no entry, whose place would be taken: only the session's stamp tells it."""
    here, there = opening(place), opening(place)
    session = opened(here, 1)
    turn = started(here, session)
    renewal = Write(session, fence=turn, renew_s=60.0, fleeting=True)
    assert isinstance(here.commit([(renewal,)])[0], Written)
    did(there, Write(session, drafts=drafts(), fence=turn, finish=True))
    refused = here.commit([(renewal,)])[0]
    assert isinstance(refused, Refused) and refused.why == "superseded"
    for engine in (here, there):
        state = engine.state(session)
        assert state is not None and state.turn is None


def test_of_two_machines_that_found_a_key_free_the_later_is_refused(
    place: str, opening: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one binds it between this one's look and its writing."""
    here, there = opening(place), opening(place)
    judge, quicker = BatchState.apply, [Write(named(2), drafts=drafts(), open=Opening("t", "k", 1))]

    def overtaken(batch: BatchState, commit: Any) -> Any:
        judged = judge(batch, commit)
        if commit[0].session == named(1) and quicker:
            did(there, quicker.pop())
        return judged

    monkeypatch.setattr(BatchState, "apply", overtaken)
    [refused] = here.commit([(Write(named(1), drafts=drafts(), open=Opening("t", "k", 1)),)])
    assert isinstance(refused, Refused) and (refused.why, refused.detail) == ("bound", named(2))
    for engine in (here, there):
        current = engine.current("t", "k")
        assert current is not None and current.id == named(2)


def test_who_writes_to_a_session_finds_it_though_a_neighbour_tries_to_make_it(
    place: str, opening: Open
) -> None:
    """In one transaction: a session's place is where it is, not where somebody wants it."""
    session = opened(opening(place), 1)
    elsewhere = Write(session, drafts=drafts(), open=Opening("another", None, 1))
    both = (Write(session, drafts=drafts()), Write(session, drafts=drafts()))
    refused, written = opening(place, writers=1)._batch_writers[0].apply([(elsewhere,), both])
    assert isinstance(refused, Refused) and refused.why == "bound"
    assert isinstance(written, Written)


def test_an_erasure_among_others_takes_all_that_was_there_before_it(
    place: str, opening: Open
) -> None:
    """I-21: in one transaction with them it would not see what they add, and what comes after it
    would be gone too.
    """
    engine = opening(place)
    gone, kept = opened(engine, 1), opened(engine, 2)
    erased = Draft("erased", None, mint(), 9, b"{}")
    erase = Write(
        gone, drafts=(erased,), ended_too=True, close=True, erase=((1, b""), (2, b""), (3, b""))
    )
    commits = [
        (Write(gone, drafts=drafts(2)),),
        (Write(kept, drafts=drafts()),),
        (erase,),
        (Write(kept, drafts=drafts()),),
        (Write(gone, drafts=drafts()),),
    ]
    *written, refused = opening(place, writers=1)._batch_writers[0].apply(commits)
    assert written == [Written(2), Written(2), Written(4), Written(3)]
    assert isinstance(refused, Refused) and refused.why == "ended"
    assert [entry.body for entry in engine.entries(gone)] == [b""] * 4
    assert [entry.body for entry in engine.entries(kept, after=1)] == [b'"hello"'] * 2


def test_a_refusal_is_never_from_memory(place: str, opening: Open) -> None:
    """What this engine remembers of a session may be over: another one has ended the turn."""
    here, there = opening(place), opening(place)
    session = opened(here, 1)
    turn = started(here, session)
    did(there, Write(session, fence=turn, finish=True))
    did(here, Write(session, drafts=drafts(), idle=True))
    again = started(there, session)
    assert here.commit([(Write(session, drafts=drafts(), fence=again),)]) == [Written(5)]


@pytest.mark.parametrize("act", SWIFT, ids=lambda act: act.__name__.strip("_"))
def test_a_writer_that_was_overtaken_without_an_entry_stores_nothing_more(
    act: Callable[..., Commit], place: str, opening: Open
) -> None:
    """I-7: a seizure adds nothing to the log, so only the stamp tells that what is remembered is
    over.
    """
    here, there = opening(place), opening(place)
    session = opened(here, 1)
    turn = started(here, session)
    did(here, Write(session, drafts=drafts(), fence=turn))
    did(there, Write(session, fence=turn, seize=True))
    before = _reading(there, session)
    [outcome] = here.commit([act(here, session, turn)])
    assert isinstance(outcome, Refused) and outcome.why == "superseded"
    assert _reading(there, session) == before


def test_nobody_reads_or_writes_on_a_connection_to_a_server_that_was_replaced(
    place: str, opening: Open
) -> None:
    """It was fine when it was made; meanwhile another connection has met the server's successor."""
    engine = opening(place, writers=1, retry_s=0.0)
    session = opened(engine, 1)
    assert len(engine.entries(session)) == 1
    # Kept for the next who read, and not all of them are the engine's own threads.
    kept = [engine._readers._take() for _ in range(3)]
    line = engine._batch_writers[0]._kept.line
    assert line is not None and line.identity is not None
    engine._readers._cluster.primary.admit(
        line.identity._replace(timeline=line.identity.timeline + 1)
    )
    for reader in kept:
        engine._readers._give(reader)
    for ask_it in (
        lambda: engine.entries(session),
        lambda: did(engine, Write(session, drafts=drafts())),
    ):
        with pytest.raises(StoreUnavailable, match="replaced"):
            ask_it()
    assert ask(place, "SELECT count(*) FROM entry") == [(1,)]


def test_machines_whose_clocks_are_an_hour_apart_agree_on_a_lease(
    place: str, opening: Open
) -> None:
    late = Ticks()
    late.advance(3600.0)
    here, there = opening(place), opening(place, tick=late)
    session = opened(here, 1)
    started(here, session, lease_s=600.0)
    for engine in (here, there):
        left = state(engine, session).lease_left_s
        assert left is not None
        assert 500.0 < left <= 600.0


# The order of one caller.


@pytest.mark.slow
def test_a_caller_keeps_its_order_over_sessions_keys_and_events(place: str, opening: Open) -> None:
    """Whichever lanes they are in: what was submitted first is done first, without waiting in
    between.
    """
    engine = opening(place, writers=4)
    sessions = [opened(engine, number) for number in range(1, 9)]
    for round_ in range(20):
        tickets = [
            engine.submit((Write(session, drafts=drafts(), event=("scope", f"e{round_}")),))
            for session in sessions
        ]
        tickets.append(
            engine.submit(tuple(Write(session, drafts=drafts()) for session in reversed(sessions)))
        )
        outcomes = [ticket.result(PATIENCE_S) for ticket in tickets]
        assert isinstance(outcomes[0], Written)
        assert [getattr(outcome, "why", None) for outcome in outcomes[1:-1]] == ["accepted"] * 7
        assert outcomes[-1] == Written(3 + 2 * round_)
    assert [state(engine, session).head for session in sessions] == [41] + [21] * 7


def test_a_session_keeps_its_order_while_the_lanes_spread(place: str, opening: Open) -> None:
    """Its first commits wait in the lane that all began with, the next are already in its own."""
    engine = opening(place, writers=4, spread_at=100)
    sessions = [opened(engine, number) for number in range(1, 16)]
    with psycopg.connect(place) as other:
        other.execute("SELECT 1 FROM session FOR UPDATE")  # nothing is done until all of it waits
        tickets = [
            (id, engine.submit((Write(id, drafts=drafts()),))) for _ in range(20) for id in sessions
        ]
    for session in sessions:
        outcomes = [ticket.result(PATIENCE_S) for id, ticket in tickets if id == session]
        assert outcomes == [Written(seq) for seq in range(2, 22)]
    # each writer's stamps are far from others'
    assert len(ask(place, "SELECT DISTINCT stamp >> 32 FROM session")) > 1


# A quorum.

WAITING = (
    "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name = "
    "'holdfast' "
    "AND datname = current_database()"
)


@pytest.mark.slow
@few_cases(every=4)
@pytest.mark.parametrize(
    "act", [_append, _finish, _open_another], ids=lambda act: act.__name__.strip("_")
)
@pytest.mark.parametrize("end", ["pg_cancel_backend", "pg_terminate_backend"])
def test_a_commit_whose_wait_for_the_quorum_is_cut_short_is_not_acknowledged_before_it_is_there(
    act: Callable[..., Commit], end: str, cluster: Cluster, replicated: str, opening: Open
) -> None:
    """It is visible on the primary, and would be lost with it (I-3): it is in doubt until a standby
    has it.
    """
    engine = opening(replicated, writers=1)
    session = opened(engine, 1)
    turn = started(engine, session)
    did(engine, Write(session, drafts=drafts(), fence=turn))
    head = state(engine, session).head
    commit = act(engine, session, turn)
    standbys = list(cluster.standbys)
    for node in standbys:
        node.stop()
    ticket = engine.submit(commit)
    for _ in range(2):
        [[pid]] = waited(replicated, WAITING)
        ask(replicated, f"SELECT {end}({pid})")
        waited(
            replicated, f"{WAITING} AND pid <> {pid}" if end == "pg_terminate_backend" else WAITING
        )
    assert not ticket.done
    for node in standbys:
        cluster.rejoin(node)
    assert isinstance(ticket.result(PATIENCE_S), Written)
    given = [draft.id for write in commit if write.session == session for draft in write.drafts]
    assert [entry.id for entry in engine.entries(session, after=head)] == given


@pytest.mark.slow
def test_a_cluster_that_is_silently_asynchronous_is_told_of(
    cluster: Cluster, replicated: str, opening: Open
) -> None:
    assert opening(replicated).replication().weakness is None
    cluster.primary.ask("ALTER SYSTEM SET synchronous_standby_names = ''")
    cluster.primary.reload()
    try:
        waited(replicated, "SELECT 1 WHERE current_setting('synchronous_standby_names') = ''")
        with pytest.warns(WeaklyReplicated, match="no commit waits for them"):
            engine = opening(replicated)
        assert [problem.invariant for problem in engine.check()] == ["I-3"]
    finally:
        cluster.primary.ask("ALTER SYSTEM RESET synchronous_standby_names")
        cluster.primary.reload()
