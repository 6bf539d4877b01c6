"""The process of a server: its event loop, and its garbage.

uvloop takes less time for a piece of a stream than Python's own loop, and the loop and the thread that
writes the store take the interpreter from each other a fraction as often. Where there is none,
Python's own does.

The garbage collector would look at all that is there again and again, for a tenth of a second each
time, and everybody would wait. What is imported is never garbage: it is left out.
"""

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any

COLLECTED_AT = (20_000, 20, 50)
"""How much is made between two looks for garbage, at what is new and at what is older."""


def run_server(main: Coroutine[Any, Any, None]) -> None:
    """Runs a server to its end; the process has nothing else to do."""
    gc.freeze()
    gc.set_threshold(*COLLECTED_AT)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(main)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
