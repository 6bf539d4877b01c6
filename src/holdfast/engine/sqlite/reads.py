"""What can be read of a store: every question of `protocol.Engine`, on the caller's thread.

The engine that writes and the one that only looks both answer them from here, each with readers of
its own kind.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from itertools import starmap
from typing import Any, Protocol

import apsw

from holdfast.domain.accepted_events import AcceptedEvent, event_name
from holdfast.domain.entry import Entry
from holdfast.engine.blobs import address_of, is_skeleton, join
from holdfast.engine.named_sql import Row, Rows
from holdfast.engine.protocol import (
    PAGE_BYTES_MAX,
    Accepted,
    JournalRow,
    OwedReply,
    Pending,
    SessionState,
    State,
    Waiting,
    Weight,
)
from holdfast.engine.sqlite.apply_commit import FAR_FUTURE, KnownSession
from holdfast.engine.sqlite.lease_clock import Clock, Kept
from holdfast.engine.store_info import Backup, Problem, StoreInfo
from holdfast.engine.watchers import Watchers
from holdfast.errors import StoreUnavailable

FEW_ROWS = 100
NUMBERS_MAX = 10_000


class Readers(Protocol):
    """Connections that can't write, one for each thread that asks."""

    def read(self, name: str, values: Row) -> Rows: ...
    def alone(self) -> AbstractContextManager[apsw.Connection]: ...
    def gates(self) -> list[Any]: ...
    def close(self) -> None: ...
    def abandon(self) -> None: ...


