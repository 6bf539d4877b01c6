"""Making and migrating a store from several machines at once: it is done once, and all of them find
it done.

A later version of the tables is played: processes in which one more step exists, one that can't be
done twice.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, urlencode

import psycopg
import pytest

import holdfast
import procs
from holdfast.engine.postgres.maintenance import migrate as migrating
from holdfast.engine.postgres.maintenance.migrate import SCHEMA_VERSION
from holdfast.errors import SchemaMismatch
from holdfast.runtime.catalog.maintenance import Migrated, migrate
from holdfast.testing.faults.scripted_workload import ScriptedWorkload
from holdfast.testing.oracle import judge
from servers import waiting_until

STATE = "SELECT store.value, binding.epoch FROM store, binding WHERE store.name = 'format'"
SLEEPING = (
    "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'"
)

MIGRATES = """
    import holdfast.engine.postgres.engine
    from holdfast.runtime.catalog.maintenance import migrate
    say("ready")
    while hear() == "migrate":
        migrated = migrate(sys.argv[1])
        say("migrated", migrated.before, migrated.after)
"""

STEP = """
    SELECT pg_sleep(0.2);
    ALTER TABLE binding ADD COLUMN more integer;
    UPDATE binding SET epoch = epoch + 100;
"""
LATER = f"""
    from holdfast.engine.postgres.maintenance import migrate
    migrate.SCHEMA_VERSION = migrate.LEAST = {SCHEMA_VERSION + 1}
    migrate.MIGRATIONS[{SCHEMA_VERSION + 1}] = {STEP!r}
"""


def at_once(machines: list[procs.Child]) -> list[list[str]]:
    """All machines do it at the same moment; what each found and left."""
    for each in machines:
        each.tell("migrate")
    return [each.wait_for("migrated").split() for each in machines]


@contextmanager
def machines(script: str, where: str) -> Iterator[list[procs.Child]]:
    """Processes that migrate when they are told."""
    with procs.child(script, where) as one, procs.child(script, where) as other:
        for each in (one, other):
            each.wait_for("ready")
        yield [one, other]
        for each in (one, other):
            each.tell("end")
            each.end()


def ask(where: str, query: str) -> list[Any]:
    with psycopg.connect(where, autocommit=True) as connection:
        return connection.execute(query).fetchall()  # type: ignore[arg-type]


@pytest.mark.slow
def test_machines_that_make_a_store_at_once_make_one(database: str):
    """Each in a process of its own, through `store migrate`'s own way; and running it again changes
    nothing.
    """
    now = str(SCHEMA_VERSION)
    with machines(MIGRATES, database) as both:
        said = at_once(both)
        assert {after for _, after in said} == {now} and "0" in {before for before, _ in said}
        assert at_once(both) == [[now, now], [now, now]]
    with holdfast.open(database) as store:
        store.session("k").append("hello")
        assert store.check() == []


@pytest.mark.slow
def test_machines_that_migrate_a_store_at_once_do_each_step_once(database: str):
    """What the store holds stays; a release that knows only the version before then refuses it, and
    changes nothing.
    """
    with holdfast.open(database) as store:
        store.session("k").append("before")
    with machines(LATER + MIGRATES, database) as both:
        said = at_once(both)
        now, next = str(SCHEMA_VERSION), str(SCHEMA_VERSION + 1)
        assert [now, next] in said and {after for _, after in said} == {next}
        assert ask(database, STATE) == [(next, 101)]
    with pytest.raises(SchemaMismatch) as told:
        holdfast.open(database)
    assert (told.value.found, told.value.known) == (SCHEMA_VERSION + 1, SCHEMA_VERSION)
    assert ask(database, "SELECT count(*) FROM entry WHERE kind = 'message'") == [(1,)]


@pytest.mark.slow
def test_a_migration_that_is_killed_leaves_the_store_as_it_was(
    database: str, monkeypatch: pytest.MonkeyPatch
):
    """The next one does it whole."""
    with holdfast.open(database) as store:
        store.session("k")
    with procs.child(LATER + MIGRATES, database) as one:
        one.wait_for("ready")
        one.tell("migrate")
        for _ in waiting_until("the second step is at work"):
            if ask(database, SLEEPING):
                break
        one.kill()
    now, next = SCHEMA_VERSION, SCHEMA_VERSION + 1
    assert ask(database, STATE) == [(str(now), 1)]
    monkeypatch.setattr(migrating, "SCHEMA_VERSION", next)
    monkeypatch.setitem(migrating.MIGRATIONS, next, STEP)
    assert migrate(database) == Migrated(now, next)
    assert ask(database, STATE) == [(str(next), 101)]


@pytest.fixture
def rows_only(database: str) -> Iterator[str]:
    """The address for a role that may read and write rows of a store that is there, and nothing
    else.
    """
    role, parts = f"rows_only_{os.getpid()}", psycopg.conninfo.conninfo_to_dict(database)
    holdfast.open(database).close()
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{role}'")
        owner.execute(
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}"
        )
        yield f"postgresql:///?{urlencode({**parts, 'user': role, 'password': role}, quote_via=quote)}"
        owner.execute(f"DROP OWNED BY {role}")
        owner.execute(f"DROP ROLE {role}")


def test_a_role_with_rights_to_rows_only_lives_a_whole_life(database: str, rows_only: str):
    """Made by one role, run by another; migrating what is up to date needs no rights either."""
    life = ScriptedWorkload()
    life.live(rows_only)
    now = SCHEMA_VERSION
    assert migrate(rows_only) == Migrated(now, now)
    with holdfast.open(rows_only) as store:
        assert judge(store, life.acknowledged) == []
        assert (store.check(), life.troubles) == ([], [])


ADDS = f"""
    from holdfast.engine.postgres.maintenance import migrate
    migrate.SCHEMA_VERSION = {SCHEMA_VERSION + 1}
    migrate.MIGRATIONS[{SCHEMA_VERSION + 1}] = "ALTER TABLE binding ADD COLUMN more integer"
