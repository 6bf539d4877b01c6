"""The lists of a session that its client has left for another, known again when it comes back to one.

    q1 a1 q2 a2          is left: the next list does not have a2
    q1 a1 q3 a3          another branch of the same session
    q1 a1 q2 a2 q4       back: q2 and a2 are known, though the view does not show them any more

A list is recorded beside the one before it. So what the client knew of its list, and of the answer, is
kept when it leaves that; when it comes back, the view shows that again, and then the list goes on from
there. This is known in one process alone: in another, what the view does not show is said anew.
"""

from contextlib import suppress
from functools import partial
from typing import NamedTuple

from holdfast.domain.record.grouping import gather_shown
from holdfast.domain.record.memory import LastList, Memory, held_of, snapshots_of
from holdfast.errors import SessionEnded
from holdfast.formats import registry
from holdfast.runtime.aio import AsyncSession
from holdfast.runtime.changes.record import record
from holdfast.runtime.live.session_log import SessionLog
from holdfast.runtime.plans.plan import read
from holdfast.runtime.plans.plan_asyncio import arun
from holdfast.server.proxy.dialects import Request
from holdfast.server.proxy.kinds import Before
from holdfast.server.proxy.marks import Marks

BRANCHES_MAX = 8
"""So many branches of a session are known, beside the one that it is in."""


class LeftBranch(NamedTuple):
    """A list with its answer, as it was left, and what its client knew of it."""

    marks: Marks
    format: str
    memory: Memory


class LeftBranches:
    """Those of one session."""

    def __init__(self) -> None:
        self._left: list[LeftBranch] = []

    async def memory_for(
        self,
        request: Request,
        marks: Marks,
        session: AsyncSession | None,
        memory: Memory,
        before: Before | None,
    ) -> Memory:
        """What the list of this request is recorded beside: the `memory` of the list before it, or that of
        the branch to which it goes back, which the view shows then.
        """
        if session is None or before is None:
            return memory
        format, tip = request.dialect.format, (*before.marks, *before.answer)
        back = self._longest(marks, format, more_than=_shared(marks, tip))
        if back is None and (not tip or tip[-1] in marks):
            return memory
        known = await arun(read(partial(_shown, session._log, memory, format)))
        self._left = [
            each for each in self._left if each.marks != tip and each is not back
        ]
        self._left = [*self._left, LeftBranch(tip, format, known)][-BRANCHES_MAX:]
        if back is None:
            return memory
        # Beside the branch that the view is in, what is said now would be taken for the
        # same words there.
        left = snapshots_of(back.memory.last(format).messages)
        with suppress(SessionEnded):
            await arun(record(session._log, back.memory, left, format=format))
        return back.memory

    def _longest(self, marks: Marks, format: str, more_than: int) -> LeftBranch | None:
        """The branch that this list goes on from, if that is more of it than the list before is."""
        found, length = None, more_than
        for branch in self._left:
            own = len(branch.marks)
            if own > length and marks[:own] == branch.marks and branch.format == format:
                found, length = branch, own
        return found


def _shared(marks: Marks, tip: Marks) -> int:
    """How many marks two lists begin with in common."""
    count = 0
    for one, other in zip(marks, tip, strict=False):
        if one != other:
            break
        count += 1
    return count


def _shown(log: SessionLog, memory: Memory, format: str) -> Memory:
    """What a client knows that was shown the view: its own list, and what was answered."""
    folded = log.log()
    with log.lock:
        shown = gather_shown(log.contexts.shown(folded, registry.get(format)))
        # What stands for results that have not come is no message.
        held = held_of([each for each in shown if each[1]])
        known = Memory()
        known.keep(format, LastList(held, memory.last(format).leading, folded.head))
        return known
