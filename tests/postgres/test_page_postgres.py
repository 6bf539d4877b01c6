"""`docs/postgres.md`: what the page tells an operator to run does what it says."""

import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import holdfast
from clusters import Cluster
from holdfast.engine.postgres.maintenance.sizes import TABLES
from holdfast.testing.oracle import judge

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "postgres.md").read_text()
COLUMNS = """
    SELECT conrelid::regclass::text, array_agg(attname::text), array_agg(atttypid::regtype::text)
    FROM pg_constraint JOIN pg_attribute ON attrelid = conrelid AND attnum = ANY (conkey)
    WHERE contype IN ('p', 'u', 'x') AND connamespace = 'public'::regnamespace GROUP BY conrelid, pg_constraint.oid
"""


def block(name: str) -> str:
    found = re.search(rf"<!-- checked: {name} -->\n```sql\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None, f"the page has no block {name}"
    return found[1]


@pytest.fixture
def owner(cluster: Cluster, replicated: str) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """Whoever owns a database with a store in it."""
    holdfast.open(replicated).close()
    with psycopg.connect(replicated, autocommit=True) as connection:
        yield connection


def test_the_role_on_the_page_runs_a_store(cluster: Cluster, replicated: str, owner, recwarn):
    owner.execute(block("roles"))
    try:
        with holdfast.open(replicated.replace("postgres@", "agent@")) as store:
            with store.turn("k", "hello") as turn:
                turn.say("hi")
            assert store.check() == []
            assert "2 of 2 standbys can answer" in store.info().replication
    finally:
        owner.execute("DROP OWNED BY agent; DROP ROLE agent")
    assert [warning for warning in recwarn if issubclass(warning.category, UserWarning)] == []


def test_every_table_is_distributed_by_a_column_of_each_of_its_keys(owner):
    """Citus can't be run here. What it asks of a table can be asked of the schema."""
    keys = owner.execute(COLUMNS).fetchall()
    distributed = dict(re.findall(r"create_distributed_table\('(\w+)', '(\w+)'", block("citus")))
    everywhere = set(re.findall(r"create_reference_table\('(\w+)'\)", block("citus")))
    assert {*distributed, *everywhere} == set(TABLES) == {table for table, *_ in keys}
    together = set(
        re.findall(r"\('(\w+)', '\w+', colocate_with => 'session'\)", block("citus"))
    ) | {"session"}
    for table, columns, types in keys:
        if table in distributed:
            assert distributed[table] in columns, f"{table} has a key without {distributed[table]}"
        if table in together:
            assert types[columns.index(distributed[table])] == "uuid", (
                f"{table} can't lie beside session"
            )


def test_a_dump_that_is_restored_is_the_same_store(cluster: Cluster, replicated: str):
    with holdfast.open(replicated) as store:
        with store.turn("k", "hello") as turn:
            turn.say("hi")
        session = store.session("k")
        told = [(message.id, message.text) for message in session.transcript()]
    name, file = (
        f"{replicated.partition('?')[0].rpartition('/')[2]}_again",
        cluster.primary.folder / "agents.dump",
    )
    cluster.primary.ask(f"CREATE DATABASE {name} TEMPLATE template0 STRATEGY wal_log")
    there = cluster.dsn(name)
    for command in re.findall(r"^(pg_dump|pg_restore) (.*)$", PAGE, re.MULTILINE):
        words = command[1].replace("agents.dump", str(file)).split()
        words = [re.sub(r"postgresql://agent@\S+", replicated, word) for word in words]
        cluster.primary.run(
            command[0], *[re.sub(r"postgresql://owner@\S+", there, word) for word in words]
        )
    with holdfast.open(there) as store:
        assert [
            (message.id, message.text) for message in store.get(session.id).transcript()
        ] == told
        assert judge(store) == []


def test_a_table_that_is_partitioned_as_on_the_page_is_a_store(replicated: str, owner):
    owner.execute(block("partitioning"))
    with holdfast.open(replicated) as store:
        for number in range(8):
            with store.turn(f"k{number}", "hello") as turn:
                turn.say("hi")
        assert store.check() == [] and len(store.search("hello")) == 8
        assert store.info().files["entry"] > 0
        assert [message.text for message in store.session("k3").transcript()] == ["hello", "hi"]
