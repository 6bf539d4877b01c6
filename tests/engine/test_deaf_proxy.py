"""The proxy that loses messages: exactly those it was told to lose, and the server's work stays
done.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from deaf_proxy import DeafProxy, answers, any_answer, asks
from servers import waiting_until


@pytest.fixture
def proxy(database: str) -> Iterator[DeafProxy]:
    parts = conninfo_to_dict(database)
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE numbers (number int)")
    with DeafProxy(int(parts["port"]), host=str(parts["host"])) as started:
        yield started


@pytest.fixture
def connect(proxy: DeafProxy, database: str):
    return lambda: psycopg.connect(proxy.through(database))


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as started:
        yield started


def stored(database: str) -> list[int]:
    with psycopg.connect(database) as connection:
        return [
            number for (number,) in connection.execute("SELECT number FROM numbers ORDER BY number")
        ]


def add(connection: psycopg.Connection[Any], number: int) -> None:
    with connection.transaction():
        connection.execute("INSERT INTO numbers VALUES (%s)", (number,))


def add_in_a_pipeline(connection: psycopg.Connection[Any], number: int) -> None:
    with connection.pipeline(), connection.transaction():
        connection.execute("INSERT INTO numbers VALUES (%s)", (number,), prepare=True)


@pytest.mark.parametrize("add", [add, add_in_a_pipeline])
def test_the_answer_to_the_nth_commit_is_lost_and_the_commit_is_done(proxy, connect, database, add):
    loss = proxy.lose(answers("COMMIT"), nth=3)
    with connect() as connection:
        add(connection, 1)
        add(connection, 2)
        assert not loss.struck and loss.seen == 2
        with pytest.raises(psycopg.OperationalError):
            add(connection, 3)
    assert loss.struck
    assert stored(database) == [1, 2, 3]
    with connect() as connection:
        add(connection, 4)
    assert stored(database) == [1, 2, 3, 4]


@pytest.mark.parametrize("add", [add, add_in_a_pipeline])
def test_a_commit_that_is_lost_on_its_way_is_not_done(proxy, connect, database, add):
    loss = proxy.lose(asks("COMMIT"))
    with connect() as connection, pytest.raises(psycopg.OperationalError):
        add(connection, 1)
    assert loss.struck
    assert stored(database) == []


def test_messages_are_counted_over_all_connections(proxy, connect, database):
    loss, commits = proxy.lose(answers("INSERT"), nth=2), proxy.count(answers("COMMIT"))
    with connect() as one, connect() as other:
        add(one, 1)
        with pytest.raises(psycopg.OperationalError):
            add(other, 2)
        add(one, 3)
    commits.wait(2)
    assert (loss.seen, commits.seen) == (3, 2)
    assert stored(database) == [1, 3]


def test_a_deaf_client_hears_nothing_until_its_line_is_cut(proxy, connect, database, pool):
    silence = proxy.deafen(answers("COMMIT"))
    connection = connect()
    waiting: Future[None] = pool.submit(add, connection, 1)
    silence.wait()
    assert stored(database) == [1]
    assert not waiting.done()
    proxy.cut()
    with pytest.raises(psycopg.OperationalError):
        waiting.result()


def test_a_held_answer_comes_when_it_is_released(proxy, connect, database, pool):
    holding = proxy.hold(answers("COMMIT"))
    with connect() as connection:
        waiting: Future[None] = pool.submit(add, connection, 1)
        holding.wait()
        assert stored(database) == [1]
        assert not waiting.done()
        holding.release()
        waiting.result()
        add(connection, 2)
    assert stored(database) == [1, 2]


def test_any_answer_can_be_lost(proxy, connect, database):
    """The statement is done: outside a transaction its answer is all there is to lose."""
    with connect() as connection:
        connection.autocommit = True
        loss = proxy.lose(any_answer)
        with pytest.raises(psycopg.OperationalError):
            connection.execute("INSERT INTO numbers VALUES (1)")
    assert loss.struck
    assert stored(database) == [1]


def test_a_cancellation_passes(connect, database, pool):
    with connect() as connection, psycopg.connect(database, autocommit=True) as other:
        sleeping = pool.submit(connection.execute, "SELECT pg_sleep(600)")
        for _ in waiting_until("it sleeps"):  # a cancellation that comes before does nothing
            if other.execute(
                "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
            ).fetchone():
                break
        connection.cancel_safe()
        with pytest.raises(psycopg.errors.QueryCanceled):
            sleeping.result()


def test_a_server_that_is_gone_is_gone_for_the_client_too(proxy, connect):
    proxy.close()
    with pytest.raises(psycopg.OperationalError):
        connect()
