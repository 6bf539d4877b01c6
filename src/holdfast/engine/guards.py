"""Judging: whether a write may be done, from what its session has come to.

The guards of a `Write` mean the same in every engine, so they are judged in one place. An engine
looks up what a write asks about, inside its transaction, and gives it here as values: what it does
not ask about need not be looked up. The order counts, because a caller acts on the first thing that
stands in its way: an event that was accepted before is told as such even when its session has ended
since.
"""

from collections.abc import Collection
from typing import Any

from holdfast.engine.protocol import Accepted, Opening, Refusal, Write
from holdfast.engine.session_row import ERASED, SessionRow

Judgement = tuple[Refusal, Any] | None
"""Why not, and what stands in the way; None when nothing does."""


def judge(
    write: Write,
    session: SessionRow | None,
    accepted: Accepted | None = None,
    position: int | None = None,
) -> Judgement:
    """A write to this session; None when there is none. `accepted` is where its event was,
    `position` that of the last chunk. If nothing stands in its way here, `judge_taken` goes on.
    """
    if session is None:
        return "missing", None
    if accepted is not None:
        return "accepted", accepted
    if session.ended and not _may_follow_the_end(write, session):
        return "ended", None
    # a turn that is over leaves the fence at its number: that alone does not say that
    # it runs
    if write.fence is not None and (
        session.turn is None or session.fence != write.fence
    ):
        return "superseded", None
    if write.idle and session.turn is not None:
        return "busy", session.turn
    if write.head is not None and session.head != write.head:
        return "moved", session.head
    if write.position is not None and position != write.position:
        return "moved", position
    return None


def _may_follow_the_end(write: Write, session: SessionRow) -> bool:
    # nothing is written to an erased session but another erasure, or what a copy
    # restores over it
    if session.ended == ERASED and write.erase is None and write.lay is None:
        return False
    return write.ended_too


def judge_taken(
    write: Write,
    waiting: Collection[bytes] = (),
    owed: bool = False,
    claim: bytes | None = None,
) -> Judgement:
    """What a write takes out of the inbox and the outbox. `waiting` is what is in the inbox, `owed`
    whether the reply that it pays or claims is, `claim` the token of the sender that has that reply
    now.
    """
    if write.takes and not set(write.takes).issubset(waiting):
        return "taken", None
    if not owed and (write.pays is not None or write.claim is not None):
        return "taken", None
    if write.claim is not None and claim not in (None, write.claim.token):
        return "taken", None
    return None


def reply_of(write: Write) -> bytes | None:
    """The reply that this write asks about: whether it is owed, and who has it."""
    return write.claim.id if write.claim is not None else write.pays


def judge_opening(
    write: Write,
    opening: Opening,
    *,
    exists: bool,
    current: tuple[str, int] | None,
    accepted: Accepted | None,
) -> Judgement:
    """A write that makes its session. `exists` says whether there is one with its id, `current`
    which session the key has now, and its epoch.
    """
    if accepted is not None:
        return "accepted", accepted
    # an id is used once, whichever tenant has it
    if exists:
        return "bound", write.session
    if opening.key is not None and (current[1] if current else 0) + 1 != opening.epoch:
        return "bound", current[0] if current else None
    session = SessionRow.opened(write.session, opening, 0)
    return judge(write, session) or judge_taken(write)
