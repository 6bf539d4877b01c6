"""What a fork must not tear apart: nobody is inside SQLite while this process forks, and a child
lets go of all it got.

SQLite keeps what it knows of a file once for each process, its locks included, and a child gets a
copy of that which is not true of the child: the locks are the parent's. A connection that the child
then opened would believe that it holds them. So a child closes its copies of its parent's
connections before it does anything else, which tells SQLite to forget, and takes nothing from the
parent. A lock file's lock would live on in the child: it is closed there, too.
"""

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, Protocol

QUIET_S = 5.0
"""So long a fork waits for a piece of work in SQLite."""


POLITE_S = 0.2
"""So long others wait for a fork: who holds one lock and wants another must not wait for ever."""
POLITE_WAITS = 100


class Forked(Protocol):
    """What knows of connections that a child must not have."""

    def gates(self) -> list[Any]:
        """Locks: whoever holds them all knows that nobody is inside SQLite."""

    def abandon(self) -> None:
        """In the child: lets go of everything, and touches nothing of the parent's."""


_is_beginning = False
"""Whether this process is about to fork."""


class Gate:
    """A lock that its own thread may take again: `with gate.lock():`. While a fork waits, others
    let it go first: one who works all the time would keep it out.

    The lock itself is what `with` takes and gives back, in C code alone. An interrupt that came
    between the two steps of a method of ours would leave it locked, and nobody in this process
    could open a store any more.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def lock(self) -> Any:
        """The lock, once no fork is about to begin or one has been waited for politely."""
        waits = POLITE_WAITS
        while _is_beginning and waits:
            # nobody else knows it: it may be interrupted
            threading.Event().wait(POLITE_S / POLITE_WAITS)
            waits -= 1
        return self._lock

    def acquire(self, timeout: float) -> bool:
        return self._lock.acquire(timeout=timeout)

    def release(self) -> None:
        self._lock.release()


opening = Gate()
"""Held while a connection is made, before anybody else knows of it."""
_concerned: "weakref.WeakSet[Any]" = weakref.WeakSet()
_files: dict[object, int] = {}
_held: list[Any] = []


def concern(one: Forked) -> None:
    """From now on a fork waits for it, and a child lets go of it."""
    _concerned.add(one)


def unconcern(one: Forked) -> None:
    _concerned.discard(one)


def keep_from_children(file: int) -> Callable[[], None]:
    """A descriptor that a child closes. Gives what the parent closes it with."""
    mark = object()  # not its number, which is another file's once it is closed
    _files[mark] = file

    def close() -> None:
        # In one step: whoever closes it again, or in a child, finds nothing to close.
        number = _files.pop(mark, None)
        if number is not None:
            os.close(number)

    return close


def _before() -> None:
    global _is_beginning
    _is_beginning = True
    # first: a connection that is made while the others are taken would not be among
    # them
    _take(opening)
    for one in list(_concerned):
        for gate in one.gates():
            _take(gate)


def _take(gate: Any) -> None:
    # a fork must not hang: what can't be had in time is left as it is
    if gate.acquire(timeout=QUIET_S):
        _held.append(gate)


def _after() -> None:
    global _is_beginning
    while _held:
        _held.pop().release()
    _is_beginning = False


def _in_child() -> None:
    for one in list(_concerned):
        one.abandon()
    # the child has no store; what it opens is concerned on its own
    _concerned.clear()
    for file in _files.values():
        os.close(file)
    _files.clear()
    _after()


os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_in_child)
