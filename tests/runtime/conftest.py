"""A store on disk and a session in it, for the tests of one file or another."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast.runtime.open_store import open_at
from remote_server import DEFAULT, RemoteServers


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.db"


@pytest.fixture(scope="session")
def _empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store in which nothing has been done yet: a copy is sooner made than a store."""
    path = tmp_path_factory.mktemp("empty") / "agent.db"
    holdfast.open(path, durability="process").close()
    return path


@pytest.fixture
def file_store(path: Path, _empty: Path) -> Iterator[holdfast.Store]:
    shutil.copy(_empty, path)
    with holdfast.open(path, durability="process") as opened:
        yield opened


@pytest.fixture
def store(file_store: holdfast.Store) -> holdfast.Store:
    return file_store


@pytest.fixture(scope="session")
def servers() -> Iterator[RemoteServers]:
    with RemoteServers() as made:
        yield made


@pytest.fixture
def served_store(path: Path, servers: RemoteServers) -> Iterator[holdfast.Store]:
    """A store as somebody has it who asks a server."""
    work = open_at(path, tenant="default", durability="process")
    with holdfast.open(servers.add(work), token=DEFAULT) as opened:
        yield opened
    work.close()


@pytest.fixture(params=["file", "served"])
def either_store(request: pytest.FixtureRequest) -> holdfast.Store:
    """A store, once by its path and once over HTTP."""
    opened: holdfast.Store = request.getfixturevalue(f"{request.param}_store")
    return opened


@pytest.fixture
def session(store: holdfast.Store) -> holdfast.Session:
    return store.session("k")


@pytest.fixture(params=["sqlite", "postgres"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place for a store, once on each engine."""
    if request.param == "sqlite":
        return str(tmp_path / "agent.db")
    return request.getfixturevalue("databases")(schema=True)
