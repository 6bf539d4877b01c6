"""The engine over HTTP: each verb is a request to a server, and a commit is done once however often
it has to be sent.

    callers ──submit──► queue ──► take all that wait ──► POST commit ──► answer each
                                                            │ no answer
                                                            └──► the same commits under the same ids, `again`

Commits gather while a request is under way, as they do in front of a disk, so a slow line costs few
requests. A server that does not answer is tried again for half a minute; then the commit is
reported as what it is, in doubt.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from holdfast.domain.accepted_events import AcceptedEvent
from holdfast.domain.entry import Entry
from holdfast.domain.search.query import Found, SearchScope
from holdfast.engine.address import Place, remote_parts, shown
from holdfast.engine.protocol import (
    Accepted,
    Chance,
    Commit,
    Commits,
    JournalRow,
    Outcome,
    OwedReply,
    Pending,
    Refused,
    RowsCallback,
    SessionState,
    State,
    Waiting,
    Weight,
)
from holdfast.engine.remote import verbs
from holdfast.engine.remote.calls import (
    OPENING_S,
    SLOW_S,
    ServerCalls,
    Tries,
    Unanswered,
)
from holdfast.engine.remote.told_errors import error_of, other_protocol, unusable
from holdfast.engine.remote.trust import trusted
from holdfast.engine.remote.verbs import (
    COMMIT_ID_BYTES,
    PROTOCOL,
    CommitAnswer,
    CommitAsked,
    CommitsAsked,
    Hello,
)
from holdfast.engine.remote.wakes import Wakes
from holdfast.engine.store_info import Backup, Problem, StoreInfo
from holdfast.engine.writer import Writer, WriterTicket
from holdfast.errors import HoldfastError, ReadOnlyStore

T = TypeVar("T")
LOOK_MIN_S = 1.0
"""Followers that look by themselves do so over a network: not as often as into a file."""
REQUEST_BYTES = 4 << 20
"""Commits of about so many bytes go in one request; a larger one goes alone."""


class RemoteEngine:
    """Sessions that a server keeps; see `protocol.Engine`."""

    def __init__(
        self,
        where: Place,
        *,
        token: str | None,
        chance: Chance,
        read_only: bool = False,
        ca: Place | None = None,
    ) -> None:
        self.where = shown(where)
        parts = remote_parts(where)
        trusts = trusted(parts, ca)
        self._calls = ServerCalls(self.where, parts, token, chance, trusts)
        self._process = os.getpid()
        hello = self._hello()
        self.tenant = hello.tenant
        self.read_only = read_only or hello.read_only or "write" not in hello.scopes
        self.look_s = max(LOOK_MIN_S, hello.look_s)
        self._calls.body_max = hello.body_max
        self._wakes = Wakes(self._calls)
        self._writer = Writer(
            self.where,
            apply=self._apply,
            wake=self._wakes.watchers.wake,
            tidy=lambda: None,
            finish=lambda: None,
        )

    def _hello(self) -> Hello:
        tries = Tries(OPENING_S, self._calls.chance)
        while True:
            try:
                hello: Hello = self._calls.post("hello", {}, Hello)
                break
            except Unanswered as error:
                if not tries.pause(error):
                    raise self._calls.given_up(error) from None
        if hello.protocol != PROTOCOL:
            raise other_protocol(self.where, found=hello.protocol, known=PROTOCOL)
        return hello

    def tenant_for(self, asked: str) -> str:
        """The tenant of a store that was opened for this one: the token says whose it is, and
        "default" stands for no other.
        """
        if self.tenant in (None, asked):
            return asked
        if asked == "default":
            return str(self.tenant)
        problem = "the token is for another tenant"
        raise unusable(self.where, problem, "Leave the tenant out, or use its token")

    # Writing

    def commit(self, commits: Commits) -> list[Outcome]:
        tickets = [self.submit(commit) for commit in commits]
        return [ticket.result() for ticket in tickets]

    def submit(self, commit: Commit) -> WriterTicket:
        self._calls.check()
        if self.read_only:
            raise ReadOnlyStore(where=self.where)
        return self._writer.submit(commit)

    def _apply(self, commits: Commits) -> list[Any]:
        """On the writer's thread: what became of each."""
        asked = []
        for commit in commits:
            asked.append(CommitAsked(self._calls.chance(COMMIT_ID_BYTES), commit))
        answers: list[Any] = []
        for part in _parts(asked):
            answers += self._sent(part)
        return answers

    def _sent(self, part: tuple[CommitAsked, ...]) -> list[Any]:
        tries = self._calls.tries()
        again = False
        while True:
            try:
                answers: list[CommitAnswer] = self._calls.post(
                    "commit", self._asked(part, again=again), list[CommitAnswer]
                )
                break
            except Unanswered as error:
                # Once it may have been done, it may have been for good: a later try
                # that was not even sent does not take that back.
                again = again or error.maybe_done
                if not tries.pause(error):
                    lost = self._calls.given_up(error, in_doubt=again)
                    return [lost] * len(part)
            except HoldfastError as error:
                return [error] * len(part)
        if len(answers) != len(part):
            problem = "the server answered another number of commits than it was sent"
            told = unusable(self.where, problem, "Use the same release on both sides")
            return [told] * len(part)
        return [self._outcome(answer) for answer in answers]

    def _asked(self, part: tuple[CommitAsked, ...], *, again: bool) -> CommitsAsked:
        # What waits in the line may arrive long after it was sent again and done: by then the
        # process that would know it may be gone, and the next one has to look.
        return CommitsAsked(part, again, self._calls.answered_by)

    def _outcome(self, answer: CommitAnswer) -> Outcome | HoldfastError:
        if answer.written is not None:
            return answer.written
        if answer.refused is not None:
            return _with_acceptance(answer.refused)
        if answer.error is not None:
            return error_of(answer.error, self.where)
        problem = "the server did not say what became of a commit"
        return unusable(self.where, problem, "Use the same release on both sides")

    def scrub(self) -> None:
        if self.read_only:
            raise ReadOnlyStore(where=self.where)
        self._calls.ask(verbs.SCRUB, timeout_s=SLOW_S)

    # Reading

    def state(self, session: str) -> SessionState | None:
        return self._calls.ask(verbs.STATE, session=session)

    def current(self, tenant: str, key: str) -> SessionState | None:
        return self._calls.ask(verbs.CURRENT, tenant=tenant, key=key)

    def find(self, tenant: str, prefix: str, limit: int = 2) -> list[SessionState]:
        return self._calls.ask(verbs.FIND, tenant=tenant, prefix=prefix, limit=limit)

    def entries(
        self, session: str, *, after: int = 0, limit: int = 1000, bodies: bool = True
    ) -> list[Entry]:
        return self._calls.ask(
            verbs.ENTRIES, session=session, after=after, limit=limit, bodies=bodies
        )

    def beginnings(
        self, sessions: Sequence[str], *, limit: int, bodies: bool = True
    ) -> dict[str, list[Entry]]:
        return self._calls.ask(
            verbs.BEGINNINGS, sessions=list(sessions), limit=limit, bodies=bodies
        )

    def labels(self, session: str, *, after: int = 0) -> list[Entry]:
        return self._calls.ask(verbs.LABELS, session=session, after=after)

    def inbox(self, session: str) -> list[Waiting]:
        return self._calls.ask(verbs.INBOX, session=session)

    def journal(
        self, session: str, *, after: int = 0, limit: int = 1000
    ) -> list[JournalRow]:
        return self._calls.ask(verbs.JOURNAL, session=session, after=after, limit=limit)

    def outbox(
        self,
        tenant: str,
        *,
        after: OwedReply | None = None,
        limit: int = 50,
        free: bool = False,
    ) -> list[OwedReply]:
        return self._calls.ask(
            verbs.OUTBOX, tenant=tenant, after=after, limit=limit, free=free
        )

    def pending(
        self,
        tenant: str,
        *,
        after: tuple[bytes, str, int] | None = None,
        limit: int = 50,
    ) -> list[Pending]:
        return self._calls.ask(verbs.PENDING, tenant=tenant, after=after, limit=limit)

    def running(self, tenant: str) -> list[str]:
        return self._calls.ask(verbs.RUNNING, tenant=tenant)

    def debts(self, session: str) -> list[OwedReply]:
        return self._calls.ask(verbs.DEBTS, session=session)

    def accepted(self, scope: str, event: str) -> Accepted | None:
        return self._calls.ask(verbs.ACCEPTED, scope=scope, event=event)

    def sessions(
        self,
        tenant: str,
        *,
        key: str | None = None,
        state: State | None = None,
        before: tuple[int, str] | None = None,
        limit: int = 50,
    ) -> list[SessionState]:
        return self._calls.ask(
            verbs.SESSIONS,
            tenant=tenant,
            key=key,
            state=state,
            before=before,
            limit=limit,
        )

    def under(
        self, tenant: str, prefix: str, *, after: str = "", limit: int = 50
    ) -> list[SessionState]:
        return self._calls.ask(
            verbs.UNDER, tenant=tenant, prefix=prefix, after=after, limit=limit
        )

    def kept(
        self, tenant: str, *, before: tuple[int, str], limit: int
    ) -> list[SessionState]:
        return self._calls.ask(verbs.KEPT, tenant=tenant, before=before, limit=limit)

    def tenants(self) -> list[str]:
        return self._calls.ask(verbs.TENANTS)

    def events(self, *, after: bytes = b"", limit: int = 1000) -> list[AcceptedEvent]:
        return self._calls.ask(verbs.EVENTS, after=after, limit=limit)

    def forks(self, tenant: str, parents: Sequence[str]) -> list[SessionState]:
        return self._calls.ask(verbs.FORKS, tenant=tenant, parents=list(parents))

    def weigh(self, sessions: Sequence[str]) -> dict[str, Weight]:
        return self._calls.ask(verbs.WEIGH, sessions=list(sessions))

    def search(self, sought: SearchScope, *, limit: int = 20) -> list[Found]:
        return self._calls.ask(
            verbs.SEARCH, sought=sought, limit=limit, timeout_s=SLOW_S
        )

    def matching(self, sought: SearchScope, *, limit: int) -> list[str]:
        return self._calls.ask(
            verbs.MATCHING, sought=sought, limit=limit, timeout_s=SLOW_S
        )

    # The store as a whole

    def info(self) -> StoreInfo:
        info = self._calls.ask(verbs.INFO)
        return msgspec.structs.replace(info, where=self.where)

    def check(self) -> list[Problem]:
        return self._calls.ask(verbs.CHECK, timeout_s=SLOW_S)

    def backup(self, to: str) -> Backup:
        problem = "a backup is a file, and is made where the store is"
        raise unusable(
            self.where, problem, "Run `holdfast store backup` on the server's machine"
        )

    def watch(self, session: str, callback: Callable[[], None]) -> Callable[[], None]:
        return self._wakes.watch(session, lambda _: callback())

    def watch_rows(self, session: str, callback: RowsCallback) -> Callable[[], None]:
        return self._wakes.watch(session, callback)

    def close(self) -> None:
        if os.getpid() != self._process:
            return  # the threads and the connections are the parent's
        # First: what it still has to send needs the connections.
        self._writer.close()
        self._calls.close()
        self._wakes.close()


def _parts(asked: list[CommitAsked]) -> Iterator[tuple[CommitAsked, ...]]:
    """The commits in order, as many at a time as go well in one request."""
    part: list[CommitAsked] = []
    size = 0
    for one in asked:
        own = _bytes_of(one.writes)
        if part and size + own > REQUEST_BYTES:
            yield tuple(part)
            part, size = [], 0
        part.append(one)
        size += own
    if part:
        yield tuple(part)


def _bytes_of(commit: Commit) -> int:
    size = 0
    for write in commit:
        # About what its other fields take: the sum only has to keep requests of a handy
        # size.
        size += 200
        for draft in write.drafts:
            size += 100 + len(draft.note) + len(draft.body)
        if write.chunk is not None:
            size += len(write.chunk.body)
    return size


def _with_acceptance(refused: Refused) -> Refused:
    """A refusal with its detail as the value that it was: one that tells of an acceptance says
    where.
    """
    if refused.why != "accepted" or refused.detail is None:
        return refused
    # The detail of a refusal has no type of its own, so it arrives as a plain map.
    detail = msgspec.convert(refused.detail, Accepted)
    return msgspec.structs.replace(refused, detail=detail)
