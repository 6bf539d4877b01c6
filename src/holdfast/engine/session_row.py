"""What a write does to its session's own row: the state machine of turns, the same for every
engine.

    idle ── start ──▶ running ── finish, close ──▶ idle, ended
                         │ ▲
                         └─┘ seize: the fence rises, the turn goes on until its seizer has settled it

An engine calls `advance` with the row as it stands and the write that its guards have let through,
and stores what comes back in its own way. Nothing here knows a clock or a database.
"""

from typing import Any, NamedTuple, Self

import msgspec

from holdfast.engine.protocol import Opening, SessionState, Write

CLOSED, ERASED = 1, 2
"""What `ended` is of a session that has ended, and of one that was erased; 0 of others."""


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


class SessionRow(msgspec.Struct):
    """A session as an engine remembers it, changed in place as commits are applied. Texts are as
    the engine keeps them.
    """

    id: str = ""
    tenant: Any = None
    key: Any = None
    epoch: int = 0
    ended: int = 0
    head: int = 0
    fence: int = 0
    turn: int | None = None
    holder: Any = None
    journal: int = 0
    base: int = 0
    origin: int = 0
    opened_at: int = 0
    active_at: int = 0
    last_at: int | None = None
    parent: str | None = None

    @classmethod
    def opened(cls, id: str, opening: Opening, at: int, **kept: Any) -> Self:
        """A session that is about to be made: it has no turn, an empty inbox and no debts."""
        return cls(
            id=id,
            epoch=opening.epoch,
            head=opening.head,
            fence=opening.fence,
            origin=opening.head,
            opened_at=at,
            active_at=at,
            last_at=at,
            parent=opening.parent,
            **kept,
        )

    def move(self, write: Write, position: int) -> "Advanced":
        """Does to the row what `advance` says."""
        after = advance(self, write, position)
        self.ended = after.ended
        self.turn = after.turn
        self.fence = after.fence
        self.base = after.base
        self.journal = after.journal
        self.active_at = after.active_at
        if after.left:
            self.holder = None
        return after

    def as_state(
        self, lease_s: float | None, mark: float | None, left_s: float | None
    ) -> SessionState:
        """What the engine knows of it, with the lease of its turn. Its texts must be as they were
        given.
        """
        if self.turn is None:
            lease_s = mark = left_s = None
        else:
            # a turn whose lease has no end counts as one whose lease is over
            left_s = left_s or 0.0
        return SessionState(
            id=self.id,
            tenant=self.tenant,
            key=self.key,
            epoch=self.epoch,
            ended=bool(self.ended),
            head=self.head,
            fence=self.fence,
            turn=self.turn,
            holder=self.holder,
            lease_left_s=left_s,
            opened_at=self.opened_at,
            active_at=self.active_at,
            # a session of a file is made before its first entry is
            last_at=self.last_at or self.opened_at,
            journal=self.journal,
            base=self.base,
            origin=self.origin,
            erased=self.ended == ERASED,
            lease_s=lease_s,
            lease_mark=mark,
            parent=self.parent,
        )


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


def shifts_outbox(write: Write) -> bool:
    """Whether the write changes what its session owes to somebody."""
    return bool(write.owes) or write.pays is not None or write.claim is not None


def is_erasure(write: Write) -> bool:
    """Whether the write takes words out of its session, or what it has accepted."""
    return write.erase is not None or bool(write.blank) or write.forget_events


def advance(row: SessionRow, write: Write, position: int) -> Advanced:
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
