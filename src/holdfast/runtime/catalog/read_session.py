"""Reading a session: a turn whose owner is gone is settled first, so that what is read is final.

What can't be settled now does not stand in the way of reading (I-18), and an entry that can't be
read takes away nothing but itself (I-25).
"""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from holdfast.domain.entry import Entry
from holdfast.domain.turn import ToolCall
from holdfast.runtime.live import tool_calls, totals
from holdfast.runtime.live.context import Context
from holdfast.runtime.live.damage import readable
from holdfast.runtime.live.message import Message
from holdfast.runtime.live.session_log import SessionLog
from holdfast.runtime.live.totals import SessionInfo, TurnInfo
from holdfast.runtime.live.transcript import Transcript
from holdfast.runtime.plans.plan import Plan, read
from holdfast.runtime.turns.recovery import settle_to_read

T = TypeVar("T")


def context(
    session: SessionLog, format: str, *, prefill: bool = False
) -> Plan[Context]:
    """What the model sees, in this format."""
    state = yield from settle_to_read(session)
    make = partial(session.context, format, prefill=prefill, head=state.head)
    return (yield from read(make))


def calls(session: SessionLog) -> Plan[list[ToolCall]]:
    """Every tool call with its state."""
    yield from settle_to_read(session)
    return (yield from _read(session, lambda: tool_calls.calls(session)))


def info(session: SessionLog) -> Plan[SessionInfo]:
    """The session at a glance."""
    state = yield from settle_to_read(session)
    return (yield from _read(session, lambda: totals.info(session, state)))


def turns(session: SessionLog, after: int, limit: int | None) -> Plan[list[TurnInfo]]:
    """The turns with numbers above `after`."""
    yield from settle_to_read(session)
    return (
        yield from _read(
            session, lambda: totals.turns(session, after=after, limit=limit)
        )
    )


def messages(
    transcript: Transcript, after: int, limit: int
) -> Plan[tuple[list[Message], int]]:
    """A page of the transcript after this seq, and the seq that it goes up to."""
    session = transcript.session
    if after == 0:  # settled once a transcript, not once a page
        yield from settle_to_read(session)
    return (
        yield from _read(session, lambda: transcript.page(after=after, limit=limit))
    )


def head(session: SessionLog) -> Plan[int]:
    """The seq of the last entry."""
    return (yield from read(lambda: session.state().head))


def entries(session: SessionLog, after: int) -> Plan[list[Entry]]:
    """A page of the log after this seq; nothing at the end."""
    if after == 0:
        yield from settle_to_read(session)
    # Vetted now, not after something has failed as in `reading`: it is the caller who
    # decodes these entries, later.
    return (yield from read(lambda: [readable(entry) for entry in session.page(after)]))


def pending(session: SessionLog) -> Plan[list[Message]]:
    """What waits in the inbox."""
    yield from settle_to_read(session)
    return (yield from read(session.pending))


def _read(session: SessionLog, work: Callable[[], T]) -> Plan[T]:
    return (yield from read(lambda: session.reading(work)))
