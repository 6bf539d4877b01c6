"""An event that a thread waits for, the start of a thread, and locks, safe where a signal handler may
raise or call us.

`threading.Event`, `Condition` and `Semaphore` are Python code where they lock: Ctrl-C that comes in
there leaves the lock locked, and the next one who sets, or waits, waits for ever. What a caller's
thread shares with ours is made of C code where it locks. `Thread.start` waits for such an event.

A handler runs between two steps of whatever its thread is at, a call of ours included, and that call
goes on when the handler is over: what the handler waits for must not be up to it. So a lock that
callers take is one that its own thread may take again (`threading.RLock`); where two calls can't be
under its cover at once, the second one is told so.
"""

import _thread
import threading
from collections.abc import Callable
from contextlib import suppress
from operator import methodcaller
from queue import Empty, SimpleQueue
from typing import Any

from holdfast.errors import StoreUnavailable


class Signal:
    """Unlike `threading.Event`, one thread waits for it; many may set it."""

    def __init__(self) -> None:
        self._is_set = False
        self._told: SimpleQueue[None] = SimpleQueue()

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        # Also when it is set already: whoever set it may have been interrupted before this.
        if self._told.empty():
            self._told.put(None)

    def clear(self) -> None:
        self._is_set = False
        told = self._told
        # Asked first: most often nobody has set it since it was waited for.
        while not told.empty():
            try:
                told.get_nowait()
            except Empty:
                return  # another thread has cleared it just now

    def wait(self, seconds: float | None = None) -> bool:
        """Returns when it is set or this long has passed, and whether it is set; now and then a
        little early.
        """
        if not self._is_set:
            with suppress(Empty):
                self._told.get(timeout=seconds)
        return self._is_set


def begin_thread(work: Callable[[], Any], name: str) -> None:
    """Has a thread of this name do it, which ends with the process. An interrupt in here leaves
    nothing undone and nobody waiting: the thread begins, or it never was.
    """
    if not may_be_interrupted():
        _begin(work, name)
        return
    begun: SimpleQueue[None] = SimpleQueue()
    # One step of C code. Where that thread starts another, no signal handler comes.
    _thread.start_new_thread(_begin_from_afar, (work, name, begun))
    begun.get()


def may_be_interrupted() -> bool:
    """Whether signal handlers run on this thread."""
    return threading.current_thread() is threading.main_thread()


def _begin(work: Callable[[], Any], name: str) -> None:
    threading.Thread(target=work, name=name, daemon=True).start()


def _begin_from_afar(
    work: Callable[[], Any], name: str, begun: "SimpleQueue[None]"
) -> None:
    try:
        _begin(work, name)
    except RuntimeError:  # there can be no more threads: this one is there
        begun.put(None)
        work()
    finally:
        begun.put(None)


is_mine: Callable[[Any], bool] = methodcaller("_is_owned")
"""Whether the calling thread holds this `threading.RLock`: C code, as all that locks.
`threading.Condition` asks the same.
"""


def alone(lock: Any, where: str) -> Any:
    """The lock, for a `with` statement; raises where this thread has it already."""
    if lock._is_owned():
        raise in_the_middle(where)
    return lock


def in_the_middle(where: str) -> StoreUnavailable:
    """What a call is told that has interrupted another one on its own thread, and can't be done
    before that is over.
    """
    return StoreUnavailable(
        where=where,
        problem="this thread is in the middle of another call, which this one has interrupted",
        remedy="Call it when that one has returned: a signal handler can set a flag for it, or "
        "hand the work to another thread",
    )
