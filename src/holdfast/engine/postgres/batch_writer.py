"""The batch writer: carries one writer's batches through, each as one transaction, whatever happens
on the way.

    from memory      everything the batch needs is remembered: it is judged in memory and written in one round trip,
                     guarded by the stamps of the remembered sessions. If one has changed, nothing is written, and it
                     goes
    after reading    in two: rows are read; the batch is judged; effects and COMMIT, guarded by the stamps that were
                     read. So no lock is held while the server waits for us. Only if others were quicker several
                     times, rows are locked first, for a short time that the server limits.

A transaction that was rolled back is tried again. A row that somebody else holds is waited for
aside (`blocked_commits`). A transaction whose answer was lost is *in doubt*, never "failed": the
next try locks the same rows for a moment, which waits for whatever the lost one still does, and
then looks for its stamp, or for one entry that only it could have put there. If that is found, all
of the batch was done, and its answers are given after one more commit, which waits until the
servers that must know of it do. A batch is answered once all of that is over, or when it was tried
for too long. While standbys that must know of commits are away, no more than one commit of a batch
writer waits for them.
"""

import contextlib
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import psycopg

from holdfast.engine.named_sql import Row
from holdfast.engine.postgres.acknowledged_heads import AcknowledgedHeads
from holdfast.engine.postgres.batch import BatchState
from holdfast.engine.postgres.batch_sql import (
    CHUNK,
    ENTRY,
    Statement,
    append,
    columns,
    effects,
)
from holdfast.engine.postgres.blocked_commits import BlockedCommits
from holdfast.engine.postgres.guard_rows import (
    SESSION_PLACE,
    learn,
    questions,
    session_places,
)
from holdfast.engine.postgres.kept_connection import KeptConnection
from holdfast.engine.postgres.maintenance.erase import apart, erasures
from holdfast.engine.postgres.prepared_append import PreparedAppend
from holdfast.engine.postgres.server.cluster import Cluster
from holdfast.engine.postgres.server.connection import ServerConnection
from holdfast.engine.postgres.server.driver_errors import (
    UNPREPARED,
    Stalled,
    translate,
    verdict,
)
from holdfast.engine.postgres.server.retry import Retry
from holdfast.engine.postgres.server.text_as_bytes import is_id, name
from holdfast.engine.postgres.tenant_cache import TenantCache
from holdfast.engine.protocol import (
    Commits,
    Outcome,
    Refused,
    Write,
    Writes,
    Written,
    writes_in,
)
from holdfast.errors import OperatorNeeded

_STAMPS = (1 << 63) - 1
LIMITS = {"lock": "2s", "whole": "10s"}
"""How long a row is waited for, and how long a transaction of ours may take at all."""
OPENLY_MAX = 4
"""So often a batch is tried without locking what it has read."""


class Attempt(NamedTuple):
    """A batch that was sent: what it would have come to, and what would be there if it was done."""

    stamp: int
    outcomes: list[Outcome]
    sessions: frozenset[str]
    entry: Row | None
    chunk: Row | None


class Stuck(Exception):
    """Somebody holds the rows of these sessions."""

    def __init__(self, sessions: set[str]) -> None:
        super().__init__(sessions)
        self.sessions = sessions


class Unreplicated(psycopg.OperationalError):
    """A commit that is on one server and perhaps on no other: its wait for them was cut short."""


