"""Hermes' `state.db`: its records, from a private copy.

What concerns the whole store (its sessions without their texts, routes, the delivery ledger, locks,
and which rows are whose) is held in memory; the rows of a session are read when they are asked for.
"""

import math
from array import array
from collections.abc import Callable, Container, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import apsw

from holdfast.errors import StoreUnavailable
from holdfast.importers.damaged_rows import Lost, named
from holdfast.importers.hermes.records import (
    SUMMARY_STARTS,
    CompactionLock,
    HermesDelivery,
    HermesRow,
    HermesSession,
    Route,
    parsed,
    parts,
)
from holdfast.importers.private_copy import PrivateCopy, is_live, is_sqlite, read_start
from holdfast.importers.sqlite_file import SqliteFile, has_columns, opening
from holdfast.importers.values import JsonObject, object_or_empty, text_or_none

# In `state_meta` of a healed copy: ids of rows whose replaced characters are known to
# be gone.
KNOWN_KEY = "holdfast.beyond-recovery"
# Columns of `messages` that a row has a field for, with the field's name.
ROW_COLUMNS = {
    "id": "id",
    "session_id": "session",
    "role": "role",
    "content": "content",
    "timestamp": "timestamp",
    "tool_call_id": "tool_call_id",
    "tool_calls": "tool_calls",
    "tool_name": "tool_name",
    "finish_reason": "finish_reason",
    "observed": "observed",
    "active": "active",
    "compacted": "compacted",
}
_SESSION_COLUMNS = (
    "id",
    "source",
    "started_at",
    "ended_at",
    "end_reason",
    "parent_session_id",
    "session_key",
    "model_config",
    "message_count",
    "api_call_count",
    "output_tokens",
)
# No time in seconds and no count is as large as this.
_FAR = 1e12
_START = 1 << 20
_RAW_MAX = 1 << 16
_MARKS = (b"CREATE TABLE", b"gateway_routing", b"platform_message_id")
_NEEDED = {
    "messages": {"id", "session_id", "role", "content", "timestamp"},
    "sessions": {"id", "source", "started_at"},
}


_Check = Callable[[Any, str], Any]


