"""What an operator is told: at once where waiting would not help, and in the log, without a word of
what is stored.
"""

import logging
import time

import psycopg
import pytest

import holdfast
from holdfast.engine.postgres.server.retry import Retry
from holdfast.errors import StoreUnavailable
from holdfast.runtime.clock import RealWorld
from holdfast.runtime.store import open_store
from servers import free_port


class Impatient(RealWorld):
    """A world in which nobody may wait."""

    def chance(self, size: int) -> bytes:
        assert size > 1, "it waits for something that won't come"
        return super().chance(size)


def test_a_port_at_which_nobody_listens_is_told_at_once():
    for place in (f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()},127.0.0.1:{free_port()}"):
        with pytest.raises(StoreUnavailable, match="nobody listens"):
            open_store(f"postgresql://postgres@{place}/agents", world=Impatient())


def test_a_role_that_only_reads_is_told_at_once(database: str):
    holdfast.open(database).close()
    with psycopg.connect(database, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(
            f"ALTER ROLE postgres IN DATABASE {name} SET default_transaction_read_only = on"
        )  # type: ignore[arg-type]
    with pytest.raises(StoreUnavailable, match="only reads"):
        open_store(database, world=Impatient())


@pytest.mark.slow
def test_trouble_is_logged_without_what_is_stored(database: str, caplog: pytest.LogCaptureFixture):
    """A row that somebody holds, and a connection that is cut: both are told, and neither tells a
    key or a word.
    """
    caplog.set_level(logging.INFO, logger="holdfast")
    with holdfast.open(database, tenant="acme-secret") as store:
        session = store.session("key-secret")
        with psycopg.connect(database) as connection:
            connection.execute("SELECT 1 FROM session FOR UPDATE")
            ticket = store._work.engine.submit(_write(session, "word-secret"))
            end = time.monotonic() + 60
            while not caplog.records and time.monotonic() < end:
                time.sleep(0.05)
        ticket.result(60)
    told = "\n".join(record.getMessage() for record in caplog.records)
    assert f"somebody holds the row of {session.id}" in told
    assert {record.name for record in caplog.records} == {"holdfast"} and "secret" not in told


def failing(database: str, statement: str) -> psycopg.Error:
    """The error that the server answers a statement with."""
    with (
        psycopg.connect(database, autocommit=True) as connection,
        pytest.raises(psycopg.Error) as caught,
    ):
        connection.execute(statement)  # type: ignore[arg-type]
    return caught.value


def tries(error: psycopg.Error, times: int = 6) -> None:
    """Something that meets this so many times, and is done then."""
    world = RealWorld()
    patience = Retry("the store", 30.0, tick=world.tick, chance=lambda size: bytes(size))
    for _ in range(times):
        patience.pause(error)
    patience.over()


def test_writers_that_meet_are_no_trouble(database: str, caplog: pytest.LogCaptureFixture):
    """A guard that finds a session changed divides by zero: the next try comes, and nobody is
    alarmed.
    """
    caplog.set_level(logging.INFO, logger="holdfast")
    tries(failing(database, "SELECT 1 / 0"))
    assert {record.levelno for record in caplog.records} == {logging.INFO}
    assert "other programs write the same rows" in caplog.text and "22012" not in caplog.text


def test_a_connection_that_is_lost_is_told_in_words(
    database: str, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO, logger="holdfast")
    tries(failing(database, "SELECT pg_terminate_backend(pg_backend_pid())"))
    [warning, done] = caplog.records
    assert (warning.levelno, done.levelno) == (logging.WARNING, logging.INFO)
    assert warning.getMessage() == "the store: its server was stopped or interrupted; trying again"


def _write(session: holdfast.Session, text: str) -> object:
    from holdfast.engine.protocol import Write
    from holdfast.runtime.live.session_log import speak

    session_log = session._log
    return (
        Write(session_log.id, drafts=(session_log.message(speak(text, "openai.chat"), turn=None),)),
    )