class SqliteReads:
    """The reading half of an engine."""

    look_s = 0.02
    """Nobody tells of what other processes commit."""

    def __init__(self, path: str, readers: Readers, clock: Callable[[], Clock]) -> None:
        self.where = path
        self._readers = readers
        self._clock = clock
        self._local = threading.local()
        self._watchers = Watchers()
        self._forked = False

    def _check_fork(self) -> None:
        if self._forked:
            remedy = "Open the store again in this process"
            raise StoreUnavailable(
                where=self.where,
                problem="it was opened before this process forked",
                remedy=remedy,
            )

    def _read(self, name: str, *values: Any) -> Rows:
        self._check_fork()
        return self._readers.read(name, values)

    def _states(self, rows: Rows) -> list[SessionState]:
        here = self._clock()
        return [KnownSession(row).state(here) for row in rows]

    def _number(self, session: str) -> int:
        numbers: dict[str, int] | None = getattr(self._local, "numbers", None)
        if numbers is None:
            numbers = self._local.numbers = {}
        number = numbers.get(session)
        if number is None:
            # Asked without its last entry, which may be damaged.
            row = self._read("session_number", session)
            if not row:
                return -1
            if len(numbers) > NUMBERS_MAX:
                numbers.clear()
            number = numbers[session] = row[0][0]
        return number

    def state(self, session: str) -> SessionState | None:
        found = self._states(self._read("session_by_id", session))
        return found[0] if found else None

    def current(self, tenant: str, key: str) -> SessionState | None:
        found = self._states(self._read("session_by_key", tenant, key))
        return found[0] if found else None

    def find(self, tenant: str, prefix: str, limit: int = 2) -> list[SessionState]:
        return self._states(
            self._read(
                "sessions_by_prefix", prefix, prefix + "\U0010ffff", tenant, limit
            )
        )

    def sessions(
        self,
        tenant: str,
        *,
        key: str | None = None,
        state: State | None = None,
        before: tuple[int, str] | None = None,
        limit: int = 50,
    ) -> list[SessionState]:
        values = (tenant, *(before or (FAR_FUTURE, None)), state, limit)
        if key is not None:
            return self._states(self._read("sessions_of_key", *values, key))
        return self._states(self._read("sessions_by_activity", *values))

    def kept(
        self, tenant: str, *, before: tuple[int, str], limit: int
    ) -> list[SessionState]:
        return self._states(self._read("sessions_kept", tenant, *before, limit))

    def entries(
        self, session: str, *, after: int = 0, limit: int = 1000, bodies: bool = True
    ) -> list[Entry]:
        number = self._number(session)
        if not bodies:
            return list(
                starmap(Entry, self._read("entries_bare", number, after, limit))
            )
        rows = self._read("entries", number, after, limit)
        if self._has_blobs(number, rows):
            return self._with_blobs(rows)
        return list(starmap(Entry, rows))

    def _has_blobs(self, number: int, rows: Rows) -> bool:
        """Whether some of these entries may have parts in blobs. A few rows are looked through
        sooner than the store is asked, and a warm session reads a few at a time; what looks like a
        skeleton may still be somebody's own bytes.
        """
        if len(rows) <= FEW_ROWS and not any(is_skeleton(row[-1]) for row in rows):
            return False
        return bool(self._read("has_blobs", number))

    def _with_blobs(self, rows: Rows) -> list[Entry]:
        """A page of entries some of which have parts in blobs; it ends early when it
        grows large.
        """
        page: list[Entry] = []
        size = 0
        for seq, kind, turn, id, at, note, body in rows:
            whole = join(body, self._blob)
            page.append(Entry(seq, kind, turn, id, at, note, whole))
            size += len(whole)
            if size >= PAGE_BYTES_MAX:
                break
        return page

    def _blob(self, name: int) -> bytes | None:
        rows = self._read("blob", name)
        return rows[0][0] if rows else None

    def beginnings(
        self, sessions: Sequence[str], *, limit: int, bodies: bool = True
    ) -> dict[str, list[Entry]]:
        found: dict[str, list[Entry]] = {}
        size = 0
        for id in sessions:
            page = self.entries(id, limit=limit, bodies=bodies)
            own = sum(len(entry.body) for entry in page)
            if page and size + own < PAGE_BYTES_MAX:
                found[id] = page
                size += own
        return found

    def labels(self, session: str, *, after: int = 0) -> list[Entry]:
        return list(starmap(Entry, self._read("labels", self._number(session), after)))

    def inbox(self, session: str) -> list[Waiting]:
        here = self._clock()
        return [
            _waiting(row, here) for row in self._read("inbox", self._number(session))
        ]

    def journal(
        self, session: str, *, after: int = 0, limit: int = 1000
    ) -> list[JournalRow]:
        return [
            JournalRow(*row)
            for row in self._read("journal", after, self._number(session), limit)
        ]

    def outbox(
        self,
        tenant: str,
        *,
        after: OwedReply | None = None,
        limit: int = 50,
        free: bool = False,
    ) -> list[OwedReply]:
        mark: Row = (-1, None, 0, b"")
        if after is not None:
            mark = (after.at, after.session, after.turn, after.id)
        clock, tick, _ = self._clock()
        rows = self._read("outbox", tenant, *mark, limit, tick if free else None, clock)
        return [
            OwedReply(id, session, turn, address_of(kept), at)
            for id, session, turn, kept, at in rows
        ]

    def pending(
        self,
        tenant: str,
        *,
        after: tuple[bytes, str, int] | None = None,
        limit: int = 50,
    ) -> list[Pending]:
        rows = self._read("pending", tenant, *(after or (b"", None, 0)), limit)
        entries = self._with_blobs([row[2:] for row in rows])
        return [
            Pending(row[0], row[1], entry)
            for row, entry in zip(rows, entries, strict=False)
        ]

    def running(self, tenant: str) -> list[str]:
        return [id for (id,) in self._read("running", tenant)]

    def debts(self, session: str) -> list[OwedReply]:
        rows = self._read("debts_of", self._number(session))
        return [
            OwedReply(id, session, turn, address_of(kept), at)
            for id, turn, kept, at in rows
        ]

    def accepted(self, scope: str, event: str) -> Accepted | None:
        rows = self._read("accepted", event_name(scope, event))
        return Accepted(*rows[0]) if rows else None

    def tenants(self) -> list[str]:
        return [tenant for (tenant,) in self._read("all_tenants")]

    def events(self, *, after: bytes = b"", limit: int = 1000) -> list[AcceptedEvent]:
        return [AcceptedEvent(*row) for row in self._read("events", after, limit)]

    def forks(self, tenant: str, parents: Sequence[str]) -> list[SessionState]:
        import json  # for erasing alone

        return self._states(self._read("forks", tenant, json.dumps(list(parents))))

    def weigh(self, sessions: Sequence[str]) -> dict[str, Weight]:
        weights: dict[str, Weight] = {}
        for id in sessions:
            number = self._number(id)
            if number > 0:
                weights[id] = Weight(*self._read("weigh", number)[0])
        return weights

    # Upkeep: on the caller's thread, with a connection for the time it takes.

    def info(self) -> StoreInfo:
        from holdfast.engine.sqlite.maintenance.sizes import info

        self._check_fork()
        with self._readers.alone() as reader:
            return info(reader, self.where)

    def check(self) -> list[Problem]:
        from holdfast.engine.sqlite.maintenance.check import check

        self._check_fork()
        with self._readers.alone() as reader:
            return check(reader, self.where)

    def backup(self, to: str) -> Backup:
        from holdfast.engine.sqlite.maintenance.backup import backup

        self._check_fork()
        with self._readers.alone() as reader:
            return backup(reader, self.where, to)

    def watch(self, session: str, callback: Callable[[], None]) -> Callable[[], None]:
        return self._watchers.add(session, callback)


def _waiting(row: Row, here: Clock) -> Waiting:
    message, waiter, seq, *kept = row
    lease = Kept(*kept)
    if lease.until is None:
        return Waiting(message, waiter, seq)
    return Waiting(
        message, waiter, seq, lease.length_s, lease.left_s(here), lease.until
    )