class HermesStore:
    """All of a store. Making one raises `StoreUnavailable` when nothing of it can be read."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.live = is_live(path)
        self._copy = PrivateCopy(path)
        with opening(
            self._copy,
            problem="it can't be read as a database",
            remedy="Take a backup, or recover the file with SQLite's own `.recover`",
        ):
            self.file = SqliteFile.of_copy(self._copy)
            self._insist_on_tables()
            self._read_all()

    def _insist_on_tables(self) -> None:
        for table, needed in _NEEDED.items():
            lacking = needed - set(self.file.columns(table))
            if lacking:
                raise StoreUnavailable(
                    where=self.path,
                    problem=f"its table `{table}` lacks {', '.join(sorted(lacking))}",
                    remedy="Check that it is Hermes' state.db",
                )

    def _read_all(self) -> None:
        self.sessions: dict[str, HermesSession] = {}
        # Eight bytes for each row: these are the ids of a whole store.
        self._rows: dict[str, array[int]] = {}
        # What was noted already: sessions are gone through again and again.
        self._unread: dict[str, set[int]] = {}
        self._odd: set[int] = set()
        self._torn_sessions: set[str] = set()
        self.newest = 0.0
        self.last_id = 0
        self.has_stops = False
        self._read_sessions()
        self._read_index()
        self.routes = self._read_routes()
        self.deliveries = self._read_deliveries()
        self.locks = self._read_locks()
        self.known = self._read_known()
        for session in self._rows:
            if session not in self.sessions:
                self._add_unknown(session)

    def _read_sessions(self) -> None:
        for rowid, *values in self.file.scan("sessions", _SESSION_COLUMNS):
            columns = _Columns(dict(zip(_SESSION_COLUMNS, values, strict=True)))
            place = f"sessions.rowid={rowid}"
            try:
                session = _session(rowid, columns)
            except ValueError as error:
                self.file.note_problem(None, place, str(error), _raw(columns.found))
                continue
            self.sessions[session.id] = session
            for problem in columns.problems:
                self.file.note_problem(session.id, place, problem, _raw(columns.found))

    def _read_index(self) -> None:
        """Which rows are whose: their ids alone."""
        wanted = ("session_id", "timestamp", "finish_reason")
        for rowid, session, timestamp, finish in self.file.scan("messages", wanted):
            self.last_id = max(self.last_id, rowid)
            if not isinstance(session, str | bytes):
                problem = "it does not say which session it belongs to"
                self.file.note_problem(None, f"messages.id={rowid}", problem)
                continue
            self._rows.setdefault(named(session), array("q")).append(rowid)
            # A time that is no number, or infinite, must not be the newest.
            if isinstance(timestamp, float | int) and math.isfinite(timestamp):
                self.newest = max(self.newest, timestamp)
            if finish == "stop":
                self.has_stops = True
        # Rows of a damaged page may come last.
        if self.file.gaps.get("messages"):
            for session, rows in self._rows.items():
                self._rows[session] = array("q", sorted(rows))

    def _read_routes(self) -> list[Route]:
        found = []
        wanted = ("session_key", "entry_json")
        for rowid, key, entry in self.file.scan("gateway_routing", wanted):
            try:
                about = object_or_empty(parsed(_text(entry, "entry_json") or ""))
                session = about.get("session_id")
                if not isinstance(key, str) or not isinstance(session, str):
                    raise ValueError("it names no session")
            except ValueError as error:
                place = f"gateway_routing.rowid={rowid}"
                problem = f"its entry can't be read ({error})"
                self.file.note_problem(None, place, problem, repr(entry).encode())
            else:
                found.append(Route(key, session))
        return found

    def _read_deliveries(self) -> list[HermesDelivery]:
        found = []
        for columns in self._whole("delivery_obligations", _DELIVERY):
            found.append(HermesDelivery(*columns))
        return sorted(found, key=lambda delivery: delivery.created_at)

    def _read_locks(self) -> list[CompactionLock]:
        return [
            CompactionLock(*columns)
            for columns in self._whole("compression_locks", _LOCK)
        ]

    def _whole(self, table: str, wanted: Mapping[str, _Check]) -> Iterator[list[Any]]:
        """Rows of a table all of whose columns are as they should be; others are noted."""
        for rowid, *values in self.file.scan(table, tuple(wanted)):
            try:
                yield [
                    check(value, column)
                    for value, (column, check) in zip(
                        values, wanted.items(), strict=True
                    )
                ]
            except ValueError as error:
                self.file.note_problem(None, f"{table}.rowid={rowid}", str(error))

    def _read_known(self) -> frozenset[int]:
        for _, key, value in self.file.scan("state_meta", ("key", "value")):
            if key == KNOWN_KEY and isinstance(value, str):
                try:
                    ids = parsed(value)
                except ValueError:
                    ids = None
                if not isinstance(ids, list):
                    return frozenset()
                return frozenset(item for item in ids if type(item) is int)
        return frozenset()

    def _add_unknown(self, session: str) -> None:
        """A session that has rows and can't be read itself: its rows are not to be lost with it."""
        problem = "messages name this session, and it can't be read"
        self.file.note_problem(session, f"sessions.id={session}", problem)
        self.sessions[session] = HermesSession(session, 0, "unknown", 0.0)

    def size(self, session: str) -> int:
        """How many rows a session has."""
        return len(self._rows.get(session, ()))

    def torn(self, session: str) -> tuple[tuple[int, int], ...]:
        """Where rows of a session may be missing that could not be read: the first and the last id
        of each gap.
        """
        single = ((rowid, rowid) for rowid in sorted(self._unread.get(session, ())))
        return (*single, *self.file.gaps.get("messages", ()))

    def rows(self, session: str) -> list[HermesRow]:
        """The rows of a session that can be read, in the order in which they were written."""
        return list(self.iterate(session))

    def iterate(self, session: str) -> Iterator[HermesRow]:
        """The rows of a session, as `rows`, one at a time. A time that can't be read is taken from
        the row before.
        """
        before = 0.0
        for rowid, found in self.file.rows("messages", self._rows.get(session, ())):
            place = f"messages.id={rowid}"
            columns = _Columns(object_or_empty(found))
            try:
                if isinstance(found, str):
                    raise ValueError(found)
                row = _row(rowid, columns, before)
                # Content that says it is a list and is none can't be sent, so the row counts as
                # unreadable.
                parts(row)
            except ValueError as error:
                unread = self._unread.setdefault(session, set())
                if rowid not in unread:
                    unread.add(rowid)
                    raw = _raw(columns.found) if columns.found else b""
                    self.file.note_problem(session, place, str(error), raw)
                continue
            before = row.timestamp
            if columns.problems and rowid not in self._odd:
                self._odd.add(rowid)
                problem = "; ".join(columns.problems)
                self.file.note_problem(session, place, problem, _raw(columns.found))
            yield row

    def has_summaries(self, session: str) -> bool:
        """Whether a compaction may have been at work in a session."""
        return session in self._summarised

    @cached_property
    def _summarised(self) -> Container[str]:
        starts = " OR ".join("said GLOB ?" for _ in SUMMARY_STARTS)
        said = "ltrim(content, char(9, 10, 11, 12, 13, 32))"
        query = (
            f"SELECT DISTINCT session_id FROM (SELECT session_id, {said} AS said FROM "
            f"messages) WHERE {starts}"
        )
        # The bracket that each of them begins with means a set of characters to GLOB.
        patterns = tuple(f"[[]{start[1:]}*" for start in SUMMARY_STARTS)
        try:
            found = self.file.connection.execute(query, patterns)
            return {named(name) for (name,) in found}
        except (apsw.Error, UnicodeDecodeError):
            return self._rows.keys()  # a damaged file does not say: each may be one

    def facts(self, session: str) -> JsonObject:
        """Every column of a session's row, as found; of a damaged row those that can be read."""
        known = self.sessions[session]
        # Known by its messages alone (`_add_unknown`): there is no row to read.
        if not known.rowid:
            return {
                "id": session,
                "source": known.source,
                "started_at": known.started_at,
            }
        found = self.file.row("sessions", known.rowid)
        if isinstance(found, str):
            found = {"": Lost(found)}
        facts = {}
        for name, value in found.items():
            if not isinstance(value, Lost):
                facts[name] = value
            elif session not in self._torn_sessions:
                self._torn_sessions.add(session)
                self.file.note_problem(session, f"sessions.id={session}", value.problem)
        return facts

    def close(self) -> None:
        self.file.close()
        self._copy.close()


