"""How a turn ends: completed, interrupted or failed, and why."""

from typing import NamedTuple

from holdfast.domain.entry import End
from holdfast.domain.log.fold import Log
from holdfast.runtime.turns.message_stream import Stream


class Ending(NamedTuple):
    """What the one end of a turn says."""

    end: End
    reason: str | None = None
    error: str | None = None


COMPLETED = Ending("completed")
UNLEFT = Ending("interrupted", "its block was left")
"""How a turn ends whose block was left in a way that it was not told of."""


def ending_of(error: BaseException) -> Ending:
    """How a turn ends that is left by this exception."""
    # A time limit and an interrupted system call come from outside: the work itself did not fail.
    is_from_outside = isinstance(error, TimeoutError | InterruptedError)
    if isinstance(error, Exception) and not is_from_outside:
        return Ending("failed", error=words_of(error))
    return Ending("interrupted", type(error).__name__)


def words_of(error: BaseException | str) -> str:
    """An error as it is recorded: its class and what it says. One that can't say it keeps no turn
    from ending.
    """
    if isinstance(error, str):
        return error
    name = type(error).__name__
    try:
        # `str` may give a subclass of the caller's own, which is no plain text.
        said = str.__str__(str(error))
    except Exception:
        said = "(what it says can't be read)"
    return f"{name}: {said}" if said else name


def cut_off(stream: Stream) -> Ending:
    """How a turn ends whose last message is this one."""
    if stream.complete:
        return COMPLETED
    if stream.unread:
        return Ending("interrupted", "its last message could not be read")
    return Ending("interrupted", "its last message was cut off")


def why_over(log: Log, number: int) -> str:
    """Why the turn of this number is over, as its log tells."""
    turn = log.turns.get(number)
    if log.closed == "erased":
        return "its session was erased"
    if turn is not None and turn.end is not None:
        return turn.reason or turn.end
    return "another took over"
