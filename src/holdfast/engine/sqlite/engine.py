"""The SQLite engine: the writer thread's transactions, and its housekeeping after the answers. What
can be read beside it is in `reads`.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import apsw

from holdfast.engine.protocol import (
    Commit,
    Commits,
    Now,
    Outcome,
    Tick,
    WordsOf,
    Write,
    Written,
    writes_in,
)
from holdfast.engine.sql.reads import Searcher
from holdfast.engine.sqlite import connection as connecting
from holdfast.engine.sqlite.apply_commit import CommitApplier
from holdfast.engine.sqlite.driver_errors import translate, translated
from holdfast.engine.sqlite.file_guard.fair_lock import FairLock
from holdfast.engine.sqlite.file_guard.file_identity import FileIdentity
from holdfast.engine.sqlite.file_guard.other_sqlite import (
    guard_against_others,
    warn_of_earlier,
)
from holdfast.engine.sqlite.lease_clock import clock_of
from holdfast.engine.sqlite.maintenance.erase import scrub, unscrubbed
from holdfast.engine.sqlite.queries import Statements
from holdfast.engine.sqlite.readers import SqliteReaders
from holdfast.engine.sqlite.reads import SqliteReads
from holdfast.engine.sqlite.search.access import SqliteSearch
from holdfast.engine.writer import Writer, WriterTicket
from holdfast.errors import Damaged, HoldfastError, StoreUnavailable
from holdfast.process_fork import concern, inside, unconcern

WAL_PAGES_MAX = 1000
GENERATION_ROWS_MAX = 20_000


class Scrubbing(tuple[Write, ...]):
    """A commit that does nothing: when it is answered, the files are clean of all that
    was erased.
    """


class SqliteEngine(SqliteReads):
    """Sessions in one SQLite file; see `protocol.Engine`."""

    read_only = False
    _readers: SqliteReaders

    def __init__(
        self,
        path: str,
        *,
        durability: str,
        tick: Tick,
        now: Now | None = None,
        clock: str = "tick",
        lock_s: float = 5.0,
        words_of: WordsOf | None = None,
    ) -> None:
        readers = SqliteReaders(
            path, busy_s=lock_s, wake_writer=lambda: self.commit([()])
        )
        super().__init__(path, readers, clock_of(clock, tick, now))
        self._durability = durability
        self._tick = tick
        self._lock_s = lock_s
        # before the lock: the lock lies beside it, and a place that can hold no store
        # gets no lock file
        connecting.make_file(path)
        connecting.refuse_stranger(path, busy_s=lock_s)
        self._lock = FairLock(path + "-lock")
        try:
            self._locked(
                lambda: connecting.prepare(path, busy_s=lock_s, durability=durability)
            )
            self._connect()
        except BaseException:
            self._leave_unopened()
            raise
        self._chunks_since_tidy = 0
        self._searching = SqliteSearch(
            path + "-search", self._log_source(words_of), lock_s=lock_s
        )
        self._writer = Writer(
            path,
            apply=self._apply,
            wake=self._watchers.wake,
            tidy=self._tidy,
            finish=self._let_go,
        )
        # first: the index is used from then on
        concern(self)
        self._searching.begin()

    # Writing: on the writer thread.

    def commit(self, commits: Commits) -> list[Outcome]:
        tickets = [self.submit(commit) for commit in commits]
        return [ticket.result() for ticket in tickets]

    def submit(self, commit: Commit) -> WriterTicket:
        # Asked without a call: every commit comes by here.
        if self._forked:
            self._check_fork()
        return self._writer.submit(commit)

    def scrub(self) -> None:
        self.submit(Scrubbing()).result()

    def _connect(self) -> None:
        warn_of_earlier(self.where)
        with translated(self.where), inside():
            self._connection = connecting.connect_writer(
                self.where, durability=self._durability, busy_s=self._lock_s
            )
            self._connection.set_wal_hook(self._grown)
            self._lasting = self._durability == "power"
            # the log is opened now, not later
            self._connection.execute("PRAGMA user_version").fetchall()
            self._files = self._readers.files = FileIdentity(self.where, self._tick)
            guard_against_others()
            self._statements = Statements(self._connection)
            self._applier = CommitApplier(self._statements, self._clock)
            self._version = -1
            self._wal_pages, self._wal_limit = 0, WAL_PAGES_MAX

    def _leave_unopened(self) -> None:
        """Whoever tries again and again must not run out of files."""
        # it may not have come so far
        with suppress(AttributeError, apsw.Error), inside():
            self._connection.close(True)
            self._files.forget()
        self._lock.close()

    def _locked(self, work: Callable[[], Any]) -> Any:
        if not self._lock.acquire(self._lock_s):
            raise StoreUnavailable(
                where=self.where,
                problem=f"another process has held its lock for {self._lock_s:g} s",
                remedy="Let that process finish or end it, then try again",
            )
        try:
            with inside():
                return work()
        finally:
            self._lock.release()

    def _apply(self, commits: Commits) -> list[Any]:
        try:
            return self._cleaned(commits, self._locked(lambda: self._transact(commits)))
        except HoldfastError as error:
            return [error] * len(commits)
        except Exception as error:
            return self._after_failure(commits, error)

    def _transact(self, commits: Commits) -> list[Outcome | Damaged]:
        """One transaction for all of them. The first statement takes SQLite's write lock, so what
        is judged stays so.
        """
        self._stand(commits)
        connection, applier = self._connection, self._applier
        connection.execute("BEGIN IMMEDIATE")
        try:
            # SQLite counts the commits of other connections: while it is the same, what
            # is remembered holds
            if connection.data_version() != self._version:
                connecting.check_version(connection, self.where)
                applier.forget()
            applier.begin()
            outcomes = [applier.apply(commit) for commit in commits]
            applier.finish()
            # before they can be seen
            if self._poller.is_serving():
                self._poller.note(*applier.added())
            connection.execute("COMMIT")
        except BaseException:
            self._version = -1
            # before others can have their numbers
            self._poller.doubt()
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        self._version = connection.data_version()
        applier.trim()
        return outcomes

    def _stand(self, commits: Commits) -> None:
        """Before a transaction: the files are still ours, and it is synced if any of its commits
        must last.
        """
        if not self._files.are_ours:
            self._files.check()
            if not self._files.steady:
                self._files.rescue(self._connection, self._lock)
        self._files.claim(self._lock)
        lasting = self._durability == "power" and _must_last(commits)
        if lasting != self._lasting:
            connecting.set_lasting(self._connection, lasting)
            self._lasting = lasting

    def _cleaned(self, commits: Commits, outcomes: list[Any]) -> list[Any]:
        """What was erased is gone from all files before that is acknowledged."""
        if not any(map(_cleans, commits)):
            return outcomes
        cleaning = [
            isinstance(outcome, Written) and _cleans(commit)
            for commit, outcome in zip(commits, outcomes, strict=True)
        ]
        problem = self._scrubbed() if any(cleaning) else None
        if problem is None:
            return outcomes
        left = StoreUnavailable(
            where=self.where,
            problem=f"the session is erased, but its words may still lie in the files: {problem}",
            remedy="When that is fixed, erase the session again, or run the retention again",
        )
        return [
            left if is_one else outcome
            for is_one, outcome in zip(cleaning, outcomes, strict=True)
        ]

    def _scrubbed(self) -> str | None:
        """Cleans all files of what was erased, by this process or by one that was killed; what
        stands in the way.
        """
        try:
            # from the file, not from memory: one that was killed may have left
            # something to do
            gone, blanked = self._locked(lambda: unscrubbed(self._statements))
            if not gone and not blanked:
                return None
            # the index first: while the file says that something is unscrubbed, a crash
            # is made good
            self._searching.forget(sorted(gone), sorted(blanked))
            clean = self._locked(lambda: scrub(self._statements, gone, blanked))
            return None if clean else "a program that reads it keeps old pages"
        except (apsw.Error, HoldfastError) as error:
            return str(error) or repr(error)

    def _after_failure(self, commits: Commits, error: Exception) -> list[Any]:
        """A failed transaction is in doubt, never "failed": reopen, look what is there, then try
        each commit alone.
        """
        # the write lock was not to be had: nothing was written, so nothing is in doubt
        if isinstance(error, apsw.BusyError):
            return [translate(error, self.where)] * len(commits)
        try:
            self._reconnect()
            return [self._settle(commit) for commit in commits]
        except apsw.Error as again:
            return [translate(again, self.where)] * len(commits)
        except HoldfastError as again:
            return [again] * len(commits)

    def _reconnect(self) -> None:
        if not self._files.steady:
            self._locked(lambda: self._files.rescue(self._connection, self._lock))
        with inside():
            with suppress(apsw.Error):  # it is closed all the same
                self._connection.close(True)
            self._connect()

    def _settle(self, commit: Commit) -> Any:
        try:
            return self._cleaned(
                [commit], [self._locked(lambda: self._find_or_do(commit))]
            )[0]
        except apsw.Error as error:
            return translate(error, self.where)
        except Exception as error:  # a commit that makes no sense fails alone
            return error

    def _find_or_do(self, commit: Commit) -> Outcome | Damaged:
        return self._applier.find(commit) or self._transact([commit])[0]

    # Housekeeping: on the writer thread, after the answers.

    def _tidy(self) -> None:
        self._searching.stir()
        try:
            if self._wal_pages > self._wal_limit and self._files.steady:
                with inside():
                    self._checkpoint()
            if self._applier.position - self._chunks_since_tidy > GENERATION_ROWS_MAX:
                self._chunks_since_tidy = self._applier.position
                self._locked(self._turn_over)
        except (apsw.Error, HoldfastError):
            pass  # nothing depends on it now; the next batch tries again

    def _checkpoint(self) -> None:
        length, done = self._connection.wal_checkpoint(
            mode=apsw.SQLITE_CHECKPOINT_PASSIVE
        )
        # A reader that holds an old page keeps the WAL from starting anew: then try again
        # a good while later.
        self._wal_limit = WAL_PAGES_MAX if done >= length else length + WAL_PAGES_MAX

    def _grown(self, _connection: apsw.Connection, _database: str, pages: int) -> int:
        """After each commit: how long the WAL is now."""
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def _turn_over(self, *, all_of_it: bool = False) -> None:
        """Empties the generation that nobody needs any more, and goes on in it; the position never
        falls.
        """
        self._stand(())
        connection, applier = self._connection, self._applier
        connection.execute("BEGIN IMMEDIATE")
        try:
            applier.forget()
            # a turn that runs needs the journal from where it began
            needed = self._statements.run("journal_needed").get
            _, last_a, _, last_b = self._statements.run("journal_spans").get
            last = {"a": last_a, "b": last_b}
            current = applier.generation
            other = "b" if current == "a" else "a"
            applier.state_fact("journal", applier.position)
            # the current one only when no turn runs that may still write to it
            emptied = [other, current] if all_of_it or needed is None else [other]
            for name in emptied:
                if last[name] is not None and (needed is None or last[name] <= needed):
                    connection.execute(f"DELETE FROM journal_{name}")
                    last[name] = None
            # go on in the empty one, so that the other can be emptied whole one day
            if last[other] is None and last[current] is not None:
                applier.state_fact("generation", int(other == "b"))
            connection.execute("COMMIT")
        finally:
            self._version = -1
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def vacuum(self) -> None:
        """Writes the file anew, without free pages. Nobody else may use this engine meanwhile;
        other processes may.
        """
        with translated(self.where):
            self._locked(self._vacuum)

    def _vacuum(self) -> None:
        self._stand(())
        self._version = -1
        self._connection.execute("VACUUM")

    def _let_go(self) -> None:
        with suppress(apsw.Error, HoldfastError):
            self._locked(lambda: self._turn_over(all_of_it=True))
        with inside():
            with suppress(apsw.Error):  # what is in the WAL is safe there
                if self._files.steady:
                    self._connection.wal_checkpoint(
                        mode=apsw.SQLITE_CHECKPOINT_TRUNCATE
                    )
            self._files.leave(self._connection)
        self._lock.close()

    def close(self) -> None:
        if not self._forked:
            # first: poller and indexer read through connections that are closed below
            self._poller.stop()
            self._searching.rest()
            self._files.begin_to_leave()
            self._writer.close()
            # the poller may have waited for the writer
            self._poller.wait()
            self._searching.close()
            self._readers.close()
            self._files.forget()
            unconcern(self)
            self._tell_closed()

    def _searcher(self) -> Searcher:
        return self._searching.index

    # Forking: called by `process_fork`.

    def gates(self) -> list[Any]:
        return self._searching.gates()

    def abandon(self) -> None:
        """A child that was forked has no writer thread and must not touch the parent's
        connections.
        """
        self._forked = True
        self._poller.stop()
        self._searching.abandon()
        self._files.forget()


def bring_up(path: str, *, lock_s: float) -> tuple[int, int]:
    """The format that a store had, and the one it has after it was opened."""
    found = connecting.version_of(path)
    SqliteEngine(path, durability="power", tick=lambda: 0.0, lock_s=lock_s).close()
    return found, connecting.version_of(path)


def vacuum(path: str, *, lock_s: float) -> int:
    """The file without the pages that are free; the bytes that this has freed. It needs as much
    free room again.
    """
    before = os.path.getsize(path)
    engine = SqliteEngine(path, durability="power", tick=lambda: 0.0, lock_s=lock_s)
    try:
        engine.vacuum()
    finally:
        engine.close()  # what was written goes from the log into the file
    return before - os.path.getsize(path)


def _cleans(commit: Commit) -> bool:
    """Whether words are taken out with it. Every commit is asked, so this is a plain loop."""
    for write in commit:
        if write.erase is not None or write.blank:
            return True
    return type(commit) is Scrubbing


def _must_last(commits: Commits) -> bool:
    for write in writes_in(commits):
        if not write.fleeting:
            return True
    return False
