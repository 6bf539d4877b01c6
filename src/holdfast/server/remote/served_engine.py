"""The engine that is served, for all who ask it over HTTP: reads on threads, commits once each."""

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

from holdfast.engine.protocol import Engine, Outcome, Ticket, Written
from holdfast.engine.remote.told_errors import told
from holdfast.engine.remote.verbs import (
    PROTOCOL,
    CommitAnswer,
    CommitAsked,
    CommitsAsked,
    Hello,
    Verb,
)
from holdfast.errors import HoldfastError, InvalidMessage
from holdfast.runtime.clock import World
from holdfast.runtime.plans.plan import wait_for
from holdfast.runtime.plans.plan_asyncio import arun, in_background
from holdfast.server.auth import Identity
from holdfast.server.problems import WireProblem
from holdfast.server.remote.commit_memory import CommitMemory
from holdfast.server.remote.doubt import settled
from holdfast.server.remote.requester import (
    NOT_THERE,
    Ownership,
    fitting,
    insist_on_all,
    sees_all,
)
from holdfast.server.remote.vet_commit import Vetting
from holdfast.server.remote.wake_counts import WakeCounts

SLOW = ("search", "matching", "check", "scrub", "info")
"""What may take a good while; no other read waits for it."""
_log = logging.getLogger("holdfast.server")
_Mine = tuple[CommitAsked, "asyncio.Future[CommitAnswer]"]


class ServedEngine:
    """Used on the event loop alone."""

    def __init__(self, engine: Engine, world: World, body_max: int) -> None:
        self._engine, self._body_max = engine, body_max
        self.process = world.chance(8).hex()
        """The name of this process, told with each answer."""
        # A turn is told of where it runs, and that is with whoever asks; here are the requests.
        self._submit = getattr(engine, "untraced_submit", engine.submit)
        self._ownership = Ownership(engine)
        self._memory = CommitMemory(world.tick)
        self._wakes = WakeCounts(engine, world)
        self._working: set[asyncio.Task[None]] = set()

    def hello(self, who: Identity) -> Hello:
        """What is said to whoever opens a store here."""
        return Hello(
            protocol=PROTOCOL,
            tenant=None if sees_all(who) else who.tenant,
            scopes=tuple(sorted(who.scopes)),
            read_only=self._engine.read_only,
            look_s=self._engine.look_s,
            body_max=self._body_max,
        )

    async def read(self, verb: Verb[Any], asked: Any, who: Identity) -> Any:
        """The answer to a question, as far as it concerns whoever asks."""
        if verb.whole:
            insist_on_all(who)
        work = partial(self._read, verb, asked, who)
        return await in_background(work, slow=verb.name in SLOW)

    def _read(self, verb: Verb[Any], asked: Any, who: Identity) -> Any:
        fields = fitting(verb, asked, who, self._ownership)
        if fields is NOT_THERE:
            return verb.none
        return getattr(self._engine, verb.name)(**fields)

    async def commit(self, asked: CommitsAsked, who: Identity) -> list[CommitAnswer]:
        """What became of each commit. One that came before gets the same answer again. What was
        sent to a process before this one may have been sent again since, and done.
        """
        again = asked.again or asked.process not in ("", self.process)
        answers: list[asyncio.Future[CommitAnswer]] = []
        mine: list[_Mine] = []
        # Before anything is awaited: another try that comes meanwhile finds them.
        for one in asked.commits:
            answer, is_mine = self._memory.expect((who.tenant, one.id))
            answers.append(answer)
            if is_mine:
                mine.append((one, answer))
        if mine:
            # A task of its own: a client that goes away stops nothing.
            task = asyncio.ensure_future(self._see_to(mine, who, again=again))
            self._working.add(task)
            task.add_done_callback(self._working.discard)
        found = []
        for answer in answers:
            try:
                found.append(await asyncio.shield(answer))
            except asyncio.CancelledError:
                # Two cancellations look alike here: that of this request, which goes
                # on, and that of an answer that was dropped because nobody knows what
                # became of the commit.
                if not answer.cancelled():
                    raise
                raise WireProblem("defect", "Something went wrong here.") from None
        return found

    async def _see_to(self, mine: list[_Mine], who: Identity, *, again: bool) -> None:
        try:
            answers = await self._done([one for one, _ in mine], who, again=again)
            for (_, answer), found in zip(mine, answers, strict=True):
                answer.set_result(found)
        except Exception as error:
            # By its kind alone: its words may quote a message.
            _log.error("commit: a defect (%s)", type(error).__name__)
        finally:
            for one, answer in mine:
                if not answer.done():
                    self._memory.drop((who.tenant, one.id))

    async def _done(
        self, asked: Sequence[CommitAsked], who: Identity, *, again: bool
    ) -> list[CommitAnswer]:
        vetting = Vetting(self._engine, self._ownership, who)
        commits = [one.writes for one in asked]
        verdicts = await in_background(partial(vetting.verdicts, commits))
        # All are submitted before the first is waited for: so they share a transaction,
        # and are done in the order in which they were sent.
        tickets: list[Ticket | HoldfastError | None] = []
        for commit, verdict in zip(commits, verdicts, strict=True):
            ticket: Ticket | HoldfastError | None = None
            if verdict is None and not again:
                try:
                    ticket = self._submit(commit)
                except HoldfastError as error:
                    ticket = error
            tickets.append(ticket)
        answers = []
        for commit, verdict, ticket in zip(commits, verdicts, tickets, strict=True):
            if verdict is not None:
                answers.append(_told(verdict))
            else:
                answers.append(await self._answered(commit, ticket))
        return answers

    async def _answered(self, commit: Any, ticket: Any) -> CommitAnswer:
        try:
            if ticket is None:
                work = partial(settled, self._engine, commit)
                return _told(await in_background(work))
            if isinstance(ticket, HoldfastError):
                return _told(ticket)
            return _told(await arun(wait_for(ticket)))
        except HoldfastError as error:
            return _told(error)
        except Exception as error:
            # A commit that makes no sense to the engine fails alone.
            _log.error("commit: a defect (%s)", type(error).__name__)
            problem = "the store could make no sense of it"
            return _told(InvalidMessage(problem=problem, place="commit"))

    async def news(
        self, marks: dict[str, str], wait_s: float, who: Identity
    ) -> dict[str, str]:
        """The sessions that have news since these marks were told."""
        if not sees_all(who):
            work = partial(self._ownership.own, who.tenant, list(marks))
            own = await in_background(work)
            marks = {session: marks[session] for session in own}
        return await self._wakes.news(marks, wait_s)


def _told(found: Outcome | HoldfastError) -> CommitAnswer:
    if isinstance(found, Written):
        return CommitAnswer(written=found)
    if isinstance(found, HoldfastError):
        return CommitAnswer(error=told(found))
    return CommitAnswer(refused=found)
