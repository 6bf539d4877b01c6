"""Healed records as a `state.db` that Hermes can load.

The file is built anew, with tables, indexes and triggers of our own making (`tables.py`), so that a
damaged one becomes whole, a crafted one harmless, and the same store gives the same bytes. Rows
keep their ids as long as their order allows it; behind the first new row of a session they get new
ones, since Hermes orders by id.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator

import apsw

from holdfast.doctor.hermes.case import HermesCase
from holdfast.doctor.hermes.tables import make_tables
from holdfast.errors import StoreUnavailable
from holdfast.importers.damaged_rows import quoted
from holdfast.importers.hermes.database import KNOWN_KEY, ROW_COLUMNS, HermesStore
from holdfast.importers.hermes.records import (
    CompactionLock,
    HermesRow,
    is_taken_back,
)
from holdfast.importers.values import JsonObject
from holdfast.stepping_connection import SteppingConnection

# Tables that are written from what was healed; the others are copied row by row.
_OWN_TABLES = ("sessions", "messages", "compression_locks", "state_meta")
# What healing may change of a session; all else is written as it was found.
_SESSION_COLUMNS = {
    "parent_session_id": "parent",
    "ended_at": "ended_at",
    "end_reason": "end_reason",
    "message_count": "message_count",
}


def write_hermes(
    store: HermesStore,
    cases: Iterable[HermesCase],
    out: str,
    *,
    drops: Callable[[CompactionLock], bool],
) -> None:
    """Writes a healed store to a path where there is nothing yet, for its owner alone."""
    try:
        os.close(
            os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        )
    except OSError as error:
        problem = f"it can't be made ({error.strerror or error})"
        raise StoreUnavailable(
            where=out, problem=problem, remedy="Name a path where there is nothing yet"
        ) from error
    try:
        target = SteppingConnection(out)
        try:
            target.limit(apsw.SQLITE_LIMIT_ATTACHED, 0)
            # A copy that is not finished is deleted: it needs no journal on the disk.
            target.execute("PRAGMA journal_mode = MEMORY")
            with target:
                _HealedStore(store, target).write(cases, drops)
        finally:
            target.close()
    except apsw.Error as error:
        os.unlink(out)
        problem = f"it can't be written ({error})"
        raise StoreUnavailable(
            where=out,
            problem=problem,
            remedy="Check its disk, or heal into a Holdfast store",
        ) from error
    except BaseException:
        # Nobody may take half of a store for the whole.
        os.unlink(out)
        raise


class _HealedStore:
    def __init__(self, store: HermesStore, target: apsw.Connection) -> None:
        self._store = store
        self._target = target
        self._next = max(store.last_id, self._given_out()) + 1
        self._known: list[int] = []

    def write(
        self, cases: Iterable[HermesCase], drops: Callable[[CompactionLock], bool]
    ) -> None:
        tables = make_tables(self._store.file, self._target)
        for table in tables:
            if table not in _OWN_TABLES:
                self._copy(table)
        kept: set[str] = set()
        for case in cases:
            self._write_session(case)
            self._write_rows(case)
            kept |= {lock.session for lock in case.locks}
        if "compression_locks" in tables:
            for lock in self._store.locks:
                if lock.session not in self._store.sessions and not drops(lock):
                    kept.add(lock.session)
            self._copy("compression_locks", lambda row: row.get("session_id") in kept)
        if "state_meta" in tables:
            self._copy("state_meta", lambda row: row.get("key") != KNOWN_KEY)
            if self._known:
                self._insert(
                    "state_meta", {"key": KNOWN_KEY, "value": json.dumps(self._known)}
                )
        self._target.execute(
            "UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = 'messages'",
            (self._next - 1,),
        )

    def _given_out(self) -> int:
        """The last id that was ever given to a message, whether or not its row is still there."""
        try:
            found = self._store.file.connection.execute(
                "SELECT seq FROM sqlite_sequence WHERE name = 'messages'"
            )
            return max((seq for (seq,) in found if isinstance(seq, int)), default=0)
        except apsw.Error:
            return 0

    def _copy(
        self, table: str, keeps: Callable[[JsonObject], bool] = lambda row: True
    ) -> None:
        columns = self._store.file.columns(table)
        for _, *values in self._store.file.scan(table, columns):
            row = dict(zip(columns, values, strict=True))
            if keeps(row):
                self._insert(table, row, otherwise="OR IGNORE")

    def _write_session(self, case: HermesCase) -> None:
        facts = self._store.facts(case.session.id)
        known = self._store.sessions[case.session.id]
        columns = self._store.file.columns("sessions")
        for column, field in _SESSION_COLUMNS.items():
            healed = getattr(case.session, field)
            if getattr(known, field) != healed and column in columns:
                facts[column] = healed
        # Rows whose session is not there: one is made for them.
        if not known.rowid and case.rows:
            facts["started_at"] = case.rows[0].timestamp
            facts["message_count"] = sum(1 for row in case.rows if row.active)
        try:
            self._insert("sessions", facts)
        except apsw.ConstraintError:  # two sessions of a damaged store with one title
            self._insert("sessions", facts | {"title": None}, otherwise="OR IGNORE")

    def _write_rows(self, case: HermesCase) -> None:
        columns = self._store.file.columns("messages")
        for row, number in self._numbered(case):
            if is_taken_back(row) and "active" not in columns:
                continue  # an older schema has no way to keep a row and not show it
            values: JsonObject = {}
            for name in columns:
                if name in ROW_COLUMNS:
                    values[name] = getattr(row, ROW_COLUMNS[name])
                elif not row.origin:
                    # A row that was made leaves the other columns to their defaults.
                    values[name] = row.rest.get(name)
            self._insert("messages", values | {"id": number})
            if row.id in case.known:
                self._known.append(number)

    def _numbered(self, case: HermesCase) -> Iterator[tuple[HermesRow, int]]:
        # An id is kept as long as ids grow; from the first row that was made or moved on, they are
        # new.
        last = 0
        for row in case.rows:
            if row.id > last:
                last = row.id
            else:
                last = max(self._next, last + 1)
                self._next = last + 1
            yield row, last

    def _insert(self, table: str, row: JsonObject, *, otherwise: str = "") -> None:
        names = ", ".join(map(quoted, row))
        marks = ", ".join("?" * len(row))
        self._target.execute(
            f"INSERT {otherwise} INTO {quoted(table)} ({names}) VALUES ({marks})",
            tuple(row.values()),
        )
