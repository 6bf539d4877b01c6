"""How Hypothesis looks for counter-examples: the same ones every time, or others with
HOLDFAST_EXPLORE=1.

A run in the background may have been told to ignore Ctrl-C, and its children would be too; some
tests send it to them. What is there when the first test runs stays until the end, and is a million
objects: `gc.collect()` leaves it out.
"""

import gc
import signal
from pathlib import Path

import pytest
from hypothesis import settings

from thorough import EXPLORE, examples, made

usual = {"deadline": None, "print_blob": True, "max_examples": examples(100)}
settings.register_profile("steady", derandomize=True, **usual)
settings.register_profile("explore", **usual)
settings.load_profile("explore" if EXPLORE else "steady")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ["fix_postgres"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those that take long or wait come first, and small ones last: where a run is divided among
    processes, none of them waits for another in the end. Which cases a run makes is said in
    `thorough.py`.
    """
    items[:] = made(items)
    top = Path(__file__).parent
    items.sort(key=lambda item: (item.path.parent == top, str(item.path.parent)), reverse=True)


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
