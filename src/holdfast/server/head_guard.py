"""`If-Match`: a write that is done only if the session stands as its sender knows it.

The head that the sender knows is a guard of the commit itself, judged inside the transaction: of
two who know the same head and write at once, one is refused. It is told what it has missed.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

from msgspec.structs import replace

from holdfast.engine.protocol import Commit, Engine, Outcome, Refused, Ticket
from holdfast.errors import Conflict
from holdfast.exporters.entry_json import record
from holdfast.runtime.aio import AsyncSession
from holdfast.runtime.catalog import read_session
from holdfast.runtime.plans.plan import read
from holdfast.runtime.plans.plan_asyncio import arun
from holdfast.runtime.turns.recovery import settle_to_read
from holdfast.server.problems import WireProblem

MISSED_MAX = 100
"""So many entries are told; the rest is read as any page is."""


class HeadGuard:
    """An engine whose next commit to a session is refused unless its head is this one. After that
    commit it is the engine itself.
    """

    def __init__(self, engine: Engine, session: str, head: int) -> None:
        self._engine, self._session, self.head = engine, session, head
        self.has_refused = False
        self.is_judged = False
        """Whether the store has said that it is done, or that it was done before."""
        self._is_done = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def submit(self, commit: Commit) -> Ticket:
        if self._is_done:
            return self._engine.submit(commit)
        guarded = []
        for write in commit:
            if write.session == self._session:
                # One that was decided from a later head was decided from what the sender does not
                # know.
                if write.head not in (None, self.head):
                    raise self.refusal()
                write = replace(write, head=self.head)
            guarded.append(write)
        return _GuardedTicket(self._engine.submit(tuple(guarded)), self)

    def refusal(self) -> Conflict:
        """What stands in the way: somebody has written meanwhile."""
        self.has_refused = True
        problem = f"its head is not {self.head} any more"
        return Conflict(session_id=self._session, problem=problem)

    def judged(self, outcome: Outcome) -> Outcome:
        """What becomes of the commit that was guarded."""
        if isinstance(outcome, Refused):
            if outcome.why == "moved":
                raise self.refusal()
            self.is_judged = outcome.why == "accepted"
        else:
            self._is_done = self.is_judged = True
        return outcome


class _GuardedTicket:
    def __init__(self, ticket: Ticket, guard: HeadGuard) -> None:
        self._ticket, self._guard = ticket, guard

    @property
    def done(self) -> bool:
        return self._ticket.done

    def result(self, timeout: float | None = None) -> Outcome:
        return self._guard.judged(self._ticket.result(timeout))

    def then(self, callback: Callable[[Any], Any]) -> None:
        self._ticket.then(lambda _: callback(self))


@asynccontextmanager
async def guarded(
    session: AsyncSession, head: int | None
) -> AsyncIterator[AsyncSession]:
    """The session for one write, which is done only if its head is this one, where one is given.
    Whoever is refused is told what it has missed.
    """
    if head is None:
        yield session
        return
    # A turn whose owner is gone is settled first: what that writes, the sender has not seen.
    state = await arun(settle_to_read(session._log))
    if state.head != head:
        raise await _stale(session, head)
    # A log of its own: others go on with the one that is known.
    log = session._log.other(state)
    guard = HeadGuard(log.engine, log.id, head)
    log.engine = cast(Engine, guard)
    try:
        yield AsyncSession(log)
        # Where nothing was left to do, no commit was guarded; and it may be that nothing was left
        # because of what another has done, which the sender does not know.
        if not guard.is_judged and (await arun(read(log.state))).head != head:
            raise guard.refusal()
    except Conflict:
        if guard.has_refused:
            raise await _stale(session, head) from None
        raise


async def _stale(session: AsyncSession, head: int) -> WireProblem:
    found = await arun(read_session.entries(session._log, head))
    missed = [record(entry) for entry in found[:MISSED_MAX]]
    now = await session.head()
    return WireProblem(
        "stale",
        f"The session's head is {now}, and you know {head}. Nothing was written; read on, and "
        "decide again.",
        headers={"etag": f'"{now}"'},
        session_id=session.id,
        head=now,
        missed=missed,
        next=missed[-1].seq if missed and missed[-1].seq < now else None,
    )
