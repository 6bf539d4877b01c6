"""Ending in order: a command that is told to go (SIGTERM, SIGHUP), or that nobody reads any more,
puts its things away first.

A private copy of somebody's conversations must not stay in a temporary folder because a terminal
was closed. The signal is raised in the main thread, what was opened is closed on the way out, and
then the process ends by that very signal, so that its parent sees what it would have seen.
"""

import os
import select
import signal
import sys
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


class ReaderGone(BaseException):
    """Nobody reads stdout any more."""


@contextmanager
def while_somebody_reads() -> Iterator[None]:
    """Whatever runs inside is left with `ReaderGone` when the reader of stdout goes, also while it
    waits: until it writes again, nothing else would tell it.
    """
    try:
        stdout = sys.stdout.fileno()
    except OSError:  # a buffer of a program that calls `main`
        stdout = None
    if stdout is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    watcher = _Watcher(stdout)
    before = signal.signal(signal.SIGPIPE, watcher.check)
    try:
        watcher.start()
        yield
    finally:
        watcher.stop()
        signal.signal(signal.SIGPIPE, before)


class _Watcher(threading.Thread):
    """Waits for the reader of stdout to go, and then interrupts the main thread."""

    def __init__(self, stdout: int) -> None:
        super().__init__(name="holdfast-reader", daemon=True)
        self._gone = self._told = False
        self._woken, self._wake = os.pipe()
        self._poll = select.poll()
        self._poll.register(self._woken, select.POLLIN)
        # Nothing is asked for: that the other end was closed is told in any case.
        self._poll.register(stdout, 0)

    def run(self) -> None:
        if all(file != self._woken for file, _ in self._poll.poll()):
            self._gone = True
            ident = threading.main_thread().ident
            assert ident is not None
            # To that thread: a wait is interrupted only by a signal of its own.
            signal.pthread_kill(ident, signal.SIGPIPE)

    def check(self, number: int, frame: FrameType | None) -> None:
        """Other signals like it, of a connection that broke, mean nothing, as ever in Python."""
        if self._gone and not self._told:
            self._told = True
            raise ReaderGone

    def stop(self) -> None:
        self._told = True
        os.write(self._wake, b"\0")
        self.join()
        os.close(self._wake)
        os.close(self._woken)
