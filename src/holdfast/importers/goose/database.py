"""goose's `sessions.db`, schemas 6 to 16, read as far as it can be read.

The version number is not trusted: columns are asked for. A session's rows are told in the order in
which goose reads them, `created_timestamp` and then id, one at a time: the order is made of ids
alone, so that a long session needs no memory. A row without a time that can be read stays behind
the one that was stored before it. A row that is damaged or too large is told with what is left of
it. Once a page turns out to be damaged, indexes are not believed any more and rows are
looked for id by id.
"""

import math
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from holdfast.importers.damaged_rows import TROUBLE, named
from holdfast.importers.goose.records import (
    MISSING,
    MS_FROM,
    GooseRow,
    GooseSession,
    GooseStore,
    Paid,
    content_of,
    instant_of,
    metadata_of,
    seconds_of,
    whole,
)
from holdfast.importers.goose.tables import Tables
from holdfast.importers.jsonl import LINE_MAX, parsed
from holdfast.importers.reader import parents_first
from holdfast.importers.values import JsonObject, name_or_none, text_or_none

THREAD = "thread:"
_JSON_COLUMNS = (
    "extension_data",
    "recipe_json",
    "user_recipe_values_json",
    "model_config_json",
)
_MESSAGE_COLUMNS = frozenset(
    {
        "id",
        "message_id",
        "session_id",
        "thread_id",
        "role",
        "content_json",
        "created_timestamp",
        "timestamp",
        "metadata_json",
    }
)
_LEFT_OUT = """FROM thread_messages AS t WHERE NOT EXISTS
    (SELECT 1 FROM messages AS m
     WHERE m.message_id = t.message_id AND m.content_json = t.content_json)"""
# The ids of rows in reading order. A time is what `seconds_of` takes for one; of a row without, it is
# that of the row before. Windows rather than a question for each: all of them may lack it.
_IN_ORDER = """SELECT id FROM (
    SELECT id, max(time) OVER (PARTITION BY run) AS time FROM (
        SELECT id, time, count(time) OVER (ORDER BY id) AS run FROM (
            SELECT t.rowid AS id, CASE
                WHEN typeof(t.created_timestamp) IN ('integer', 'real')
                AND t.created_timestamp >= 0 AND t.created_timestamp < (1 << 62)
                THEN t.created_timestamp END AS time {})))
    ORDER BY time, id"""


# By what they name their session by: the times and ids of rows.
_Salvaged = dict[Any, list[tuple[Any, int]]]


class _Beginning(msgspec.Struct):
    """Where a session begins: its first row and its earliest time; how many rows lie before that,
    and their latest.
    """

    first: int
    began: int
    before: int
    latest: int