def recognises(path: Path) -> bool:
    """Whether a file is Hermes' `state.db`: by its tables, or by their definitions when it is too
    damaged to open.
    """
    if not path.is_file() or not is_sqlite(path):
        return False
    try:
        return has_columns(path, _NEEDED)
    except apsw.Error:
        start = read_start(path, _START)
        return all(mark in start for mark in _MARKS)
    except StoreUnavailable:
        return False


class _Columns:
    """The columns of a row. What is not as it should be in one that a row can do without is in
    `problems`.
    """

    def __init__(self, found: JsonObject) -> None:
        self.found = found
        self.problems: list[str] = []

    def text(self, column: str) -> str | None:
        text: str | None = self._checked(_text, column, None)
        return text

    def number(self, column: str) -> float | None:
        number: float | None = None
        if self.found.get(column) is not None:
            number = self._checked(_number, column, None)
        return number

    def required_number(self, column: str, otherwise: float) -> float:
        """A number that has to be there; where it is not, another one is taken."""
        number: float = self._checked(_number, column, otherwise)
        return number

    def count(self, column: str, otherwise: int = 0) -> int:
        found = self.number(column)
        return otherwise if found is None else int(found)

    def _checked(self, check: _Check, column: str, otherwise: Any) -> Any:
        try:
            return check(self.found.get(column), column)
        except ValueError as error:
            self.problems.append(str(error))
            return otherwise


def _session(rowid: int, columns: _Columns) -> HermesSession:
    found = columns.found
    if not isinstance(found["id"], str | bytes):
        raise ValueError(f"`id` should be text and is {_kind(found['id'])}")
    try:
        config = object_or_empty(parsed(columns.text("model_config") or "{}"))
    except ValueError:
        config = {}
    # No count is not a count of nothing.
    message_count = None
    if found["message_count"] is not None:
        message_count = columns.count("message_count")
    return HermesSession(
        id=named(found["id"]),
        rowid=rowid,
        source=columns.text("source") or "unknown",
        started_at=columns.required_number("started_at", 0.0),
        ended_at=columns.number("ended_at"),
        end_reason=columns.text("end_reason"),
        parent=columns.text("parent_session_id"),
        key=columns.text("session_key"),
        branched_from=text_or_none(config.get("_branched_from")),
        delegate_from=text_or_none(config.get("_delegate_from")),
        message_count=message_count,
        api_calls=columns.count("api_call_count"),
        output_tokens=columns.count("output_tokens"),
    )


def _row(rowid: int, columns: _Columns, before: float) -> HermesRow:
    found = columns.found
    rest = {}
    for name, value in found.items():
        if name in ROW_COLUMNS or value is None or isinstance(value, Lost):
            continue
        rest[name] = value
    return HermesRow(
        id=rowid,
        session=named(found["session_id"]),
        role=_word(found["role"], "role"),
        content=_text(found["content"], "content"),
        timestamp=columns.required_number("timestamp", before),
        observed=columns.count("observed"),
        active=columns.count("active", 1),
        compacted=columns.count("compacted"),
        rest=rest,
        tool_call_id=columns.text("tool_call_id"),
        tool_calls=columns.text("tool_calls"),
        tool_name=columns.text("tool_name"),
        finish_reason=columns.text("finish_reason"),
    )


def _word(value: Any, column: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"`{column}` should be text and is {_kind(value)}")
    return value


def _text(value: Any, column: str) -> str | None:
    return None if value is None else _word(value, column)


def _number(value: Any, column: str) -> float:
    # Nearly every time is a float: it is asked first, for each row of a store.
    if type(value) is float and -_FAR < value < _FAR:
        return value
    if not isinstance(value, int | float) or not abs(value) < _FAR:
        raise ValueError(f"`{column}` should be a number and is {_kind(value)}")
    return value


_DELIVERY = {"session_key": _word, "content": _word, "created_at": _number}
_LOCK = {"session_id": _word, "expires_at": _number}


def _kind(value: Any) -> str:
    if isinstance(value, Lost):
        return f"lost: {value.problem}"
    names = {type(None): "NULL", bytes: "bytes", str: "text"}
    return names.get(type(value), f"{value!r:.40}")


def _raw(found: JsonObject) -> bytes:
    return repr(found).encode("utf-8", "backslashreplace")[:_RAW_MAX]
