"""Every engine keeps every law of the conformance suite: the reference engine, and SQLite on disk."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.engine.open import open_engine
from holdfast.engine.protocol import Engine
from holdfast.testing.conformance import CASES
from holdfast.testing.reference import ReferenceEngine, Ticks

ENGINES: dict[str, Callable[[Path], Engine]] = {
    "reference": lambda place: ReferenceEngine(),
    "sqlite": lambda place: open_engine(str(place / "store.db"), durability="power", tick=Ticks()),
    "sqlite-process": lambda place: open_engine(str(place / "store.db"), durability="process", tick=Ticks()),
}


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    made = ENGINES[request.param](tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("sentence", CASES)
def test_an_engine_keeps_the_law_that(sentence: str, engine: Engine) -> None:
    CASES[sentence](engine)
