"""Hermes' `state.db`: its records, from a private copy.

What concerns the whole store (its sessions without their texts, routes, the delivery ledger, locks,
and which rows are whose) is held in memory; the rows of a session are read when they are asked for.
"""

import math
from array import array
from collections.abc import Callable, Container, Iterator
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
from holdfast.importers.sqlite_file import SqliteFile
from holdfast.importers.values import JsonObject

# In `state_meta` of a healed copy: ids of rows whose replaced characters are known to
# be gone.
KNOWN_KEY = "holdfast.beyond-recovery"
# Columns of `messages` that a row has a field for, with the field's name.
ROW_COLUMNS = {
    "id": "id",
    "session_id": "session",
    **{
        name: name
        for name in (
            "role",
            "content",
            "timestamp",
            "tool_call_id",
            "tool_calls",
            "tool_name",
        )
    },
    **{name: name for name in ("finish_reason", "observed", "active", "compacted")},
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


class HermesStore:
    """All of a store. Making one raises `StoreUnavailable` when nothing of it can be read."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.live = is_live(path)
        self._copy = PrivateCopy(path)
        try:
            self.file = SqliteFile(self._copy.path)
            self.file.note_if_cut(self._copy.path)
            for one in self._copy.left_out:
                self.file.note_problem(None, one.place, one.problem)
            self._read_all()
        except (apsw.Error, UnicodeDecodeError) as error:
            self.close()
            problem = f"it can't be read as a database ({error})"
            remedy = "Take a backup, or recover the file with SQLite's own `.recover`"
            raise StoreUnavailable(
                where=self.path, problem=problem, remedy=remedy
            ) from error
        except BaseException:
            self.close()
            raise

    def _read_all(self) -> None:
        for table, needed in _NEEDED.items():
            if not needed <= set(self.file.columns(table)):
                problem = (
                    f"its table `{table}` lacks "
                    f"{', '.join(sorted(needed - set(self.file.columns(table))))}"
                )
                raise StoreUnavailable(
                    where=self.path,
                    problem=problem,
                    remedy="Check that it is Hermes' state.db",
                )
        self.sessions: dict[str, HermesSession] = {}
        self._rows: dict[str, array[int]] = {}
        self._unread: dict[str, set[int]] = {}
        self._odd: set[int] = set()
        self._torn_sessions: set[str] = set()
        self._summarised: Container[str] | None = None
        self.newest = 0.0
        self.last_id = 0
        self.has_stops = False
        self._read_sessions()
        self._read_index()
        self.routes = self._read_routes()
        self.deliveries = self._read_deliveries()
        self.locks = self._read_locks()
        self.known = self._read_known()
        for session in [
            session for session in self._rows if session not in self.sessions
        ]:
            self.file.note_problem(
                session,
                f"sessions.id={session}",
                "messages name this session, and it can't be read",
            )
            self.sessions[session] = HermesSession(session, 0, "unknown", 0.0)

    def _read_sessions(self) -> None:
        for rowid, *values in self.file.scan("sessions", _SESSION_COLUMNS):
            columns = _Columns(dict(zip(_SESSION_COLUMNS, values, strict=True)))
            try:
                session = _session(rowid, columns)
            except ValueError as error:
                self.file.note_problem(
                    None, f"sessions.rowid={rowid}", str(error), _raw(columns.found)
                )
            else:
                self.sessions[session.id] = session
                for problem in columns.problems:
                    self.file.note_problem(
                        session.id,
                        f"sessions.rowid={rowid}",
                        problem,
                        _raw(columns.found),
                    )

    def _read_index(self) -> None:
        for rowid, session, timestamp, finish in self.file.scan(
            "messages", ("session_id", "timestamp", "finish_reason")
        ):
            self.last_id = max(self.last_id, rowid)
            if not isinstance(session, str | bytes):
                self.file.note_problem(
                    None,
                    f"messages.id={rowid}",
                    "it does not say which session it belongs to",
                )
                continue
            self._rows.setdefault(named(session), array("q")).append(rowid)
            if isinstance(timestamp, float | int) and math.isfinite(timestamp):
                self.newest = max(self.newest, timestamp)
            self.has_stops = self.has_stops or finish == "stop"
        if self.file.gaps.get("messages"):  # rows of a damaged page may come last
            self._rows = {
                session: array("q", sorted(rows))
                for session, rows in self._rows.items()
            }

    def _read_routes(self) -> list[Route]:
        found = []
        for rowid, key, entry in self.file.scan(
            "gateway_routing", ("session_key", "entry_json")
        ):
            try:
                named = parsed(_text(entry, "entry_json") or "")
                named = named.get("session_id") if isinstance(named, dict) else None
                if not isinstance(key, str) or not isinstance(named, str):
                    raise ValueError("it names no session")
            except ValueError as error:
                place = f"gateway_routing.rowid={rowid}"
                self.file.note_problem(
                    None,
                    place,
                    f"its entry can't be read ({error})",
                    repr(entry).encode(),
                )
            else:
                found.append(Route(key, named))
        return found

    def _read_deliveries(self) -> list[HermesDelivery]:
        found = []
        for rowid, key, text, at in self.file.scan(
            "delivery_obligations", ("session_key", "content", "created_at")
        ):
            try:
                delivery = HermesDelivery(
                    _word(key, "session_key"),
                    _word(text, "content"),
                    _number(at, "created_at"),
                )
            except ValueError as error:
                self.file.note_problem(
                    None, f"delivery_obligations.rowid={rowid}", str(error)
                )
            else:
                found.append(delivery)
        return sorted(found, key=lambda delivery: delivery.created_at)

    def _read_locks(self) -> list[CompactionLock]:
        found = []
        for rowid, session, expires_at in self.file.scan(
            "compression_locks", ("session_id", "expires_at")
        ):
            try:
                found.append(
                    CompactionLock(
                        _word(session, "session_id"), _number(expires_at, "expires_at")
                    )
                )
            except ValueError as error:
                self.file.note_problem(
                    None, f"compression_locks.rowid={rowid}", str(error)
                )
        return found

    def _read_known(self) -> frozenset[int]:
        for _, key, value in self.file.scan("state_meta", ("key", "value")):
            if key == KNOWN_KEY and isinstance(value, str):
                try:
                    ids = parsed(value)
                except ValueError:
                    return frozenset()
                return (
                    frozenset(item for item in ids if type(item) is int)
                    if type(ids) is list
                    else frozenset()
                )
        return frozenset()

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
        """The same, one after the other. A time that can't be read is taken from the row before."""
        before = 0.0
        for rowid, found in self.file.rows("messages", self._rows.get(session, ())):
            columns = _Columns({} if isinstance(found, str) else found)
            try:
                if isinstance(found, str):
                    raise ValueError(found)
                row = _row(rowid, columns, before)
                parts(row)
            except ValueError as error:
                if rowid not in self._unread.setdefault(session, set()):
                    self._unread[session].add(rowid)
                    self.file.note_problem(
                        session, f"messages.id={rowid}", str(error), _raw(found)
                    )
            else:
                before = row.timestamp
                if columns.problems and rowid not in self._odd:
                    self._odd.add(rowid)
                    self.file.note_problem(
                        session,
                        f"messages.id={rowid}",
                        "; ".join(columns.problems),
                        _raw(found),
                    )
                yield row

    def has_summaries(self, session: str) -> bool:
        """Whether a compaction may have been at work in a session."""
        if self._summarised is None:
            self._summarised = self._read_summarised()
        return session in self._summarised

    def _read_summarised(self) -> Container[str]:
        starts = " OR ".join("said GLOB ?" for _ in SUMMARY_STARTS)
        said = "ltrim(content, char(9, 10, 11, 12, 13, 32))"
        query = (
            f"SELECT DISTINCT session_id FROM (SELECT session_id, {said} AS said FROM "
            f"messages) WHERE {starts}"
        )
        try:
            patterns = tuple(f"[[]{start[1:]}*" for start in SUMMARY_STARTS)
            return {
                named(name) for (name,) in self.file.connection.execute(query, patterns)
            }
        except (apsw.Error, UnicodeDecodeError):
            return self._rows.keys()  # a damaged file does not say: each may be one

    def facts(self, session: str) -> JsonObject:
        """Every column of a session's row, as found; of a damaged row those that can be read."""
        known = self.sessions[session]
        if not known.rowid:
            return {
                "id": session,
                "source": known.source,
                "started_at": known.started_at,
            }
        found = self.file.row("sessions", known.rowid)
        found = {"": Lost(found)} if isinstance(found, str) else found
        lost = [value.problem for value in found.values() if isinstance(value, Lost)]
        if lost and session not in self._torn_sessions:
            self._torn_sessions.add(session)
            self.file.note_problem(session, f"sessions.id={session}", lost[0])
        return {
            name: value for name, value in found.items() if not isinstance(value, Lost)
        }

    def close(self) -> None:
        if hasattr(self, "file"):
            self.file.close()
        self._copy.close()


def recognises(path: Path) -> bool:
    """Whether a file is Hermes' `state.db`: by its tables, or by their definitions when it is too
    damaged to open.
    """
    if not path.is_file() or not is_sqlite(path):
        return False
    try:
        with PrivateCopy(path) as copy:
            file = SqliteFile(copy.path)
            try:
                return all(
                    needed <= set(file.columns(table))
                    for table, needed in _NEEDED.items()
                )
            finally:
                file.close()
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
        text: str | None = self._taken(_text, column, None)
        return text

    def number(self, column: str, otherwise: float | None) -> float | None:
        """A number; the other one where there is none, or none that can be read."""
        found = self._taken(_number_or_none, column, None)
        return otherwise if found is None else found

    def count(self, column: str, otherwise: int = 0) -> int:
        return int(self.number(column, otherwise) or 0)

    def _taken(
        self, make: Callable[[Any, str], Any], column: str, otherwise: Any
    ) -> Any:
        try:
            return make(self.found.get(column), column)
        except ValueError as error:
            self.problems.append(str(error))
            return otherwise


def _session(rowid: int, columns: _Columns) -> HermesSession:
    found = columns.found
    if not isinstance(found["id"], str | bytes):
        raise ValueError(f"`id` should be text and is {_kind(found['id'])}")
    try:
        config = parsed(columns.text("model_config") or "{}")
    except ValueError:
        config = {}
    config = config if isinstance(config, dict) else {}
    return HermesSession(
        id=named(found["id"]),
        rowid=rowid,
        source=columns.text("source") or "unknown",
        started_at=_number_or_told(columns, "started_at", 0.0),
        ended_at=columns.number("ended_at", None),
        end_reason=columns.text("end_reason"),
        parent=columns.text("parent_session_id"),
        key=columns.text("session_key"),
        branched_from=_marker(config, "_branched_from"),
        delegate_from=_marker(config, "_delegate_from"),
        message_count=None
        if found["message_count"] is None
        else columns.count("message_count"),
        api_calls=columns.count("api_call_count"),
        output_tokens=columns.count("output_tokens"),
    )


def _row(rowid: int, columns: _Columns, before: float) -> HermesRow:
    found = columns.found
    return HermesRow(
        id=rowid,
        session=named(found["session_id"]),
        role=_word(found["role"], "role"),
        content=_text(found["content"], "content"),
        timestamp=_number_or_told(columns, "timestamp", before),
        observed=columns.count("observed"),
        active=columns.count("active", 1),
        compacted=columns.count("compacted"),
        rest={
            name: value
            for name, value in found.items()
            if value is not None
            and name not in ROW_COLUMNS
            and not isinstance(value, Lost)
        },
        tool_call_id=columns.text("tool_call_id"),
        tool_calls=columns.text("tool_calls"),
        tool_name=columns.text("tool_name"),
        finish_reason=columns.text("finish_reason"),
    )


def _number_or_told(columns: _Columns, column: str, otherwise: float) -> float:
    """A number that has to be there: where it is not, that is told, and the other one is taken."""
    try:
        return _number(columns.found[column], column)
    except ValueError as error:
        columns.problems.append(str(error))
        return otherwise


def _number_or_none(value: Any, column: str) -> float | None:
    return None if value is None else _number(value, column)


def _word(value: Any, column: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"`{column}` should be text and is {_kind(value)}")
    return value


def _text(value: Any, column: str) -> str | None:
    return None if value is None else _word(value, column)


def _number(value: Any, column: str) -> float:
    if type(value) is float and -_FAR < value < _FAR:
        return value
    if not isinstance(value, int | float) or not abs(value) < _FAR:
        raise ValueError(f"`{column}` should be a number and is {_kind(value)}")
    return value


def _kind(value: Any) -> str:
    if isinstance(value, Lost):
        return f"lost: {value.problem}"
    names = {type(None): "NULL", bytes: "bytes", str: "text"}
    return names.get(type(value), f"{value!r:.40}")


def _marker(config: JsonObject, name: str) -> str | None:
    value = config.get(name)
    return value if isinstance(value, str) else None


def _raw(found: JsonObject | str) -> bytes:
    return (
        b""
        if isinstance(found, str)
        else repr(found).encode("utf-8", "backslashreplace")[:_RAW_MAX]
    )