class BatchWriter:
    """One writer's connection and memory. Used by one thread."""

    def __init__(
        self,
        cluster: Cluster,
        tenants: TenantCache,
        acknowledged: AcknowledgedHeads,
        *,
        lasting: bool,
        blocked: BlockedCommits | None = None,
    ) -> None:
        self._cluster = cluster
        self._tenants = tenants
        self._acknowledged = acknowledged
        self._lasting = lasting
        self._state = BatchState()
        self._kept = KeptConnection(cluster, self._greet)
        self.connect = self._kept.get
        self.close = self._kept.drop
        self._prepared_append: PreparedAppend | None = None
        self._attempt: Attempt | None = None
        chance = int.from_bytes(cluster.chance(8), "big")
        self._stamp = self._first_stamp = chance & _STAMPS
        self._blocked = blocked
        self._sure = False
        """Whether commits on this connection are answered, as far as is known."""

    def _greet(self, line: ServerConnection) -> None:
        """Tells the server how long a transaction on a new connection may take."""
        self._sure = False
        # behind a pooler each transaction says so
        if not line.pooled:
            # a database without them
            with contextlib.suppress(
                psycopg.ProgrammingError, psycopg.NotSupportedError
            ):
                line.run("limits", LIMITS | {"once": False})
        self._prepared_append = PreparedAppend.on(line)

    def apply(self, commits: Commits) -> list[Any]:
        """Answers every commit of a batch; what concerns a session that waits aside is answered
        later.
        """
        # what waits aside has no such place itself: it waits for its row
        if self._blocked is not None and self._blocked.busy:
            return self._apply_beside(commits)
        return self._apply(commits)

    def _apply_beside(self, commits: Commits, stuck: Collection[str] = ()) -> list[Any]:
        assert self._blocked is not None
        aside = self._blocked.divert(commits, stuck)
        going = [
            commit
            for commit, later in zip(commits, aside, strict=True)
            if later is None
        ]
        answers = iter(self._apply(going) if going else ())
        return [next(answers) if later is None else later for later in aside]

    def _apply(self, commits: Commits) -> list[Any]:
        """Erasures are batches of their own: they blank what was there before them."""
        if self._state.knows(commits):
            return self._answers(commits, from_memory=True)
        return [answer for some in apart(commits) for answer in self._answers(some)]

    def _answers(self, commits: Commits, *, from_memory: bool = False) -> list[Any]:
        try:
            return self._carry(commits, from_memory) if commits else []
        except OperatorNeeded as error:
            return [error] * len(commits)
        except Stuck as found:
            return self._apply_beside(commits, found.sessions)
        except Exception as error:
            if len(commits) > 1:  # a commit that makes no sense fails alone
                return [self._answers([commit])[0] for commit in commits]
            if isinstance(error, psycopg.Error):
                return [translate(error, self._cluster.where)]
            return [error]

    def _carry(self, commits: Commits, from_memory: bool) -> list[Any]:
        """Tries until the batch is done or its time is over."""
        doubts: list[Attempt] = []
        retry: Retry | None = None
        tries = 0
        while True:
            self._attempt = None
            tries += 1
            try:
                self._make_sure()
                if from_memory:
                    done = self._from_memory(commits)
                else:
                    done = self._after_reading(
                        commits, doubts, locked=tries > OPENLY_MAX
                    )
                if done is not None:
                    if retry is not None:
                        retry.over()
                    return done
            except psycopg.Error as error:
                self._recover(commits, error, doubts)
                if (
                    isinstance(error, psycopg.errors.LockNotAvailable)
                    and self._blocked is not None
                    and not doubts
                ):
                    self._step_aside(commits)
                retry = retry or self._cluster.retry()
                retry.pause(error, in_doubt=bool(doubts))
            except BaseException:
                self._clear(commits)
                raise
            # what was remembered did not hold, or nobody knows: now it is read
            from_memory = False

    def _step_aside(self, commits: Commits) -> None:
        """Somebody holds a row that this batch needs: raises whose. It is one of these sessions, or
        something that belongs to a commit, which then waits by itself.
        """
        sessions = {write.session for write in writes_in(commits)}
        # one that is being opened has no row that anybody could hold
        places = session_places(self._tenants.known(sessions))
        stuck = {id for _, id in places}
        if places:
            given = columns(SESSION_PLACE, places)
            for (id,) in self.connect().run("free_sessions", given):
                stuck.discard(id)
        if stuck or len(commits) == 1:
            raise Stuck(stuck or sessions)

    def _make_sure(self) -> None:
        """Looks on a new connection whether commits wait for standbys in vain. One of them may be
        ours: a wait that was given up goes on at the server, and keeps a connection there. One more
        would keep another, until there are none for anybody; so nothing is committed before they
        are answered.
        """
        line = self.connect()
        if not self._sure:
            [(commits, longest_s)] = line.run(
                "stalled", {"seconds": self._cluster.watchdog.answer_s / 2}
            )
            if commits:
                raise Stalled(commits, longest_s)
            self._sure = True

    def _recover(
        self, commits: Commits, error: psycopg.Error, doubts: list[Attempt]
    ) -> None:
        """After an error: nothing is remembered, no transaction is open; raises again what makes no
        sense.
        """
        means = verdict(error)
        line = self._kept.line
        if self._attempt is not None and (
            means == "unknown" or line is None or line.connection.closed
        ):
            # its COMMIT may have reached the server
            doubts.append(self._attempt)
        self._kept.note(error)
        is_lost = means == "unknown" and not isinstance(error, Unreplicated | Stalled)
        if is_lost or error.sqlstate in UNPREPARED:
            self.close()
        self._clear(commits)
        # last, when the connection is fit for the next batch
        if means == "senseless":
            raise error

    def _clear(self, commits: Commits) -> None:
        self._state.forget(commits)
        line = self._kept.line
        if line is not None:
            try:
                with line.asking() as connection:
                    connection.rollback()
            except psycopg.Error:
                self.close()

    # In one round trip.

    def _from_memory(self, commits: Commits) -> list[Outcome] | None:
        """None when what is remembered does not let everything pass: that has to be looked at."""
        batch = self._state.begin(self._next_stamp())
        outcomes = list(map(self._state.apply, commits))
        # a refusal by memory alone may be wrong: another machine may have ended the
        # turn that is in the way
        if any(type(outcome) is Refused for outcome in outcomes):
            self._state.forget(commits)
            return None
        if not batch.moved:
            return outcomes
        line = self.connect()
        self._note_attempt(outcomes)
        lasting = self._is_lasting(commits)
        if batch.is_plain and self._prepared_append is not None:
            line.harmless = False  # its end is a commit
            with line.asking():
                self._prepared_append.run(*append(batch, lasting=lasting))
        elif batch.is_plain:
            line.run(*append(batch, lasting=lasting))
        else:
            work = effects(batch, self._state.sessions)
            line.run_all([*self._beginning(lasting), *work, ("commit", None)])
        self._written()
        return outcomes

    # In two.

    def _after_reading(
        self, commits: Commits, doubts: Sequence[Attempt], *, locked: bool
    ) -> list[Outcome]:
        self.connect()
        self._state.forget(commits)
        writes = list(writes_in(commits))
        places = self._places(writes)
        batch = self._state.begin(self._next_stamp())
        lasting = self._is_lasting(commits)
        if doubts and places and not locked:  # waits for whatever a lost one still does
            given = columns(SESSION_PLACE, session_places(places))
            self.connect().run_all([("lock_sessions", given)], harmless=True)
        beginning = self._beginning(lasting)
        if locked:
            # the transaction that reads goes on with the writing
            self._load(writes, places, beginning)
            beginning = []
        else:
            self._load(writes, places, [])
        for doubt in doubts:
            if self._was_done(doubt):
                return self._confirm(doubt, beginning)
        outcomes = [self._state.apply(commit) for commit in commits]
        done: list[Write] = []
        for commit, outcome in zip(commits, outcomes, strict=True):
            if isinstance(outcome, Written):
                done += commit
        erased = erasures(done, self._state.sessions)
        work = effects(batch, self._state.sessions, erased)
        if work:
            self._note_attempt(outcomes)
        # a locked transaction is open, and must be ended even if there is nothing to
        # write
        if work or locked:
            self.connect().run_all([*beginning, *work, ("commit", None)])
        self._written()
        return outcomes

    def _places(self, writes: Writes) -> dict[str, bytes]:
        """Sessions and their tenants, as far as they are there. Whose one is is asked once in the
        life of a process. One that is to be made is looked for where it would be; if others write
        to it in the same batch, it may be there already, and be somebody else's.
        """
        made: dict[str, bytes] = {}
        others: dict[str, None] = {}
        for write in writes:
            if write.open is None:
                others[write.session] = None
                continue
            if not is_id(write.session):
                raise ValueError(f"a session's id is a UUID, not {write.session!r}")
            made[write.session] = name(write.open.tenant, "tenant")
        return made | self._tenants.find(
            others, lambda ids: self.connect().run("tenants", {"id": ids})
        )

    def _load(
        self,
        writes: Writes,
        places: dict[str, bytes],
        beginning: list[Statement],
    ) -> None:
        """Reads all that the guards of these writes ask for: the sessions first, whose stamps then
        tell whether any of it has changed. With a beginning, in a transaction that locks the
        sessions.
        """
        asked = questions(writes, places, locked=bool(beginning))
        answers = self.connect().run_all([*beginning, *asked], harmless=True)
        for (statement, _), rows in zip(asked, answers[len(beginning) :], strict=True):
            learn(self._state, statement, rows)

    # Doubt.

    def _was_done(self, doubt: Attempt) -> bool:
        """Whether a batch in doubt was done after all. The sessions of it that are there are
        locked.
        """
        for id in doubt.sessions & self._state.sessions.keys():
            if self._state.sessions[id].stamp == doubt.stamp:
                return True
        line = self.connect()
        if doubt.entry is not None:
            entry = dict(zip(ENTRY, doubt.entry, strict=True))
            return bool(line.run("entry_by_id", entry))
        if doubt.chunk is not None:
            chunk = dict(zip(CHUNK, doubt.chunk, strict=True))
            return bool(line.run("chunk_is", chunk))
        return False

    def _confirm(self, doubt: Attempt, beginning: list[Statement]) -> list[Outcome]:
        """It was done, on this server at least. A commit that comes after it waits for the others
        too.
        """
        # any row of it will do: a later commit waits for all that came before it
        there = sorted(doubt.sessions & self._state.sessions.keys())
        row = self._state.sessions[there[0]]
        touch = ("touch", {"tenant": row.tenant, "id": row.id})
        self.connect().run_all([*beginning, touch, ("commit", None)])
        self._check_replicated()
        return doubt.outcomes

    def _note_attempt(self, outcomes: list[Outcome]) -> None:
        """From now on, what becomes of this batch may be unknown."""
        batch = self._state.batch
        sessions = frozenset(batch.moved) | frozenset(batch.opened)
        # What is restored, another copy may have restored too: no entry tells, and the
        # guards are
        # asked again.
        entry = chunk = None
        if not batch.restored:
            entry = batch.entries[0] if batch.entries else None
            chunk = batch.chunks[0] if batch.chunks else None
        self._attempt = Attempt(batch.stamp, outcomes, sessions, entry, chunk)

    def _check_replicated(self) -> None:
        # the one that it was committed on
        line = self._kept.line
        if line is not None and line.unreplicated:
            line.unreplicated = False
            raise Unreplicated("the wait for other servers was cut short")

    def _written(self) -> None:
        """The batch is durable."""
        self._check_replicated()
        self._state.settle()
        batch = self._state.batch
        moved = (*batch.moved.values(), *batch.opened.values())
        self._acknowledged.note([(row.id, row.head) for row in moved])
        self._tenants.learn((id, row.tenant) for id, row in batch.opened.items())

    def _next_stamp(self) -> int:
        self._stamp = (self._stamp + 1) & _STAMPS
        return self._stamp

    def wrote(self, stamp: int) -> bool:
        """Whether this is the stamp of one of its transactions. Asked from any thread."""
        # stamps begin anywhere and may wrap round: what counts is how far from the
        # first they are
        newest = (self._stamp - self._first_stamp) & _STAMPS
        return (stamp - self._first_stamp) & _STAMPS <= newest

    def _is_lasting(self, commits: Commits) -> bool:
        return self._lasting and not all(write.fleeting for write in writes_in(commits))

    def _beginning(self, lasting: bool) -> list[Statement]:
        statements: list[Statement] = [("begin", None)]
        if self._kept.line is not None and self._kept.line.pooled:
            statements.append(("limits", LIMITS | {"once": True}))
        # for this transaction alone
        if not lasting:
            statements.append(("fleeting", None))
        return statements
