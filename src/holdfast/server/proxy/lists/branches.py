"""The lists of a session that its client has left for another, known again when it comes back to one.

    q1 a1 q2 a2          is left: the next list does not have a2
    q1 a1 q3 a3          another branch of the same session
    q1 a1 q2 a2 q4       back: q2 and a2 are known, though the view does not show them any more
    q1 a1 q2             back to a part of it, for an answer made anew: q2 is known, too

A list is recorded beside the one before it. So what the client knew of its list, and of the answer, is
kept when it leaves that; when it comes back, the view shows that again, and then the list goes on from
there. Lists that were left before this process, or that it has forgotten, are read from the log.
"""

from contextlib import suppress
from functools import partial
from itertools import groupby

from holdfast.domain.record.memory import Memory, snapshots_of
from holdfast.errors import SessionEnded
from holdfast.runtime.aio import AsyncSession
from holdfast.runtime.changes.record import record
from holdfast.runtime.live.session_log import SessionLog
from holdfast.runtime.plans.plan import read
from holdfast.runtime.plans.plan_asyncio import arun
from holdfast.server.proxy.dialects import Request
from holdfast.server.proxy.kinds import Before
from holdfast.server.proxy.lists.stored_branches import (
    LeftBranch,
    branch_of,
    stored_branches,
)
from holdfast.server.proxy.marks import Mark, Marks

BRANCHES_MAX = 8
"""So many branches of a session are known, beside the one that it is in."""


class LeftBranches:
    """Those of one session."""

    def __init__(self) -> None:
        self._left: list[LeftBranch] = []
        self._is_loaded = False

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
        shared = in_common(marks, tip)
        if shared < len(tip) and not self._is_loaded:
            self._is_loaded = True
            load = partial(stored_branches, session._log, format, BRANCHES_MAX)
            self._left = await arun(read(load, slow=True))
        is_left = bool(tip) and tip[-1] not in marks
        back = self._longest(marks, format, more_than=shared, in_part=is_left)
        if back is None and not is_left:
            return memory
        shown = partial(_shown, session._log, format=format)
        known = await arun(read(partial(shown, memory)))
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
        if in_common(marks, back.marks) < len(back.marks):
            # What comes after that part is left once more.
            known = await arun(read(partial(shown, back.memory)))
            again = LeftBranch(back.marks, format, known)
            self._left = [*self._left, again][-BRANCHES_MAX:]
        return back.memory

    def _longest(
        self, marks: Marks, format: str, more_than: int, *, in_part: bool
    ) -> LeftBranch | None:
        """The branch that this list goes on from, if that is more of it than the list before is; with
        `in_part`, also one of which it has the beginning alone.
        """
        found, longest = None, (more_than, True)
        for branch in self._left:
            own = len(branch.marks)
            if own <= more_than or branch.format != format:
                continue
            length = in_common(marks, branch.marks)
            is_whole = length == own
            if (is_whole or in_part) and (length, is_whole) > longest:
                found, longest = branch, (length, is_whole)
        return found


def in_common(marks: Marks, tip: Marks) -> int:
    """How many marks two lists begin with in common, in whatever order results stand."""
    # As nearly every list does that goes on.
    if marks[: len(tip)] == tip:
        return len(tip)
    count = 0
    for one, other in zip(_tidy(marks), _tidy(tip), strict=False):
        if one != other:
            break
        count += 1
    return count


def _tidy(marks: Marks) -> list[Mark]:
    """The marks with neighbouring results in one order: tools that run at once are done in any."""
    tidy: list[Mark] = []
    for is_result, run in groupby(marks, key=lambda mark: mark[0] == "result"):
        stretch = list(run)
        tidy += sorted(stretch) if is_result else stretch
    return tidy


def _shown(log: SessionLog, memory: Memory, *, format: str) -> Memory:
    """What a client knows that was shown the view: its own list, and what was answered."""
    folded = log.log()
    with log.lock:
        leading = memory.last(format).leading
        return branch_of(folded, log.contexts, format, leading=leading).memory
