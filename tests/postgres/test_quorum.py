"""Commits wait for a quorum: one whose wait is cut short is in doubt, never done and never failed.

PostgreSQL lets a cancelled client go with its commit visible on the primary and on no other server. Whoever is told of
such a commit is told of something that the next fail-over takes back.
"""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing

import psycopg
import pytest

import holdfast
from clusters import Cluster
from holdfast.engine.postgres.engine import PostgresEngine
from holdfast.engine.protocol import Write
from holdfast.runtime.clock import RealWorld
from holdfast.runtime.store import open_store
from servers import waiting_until

WAITING = "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name = 'holdfast'"
WAITERS = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name = 'holdfast'"
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
            assert not done and cluster.primary.ask(WAITERS) == waiters, "the server was told to stop waiting"
            cluster.unmute()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(life())
    assert texts(replicated) == ["before", "meanwhile"]


@pytest.mark.parametrize("how", ["pg_cancel_backend", "pg_terminate_backend"])
def test_a_wait_that_an_operator_cuts_short_is_no_acknowledgement(cluster, alone, replicated, pool, how):
    """The row is visible on the primary and nowhere else: the caller goes on waiting until a second server has it."""
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


def test_what_only_the_dead_primary_had_is_written_again_on_its_successor(cluster, alone, replicated, pool):
    """I-2, I-3: the commit was in doubt when its server died; it is there once, whether a standby had heard of it."""
    _, session = alone
    appending = pool.submit(session.append, "meanwhile")
    cluster.primary.wait_until(WAITING)
    cluster.kill()
    cluster.unmute()
    cluster.promote()
    appending.result(LIMIT_S)
    session.append("after")
    assert texts(replicated) == ["before", "meanwhile", "after"]


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


def test_a_quorum_that_is_away_does_not_eat_up_the_connections_of_the_server(cluster, replicated):
    """A writer that waits for an answer in vain asks again on another connection, and the server must let go of the one
    before: it would be out of connections for everybody within minutes.
    """
    world, most = RealWorld(), 0
    engine = PostgresEngine(
        replicated, durability="power", tick=world.tick, chance=world.chance, writers=1, answer_s=0.4, patience_s=8
    )
    with closing(engine), open_store(replicated) as store:
        session = store.session("k")
        cluster.mute()
        waiting = engine.submit((Write(session.id, close=True),))
        while not waiting.done:
            [[connections]] = cluster.primary.ask("SELECT count(*) FROM pg_stat_activity WHERE query ~* 'session'")
            most = max(most, connections)
        cluster.unmute()
    assert most < 10


def test_a_cluster_that_is_silently_asynchronous_is_told_at_the_opening(cluster, replicated):
    with psycopg.connect(replicated) as connection:
        assert connection.execute("SHOW synchronous_standby_names").fetchone() != ("",)
    cluster.primary.configure(**{**cluster.settings, "synchronous_standby_names": ""})
    cluster.primary.reload()
    cluster.primary.wait_until("SELECT bool_and(sync_state = 'async') FROM pg_stat_replication")
    with pytest.warns(UserWarning, match="synchronous_standby_names"):
        holdfast.open(replicated).close()


def test_a_synchronous_cluster_is_opened_without_a_word(cluster, replicated, recwarn):
    holdfast.open(replicated).close()
    assert [str(warning.message) for warning in recwarn if issubclass(warning.category, UserWarning)] == []
