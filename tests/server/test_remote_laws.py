"""The engine over HTTP keeps the laws of every engine.

In an ordinary run every fourth of them; all of them with HOLDFAST_EXPLORE=1, and all of them always
for the engines behind it (`tests/engine/test_conformance.py`).
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.engine.protocol import Engine
from holdfast.engine.remote.engine import RemoteEngine
from holdfast.runtime.clock import RealWorld
from holdfast.runtime.open_store import open_at
from holdfast.testing.conformance import CASES
from remote_server import OPERATOR, RemoteServers
from thorough import EXPLORE

EVERY = 1 if EXPLORE else 4


@pytest.fixture(scope="module")
def servers() -> Iterator[RemoteServers]:
    with RemoteServers() as made:
        yield made


@pytest.fixture
def engine(servers: RemoteServers, tmp_path: Path) -> Iterator[Engine]:
    behind = open_at(tmp_path / "store.db", tenant="red", durability="process")
    made = RemoteEngine(servers.add(behind), token=OPERATOR, chance=RealWorld().chance)
    yield made
    made.close()
    behind.close()


@pytest.mark.parametrize("sentence", list(CASES)[::EVERY])
def test_the_engine_over_http_keeps_the_law_that(sentence: str, engine: Engine) -> None:
    CASES[sentence](engine)
