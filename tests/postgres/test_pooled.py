"""Through a pooler in transaction mode: every transaction may meet another server, and a store is
the same store.
"""

from collections.abc import Iterator

import psycopg
import pytest

import holdfast
from holdfast.errors import StoreUnavailable
from holdfast.testing.faults.scripted_workload import ScriptedWorkload
from holdfast.testing.oracle import judge
from loading import loading
from pooling_proxy import PoolingProxy

SERVERS = 2


@pytest.fixture
def pooler(database: str) -> Iterator[PoolingProxy]:
    with PoolingProxy(database, servers=SERVERS) as started:
        yield started


def test_a_pooler_gives_the_next_transaction_to_another_server(database: str, pooler: PoolingProxy):
    """The stage itself: what one server is told, the next does not know; within a transaction it
    stays.
    """
    with psycopg.connect(
        pooler.through(database), autocommit=True, prepare_threshold=None
    ) as client:
        assert (
            len({client.execute("SELECT pg_backend_pid()").fetchone() for _ in range(4)}) == SERVERS
        )
        with client.transaction():
            assert (
                len({client.execute("SELECT pg_backend_pid()").fetchone() for _ in range(4)}) == 1
            )
        assert pooler.clinging == []
        client.execute("SET work_mem = '9MB'")
        assert client.execute("SHOW work_mem").fetchone() != ("9MB",)
        assert len(pooler.clinging) == 1


def test_a_whole_life_through_a_pooler_is_as_it_was_told(database: str, pooler: PoolingProxy):
    life = ScriptedWorkload()
    life.live(pooler.through(database))
    with holdfast.open(database) as store:
        assert judge(store, life.acknowledged) == []
    assert pooler.clinging == []


@pytest.mark.slow
def test_sessions_of_several_processes_share_a_pooler_and_lose_nothing(
    database: str, pooler: PoolingProxy
):
    """More connections than servers; what a statement is called is never relied upon, for others
    call theirs so too.
    """
    with psycopg.connect(
        pooler.through(database), autocommit=True, prepare_threshold=None
    ) as other:
        for name in range(20 * SERVERS):
            other.execute(f"PREPARE _pg3_{name // SERVERS} AS SELECT 'somebody else''s'")
    taken = len(pooler.clinging)
    with loading(pooler.through(database), sessions=8) as loads:
        loads.go_on(turns=3)
    assert pooler.clinging[taken:] == []
    assert loads.troubles == []
    with holdfast.open(database) as store:
        assert loads.wrong(store) == []


def test_a_follower_behind_a_pooler_sees_what_is_written_through_it(
    database: str, pooler: PoolingProxy
):
    """I-15, though nobody can be told there: it looks."""
    with (
        holdfast.open(pooler.through(database)) as here,
        holdfast.open(pooler.through(database)) as there,
    ):
        events = (event.text for event in there.session("k").follow() if event.text)
        for number in range(5):
            here.session("k").append(f"<{number}>")
            assert next(events) == f"<{number}>"
    assert pooler.clinging == []


def test_what_a_pooler_does_not_take_is_told_at_once(database: str, pooler: PoolingProxy):
    with pytest.raises(StoreUnavailable, match="options.*ALTER ROLE"):
        holdfast.open(pooler.through(database) + "&options=-csearch_path%3Dx")
