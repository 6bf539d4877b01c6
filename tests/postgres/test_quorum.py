"""Commits wait for a quorum: one whose wait is cut short is in doubt, never done and never failed.

PostgreSQL lets a cancelled client go with its commit visible on the primary and on no other server.
Whoever is told of such a commit is told of something that the next fail-over takes back.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

import holdfast
from clusters import Cluster
from holdfast.engine.postgres.engine import PostgresEngine
from holdfast.engine.protocol import Write, Written
from holdfast.errors import StoreUnavailable, WeaklyReplicated
from holdfast.runtime.clock import RealWorld
from holdfast.testing.conformance.builders import did, drafts, opened
from pooling_proxy import PoolingProxy
from servers import waiting_until

WAITING = (
    "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND "
    "application_name = 'holdfast'"
)
WAITERS = (
    "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name = "
    "'holdfast'"
)
CONNECTIONS = (
    "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'holdfast' AND datname = %s"
)
LOOKING = (
    "SELECT count(*) > 0 FROM pg_stat_activity WHERE application_name = 'holdfast' AND "
    "query ~ 'SyncRep'"
)
LIMIT_S = 60


@pytest.fixture
def alone(cluster: Cluster, replicated: str) -> Iterator[tuple[holdfast.Store, holdfast.Session]]:
    """A store and a session in a cluster whose standbys receive nothing."""
    with holdfast.open(replicated) as store:
        session = store.session("k")
        session.append("before")
        cluster.mute()
        yield store, session
        cluster.unmute()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as started:
        yield started


def texts(dsn: str) -> list[str]:
    with holdfast.open(dsn) as store:
        return [message.text for message in store.session("k").transcript()]


def test_a_commit_is_answered_when_a_second_server_has_it(cluster, alone, replicated, pool):
    """I-3"""
    _, session = alone
    appending = pool.submit(session.append, "meanwhile")
    cluster.primary.wait_until(WAITING)
    assert not appending.done()
    cluster.unmute()
    appending.result(LIMIT_S)
    assert texts(replicated) == ["before", "meanwhile"]


@pytest.mark.slow
def test_a_cancelled_caller_does_not_cancel_the_wait_for_the_quorum(cluster, replicated):
    """I-3, A6: the commit is shielded, and seen through."""

    async def life() -> None:
        async with holdfast.open_async(replicated) as store:
            session = await store.session("k")
            await session.append("before")
            cluster.mute()
            task = asyncio.create_task(session.append("meanwhile"))
            while not cluster.primary.ask(WAITERS):
                await asyncio.sleep(0.01)
            waiters = cluster.primary.ask(WAITERS)
            task.cancel()
            done, _ = await asyncio.wait([task], timeout=0.2)
            assert not done and cluster.primary.ask(WAITERS) == waiters, (
                "the server was told to stop waiting"
            )
            cluster.unmute()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(life())
    assert texts(replicated) == ["before", "meanwhile"]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["pg_cancel_backend", "pg_terminate_backend"])
def test_a_wait_that_an_operator_cuts_short_is_no_acknowledgement(
    cluster, alone, replicated, pool, how
):
    """The row is visible on the primary and nowhere else: the caller goes on waiting until a second
    server has it.
    """
    _, session = alone
    appending: Future[str] = pool.submit(session.append, "meanwhile")
    cluster.primary.wait_until(WAITING)
    [[waiter]] = cluster.primary.ask(WAITERS)
    assert cluster.primary.ask(f"SELECT {how}({waiter})") == [(True,)]
    for _ in waiting_until("the row can be seen"):
        if texts(replicated) == ["before", "meanwhile"]:
            break
    cluster.primary.wait_until(WAITING)  # it asks again, and that waits too
    assert not appending.done()
    cluster.unmute()
    appending.result(LIMIT_S)
    assert texts(replicated) == ["before", "meanwhile"]


@pytest.mark.slow
def test_what_only_the_dead_primary_had_is_written_again_on_its_successor(
    cluster, alone, replicated, pool
):
    """I-2, I-3: the commit was in doubt when its server died; it is there once, whether a standby
    had heard of it.
    """
    _, session = alone
    appending = pool.submit(session.append, "meanwhile")
    cluster.primary.wait_until(WAITING)
    cluster.kill()
    cluster.unmute()
    cluster.promote()
    appending.result(LIMIT_S)
    session.append("after")
    assert texts(replicated) == ["before", "meanwhile", "after"]


@pytest.mark.slow
def test_a_reader_is_not_told_of_what_waits(cluster, alone, replicated, pool):
    """I-5: what no second server has is shown to nobody, not to another handle either."""
    _, session = alone
    follower: list[str] = []
    heard = threading.Event()

    def follow() -> None:
        with holdfast.open(replicated) as store:
            for event in store.get(session.id).follow():
                if event.text:
                    follower.append(event.text)
                if event.text == "before":
                    heard.set()
                if event.text == "meanwhile":
                    return

    reading = threading.Thread(target=follow, daemon=True)
    reading.start()
    assert heard.wait(LIMIT_S)
    appending = pool.submit(session.append, "meanwhile")
    cluster.primary.wait_until(WAITING)
    with holdfast.open(replicated) as store:
        assert [message.text for message in store.get(session.id).transcript()] == ["before"]
    assert follower == ["before"]
    cluster.unmute()
    appending.result(LIMIT_S)
    reading.join(LIMIT_S)
    assert follower == ["before", "meanwhile"]


def opening(dsn: str, *, retry_s: float = 0.6) -> "closing[PostgresEngine]":
    """An engine with one writer, that does not wait long for an answer."""
    world = RealWorld()
    return closing(
        PostgresEngine(
            dsn,
            durability="power",
            tick=world.tick,
            chance=world.chance,
            writers=1,
            answer_s=0.3,
            retry_s=retry_s,
        )
    )


@pytest.fixture
def hasty(replicated: str) -> Iterator[PostgresEngine]:
    """One that gives up soon, too."""
    with opening(replicated) as engine:
        yield engine


@pytest.mark.slow
def test_waits_that_are_given_up_do_not_eat_up_the_connections_of_the_server(
    cluster, replicated, hasty
):
    """A wait goes on at the server when nobody waits for it any more: another one for each commit,
    and within minutes there is no connection left for anybody. So the first is remembered and told;
    nothing is acknowledged, and nothing begun, until it is over. Then all goes on by itself, and
    what waited is there once.
    """
    sessions = [opened(hasty, number) for number in range(1, 5)]
    given = {session: drafts() for session in sessions}
    cluster.mute()
    told = []
    for session in sessions:
        with pytest.raises(StoreUnavailable, match="standbys that don't answer") as error:
            did(hasty, Write(session, drafts=given[session]))
        told.append("this one may be among them" in str(error.value))
        [[connections]] = cluster.primary.ask(CONNECTIONS, conninfo_to_dict(replicated)["dbname"])
        assert len(cluster.primary.ask(WAITERS)) == 1 and connections <= 4
    assert told == [True, False, False, False]
    cluster.unmute()
    for session in sessions[1:]:
        assert did(hasty, Write(session, drafts=given[session])).seq == 2
    for session in sessions:
        assert [entry.id for entry in hasty.entries(session, after=1)] == [
            draft.id for draft in given[session]
        ]


@pytest.mark.slow
def test_waits_that_are_given_up_behind_a_pooler_do_not_eat_them_up_either(cluster, replicated):
    """There it can't be known which of the server's processes waits: only that one does."""
    waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND datname = %s"
    name = str(conninfo_to_dict(replicated)["dbname"])
    direct = cluster.primary.dsn(name)
    with PoolingProxy(direct) as pooler, opening(pooler.through(direct)) as engine:
        sessions = [opened(engine, number) for number in range(1, 4)]
        cluster.mute()
        for session in sessions:
            with pytest.raises(StoreUnavailable, match="standbys that don't answer"):
                did(engine, Write(session, drafts=drafts()))
            assert len(cluster.primary.ask(waiting, name)) == 1
        cluster.unmute()
        assert [did(engine, Write(session, drafts=drafts())).seq for session in sessions] == [
            3,
            2,
            2,
        ]


@pytest.mark.slow
def test_a_process_that_starts_while_others_wait_in_vain_adds_no_wait(cluster, replicated, hasty):
    """It reads, and says why it can't write: a service that is restarted over and over would use up
    the server too.
    """
    session = opened(hasty, 1)
    cluster.mute()
    with pytest.raises(StoreUnavailable):
        did(hasty, Write(session, drafts=drafts()))
    for _ in range(2):
        with opening(replicated) as restarted:
            assert len(restarted.entries(session)) == 1
            with pytest.raises(StoreUnavailable, match="this one was not begun"):
                did(restarted, Write(session, drafts=drafts()))
    assert len(cluster.primary.ask(WAITERS)) == 1
    cluster.unmute()


@pytest.mark.slow
def test_a_commit_goes_on_by_itself_when_the_quorum_is_back(cluster, replicated):
    """I-2, I-3: long after its connection was given up."""
    with opening(replicated, retry_s=LIMIT_S) as engine:
        session = opened(engine, 1)
        given = drafts()
        cluster.mute()
        ticket = engine.submit((Write(session, drafts=given),))
        cluster.primary.wait_until(LOOKING)
        assert not ticket.done
        cluster.unmute()
        assert isinstance(ticket.result(LIMIT_S), Written)
        assert [entry.id for entry in engine.entries(session, after=1)] == [
            draft.id for draft in given
        ]


@pytest.mark.slow
def test_a_store_that_is_made_while_the_quorum_is_away_is_waited_for_and_told(cluster, replicated):
    cluster.mute()
    with pytest.raises(StoreUnavailable):
        opening(replicated)
    cluster.unmute()
    assert texts(replicated) == []


@pytest.fixture
def configured(cluster: Cluster, replicated: str) -> Callable[..., None]:
    """Sets what the cluster's first server says of itself. The next test finds it as it was."""

    def configure(**settings: str) -> None:
        cluster.primary.configure(**{**cluster.settings, **settings})
        cluster.primary.reload()
        for name, value in settings.items():
            cluster.primary.wait_until(f"SELECT current_setting('{name}') = '{value}'")

    return configure


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings, said",
    [
        ({"synchronous_standby_names": ""}, "Set synchronous_standby_names on every server"),
        (
            {"synchronous_standby_names": "ANY 1 (x, y)"},
            "none is there to answer. Bring a standby back",
        ),
        (
            {"synchronous_commit": "local"},
            "synchronous_commit is local.* Set synchronous_commit to on",
        ),
        ({"synchronous_commit": "remote_write"}, "synchronous_commit is remote_write"),
    ],
    ids=["nobody is waited for", "nobody answers", "local", "remote_write"],
)
def test_a_cluster_that_is_weaker_than_it_was_meant_is_told_at_the_opening(
    replicated, configured, settings, said
):
    """I-3: in a warning with a code and fields, in the check, and in what the store tells of
    itself.
    """
    holdfast.open(replicated).close()
    configured(**settings)
    with pytest.warns(WeaklyReplicated, match=said) as warned, holdfast.open(replicated) as store:
        [problem] = store.check()
        info = store.info()
    [warning] = [each.message for each in warned if isinstance(each.message, WeaklyReplicated)]
    assert warning.code == "weakly_replicated" and "127.0.0.1" in warning.where
    assert (problem.problem, problem.remedy) == (warning.problem, warning.remedy)
    assert (settings.get("synchronous_standby_names") or "commits wait for") in info.replication


def test_a_role_that_may_not_see_the_standbys_is_told_nothing_wrong(cluster, replicated, recwarn):
    """Who may not look does not know: that is no reason for an alarm."""
    holdfast.open(replicated).close()
    with psycopg.connect(replicated, autocommit=True) as connection:
        connection.execute("CREATE ROLE small LOGIN")
        connection.execute(
            "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO small"
        )
    with holdfast.open(replicated.replace("postgres@", "small@")) as store:
        store.session("k").append("hello")
        assert store.check() == []
    assert [
        str(warning.message) for warning in recwarn if issubclass(warning.category, UserWarning)
    ] == []


def test_a_synchronous_cluster_is_opened_without_a_word(cluster, replicated, recwarn):
    holdfast.open(replicated).close()
    assert [
        str(warning.message) for warning in recwarn if issubclass(warning.category, UserWarning)
    ] == []
