"""Every engine keeps every law of the conformance suite: the reference engine, SQLite on disk,
PostgreSQL.

PostgreSQL does so too where transactions are serializable, and where answers get lost on the way
all the time.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from psycopg.conninfo import conninfo_to_dict

from deaf_proxy import DeafProxy, any_answer
from holdfast.engine.open import migrate_store, open_engine
from holdfast.engine.protocol import Engine, Opening, Write
from holdfast.runtime.searchable_text import words_of
from holdfast.testing.conformance import CASES
from holdfast.testing.conformance.builders import did
from holdfast.testing.conformance.tested_session import new_session
from holdfast.testing.reference import ReferenceEngine, Ticks
from thorough import sample

Ask = pytest.FixtureRequest


def _sqlite(ask: Ask, durability: str) -> Engine:
    folder: Path = ask.getfixturevalue("tmp_path")
    return open_engine(folder / "store.db", durability=durability, tick=Ticks(), words_of=words_of)


def _postgres(ask: Ask, durability: str, options: str = "") -> Engine:
    place = ask.getfixturevalue("databases")(schema=True) + quote(options)
    return open_engine(
        place, durability=durability, tick=Ticks(), chance=os.urandom, words_of=words_of
    )


def _losing(ask: Ask) -> Engine:
    """Every so many answers one is lost, and its connection with it."""
    place = ask.getfixturevalue("databases")(schema=True)
    migrate_store(place, tick=Ticks(), chance=os.urandom)  # without losses
    proxy: DeafProxy = ask.getfixturevalue("proxy")
    engine = open_engine(
        proxy.through(place),
        durability="process",
        tick=Ticks(),
        chance=os.urandom,
        words_of=words_of,
    )
    for nth in range(5, 500, 11):
        proxy.lose(any_answer, nth=nth)
    return engine


@pytest.fixture
def proxy(postgres: str) -> Iterator[DeafProxy]:
    given = conninfo_to_dict(postgres)
    with DeafProxy(int(given["port"] or 5432), host=str(given["host"])) as made:
        yield made


ENGINES: dict[str, Callable[[Ask], Engine]] = {
    "reference": lambda ask: ReferenceEngine(words_of=words_of),
    "sqlite": lambda ask: _sqlite(ask, "power"),
    "sqlite-process": lambda ask: _sqlite(ask, "process"),
    "postgres": lambda ask: _postgres(ask, "power"),
    "postgres-losing-answers": _losing,
    "postgres-serializable": lambda ask: _postgres(
        ask, "process", " -c default_transaction_isolation=serializable"
    ),
}


THINNED = {"sqlite-process": 5, "postgres-losing-answers": 8, "postgres-serializable": 7}
"""Where an engine stands a second time, under other conditions, an ordinary run asks it for each
so-manieth law, and a sweep for all.
"""

LAWS = [
    (engine, sentence)
    for engine in ENGINES
    for sentence in sample(CASES, every=THINNED.get(engine, 1))
]


@pytest.fixture
def engine(request: Ask) -> Iterator[Engine]:
    made = ENGINES[request.param](request)
    yield made
    made.close()


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "sentence"), LAWS, indirect=["engine"])
def test_an_engine_keeps_the_law_that(engine: Engine, sentence: str) -> None:
    CASES[sentence](engine)


def test_the_reference_tells_what_is_in_it_though_a_session_has_no_entries() -> None:
    """It takes an opening that brings none; other engines do not."""
    engine = ReferenceEngine(words_of=words_of)
    did(engine, Write("empty", open=Opening("t", None, 1)))
    assert (engine.info().sessions, engine.info().active_at) == (1, None)
    new_session(engine, 1, at=7)
    assert (engine.info().sessions, engine.info().active_at) == (2, 7)
