"""The SQLite engine: the writer thread's transactions, and readers beside it."""

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from itertools import starmap
from typing import Any

import apsw

from holdfast.domain.entry import Entry
from holdfast.engine.protocol import Accepted, Commit, Debt, Outcome, Row, SessionState, Waiting
from holdfast.engine.sqlite import connection as connecting
from holdfast.engine.sqlite.ledger import FAR_FUTURE, Known, Ledger
from holdfast.engine.sqlite.lock import FairLock
from holdfast.engine.sqlite.queries import QUERIES
from holdfast.engine.sqlite.trouble import translate
from holdfast.engine.watchers import Watchers
from holdfast.engine.writer import Ticket, Writer
from holdfast.errors import HoldfastError, StoreUnavailable

WAL_PAGES_MAX = 1000
GENERATION_ROWS_MAX = 20_000


class SqliteEngine:
    """Sessions in one SQLite file; see `protocol.Engine`."""

    def __init__(self, path: str, *, durability: str, tick: Callable[[], float], lock_s: float = 5.0) -> None:
        self.where = path
        self._durability, self._tick, self._lock_s = durability, tick, lock_s
        self._local = threading.local()
        self._readers: weakref.WeakSet[apsw.Connection] = weakref.WeakSet()
        self._watchers = Watchers()
        self._forked = False
        connecting.make_file(path)
        self._lock = FairLock(path + "-lock")
        self._locked(lambda: connecting.prepare(path, busy_s=lock_s))
        self._connect()
        self._chunks_since_tidy = 0
        self._writer = Writer(path, apply=self._apply, wake=self._watchers.wake, tidy=self._tidy, finish=self._let_go)
        _open.add(self)

    # Writing: on the writer thread.

    def commit(self, commits: Sequence[Commit]) -> list[Outcome]:
        return [ticket.result() for ticket in self._checked().submit_all(commits)]

    def submit(self, commit: Commit) -> Ticket:
        return self._checked().submit(commit)

    def _checked(self) -> Writer:
        if self._forked:
            remedy = "Open the store again in this process"
            raise StoreUnavailable(where=self.where, problem="it was opened before this process forked", remedy=remedy)
        return self._writer

    def _connect(self) -> None:
        try:
            self._connection = connecting.connect_writer(self.where, durability=self._durability, busy_s=self._lock_s)
            self._connection.set_wal_hook(self._grown)
            self._ledger = Ledger(self._connection, self._tick)
            self._version = -1
            self._wal_pages, self._wal_limit = 0, WAL_PAGES_MAX
        except apsw.Error as error:
            raise translate(error, self.where) from error

    def _locked(self, work: Callable[[], Any]) -> Any:
        if not self._lock.acquire(self._lock_s):
            raise StoreUnavailable(
                where=self.where,
                problem=f"another process has held its lock for {self._lock_s:g} s",
                remedy="Let that process finish or end it, then try again",
            )
        try:
            return work()
        finally:
            self._lock.release()

    def _apply(self, commits: Sequence[Commit]) -> list[Any]:
        try:
            return self._locked(lambda: self._transact(commits))
        except HoldfastError as error:
            return [error] * len(commits)
        except Exception as error:
            return self._after_failure(commits, error)

    def _transact(self, commits: Sequence[Commit]) -> list[Outcome]:
        """One transaction for all of them. The first statement takes SQLite's write lock, so what is judged stays
        so.
        """
        connection, ledger = self._connection, self._ledger
        connection.execute("BEGIN IMMEDIATE")
        try:
            if connection.data_version() != self._version:
                ledger.forget()
            outcomes = [ledger.apply(commit) for commit in commits]
            ledger.flush()
            connection.execute("COMMIT")
        except BaseException:
            self._version = -1
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        self._version = connection.data_version()
        ledger.trim()
        return outcomes

    def _after_failure(self, commits: Sequence[Commit], error: Exception) -> list[Any]:
        """A failed transaction is in doubt, never "failed": reopen, look what is there, then try each commit alone."""
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
        self._connection.close(True)
        self._connect()

    def _settle(self, commit: Commit) -> Any:
        try:
            return self._locked(lambda: self._ledger.find(commit) or self._transact([commit])[0])
        except apsw.Error as error:
            return translate(error, self.where)
        except Exception as error:  # a commit that makes no sense fails alone
            return error

    # Housekeeping: on the writer thread, after the answers.

    def _tidy(self) -> None:
        try:
            if self._wal_pages > self._wal_limit:
                length, done = self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
                # A reader that holds an old page keeps the WAL from starting anew: then try again a good while later.
                self._wal_limit = WAL_PAGES_MAX if done >= length else length + WAL_PAGES_MAX
            if self._ledger.position - self._chunks_since_tidy > GENERATION_ROWS_MAX:
                self._chunks_since_tidy = self._ledger.position
                self._locked(self._turn_over)
        except (apsw.Error, HoldfastError):
            pass  # nothing depends on it now; the next batch tries again

    def _grown(self, _connection: apsw.Connection, _database: str, pages: int) -> int:
        """After each commit: how long the WAL is now."""
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def _turn_over(self, *, all_of_it: bool = False) -> None:
        """Empties the generation that nobody needs any more, and goes on in it; the position never falls."""
        connection, ledger = self._connection, self._ledger
        connection.execute("BEGIN IMMEDIATE")
        try:
            ledger.forget()
            needed = connection.execute(QUERIES["journal_needed"]).get
            first_a, last_a, first_b, last_b = connection.execute(QUERIES["journal_spans"]).get
            spans = {"a": (first_a, last_a), "b": (first_b, last_b)}
            other = "b" if ledger.generation == "a" else "a"
            ledger.state_fact("journal", ledger.position)
            for name in (other, ledger.generation) if all_of_it or needed is None else (other,):
                last = spans[name][1]
                if last is not None and (needed is None or last <= needed):
                    connection.execute(f"DELETE FROM journal_{name}")
                    spans[name] = (None, None)
            if spans[other] == (None, None) and spans[ledger.generation] != (None, None):
                ledger.state_fact("generation", int(other == "b"))
            connection.execute("COMMIT")
        finally:
            self._version = -1
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _let_go(self) -> None:
        try:
            self._locked(lambda: self._turn_over(all_of_it=True))
            self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except (apsw.Error, HoldfastError):
            pass  # what is in the WAL is safe there
        self._connection.close(True)
        self._lock.close()

    def close(self) -> None:
        if not self._forked:
            self._writer.close()
            for reader in list(self._readers):
                reader.close(True)

    # Reading: on the caller's thread, each with a connection of its own.

    def _read(self, name: str, *values: Any) -> list[tuple[Any, ...]]:
        self._checked()
        try:
            return self._reader().execute(QUERIES[name], values).fetchall()
        except apsw.ConnectionClosedError:
            raise StoreUnavailable(where=self.where, problem="it was closed", remedy="Open it again") from None
        except apsw.Error as error:
            raise translate(error, self.where) from error

    def _reader(self) -> apsw.Connection:
        reader = getattr(self._local, "reader", None)
        if reader is None:
            reader = self._local.reader = connecting.connect_reader(self.where, busy_s=self._lock_s)
            self._readers.add(reader)
        return reader

    def _states(self, rows: list[tuple[Any, ...]]) -> list[SessionState]:
        tick = self._tick()
        return [Known(row).state(tick) for row in rows]

    def _number(self, session: str) -> int:
        numbers: dict[str, int] | None = getattr(self._local, "numbers", None)
        if numbers is None:
            numbers = self._local.numbers = {}
        number = numbers.get(session)
        if number is None:
            row = self._read("session_by_id", session)
            if not row:
                return -1
            if len(numbers) > 10_000:
                numbers.clear()
            number = numbers[session] = row[0][0]
        return number

    def state(self, session: str) -> SessionState | None:
        return next(iter(self._states(self._read("session_by_id", session))), None)

    def current(self, tenant: str, key: str) -> SessionState | None:
        return next(iter(self._states(self._read("session_by_key", tenant, key))), None)

    def find(self, tenant: str, prefix: str, limit: int = 2) -> list[SessionState]:
        return self._states(self._read("sessions_by_prefix", prefix, prefix + "\U0010ffff", tenant, limit))

    def sessions(self, tenant: str, *, before: int | None = None, limit: int = 50) -> list[SessionState]:
        rows = self._read("sessions_by_activity", tenant, FAR_FUTURE if before is None else before, limit)
        return self._states(rows)

    def entries(self, session: str, *, after: int = 0, limit: int = 1000) -> list[Entry]:
        return list(starmap(Entry, self._read("entries", self._number(session), after, limit)))

    def inbox(self, session: str) -> list[Waiting]:
        return [Waiting(*row) for row in self._read("inbox", self._number(session))]

    def journal(self, session: str, *, after: int = 0, limit: int = 1000) -> list[Row]:
        return [Row(*row) for row in self._read("journal", after, self._number(session), limit)]

    def outbox(self, tenant: str, *, limit: int = 50) -> list[Debt]:
        return [Debt(*row) for row in self._read("outbox", tenant, limit)]

    def accepted(self, scope: str, event: str) -> Accepted | None:
        return next((Accepted(*row) for row in self._read("accepted", scope, event)), None)

    def watch(self, session: str, callback: Callable[[], None]) -> Callable[[], None]:
        return self._watchers.add(session, callback)


_open: "weakref.WeakSet[SqliteEngine]" = weakref.WeakSet()


def _mark_forked() -> None:
    """A child that was forked has no writer thread and must not touch the parent's connections."""
    for engine in _open:
        engine._forked = True


os.register_at_fork(after_in_child=_mark_forked)
