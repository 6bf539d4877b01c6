"""A store in PostgreSQL: how it is made and migrated, which names and texts it holds, what stays of
it when roles are small.
"""

import itertools
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from deaf_proxy import DeafProxy, asks
from holdfast.domain.entry import STARTING
from holdfast.domain.search.query import SearchableText
from holdfast.engine.postgres.engine import PostgresEngine
from holdfast.engine.postgres.maintenance.migrate import SCHEMA_VERSION
from holdfast.engine.postgres.queries import MIGRATIONS, SCHEMA
from holdfast.engine.protocol import (
    Chunk,
    Opening,
    Owing,
    Start,
    Waiting,
    Write,
    Written,
)
from holdfast.errors import InvalidMessage, SchemaMismatch, StoreUnavailable
from holdfast.testing.conformance.builders import (
    PATIENCE_S,
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

# Making the store.


def test_machines_that_open_a_new_store_at_once_make_one(place: str, opening: Open) -> None:
    gate = threading.Barrier(6)
    troubles: list[BaseException] = []

    def make() -> None:
        gate.wait(PATIENCE_S)
        try:
            opening(place, writers=1)
        except BaseException as trouble:
            troubles.append(trouble)

    workers = [threading.Thread(target=make) for _ in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(PATIENCE_S)
    assert troubles == []
    assert ask(place, "SELECT value FROM store WHERE name = 'format'") == [(str(SCHEMA_VERSION),)]


def test_a_store_of_a_newer_release_is_refused_and_stays_as_it_is(
    place: str, opening: Open
) -> None:
    opening(place).close()
    ask(place, "UPDATE store SET value = '99'")
    with pytest.raises(SchemaMismatch) as told:
        opening(place)
    assert (told.value.found, told.value.known) == (99, SCHEMA_VERSION)
    assert set(ask(place, "SELECT name, value FROM store")) == {
        ("format", "99"),
        ("format_least", "99"),
    }


def test_a_store_that_was_migrated_meanwhile_is_refused_at_the_next_connection(
    place: str, opening: Open
) -> None:
    engine = opening(place, writers=1)
    session = opened(engine, 1)
    ask(place, "UPDATE store SET value = '99'")
    for line in list(engine._cluster.watchdog._lines):
        line.hang_up()
    for _ in range(3):  # nobody goes on with a connection on which it was refused
        with pytest.raises(SchemaMismatch):
            did(engine, Write(session, drafts=drafts()))
    with pytest.raises(SchemaMismatch):
        engine.entries(session)
    assert ask(place, "SELECT count(*) FROM entry") == [(1,)]


def test_what_was_migrated_meanwhile_is_not_read_for_words_and_those_who_watch_are_woken(
    place: str, opening: Open
) -> None:
    """Reading words is writing too. A poller that can't look wakes all, who look and are told."""
    engine = opening(place, writers=1, words_of=lambda *entry: SearchableText("hello", "user"))
    session = opened(engine, 1)
    ask(place, "UPDATE store SET value = '99'")
    for _ in range(2):
        with pytest.raises(SchemaMismatch):
            engine._searching._insist([(b"t", session, 0)])
    woken = threading.Event()
    stop = engine.watch(session, woken.set)
    assert woken.wait(PATIENCE_S)
    stop()
    assert ask(place, "SELECT count(*) FROM mark") == [(0,)]


def test_the_schema_is_what_the_migrations_make(databases: Callable[..., str]) -> None:
    def made(scripts: list[str]) -> list[Any]:
        dsn = databases(schema=True)
        with psycopg.connect(dsn, autocommit=True) as connection:
            for script in scripts:
                connection.execute(script)  # type: ignore[arg-type]
            return [connection.execute(question).fetchall() for question in SHAPE]

    assert made([SCHEMA]) == made(list(MIGRATIONS.values()))


SHAPE = (
    "SELECT table_name, column_name, data_type, is_nullable, column_default FROM "
    "information_schema.columns "
    "WHERE table_schema = current_schema() ORDER BY 1, ordinal_position",
    "SELECT tablename, replace(indexdef, current_schema() || '.', '') FROM pg_indexes "
    "WHERE schemaname = current_schema() ORDER BY 1, 2",
    "SELECT relname, pg_get_constraintdef(pg_constraint.oid) FROM pg_constraint "
    "JOIN pg_class ON pg_class.oid = conrelid WHERE connamespace = current_schema()::regnamespace "
    "ORDER BY 1, 2",
    "SELECT viewname, definition FROM pg_views WHERE schemaname = current_schema() ORDER BY 1",
)


def test_tables_of_another_program_are_not_touched(place: str, opening: Open) -> None:
    ask(place, "CREATE TABLE session (theirs integer)")
    with pytest.raises(StoreUnavailable, match="another program"):
        opening(place)
    assert ask(place, "SELECT count(*) FROM session") == [(0,)]


@pytest.fixture
def small_role(place: str, postgres: str) -> Iterator[str]:
    """A role that may read and write rows, and nothing else; the DSN with it."""
    role = f"small_{os.getpid()}_{next(_roles)}"
    schema = str(conninfo_to_dict(place)["options"]).partition("search_path=")[2]
    ask(place, f"CREATE ROLE {role} LOGIN")
    ask(place, f"GRANT USAGE ON SCHEMA {schema} TO {role}")
    rows = (
        f"ALTER DEFAULT PRIVILEGES IN SCHEMA {schema} GRANT SELECT, INSERT, UPDATE, DELETE ON "
        f"TABLES TO {role}"
    )
    ask(place, rows)
    yield make_conninfo(place, user=role)
    ask(place, f"DROP OWNED BY {role}")
    ask(place, f"DROP ROLE {role}")


_roles = itertools.count()


def test_a_role_with_rights_to_rows_only_can_run_a_store_that_is_there(
    place: str, small_role: str, opening: Open
) -> None:
    with pytest.raises(StoreUnavailable) as told:
        opening(small_role)
    assert "holdfast store migrate" in told.value.remedy
    opening(place).close()
    engine = opening(small_role)
    session = opened(engine, 1, key="k")
    turn = started(engine, session)
    did(engine, Write(session, drafts=drafts(2), fence=turn, finish=True))
    assert state(engine, session).head == 4


@pytest.mark.slow
def test_what_reads_much_may_take_its_time(
    place: str, opening: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it asks is asked once, though its answer takes longer than any other may."""
    engine = opening(place, answer_s=0.2)
    opened(engine, 1)
    once = engine._readers.once
    told: list[Any] = []
    asked: list[str] = []

    def asking(name: str, *given: Any, **options: Any) -> Any:
        asked.append(name)
        return once(name, *given, **options)

    monkeypatch.setattr(engine._readers, "once", asking)
    with psycopg.connect(place) as other:
        other.execute("LOCK TABLE entry IN ACCESS EXCLUSIVE MODE")
        checking = threading.Thread(target=lambda: told.append(engine.check()))
        checking.start()
        waited(place, "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'entry'::regclass")
        held = asked[-1]
        threading.Event().wait(0.6)  # three times as long as an answer may take
    checking.join(PATIENCE_S)
    assert told == [[]]
    assert asked.count(held) == 1


# Names and texts.


def test_callers_texts_come_back_whatever_is_in_them(place: str, opening: Open) -> None:
    engine = opening(place)
    odd = "a\0b \ud800 \U0001f642 '\\\""
    session = named(1)
    did(engine, Write(session, drafts=drafts(), open=Opening(odd, odd, 1)))
    assert engine.current(odd, odd) == state(engine, session)
    turn = did(
        engine, Write(session, drafts=drafts(1, turn=STARTING), start=Start(odd, 600.0))
    ).turn
    assert state(engine, session).holder == odd
    [waiting] = drafts()
    did(engine, Write(session, drafts=(waiting,), admits=(Waiting(waiting.id, odd),)))
    assert engine.inbox(session)[0].waiter == odd
    did(
        engine,
        Write(
            session, drafts=drafts(turn=turn), fence=turn, finish=True, owes=(Owing(mint(), odd),)
        ),
    )
    assert [debt.reply_to for debt in engine.outbox(odd)] == [odd]
    did(engine, Write(session, drafts=drafts(), event=(odd, odd)))
    assert engine.accepted(odd, odd) is not None


def test_a_key_that_no_index_can_hold_is_refused_with_its_place_and_alone(
    place: str, opening: Open
) -> None:
    engine = opening(place, writers=1)
    session = opened(engine, 1)
    long = engine.submit((Write(named(2), drafts=drafts(), open=Opening("t", "k" * 5000, 1)),))
    fine = engine.submit((Write(session, drafts=drafts()),))
    with pytest.raises(InvalidMessage) as told:
        long.result(PATIENCE_S)
    assert told.value.place == "key"
    assert fine.result(PATIENCE_S) == Written(2)
    assert engine.current("t", "k" * 5000) is None


def test_what_can_be_no_id_names_no_session(place: str, opening: Open) -> None:
    engine = opening(place)
    for stranger in ("", "x", "a\0", "\ud800", named(1).upper().replace("1", "A"), "' OR 1=1"):
        assert engine.state(stranger) is None
        assert engine.entries(stranger) == []
        assert [
            getattr(o, "why", None) for o in engine.commit([(Write(stranger, drafts=drafts()),)])
        ] == ["missing"]


def test_a_password_is_never_shown() -> None:
    for dsn in (
        "postgresql://me:secret@127.0.0.1:1/x",
        "postgresql://me:secret@127.0.0.1:1/x?bad=%%",
    ):
        with pytest.raises(StoreUnavailable) as told:
            PostgresEngine(dsn, durability="power", tick=Ticks(), chance=os.urandom, retry_s=0.0)
        assert "secret" not in str(told.value)
        assert "127.0.0.1" in str(told.value)


# Housekeeping.


def test_the_journal_does_not_grow_with_turns_that_are_over(place: str, opening: Open) -> None:
    """What was said goes with the end of its turn, so a process that dies then leaves nothing."""
    engine = opening(place, writers=1)
    one, two = opened(engine, 1), opened(engine, 2)
    for _ in range(5):
        for session in (one, two):
            turn = started(engine, session)
            for index in range(4):
                did(engine, Write(session, fence=turn, chunk=Chunk(mint(), index, b"x")))
            did(engine, Write(session, drafts=drafts(turn=turn), fence=turn, finish=True))
    turn = started(engine, one)
    did(engine, Write(one, fence=turn, chunk=Chunk(mint(), 0, b"still being said")))
    assert ask(place, "SELECT body FROM journal") == [(b"still being said",)]


def test_a_commit_that_need_not_last_does_not_wait_for_the_disk(
    place: str, proxy: DeafProxy, opening: Open
) -> None:
    engine = opening(proxy.through(place))
    session = opened(engine, 1)
    turn = started(engine, session)
    off = proxy.count(asks("SET LOCAL synchronous_commit"))
    did(engine, Write(session, fence=turn, renew_s=600.0))
    assert off.seen == 0
    did(engine, Write(session, fence=turn, renew_s=600.0, fleeting=True))
    assert off.seen == 1
