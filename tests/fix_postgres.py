"""Fixtures: a real PostgreSQL, and a fresh place in it for every test; a cluster of three.

    def test_…(database):          # a DSN; the database is empty, nobody else's, and dropped after
    def test_…(databases):         # `databases()` gives another one, `databases(schema=True)` a schema: sooner made
    def test_…(cluster):           # three servers in sync; the test may kill them
    def test_…(replicated):        # the DSN of a fresh database there, with all three hosts

Servers are started when the first test asks for them, once for each process that runs tests, and
removed at the end, also when the run is killed. With `HOLDFAST_TEST_POSTGRES` set to the DSN of a
server that is there, that one is used in place of a single one of our own. Clusters are always our
own.
"""

import itertools
import os
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import psycopg

    from clusters import Cluster


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The DSN of a server in which databases may be made."""
    if given := os.environ.get("HOLDFAST_TEST_POSTGRES"):
        yield given
        return
    from servers import Server  # for those who need it: other tests run without a driver
    from shelter import Shelter

    with Shelter() as shelter:
        server = Server(shelter.folder / "single")
        server.create()
        server.start()
        yield server.dsn()


@pytest.fixture(scope="session")
def _steward(postgres: str) -> "Iterator[psycopg.Connection[Any]]":
    """The connection that makes and drops databases."""
    import psycopg

    with psycopg.connect(postgres, autocommit=True) as connection:
        yield connection


@pytest.fixture
def databases(postgres: str, _steward: "psycopg.Connection[Any]") -> Iterator[Callable[..., str]]:
    """Makes databases (some 50 ms each) or schemas (some 2 ms), and gives their DSNs."""
    made: list[str] = []
    numbers = itertools.count(1)
    unique = uuid.uuid4().hex[:12]

    def make(*, schema: bool = False) -> str:
        kind, name = "SCHEMA" if schema else "DATABASE", f"holdfast_{unique}_{next(numbers)}"
        # The other strategy copies files and syncs each: four times as slow.
        _steward.execute(
            f"CREATE {kind} {name}" + ("" if schema else " TEMPLATE template0 STRATEGY wal_log")
        )
        made.append(f"DROP {kind} {name} " + ("CASCADE" if schema else "WITH (FORCE)"))
        return (
            _with(postgres, options=f"-c search_path={name}")
            if schema
            else _with(postgres, dbname=name)
        )

    yield make
    for statement in made:
        _steward.execute(statement)


@pytest.fixture
def database(databases: Callable[..., str]) -> str:
    """The DSN of a fresh database."""
    return databases()


@pytest.fixture(scope="session")
def _cluster() -> "Iterator[Cluster]":
    from clusters import Cluster
    from shelter import Shelter

    with Shelter() as shelter:
        started = Cluster(shelter.folder)
        started.start()
        yield started


@pytest.fixture
def cluster(_cluster: "Cluster") -> "Cluster":
    """Three servers, in sync whatever the test before has done to them."""
    _cluster.heal()
    return _cluster


@pytest.fixture
def replicated(cluster: "Cluster") -> str:
    """The DSN of a fresh database in the cluster."""
    name = f"holdfast_{uuid.uuid4().hex[:12]}"
    cluster.primary.ask(f"CREATE DATABASE {name} TEMPLATE template0 STRATEGY wal_log")
    return cluster.dsn(name)


def _with(dsn: str, **changed: str) -> str:
    """A DSN with something else in it, still a URL."""
    from urllib.parse import quote, urlencode

    from psycopg.conninfo import conninfo_to_dict

    parts = {**conninfo_to_dict(dsn), **changed}
    name = parts.pop("dbname", "postgres")
    return f"postgresql:///{quote(str(name))}?{urlencode(parts, quote_via=quote)}"
