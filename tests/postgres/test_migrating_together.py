"""Making and migrating a store from several machines at once: it is done once, and all of them find it done.

A later version of the tables is played: processes in which one more step exists, one that can't be done twice.
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
from holdfast.engine.postgres import migrating
from holdfast.engine.postgres.migrating import SCHEMA_VERSION
from holdfast.errors import SchemaMismatch
from holdfast.runtime.upkeep import Migrated, migrate
from holdfast.testing.examine import broken
from holdfast.testing.life import Life
from holdfast.testing.told import untrue
from servers import waiting_until

STATE = "SELECT store.value, binding.epoch FROM store, binding WHERE store.name = 'format'"
SLEEPING = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'"

MIGRATES = """
    import holdfast.engine.postgres.engine
    from holdfast.runtime.upkeep import migrate
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
    from holdfast.engine.postgres import migrating
    migrating.SCHEMA_VERSION = {SCHEMA_VERSION + 1}
    migrating.MIGRATIONS[{SCHEMA_VERSION + 1}] = {STEP!r}
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


def test_machines_that_make_a_store_at_once_make_one(database: str):
    """Each in a process of its own, through `store migrate`'s own way; and running it again changes nothing."""
    now = str(SCHEMA_VERSION)
    with machines(MIGRATES, database) as both:
        said = at_once(both)
        assert {after for _, after in said} == {now} and "0" in {before for before, _ in said}
        assert at_once(both) == [[now, now], [now, now]]
    with holdfast.open(database) as store:
        store.session("k").append("hello")
        assert store.check() == []


def test_machines_that_migrate_a_store_at_once_do_each_step_once(database: str):
    """What the store holds stays; a release that knows only the version before then refuses it, and changes nothing."""
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


def test_a_migration_that_is_killed_leaves_the_store_as_it_was(database: str, monkeypatch: pytest.MonkeyPatch):
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
    """The address for a role that may read and write rows of a store that is there, and nothing else."""
    role, parts = f"rows_only_{os.getpid()}", psycopg.conninfo.conninfo_to_dict(database)
    holdfast.open(database).close()
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{role}'")
        owner.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}")
        yield f"postgresql:///?{urlencode({**parts, 'user': role, 'password': role}, quote_via=quote)}"
        owner.execute(f"DROP OWNED BY {role}")
        owner.execute(f"DROP ROLE {role}")


def test_a_role_with_rights_to_rows_only_lives_a_whole_life(database: str, rows_only: str):
    """Made by one role, run by another; migrating what is up to date needs no rights either."""
    life = Life()
    life.live(rows_only)
    now = SCHEMA_VERSION
    assert migrate(rows_only) == Migrated(now, now)
    with holdfast.open(rows_only) as store:
        assert untrue(store, life.told, tried=life.tried) + broken(store) == []
        assert (store.check(), life.troubles) == ([], [])
