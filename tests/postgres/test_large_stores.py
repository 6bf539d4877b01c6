"""A call costs the same in a store of ten sessions and of a million (I-27): what the planner does
in a large one.

`bench/large_postgres.py` makes the store. How long calls take is measured by hand (`python -m
bench.growth_postgres`); here the server is asked how it would go about them.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

import holdfast
from bench.large_postgres import fill, tenant_of
from holdfast.engine.postgres import readers
from holdfast.engine.postgres.queries import MIGRATIONS, QUERIES, SCHEMA
from holdfast.runtime.catalog import maintenance
from holdfast.runtime.clock import RealWorld
from holdfast.runtime.store import open_store
from servers import waiting_until

SESSIONS, TENANTS = 20_000, 200
LARGE = {"session", "activity", "binding", "entry", "mark", "words"}
OF_ALL = {"torn_logs", "odd_turns", "doubled_ids", "lost_blobs", "stray_bindings", "info_rows"}
"""What looks at the whole store, because it was asked to or because the store is small."""
NOT_PLANNED = {"begin", "fleeting", "commit", "listen"} | {
    name for name in QUERIES if name.startswith("vacuum_")
}


@pytest.fixture(scope="module")
def large(postgres: str) -> Iterator[str]:
    """A store with many sessions of many tenants."""
    from fix_postgres import _with

    with psycopg.connect(postgres, autocommit=True) as steward:
        steward.execute("CREATE DATABASE holdfast_large TEMPLATE template0 STRATEGY wal_log")
        place = _with(postgres, dbname="holdfast_large")
        holdfast.open(place).close()
        fill(place, sessions=SESSIONS, tenants=TENANTS)
        yield place
        steward.execute("DROP DATABASE holdfast_large WITH (FORCE)")


@pytest.mark.slow
def test_no_statement_reads_a_large_table_through(large: str):
    read_through: dict[str, set[str]] = {}
    with psycopg.connect(large, autocommit=True) as connection:
        for name in QUERIES.keys() - OF_ALL - NOT_PLANNED:
            values = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", QUERIES[name])))
            text = QUERIES[name]
            for number, value in enumerate(values, 1):
                text = text.replace(f"%({value})s", f"${number}")
            [[plan]] = connection.execute(f"EXPLAIN (GENERIC_PLAN, FORMAT JSON) {text}").fetchall()  # type: ignore[arg-type]
            if found := set(scanned(plan[0]["Plan"])) & LARGE:
                read_through[name] = found
    assert read_through == {}


def scanned(plan: dict[str, Any]) -> Iterator[str]:
    """The tables that a plan reads from beginning to end."""
    if plan["Node Type"] == "Seq Scan":
        yield plan["Relation Name"]
    for below in plan.get("Plans", ()):
        yield from scanned(below)


def test_what_the_bench_makes_is_a_store(large: str):
    """The large store is one that Holdfast could have written."""
    with holdfast.open(large, tenant=tenant_of(7, TENANTS)) as store:
        page = store.sessions()
        assert len(page) == 50 and page.next is not None
        assert page[0].title == f"question {SESSIONS - TENANTS + 7} about the harbour"
        assert [listed.state for listed in store.sessions(state="running")] == ["running"] * 50
        session = store.session("key 7", create=False)
        assert (
            next(message.text for message in session.transcript()) == "question 7 about the harbour"
        )
        assert [hit.session_id for hit in store.search("question 207")] == [
            store.session("key 207").id
        ]
        info = store.info()
        assert info.estimated and info.tenants == TENANTS
        # The server's own estimates: a vacuum that has read some pages of a table is off by what
        # those hold.
        assert (
            SESSIONS / 2 <= info.sessions <= 2 * SESSIONS
            and 3 * SESSIONS / 2 <= info.entries <= 6 * SESSIONS
        )


def test_lists_agree_in_every_state(large: str):
    """A page of all is made from pages of each state; walked to its end it has each session once,
    in order.
    """
    with holdfast.open(large, tenant=tenant_of(5, TENANTS)) as store:
        every = list(walked(store))
        apart = [
            listed
            for state in ("open", "running", "ended")
            for listed in walked(store, state=state)
        ]
    order = [(listed.active_at, listed.id) for listed in every]
    assert (
        order == sorted(order, reverse=True)
        and len(set(order)) == len(order) == SESSIONS // TENANTS
    )
    assert sorted(listed.id for listed in every) == sorted(listed.id for listed in apart)


def walked(store: holdfast.Store, **asked: Any) -> Iterator[Any]:
    after = None
    while True:
        page = store.sessions(after=after, limit=7, **asked)
        yield from page
        after = page.next
        if after is None:
            return


def test_a_page_asks_as_many_questions_as_it_has_parts_not_sessions(
    large: str, monkeypatch: pytest.MonkeyPatch
):
    with holdfast.open(large, tenant=tenant_of(3, TENANTS)) as store:
        asked = questions(monkeypatch)
        assert len(store.sessions()) == 50
    assert len(asked) <= 3, asked


@pytest.mark.slow
def test_a_check_asks_about_many_sessions_at_once(large: str, monkeypatch: pytest.MonkeyPatch):
    """A few questions for each tenant, however many sessions it has, and no more of them in memory
    than a page.
    """
    with holdfast.open(large) as store:
        asked = questions(monkeypatch)
        assert store.check() == []
    assert len(asked) <= 2 * TENANTS + 20 and asked.count("beginnings") == TENANTS
    assert SESSIONS // TENANTS * 3 <= maintenance.ENTRIES_MAX


def questions(patch: pytest.MonkeyPatch) -> list[str]:
    """What is asked of a server from now on, by name."""
    asked: list[str] = []
    once = readers.PostgresReaders.once

    def counted(self: Any, name: str, *given: Any, **options: Any) -> Any:
        asked.append(name)
        return once(self, name, *given, **options)

    patch.setattr(readers.PostgresReaders, "once", counted)
    return asked


def test_a_quiet_session_is_not_looked_at_by_the_next_search(large: str):
    with holdfast.open(large, tenant=tenant_of(11, TENANTS)) as store:
        session = store.session("new")
        session.append("limpets on the quay")
        assert [hit.session_id for hit in store.search("limpets")] == [session.id]
        age(large, session.id)
        store.search("limpets")
        assert unread(large) == []
        session.append("barnacles on the hull")
        assert unread(large) == [session.id]
        assert [hit.session_id for hit in store.search("barnacles")] == [session.id]


def age(place: str, session: str) -> None:
    """It had its last news long ago."""
    with psycopg.connect(place, autocommit=True) as connection:
        connection.execute("UPDATE session SET last_at = 1000 WHERE id = %s", [session])


def unread(place: str) -> list[str]:
    with psycopg.connect(place, autocommit=True) as connection:
        return [
            str(id) for (id,) in connection.execute("SELECT session FROM activity WHERE unread")
        ]


class Hurried(RealWorld):
    """A world in which two seconds pass between any two looks at the clock."""

    def __init__(self) -> None:
        self._at = super().now()

    def now(self) -> int:
        self._at += 2000
        return self._at


OTHERS = """
    SELECT FROM pg_stat_activity
    WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
