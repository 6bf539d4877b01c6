"""Every engine keeps every law of the conformance suite: the reference engine, SQLite on disk, PostgreSQL."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from holdfast.engine.open import open_engine
from holdfast.engine.protocol import Engine
from holdfast.testing.conformance import CASES
from holdfast.testing.reference import ReferenceEngine, Ticks

Ask = pytest.FixtureRequest


def _sqlite(ask: Ask, durability: str) -> Engine:
    folder: Path = ask.getfixturevalue("tmp_path")
    return open_engine(folder / "store.db", durability=durability, tick=Ticks())


def _postgres(ask: Ask, durability: str, options: str = "") -> Engine:
    place = ask.getfixturevalue("databases")(schema=True) + quote(options)
    return open_engine(place, durability=durability, tick=Ticks(), chance=os.urandom)


ENGINES: dict[str, Callable[[Ask], Engine]] = {
    "reference": lambda ask: ReferenceEngine(),
    "sqlite": lambda ask: _sqlite(ask, "power"),
    "sqlite-process": lambda ask: _sqlite(ask, "process"),
    "postgres": lambda ask: _postgres(ask, "power"),
    "postgres-serializable": lambda ask: _postgres(ask, "process", " -c default_transaction_isolation=serializable"),
}


@pytest.fixture(params=ENGINES)
def engine(request: Ask) -> Iterator[Engine]:
    made = ENGINES[request.param](request)
    yield made
    made.close()


@pytest.mark.parametrize("sentence", CASES)
def test_an_engine_keeps_the_law_that(sentence: str, engine: Engine) -> None:
    CASES[sentence](engine)
