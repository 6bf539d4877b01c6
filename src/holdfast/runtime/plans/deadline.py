"""Deadline: how long somebody who is on the way out waits for the store.

A caller that goes on waits for as long as the store itself tries. One that was interrupted wants to
leave: what it has under way is seen through if that takes moments, and left to the store's threads
if not. There is one deadline for the whole way out, from the call that was interrupted through the
stream that is cut off to the turn's end; another one for the end of the process, and one for
closing a store, whatever number of turns it has.
"""

from contextlib import suppress

from holdfast.errors import OperatorNeeded, StoreUnavailable
from holdfast.runtime.clock import real_tick

LEAVE_S = 5.0
"""How long the store is waited for in all by a caller that leaves: as long as SQLite's lock is."""
CLOSE_S = 30.0
"""How long it is waited for in all by somebody who closes the store in peace."""
WITHIN_S = 1.0
"""How long other threads are waited for by a call in the middle of another one: they may wait for
what that one holds.
"""
EXIT_S = 5.0
"""How long it is waited for in all by a process that ends, whatever number of stores it has."""

_MARK = "_holdfast_deadline"


class Deadline:
    """What is left of somebody's time. There is no limit before it begins."""

    def __init__(self, where: str = "") -> None:
        self._where = where
        self._until: float | None = None

    def begin(self, seconds: float) -> None:
        """It lasts so long from now on; what began before goes on as it did."""
        if self._until is None:
            self._until = real_tick() + seconds

    @property
    def left_s(self) -> float | None:
        """How many seconds are left; None when there is no limit."""
        if self._until is None:
            return None
        return max(0.0, self._until - real_tick())

    def over(self) -> StoreUnavailable:
        """What is told to a plan that would have to wait longer."""
        return StoreUnavailable(
            where=self._where,
            problem="there was no answer before its caller had to leave",
            remedy="A thread of the store goes on trying for as long as the process lives",
        )


def closing(where: str, seconds: float | None = None) -> Deadline:
    """That of somebody who closes a store, from now on; so long, or as in peace."""
    deadline = Deadline(where)
    deadline.begin(CLOSE_S if seconds is None else seconds)
    return deadline


_exit = Deadline()


def exiting() -> Deadline:
    """That of this process, from the beginning of its end."""
    _exit.begin(EXIT_S)
    return _exit


def begun(error: BaseException, deadline: Deadline | None = None) -> Deadline:
    """The deadline of somebody who leaves because of this error, from now on."""
    known: Deadline | None = getattr(error, _MARK, None)
    if deadline is None:
        deadline = known or Deadline()
    deadline.begin(LEAVE_S)
    # On the error itself, for the block that it leaves next: it goes when that does.
    with suppress(Exception):
        setattr(error, _MARK, deadline)
    return deadline


def deadline_for(error: BaseException | None, where: str) -> Deadline | None:
    """The deadline of somebody who leaves a block by this error: what is left of it, if a call in
    the block was interrupted by it. None for those who may wait: their block ended by itself, or
    by an error of their own.
    """
    if error is None:
        return None
    is_own = isinstance(error, Exception) and not isinstance(error, OperatorNeeded)
    if is_own and not hasattr(error, _MARK):
        return None
    return begun(error, getattr(error, _MARK, Deadline(where)))