"""


def test_a_session_moves_without_touching_an_index(database: str):
    """Nearly every update of its row is a heap-only one, though its activity moves with every
    message.
    """
    with open_store(database, world=Hurried()) as store:
        session = store.session("k")
        for number in range(20):
            with session.turn(f"question {number}") as turn:
                turn.say("one")
                turn.say("two")
                for _ in turn.deliver(iter(["a ", "few ", "words"])):
                    pass
    with psycopg.connect(database, autocommit=True) as connection:
        # A backend tells its counts as it ends, which may be after its client has gone on.
        for _ in waiting_until("the backends of the store have ended"):
            if connection.execute(OTHERS).fetchone() is None:
                break
        rows = connection.execute(
            "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'session'"
        ).fetchall()
    [(updates, heap_only)] = rows
    assert updates >= 100 and heap_only >= 0.95 * updates


OBJECTS = """
    SELECT 'column', table_name, column_name, data_type || ' ' || is_nullable || coalesce(column_default, '')
        || ' ' || ordinal_position
    FROM information_schema.columns WHERE table_schema = current_schema()
    UNION ALL SELECT 'index', tablename, indexname, regexp_replace(indexdef, ' ON \\w+\\.', ' ON ')
    FROM pg_indexes WHERE schemaname = current_schema()
    UNION ALL SELECT 'view', viewname, '', definition FROM pg_views WHERE schemaname = current_schema()
    UNION ALL SELECT 'check', conrelid::regclass::text, conname, pg_get_constraintdef(oid)
    FROM pg_constraint WHERE connamespace = current_schema()::regnamespace AND contype <> 'n'
"""


def test_the_schema_to_read_is_the_one_that_migrations_make(databases: Callable[..., str]):
    made = []
    for scripts in ([SCHEMA], [MIGRATIONS[step] for step in sorted(MIGRATIONS)]):
        with psycopg.connect(databases(), autocommit=True) as connection:
            for script in scripts:
                connection.execute(script)  # type: ignore[arg-type]
            made.append(set(connection.execute(OBJECTS).fetchall()))
    assert made[0] == made[1]
