"""Ending in order: a command that is told to go (SIGTERM, SIGHUP) puts its things away first.

A private copy of somebody's conversations must not stay in a temporary folder because a terminal
was closed. The signal is raised in the main thread, what was opened is closed on the way out, and
then the process ends by that very signal, so that its parent sees what it would have seen.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)
)


# Not an `Exception`: code that catches those and goes on must not swallow it.
class EndRequested(BaseException):
    """The process was told to end by this signal."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def ending_in_order() -> Iterator[None]:
    """Whatever runs inside is left as if by Ctrl-C when the process is told to end; then it ends. A
    signal that is ignored, as under nohup, or that somebody else handles is left alone.
    """
    # Python lets only the main thread set handlers of signals. A test, or a program
    # that calls `main`, may be in another one.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    mine = [number for number in SIGNALS if signal.getsignal(number) is signal.SIG_DFL]
    for number in mine:
        signal.signal(number, _raise)
    requested = None
    try:
        yield
    except EndRequested as request:
        requested = request
        raise
    finally:
        for number in mine:
            signal.signal(number, signal.SIG_DFL)
        # Only now, when nothing of ours handles it: the parent sees an end by this signal.
        if requested is not None:
            os.kill(os.getpid(), requested.number)


def _raise(number: int, frame: FrameType | None) -> None:
    # Once is enough: what is being put away is put away.
    signal.signal(number, signal.SIG_IGN)
    raise EndRequested(number)
