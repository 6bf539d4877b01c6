"""The last list of a session and what was answered, as the store has them."""

from functools import partial

from holdfast.domain.repair import StoredMessage
from holdfast.runtime.aio import AsyncSession
from holdfast.runtime.live.session_log import SessionLog
from holdfast.runtime.plans.plan import read
from holdfast.runtime.plans.plan_asyncio import arun
from holdfast.server.proxy.kinds import Before
from holdfast.server.proxy.marks import Mark, Marks, marks_of


async def stored_before(session: AsyncSession) -> Before | None:
    """The last list of a session and its answer, as the store has them; None if nothing was said."""
    last = await arun(read(partial(_last_shown, session._log)))
    if last is None:
        return None
    context = await session.context(last.note.format)
    marks = list(marks_of(context))
    answer: list[Mark] = []
    while marks and marks[-1][0] in ("assistant", "call"):
        answer.insert(0, marks.pop())
    # Whether its client has heard the answer is not known any more.
    # Nor is it stored whether its requests had tools. Calls tell that they had.
    return Before(
        tuple(marks),
        tuple(answer),
        is_open=last.note.role != "assistant" or last.note.partial,
        has_tools=any(kind == "call" for kind, _ in (*marks, *answer)),
        instructions=await session.instructions() or "",
    )


async def stored_beside(session: AsyncSession) -> Marks:
    """What was asked and answered aside, as the store has it."""
    known = await stored_before(session)
    if known is None:
        return ()
    # A context shows a result for each call; what was made for it never came.
    missing = set()
    for call in await session.calls():
        if call.outcome is None:
            missing.add(("result", call.call_id))
    return tuple(mark for mark in (*known.marks, *known.answer) if mark not in missing)


async def last_turn(session: AsyncSession) -> int:
    """The number of the last turn that was started in a session, by whomever; 0 if there was none."""
    log = await arun(read(session._log.log))
    return max(log.turns, default=0)


def _last_shown(log: SessionLog) -> StoredMessage | None:
    folded = log.log()
    with log.lock:
        return folded.visible[-1] if folded.visible else None