"""


@pytest.mark.slow
def test_a_release_works_on_beside_the_next_one_if_that_says_so(database: str):
    """A rolling upgrade: the tables are of the next version, which lets programs of this one work
    on.
    """
    with holdfast.open(database) as store:
        store.session("k").append("before")
        with procs.child(ADDS + MIGRATES, database) as later:
            later.wait_for("ready")
            later.tell("migrate")
            later.wait_for("migrated")
            store.session("k").append("during")
            with holdfast.open(database) as again:
                again.session("k").append("after")
            later.tell("end")
            later.end()
        assert [message.text for message in store.session("k").transcript()] == [
            "before",
            "during",
            "after",
        ]


OF_VERSION_1 = """
    UPDATE session SET head = head + 1, active_at = 5, last_at = 5, stamp = 7 WHERE tenant = 'default'
"""


def test_programs_of_the_version_before_are_refused_before_they_harm(database: str):
    """They write columns that have other names now: nothing of their commit is done."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(migrating.MIGRATIONS[1])  # type: ignore[arg-type]
        connection.execute("INSERT INTO store VALUES ('format', '1')")
        connection.execute(
            "INSERT INTO session (tenant, id, key, epoch, head, fence, opened_at, active_at, "
            "last_at, stamp) "
            "VALUES ('default', gen_random_uuid(), 'k', 1, 1, 0, 3, 3, 3, 3)"
        )
        connection.execute("INSERT INTO binding SELECT tenant, key, id, 1 FROM session")
        opened = '{"key":"k","epoch":1}'
        connection.execute(
            f"INSERT INTO entry SELECT tenant, id, 1, 'opened', NULL, '\\x01', 3, '{opened}', '' "
            "FROM session"  # type: ignore[arg-type]
        )
        with holdfast.open(database) as store:
            assert [listed.key for listed in store.sessions()] == ["k"]
            with pytest.raises(psycopg.errors.UndefinedColumn):
                connection.execute(OF_VERSION_1)
            store.session("k").append("of this one")
            assert [hit.session_id for hit in store.search("this")] == [store.session("k").id]
            assert store.check() == []


def test_a_fork_of_the_version_before_knows_its_parent(database: str):
    """One whose first note can't be read knows none, and keeps nobody from migrating."""
    ids = [f"{number}1111111-0000-4000-8000-000000000000" for number in range(3)]
    notes = [
        '{"key":"\\"parent\\":\\"' + ids[2] + '"}',
        '{"parent":"' + ids[0] + '","parent_seq":1}',
        '{"parent":\xff',
    ]
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(migrating.MIGRATIONS[1])  # type: ignore[arg-type]
        connection.execute("INSERT INTO store VALUES ('format', '1')")
        for id, note in zip(ids, notes, strict=True):
            origin = int(id != ids[0])
            connection.execute(
                "INSERT INTO session (tenant, id, epoch, head, origin, fence, opened_at, "
                "active_at, last_at, stamp) "
                "VALUES ('default', %s, 1, %s, %s, 0, 3, 3, 3, 3)",
                [id, origin + 1, origin],
            )
            connection.execute(
                "INSERT INTO entry VALUES ('default', %s, %s, 'opened', NULL, %s, 3, %s, '')",
                [id, origin + 1, id.encode()[:16], note.encode("latin-1")],
            )
    with holdfast.open(database) as store:
        assert store.erase(ids[0], preview=True).forks == (ids[1],)
        assert [store._work.engine.state(id).parent for id in ids] == [None, ids[0], None]  # type: ignore[union-attr]


def test_readers_look_at_the_version_too(database: str):
    with holdfast.open(database) as store:
        store.session("k").append("before")
        ask(database, "UPDATE store SET value = '99' WHERE name LIKE 'format%' RETURNING 1")
        idle = store._work.engine._readers._idle  # type: ignore[attr-defined]
        while idle:
            idle.pop().close()
        with pytest.raises(SchemaMismatch):
            store.sessions()
