"""What a write does to its session's own row: the state machine of turns, the same for every
engine.

    idle ── start ──▶ running ── finish, close ──▶ idle, ended
                         │ ▲
                         └─┘ seize: the fence rises, the turn goes on until its seizer has settled it

An engine calls `advance` with the row as it stands and the write that its guards have let through,
and stores what comes back in its own way. Nothing here knows a clock or a database.
"""

from typing import NamedTuple, Protocol

from holdfast.engine.guards import CLOSED, ERASED
from holdfast.engine.protocol import Write


class Row(Protocol):
    """What the state machine reads of a session."""

    @property
    def ended(self) -> int: ...
    @property
    def turn(self) -> int | None: ...
    @property
    def fence(self) -> int: ...
    @property
    def head(self) -> int: ...
    @property
    def base(self) -> int: ...
    @property
    def journal(self) -> int: ...
    @property
    def active_at(self) -> int: ...


class Advanced(NamedTuple):
    """The row after a write. `leased_s` is how long the lease is given for from now on, None if it
    stays as it was; `left` whether the turn that was running is over, and with it its lease, its
    holder and what its journal holds.
    """

    ended: int
    turn: int | None
    fence: int
    base: int
    journal: int
    active_at: int
    leased_s: float | None
    left: bool


def advances(write: Write) -> bool:
    """Whether the write changes more of its session's row than its head. A plain append
    does not.
    """
    return bool(
        write.start
        or write.seize
        or write.finish
        or write.close
        or write.base
        or write.unbase
        or write.lay is not None
        or write.renew_s is not None
    )


def advance(row: Row, write: Write, position: int) -> Advanced:
    """The row after this write; `position` is where the journal stands, which is where a new turn's
    words begin.
    """
    ended, turn, fence = row.ended, row.turn, row.fence
    base, journal, active_at = row.base, row.journal, row.active_at
    leased_s = None
    if write.finish:  # first: the same write may start the next turn
        turn = None
    if write.seize:
        fence += 1
    if write.start is not None:
        fence += 1
        turn, journal, leased_s = fence, position, write.start.lease_s
        if write.drafts:
            active_at = max(active_at, write.drafts[0].at)
    if write.renew_s is not None and turn is not None:
        leased_s = write.renew_s
    if write.close:  # last: nothing runs in a session that has ended
        turn = leased_s = None
        ended = ERASED if write.erase is not None else CLOSED
    if write.unbase:
        base = 0
    if write.base:
        base = row.head + 1
    if write.lay is not None:
        fence, base, active_at = write.lay.fence, write.lay.base, write.lay.active_at
        ended = ERASED if write.lay.erased else CLOSED if write.lay.ended else 0
    return Advanced(
        ended,
        turn,
        fence,
        base,
        journal,
        active_at,
        leased_s,
        write.finish or write.close,
    )
