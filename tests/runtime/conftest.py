"""A store on disk and a session in it, for the tests of one file or another."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.db"


@pytest.fixture
def store(path: Path) -> Iterator[holdfast.Store]:
    with holdfast.open(path, durability="process") as opened:
        yield opened


@pytest.fixture
def session(store: holdfast.Store) -> holdfast.Session:
    return store.session("k")


@pytest.fixture(params=["sqlite", "postgres"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place for a store, once on each engine."""
    if request.param == "sqlite":
        return str(tmp_path / "agent.db")
    return request.getfixturevalue("databases")(schema=True)
