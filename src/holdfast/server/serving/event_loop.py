"""The process of a server: its event loop, and its garbage.

uvloop takes less time for a piece of a stream than Python's own loop, and the loop and the thread that
writes the store take the interpreter from each other a fraction as often. Where there is none,
Python's own does.

A signal that ends the process by an exception would raise it in whatever the loop runs just then, which
loses what it was about, and the loop goes on as if nothing had been said. So the server is told instead,
and the exception is raised when it has ended.

The garbage collector would look at all that is there again and again, for a tenth of a second each
time, and everybody would wait. What is imported is never garbage: it is left out.
"""

import asyncio
import contextlib
import gc
import signal
import socket
from collections.abc import Callable, Coroutine, Iterator
from contextvars import ContextVar
from types import FrameType
from typing import Any

import uvicorn

COLLECTED_AT = (20_000, 20, 50)
"""How much is made between two looks for garbage, at what is new and at what is older."""

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class _Ending:
    """What a server was told about its end."""

    def __init__(self) -> None:
        self.told: list[int] = []
        """The signals that came."""
        self.has_served = False
        """What is left to do is to put things away; that must not be cut off."""


_ending: ContextVar[_Ending | None] = ContextVar("ending", default=None)


def run_server(main: Coroutine[Any, Any, None]) -> None:
    """Runs a server to its end; the process has nothing else to do. It serves by `serve_until_told`."""
    gc.freeze()
    gc.set_threshold(*COLLECTED_AT)
    ending = _Ending()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        try:
            runner.run(_ended_by_signals(main, ending))
        except asyncio.CancelledError:
            if not ending.told:
                raise
    if ending.told:
        signal.raise_signal(ending.told[0])


async def serve_until_told(server: uvicorn.Server, listener: socket.socket) -> None:
    """Serves until it is told to end."""
    ending = _ending.get()
    try:
        await server.serve(sockets=[listener])
    finally:
        if ending is not None:
            ending.has_served = True


async def _ended_by_signals(main: Coroutine[Any, Any, None], ending: _Ending) -> None:
    """Runs it until it has ended, or is cancelled because it was told to end before it served."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    _ending.set(ending)

    def end(number: int, frame: FrameType | None) -> None:
        ending.told.append(number)
        # Once is enough.
        if len(ending.told) == 1:
            loop.call_soon_threadsafe(end_now, number)

    def end_now(number: int) -> None:
        # It was uvicorn that was told, and says so again when it has ended.
        if ending.has_served:
            return
        serving = signal.getsignal(signal.SIGTERM)
        # It serves: uvicorn handles that signal then, and ends in order.
        if callable(serving) and serving is not end:
            serving(number, None)
        else:
            task.cancel()

    with _handled(end):
        await main


@contextlib.contextmanager
def _handled(end: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """The signals that end the process are told to `end`: those that Python handles. One that is ignored,
    as under nohup, or that the system handles is left alone.
    """
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    ours = [number for number, handler in before.items() if callable(handler)]
    try:
        for number in ours:
            signal.signal(number, end)
        yield
    finally:
        for number in ours:
            signal.signal(number, before[number])


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
