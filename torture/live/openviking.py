"""OpenViking 0.5.2 with Holdfast on either side of it: our server for its client, our client for its
server, each under the faults that OpenViking has alone.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

from torture.live.table import Outcome, Row  # noqa: E402
from torture.live.viking import plays, serving, soaking  # noqa: E402
from torture.live.viking.served import Servers  # noqa: E402
from torture.systems.openviking import INSTALL  # noqa: E402

__all__ = ["INSTALL", "prepare", "rows", "soak"]


def prepare(environment: Path) -> None:
    """Everything comes from pip."""


def rows(environment: Path) -> list[Row]:
    """The rows of the server, then those of the client."""
    shared = Servers(environment)

    def after(other: Row) -> Row:
        def played(folder: Path, served: bool) -> Outcome:
            shared.stop()  # one server of OpenViking's at a time: each takes a core
            return other.play(folder, served)

        return Row(other.name, played, other.curable)

    return serving.rows(shared) + [after(other) for other in plays.rows(environment)]


def soak(environment: Path, messages: int) -> Iterator[str]:
    """So many messages through OpenViking's client into our server, with commits, failing
    extractions and random kills of the server; then as many through our client into OpenViking's.
    """
    yield from serving.soak(environment, messages)
    yield from soaking.soak(environment, messages)
