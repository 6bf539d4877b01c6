"""What can be read of a file: the questions of `protocol.Engine` that another engine answers in
another way.

The engine that writes and the one that only looks both answer them from here, each with readers of
its own kind.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import starmap
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import apsw

from holdfast.domain.accepted_events import event_name
from holdfast.domain.entry import Entry
from holdfast.engine.blobs import is_skeleton, join, name_of, names_in, text_of
from holdfast.engine.late_import import loading
from holdfast.engine.named_sql import Row, Rows, Values
from holdfast.engine.protocol import (
    PAGE_BYTES_MAX,
    Accepted,
    RowsCallback,
    SessionState,
    Waiting,
    Weight,
    WordsOf,
    no_words,
)
from holdfast.engine.sql.reads import LARGEST, EngineReads
from holdfast.engine.sqlite.apply_commit import HEAD, ORIGIN, NumberedSession
from holdfast.engine.sqlite.background.poller import SqlitePoller
from holdfast.engine.sqlite.lease_clock import Clock, Kept
from holdfast.engine.sqlite.readers import Readers
from holdfast.engine.sqlite.row_codec import fitted
from holdfast.engine.sqlite.search.log_source import LogSource
from holdfast.engine.store_info import (
    Backup,
    BrokenPart,
    Problem,
    StoreInfo,
)

if TYPE_CHECKING:
    from holdfast.engine.sqlite.maintenance.roll import Roll

FEW_ROWS = 100
NUMBERS_MAX = 10_000
_LAST = itemgetter(-1)
FAR_BEHIND = (1 << 63) - 1
"""The largest number: in an index, what is no number stands behind it."""


class SqliteReads(EngineReads):
    """The reading half of an engine on a file."""

    look_s = 30.0
    """The poller tells of what other processes commit, and wakes all when it can't."""

    def __init__(self, path: str, readers: Readers, clock: Callable[[], Clock]) -> None:
        super().__init__(path)
        self._readers = readers
        self._clock = clock
        self._local = threading.local()
        self._poller = SqlitePoller(readers, self._watchers)

    def _read(self, query: str, /, **values: Any) -> Rows:
        return self._read_values(query, values)

    def _read_values(self, query: str, values: Values) -> Rows:
        self._check_fork()
        return fitted(query, self._readers.read(query, values))

    def _log_source(self, words_of: WordsOf | None) -> LogSource:
        return LogSource(self._read_values, self._joined, words_of or no_words)

    def _about(self, query: str, session: str, /, **values: Any) -> Rows:
        return self._read(query, session=self._number(session), **values)

    def _states(self, query: str, /, **values: Any) -> list[SessionState]:
        self._check_fork()
        limit: int | None = values.get("limit")
        found, is_full = self._fitted_states(query, values)
        # A page that leaves out a damaged row is filled up: a short one would be taken for the last.
        while limit is not None and is_full and len(found) < limit:
            values["limit"] += limit - len(found)
            found, is_full = self._fitted_states(query, values)
        here = self._clock()
        return [NumberedSession.of_row(row).state(here) for row in found[:limit]]

    def _fitted_states(self, query: str, values: dict[str, Any]) -> tuple[Rows, bool]:
        """The rows of sessions, and whether there are as many as were asked for."""
        rows = self._readers.read(query, values)
        is_full = len(rows) == values.get("limit")
        rows = [row if type(row[HEAD]) is int else self._with_head(row) for row in rows]
        return fitted(query, rows), is_full

    def _with_head(self, row: Row) -> Row:
        """The row of a session whose last entry says a place that is no number: that one stands
        behind all that have one.
        """
        origin = row[ORIGIN] if type(row[ORIGIN]) is int else 0
        head = self._end(row[0], origin, FAR_BEHIND)
        return (*row[:HEAD], head, *row[HEAD + 1 :])

    def _end(self, number: int, origin: int, head: int) -> int:
        """The last place of a log up to `head`. Entries at places that none can have stood
        somewhere in it: where no place is free for them, it is longer.
        """
        [(last, count, astray)] = self._read(
            "places", session=number, origin=origin, head=head
        )
        end: int = max(last, origin + count + astray)
        return end

    def _text(self, kept: Any) -> Any:
        return text_of(kept)

    def _ids(self, sessions: Sequence[str]) -> str:
        import json  # for erasing alone

        return json.dumps(list(sessions))

    def _span(self, prefix: str) -> tuple[str, str]:
        return prefix, prefix + LARGEST

    def _clock_values(self) -> dict[str, Any]:
        clock, tick, _ = self._clock()
        return {"clock": clock, "tick": tick}

    def _number(self, session: str) -> int:
        """The row number of a session, which never changes; -1 for one that is not there."""
        # of this thread alone: no lock, and what another thread clears is not missing
        # here
        numbers: dict[str, int] | None = getattr(self._local, "numbers", None)
        if numbers is None:
            numbers = self._local.numbers = {}
        number = numbers.get(session)
        if number is None:
            # Asked without its last entry, which may be damaged.
            row = self._read("session_number", id=session)
            if not row:
                return -1
            # a process that walks through a large store must not keep all of it in mind
            # (I-24)
            if len(numbers) > NUMBERS_MAX:
                numbers.clear()
            number = numbers[session] = row[0][0]
        return number

    def entries(
        self, session: str, *, after: int = 0, limit: int = 1000, bodies: bool = True
    ) -> list[Entry]:
        query = "entries" if bodies else "entries_bare"
        # by place: a warm session reads a few entries at a time, and often
        rows = self._read_values(query, (self._number(session), after, limit))
        # Without the payloads of messages too: a long prompt or summary has parts as well.
        if self._has_blobs(session, rows):
            return self._with_blobs(rows)
        return list(starmap(Entry, rows))

    def _has_blobs(self, session: str, rows: Rows) -> bool:
        """Whether some of these entries may have parts in blobs. A few rows are looked through
        sooner than the store is asked, and a warm session reads a few at a time; what looks like a
        skeleton may still be somebody's own bytes.
        """
        if len(rows) <= FEW_ROWS and not any(map(is_skeleton, map(_LAST, rows))):
            return False
        return bool(self._about("has_blobs", session))

    def _with_blobs(self, rows: Rows) -> list[Entry]:
        """A page of entries some of which have parts in blobs; it ends early when it
        grows large.
        """
        page: list[Entry] = []
        size = 0
        for row in rows:
            entry = self._whole("", "", row)
            page.append(entry)
            size += len(entry.body)
            if size >= PAGE_BYTES_MAX:
                break
        return page

    def _whole(self, tenant: str, session: str, row: Row) -> Entry:
        seq, kind, turn, id, at, note, body = row
        return Entry(seq, kind, turn, id, at, note, self._joined(body))

    def _joined(self, body: bytes) -> bytes:
        return join(body, self._blob)

    def _blob(self, name: int) -> bytes | None:
        rows = self._read("blob", name=name)
        return rows[0][0] if rows else None

    def _first_pages(
        self, sessions: Sequence[str], limit: int, bodies: bool
    ) -> Iterator[tuple[str, list[Entry]]]:
        for id in sessions:
            yield id, self.entries(id, limit=limit, bodies=bodies)

    def inbox(self, session: str) -> list[Waiting]:
        here = self._clock()
        return [_waiting(row, here) for row in self._about("inbox", session)]

    def accepted(self, scope: str, event: str) -> Accepted | None:
        rows = self._read("accepted", name=event_name(scope, event))
        return Accepted(*rows[0]) if rows else None

    def weigh(self, sessions: Sequence[str]) -> dict[str, Weight]:
        weights: dict[str, Weight] = {}
        for id in sessions:
            if self._number(id) > 0:
                weights[id] = Weight(*self._about("weigh", id)[0])
        return weights

    def roll(self, tenants: Sequence[str]) -> "Roll":
        """All sessions of these tenants, without an index: what a list of them may leave out, or
        tell wrong.
        """
        with loading(self.where):
            from holdfast.engine.sqlite.maintenance.roll import call_roll

        with self._alone() as reader:
            return call_roll(reader, set(tenants))

    def last_place(self, state: SessionState) -> int:
        """How long a log is that was read like this. It is longer than its head says where entries
        have lost their places.
        """
        return self._end(self._number(state.id), state.origin, state.head)

    def broken_parts(self, session: str) -> dict[int, BrokenPart]:
        """The entries with a large part that is not there, or not what it was stored as, by seq."""
        wrong: dict[int, BrokenPart] = {}
        for (name,) in self._about("blobs_of", session):
            part = self._blob(name)
            if part is None:
                wrong[name] = "missing"
            elif name_of(part) != name:
                wrong[name] = "altered"
        if not wrong:
            return {}
        found: dict[int, BrokenPart] = {}
        for seq, skeleton in self._about("skeletons", session):
            kinds = {wrong[name] for name in names_in(skeleton) if name in wrong}
            if kinds:
                found[seq] = "altered" if "altered" in kinds else "missing"
        return found

    # Watching.

    def watch_rows(self, session: str, callback: RowsCallback) -> Callable[[], None]:
        stop = super().watch_rows(session, callback)
        self._poller.rouse()
        return stop

    def _tell_closed(self) -> None:
        """Those who watch look, and are told that it is closed."""
        self._watchers.wake_those(self._watchers.watched())

    # Upkeep: on the caller's thread, with a connection for the time it takes.

    def info(self) -> StoreInfo:
        with loading(self.where):
            from holdfast.engine.sqlite.maintenance.sizes import info

        with self._alone() as reader:
            return info(reader, self.where)

    def check(self) -> list[Problem]:
        with loading(self.where):
            from holdfast.engine.sqlite.maintenance.check import check

        with self._alone() as reader:
            return check(reader, self.where)

    def backup(self, to: str) -> Backup:
        with loading(self.where):
            from holdfast.engine.sqlite.maintenance.backup import backup

        with self._alone() as reader:
            return backup(reader, self.where, to)

    def _alone(self) -> AbstractContextManager[apsw.Connection]:
        self._check_fork()
        return self._readers.alone()


def _waiting(row: Row, here: Clock) -> Waiting:
    message, waiter, seq, *kept = row
    lease = Kept(*kept)
    if lease.until is None:
        return Waiting(message, waiter, seq)
    return Waiting(
        message, waiter, seq, lease.length_s, lease.left_s(here), lease.until
    )
