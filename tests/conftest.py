"""How Hypothesis looks for counter-examples: the same ones every time, or others with
HOLDFAST_EXPLORE=1.

A run in the background may have been told to ignore Ctrl-C, and its children would be too; some
tests send it to them. What is there when the first test runs stays until the end, and is a million
objects: `gc.collect()` leaves it out.
"""

import gc
import os
import signal

from hypothesis import settings

settings.register_profile("steady", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile("explore" if os.environ.get("HOLDFAST_EXPLORE") else "steady")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ["fix_postgres"]


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