class GooseDatabase(GooseStore):
    """A private copy of a `sessions.db`. What could not be read is in `problems`."""

    def __init__(self, path: Path) -> None:
        self._tables = Tables(path)
        self.problems = self._tables.problems
        self._keys: JsonObject = {}
        self._since = self._first_with_metadata()
        # Rows by session, found without an index; None as long as the indexes are believed.
        self._by_session: _Salvaged | None = None
        if self._tables.is_damaged or self._has_odd_keys():
            self._by_session = self._salvaged()

    def close(self) -> None:
        self._tables.close()

    def sessions(self) -> Iterator[GooseSession]:
        """Those of the table, parents first; those whose row is gone; those that lie in thread
        tables alone.
        """
        found: dict[str, int] = {}
        parents: JsonObject = {}
        for number, columns in self._tables.whole_rows("sessions"):
            name = named(columns.get("id"))
            # The first row counts, should a damaged table have an id twice.
            found.setdefault(name, number)
            parents.setdefault(name, columns.get("parent_session_id"))

        def parent_of(name: str) -> str | None:
            parent = parents[name]
            return parent if parent in found else None

        for name in parents_first(found, parent_of):
            row = self._tables.bounded_row("sessions", found[name])
            if not isinstance(row, str):
                yield self._session(row)
        for key in self._session_keys():
            name = named(key)
            if name not in found:
                self._keys[name] = key
                yield GooseSession(name, "stranded", f"messages of session {name}", {})
        yield from self._threads()

    def rows(self, session: GooseSession) -> Iterator[GooseRow]:
        """A session's messages in the order in which goose reads them."""
        if session.source == "thread":
            table = "thread_messages"
            numbers = self._thread_ids(session.id.removeprefix(THREAD))
        else:
            table = "messages"
            numbers = self._row_ids(self._key(session))
        for number in numbers:
            yield self._row(table, number)

    def _key(self, session: GooseSession) -> Any:
        """What rows of a session name it by: it need not be text."""
        return self._keys.get(session.id, session.id)

    def repeated(self, session: GooseSession) -> set[str] | None:
        """Message ids that the session has more than once; None when that can't be asked."""
        if session.source == "thread" or self._by_session is not None:
            return None
        query = (
            "SELECT message_id FROM messages WHERE session_id = ? GROUP BY message_id HAVING "
            "count(*) > 1"
        )
        return {named(name) for (name,) in self._tables.ask(query, self._key(session))}

    def usage_rows(self, session: GooseSession) -> tuple[Paid, ...]:
        """The model calls that were paid for in a session."""
        columns = self._tables.columns("usage_ledger")
        if "session_id" not in columns:
            return ()
        names = ("created_timestamp", "input_tokens", "output_tokens", "is_compaction")
        # Schemas differ in their columns, and the version is not trusted to tell which.
        wanted = ", ".join(name if name in columns else "NULL" for name in names)
        query = f"SELECT {wanted} FROM usage_ledger WHERE session_id = ? ORDER BY rowid"
        paid = []
        for at, read, written, is_compaction in self._tables.ask(query, session.id):
            created = seconds_of(at)[0]
            paid.append(Paid(created, whole(read), whole(written), bool(is_compaction)))
        return tuple(paid)

    def rewritten(self, session: GooseSession) -> str:
        """What shows that a session's rows were all deleted and written anew; empty when nothing
        does.

        Row ids only grow. A session that began before rows of others with smaller ids has been
        written again, and ids below its own are missing. One that was imported began, by its own
        row, when it was.
        """
        # Without its indexes the order of the rows says nothing of when they were written.
        if session.source != "database" or self._by_session is not None:
            return ""
        found = self._beginnings.get(session.id)
        if found is None:
            return ""
        since = max(
            found.began, (instant_of(session.columns.get("created_at")) or 0) // 1000
        )
        missing = found.first - found.before - 1
        if found.before == 0 or missing < 1 or found.latest <= since:
            return ""
        younger = found.latest - since
        return (
            f"Its first row is {found.first}, behind rows that are {younger} s younger, and "
            f"{missing} ids are gone."
        )

    @cached_property
    def _beginnings(self) -> dict[str, _Beginning]:
        """Where each session begins, in one pass over the table."""
        found: dict[str, _Beginning] = {}
        latest = 0
        rows = self._tables.scan("messages", ("session_id", "created_timestamp"))
        for count, (number, key, created) in enumerate(rows):
            when = _seconds(seconds_of(created)[0] or 0)
            begun = found.setdefault(
                named(key), _Beginning(number, when, count, latest)
            )
            begun.began = min(begun.began, when)
            latest = max(latest, when)
        return found

    def _session(self, columns: JsonObject) -> GooseSession:
        name = named(columns.get("id"))
        self._keys[name] = columns.get("id")
        broken = [key for key in _JSON_COLUMNS if not _is_json(columns.get(key))]
        return GooseSession(
            id=name,
            source="database",
            place=f"sessions {name}",
            columns={key: _plain(value) for key, value in columns.items()},
            parent=name_or_none(columns.get("parent_session_id")),
            problem=f"{', '.join(broken)} is not JSON" if broken else "",
        )

    def _first_with_metadata(self) -> Any:
        query = "SELECT min(rowid) FROM messages WHERE metadata_json IS NOT NULL"
        try:
            return self._tables.connection.execute(query).fetchall()[0][0]
        except TROUBLE:
            return None  # what is wrong is told by those who read the rows

    def _has_odd_keys(self) -> bool:
        """Whether some row says with other than text whose it is: then indexes and queries do not
        tell all of them.
        """
        if "session_id" not in self._tables.columns("messages"):
            return False
        query = "SELECT DISTINCT session_id FROM messages"
        try:
            keys = self._tables.connection.execute(query)
            return any(not isinstance(key, str) for (key,) in keys)
        except TROUBLE:
            # What can't be asked is looked for row by row, as if it were odd.
            return True

    def _session_keys(self) -> list[Any]:
        if self._by_session is not None:
            # By name: keys may be of any of SQLite's types, which can't be compared.
            return sorted(self._by_session, key=named)
        query = "SELECT DISTINCT session_id FROM messages ORDER BY 1"
        return [key for (key,) in self._tables.ask(query)]

    def _threads(self) -> Iterator[GooseSession]:
        here = self._tables.columns("thread_messages")
        if not {"thread_id", "message_id", "content_json"} <= set(here):
            return
        threads: dict[str, JsonObject] = {}
        for _, columns in self._tables.whole_rows("threads"):
            threads[named(columns.get("id"))] = columns
        query = f"SELECT DISTINCT t.thread_id {_LEFT_OUT} ORDER BY 1"
        for (key,) in self._tables.ask(query):
            name = named(key)
            self._keys[name] = key
            place = f"thread_messages of {name}"
            yield GooseSession(THREAD + name, "thread", place, threads.get(name, {}))

    def _thread_ids(self, name: str) -> Iterator[int]:
        query = _IN_ORDER.format(f"{_LEFT_OUT} AND t.thread_id = ?")
        for (number,) in self._tables.ask(query, self._keys.get(name, name)):
            yield number

    def _row_ids(self, key: Any) -> Iterator[int]:
        if self._by_session is None:
            query = _IN_ORDER.format("FROM messages AS t WHERE t.session_id = ?")
            try:
                for (number,) in self._tables.connection.execute(query, (key,)):
                    yield number
            except TROUBLE as error:
                self._tables.note_problem(None, "messages", str(error))
                self._by_session = self._salvaged()
            # What has been given must not be given again; the next look sees all that is left.
            return
        for _, number in self._by_session.get(key, ()):
            yield number

    def _salvaged(self) -> _Salvaged:
        """The ids of all rows that can be found without an index, by session, each list in reading
        order.
        """
        found: _Salvaged = defaultdict(list)
        if "session_id" not in self._tables.columns("messages"):
            return {}
        for number, key, created in self._tables.scan(
            "messages", ("session_id", "created_timestamp")
        ):
            when = seconds_of(created)[0]
            before = found[key][-1][0] if found[key] else 0
            found[key].append((before if when is None else when, number))
        for rows in found.values():
            rows.sort()
        return dict(found)

    def _row(self, table: str, number: int) -> GooseRow:
        place = f"{table} row {number}"
        columns = self._tables.bounded_row(
            table, number, large=("content_json", "metadata_json"), limit=LINE_MAX
        )
        if isinstance(columns, str):
            return GooseRow(
                number, place, None, "user", None, None, None, problem=columns
            )
        created, odd = seconds_of(columns.get("created_timestamp"))
        content, content_problem, problem = _content(columns["content_json"])
        metadata, metadata_problem, raw_metadata = self._metadata(
            table, number, columns
        )
        message_id = columns.get("message_id")
        rest = {}
        for name, value in columns.items():
            if name not in _MESSAGE_COLUMNS and value is not None:
                rest[name] = _plain(value)
        return GooseRow(
            number=number,
            place=place,
            message_id=None if message_id is None else named(message_id),
            role=named(columns.get("role")),
            content=content,
            created=created,
            metadata=metadata,
            stored_at=text_or_none(columns.get("timestamp")),
            content_problem=content_problem,
            metadata_problem=metadata_problem,
            raw_metadata=raw_metadata,
            problem=" ".join(said for said in (problem, odd) if said),
            raw=b"" if content is not None else _bytes(columns["content_json"]),
            rest=rest,
        )

    def _metadata(
        self, table: str, number: int, columns: JsonObject
    ) -> tuple[JsonObject | None, str, bytes]:
        found = columns.get("metadata_json")
        if isinstance(found, str):  # a sentence: it is too large
            return None, found, b""
        # The tables of threads had an empty object where there was nothing to say.
        if found is None or (table == "thread_messages" and found == b"{}"):
            is_due = table == "messages" and self._is_due(number, columns)
            return None, MISSING if is_due else "", b""
        raw = _bytes(found)
        metadata, problem = metadata_of(raw)
        return metadata, problem, raw if problem else b""

    def _is_due(self, number: int, columns: JsonObject) -> bool:
        """Whether a row of `messages` must have metadata. Those of the first releases never had
        any: they stand before all that do, and have no id or the one that goose gave them when it
        moved them to a later schema.
        """
        filled = f"msg_{named(columns.get('session_id'))}_{number}"
        after = isinstance(self._since, int) and number > self._since
        return after or columns.get("message_id") not in (None, filled)


def _content(found: Any) -> tuple[list[Any] | None, str, str]:
    if isinstance(found, str):  # a sentence: it is too large
        return None, "", found
    if not isinstance(found, bytes):
        return None, f"it is not a text but {found!r}", ""
    return content_of(found)


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else b""


def _plain(value: Any) -> Any:
    """A column's value as JSON can hold it."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _seconds(created: int) -> int:
    return created // 1000 if created >= MS_FROM else created


def _is_json(value: Any) -> bool:
    """Whether a column is JSON, or empty."""
    if value is None:
        return True
    raw = value.encode() if isinstance(value, str) else _bytes(value)
    return not parsed(raw)[1]
