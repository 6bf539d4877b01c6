"""Whose turn is running: which thread or task holds it, so that nobody waits for itself.

A turn is held by the thread, or on an event loop the task, that entered its block; before that, by
the one that started it. Turns of all stores of this process are known here, by session and number:
two handles on one store are two ways to wait for the same turn.

A task whose event loop is closed never goes on: a second Ctrl-C cuts off what asyncio does for the
first, and leaves tasks behind in the middle of their blocks. A turn that is held so is deserted,
and need not be waited for.
"""

import os
import sys
import threading
import weakref
from contextvars import ContextVar
from typing import Any

_held: "dict[tuple[str, int], weakref.ref[Hold]]" = {}
_held_max = 256
"""At so many, those that are gone are taken out. Not as each one goes, as in a weak dictionary:
there Python swallows Ctrl-C.
"""
_around: ContextVar[tuple["weakref.ref[Hold]", ...]] = ContextVar(
    "holdfast_turns", default=()
)
"""The turns that this task, or one that has started it, has begun."""
DESERTED = "its event loop was closed"
"""Why a turn was ended that was left behind on a closed loop."""


class Hold:
    """Who holds a turn; kept by the turn as long as it lives."""

    def __init__(self, session: str, number: int) -> None:
        self.in_block = False
        self._readers: tuple[weakref.ref[Any], ...] = ()
        self.take()
        _held[session, number] = weakref.ref(self)
        if len(_held) > _held_max:
            _tidy()

    def take(self) -> None:
        """The turn is held by the calling thread or task from now on."""
        # The process too: a forked child has a copy of this, and holds nothing.
        self._process = os.getpid()
        # Not its number, which another thread gets when this one is over.
        self._thread = weakref.ref(threading.current_thread())
        task = _task()
        self._task = None if task is None else weakref.ref(task)
        self._loop = None if task is None else task.get_loop()
        if task is not None and self not in _inherited():
            alive = [each for each in _around.get() if each() is not None]
            _around.set((*alive, weakref.ref(self)))

    def lend(self, task: Any) -> None:
        """This task reads for the turn: its holder waits for what it gives."""
        # References that call nothing back, as those to turns.
        alive = (each for each in self._readers if each() is not None)
        self._readers = (*alive, weakref.ref(task))

    def is_lent_here(self) -> bool:
        """Whether the calling task reads for the turn."""
        task = _task()
        return task is not None and any(each() is task for each in self._readers)

    def is_here(self) -> bool:
        """Whether the calling thread or task holds the turn."""
        if (
            self._process != os.getpid()
            or self._thread() is not threading.current_thread()
        ):
            return False
        return _task() is (None if self._task is None else self._task())

    @property
    def is_on_its_loop(self) -> bool:
        """Whether the caller runs where the turn does, if that is on an event loop."""
        return self._loop is None or current_loop() is self._loop

    @property
    def is_deserted(self) -> bool:
        """Whether the turn's block will never be left by the task that is in it."""
        return self.in_block and self._loop is not None and self._loop.is_closed()


def is_deserted(session: str, number: int) -> bool:
    """Whether a task of this process held this turn, and will never go on."""
    hold = _hold_of(session, number)
    return hold is not None and hold._process == os.getpid() and hold.is_deserted


def is_held_here(session: str, number: int) -> bool:
    """Whether the caller itself holds this turn, or its holder waits for the caller: if it waits
    for the turn's end, it waits for ever.
    """
    hold = _hold_of(session, number)
    return hold is not None and (hold.is_here() or hold.is_lent_here())


def is_around(session: str, number: int) -> bool:
    """Whether the caller works inside this turn: it holds it, or is a task that was started by one
    that does.
    """
    hold = _hold_of(session, number)
    return hold is not None and (
        hold.is_here() or (hold._process == os.getpid() and hold in _inherited())
    )


def _hold_of(session: str, number: int) -> Hold | None:
    known = _held.get((session, number))
    return None if known is None else known()


def _tidy() -> None:
    global _held_max
    for name, known in list(_held.items()):
        # Another thread may have put a living one there since the list was made.
        if known() is None and _held.get(name) is known:
            _held.pop(name, None)
    # Twice as many as live: tidying stays rare, however many turns there are.
    _held_max = max(256, 2 * len(_held))


def current_loop() -> Any:
    """The event loop that runs the caller, if one does."""
    task = _task()
    return None if task is None else task.get_loop()


def _inherited() -> list["Hold | None"]:
    return [each() for each in _around.get()]


def _task() -> Any:
    """The running task, in a program that has an event loop."""
    # Not imported: a program that has not loaded it has no tasks.
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return None
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
