"""Tables of a SQLite file that may be damaged: what can be read of them, row by row, and what can't."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw

from holdfast.foreign.goose.records import text_of
from holdfast.foreign.guarding import Guarded
from holdfast.foreign.shelf import Unreadable

TROUBLE = (apsw.Error, UnicodeDecodeError, OverflowError, MemoryError)
STEPS_MAX = 10_000
CLAIM_MAX = 1 << 34
SMALL_MAX = 64 << 20
_LOWEST = -(2**62)


class Tables:
    """A connection to a private copy; what could not be read is in `problems`."""

    def __init__(self, path: Path) -> None:
        self.problems: list[Unreadable] = []
        lost = _made_whole(path)
        self._guarded = Guarded(path)
        self.connection = self._guarded.connection
        self._columns: dict[str, tuple[str, ...]] = {}
        self._queries: dict[str, str] = {}
        try:
            self.connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
            damage = [str(line) for (line,) in self.connection.execute("PRAGMA quick_check(3)") if line != "ok"]
        except BaseException:
            self.connection.close()
            raise
        self.is_damaged = bool(damage or lost)
        if lost:
            self.tell(None, path.name, f"the last {lost} bytes of the file are not there")
        if damage:
            self.tell(None, path.name, f"the file is damaged: {damage[0].splitlines()[-1][:200]}")

    def close(self) -> None:
        self.connection.close()

    def tell(self, session: str | None, place: str, problem: str) -> None:
        told = Unreadable(session, place, problem)
        if told not in self.problems:
            self.problems.append(told)

    def columns(self, table: str) -> tuple[str, ...]:
        """The columns of a table; none when it isn't there, or is a view or whatever else is no table."""
        if table.lower() not in self._guarded.tables:
            return ()
        if table not in self._columns:
            found = self.ask("SELECT name FROM pragma_table_info(?) ORDER BY cid", (table,))
            self._columns[table] = tuple(str(name) for (name,) in found)
        return self._columns[table]

    def ask(self, query: str, given: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """All answers to a question; none, and a problem told, when it can't be answered."""
        try:
            return self.connection.execute(query, given).fetchall()
        except TROUBLE as error:
            if "no such" not in str(error):
                self.tell(None, query.partition(" FROM ")[2].split(" ")[0] or "the file", str(error))
            return []

    def value(self, query: str, given: tuple[Any, ...]) -> Any:
        return next((row[0] for row in self.ask(query, given)), None)

    def scan(self, table: str, columns: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
        """Row ids with some columns, in the order of the ids and by no index; what lies on damaged pages is stepped
        over in growing strides.
        """
        wanted = ", ".join(("rowid", *map(quoted, columns)))
        query = f"SELECT {wanted} FROM {quoted(table)} NOT INDEXED WHERE rowid > ? ORDER BY rowid"
        last, stride, told = _LOWEST, 1, False
        for _ in range(STEPS_MAX):
            try:
                for row in self.connection.execute(query, (last,)):
                    if type(row[0]) is not int or row[0] <= last:
                        break
                    last, stride = row[0], 1
                    yield row
                else:
                    return
            except TROUBLE as error:
                if not told:
                    self.tell(None, table, str(error))
                told = True
            last, stride = max(last, 0) + stride, stride * 2
            if last >= 2**62:
                return

    def whole_rows(self, table: str) -> Iterator[tuple[int, dict[str, Any]]]:
        """Every row with all its columns; one that can't be read is told."""
        if not self.columns(table):
            return
        for (number,) in list(self.scan(table, ())) if self.is_damaged else self.ask(_numbers(table), ()):
            columns = self.row(table, number, large=(), limit=0)
            if isinstance(columns, str):
                self.tell(None, f"{table} row {number}", columns)
            else:
                yield number, columns

    def row(self, table: str, number: int, *, large: tuple[str, ...], limit: int) -> dict[str, Any] | str:
        """A row by its columns' names, or a sentence why not. The `large` ones come as bytes, or as a sentence when
        they are more than `limit`; all others come as they are.
        """
        names = self.columns(table)
        if table not in self._queries:
            wanted = ", ".join(_bounded(name) if name in large else _small(name) for name in names)
            self._queries[table] = f"SELECT {wanted} FROM {quoted(table)} WHERE rowid = ?"
        given = (*(limit for name in large if name in names), number)
        try:
            found = self.connection.execute(self._queries[table], given).fetchall()
        except UnicodeDecodeError:
            return self._as_bytes(table, number, large, limit)
        except TROUBLE as error:
            return f"it can't be read: {error}"
        if not found:
            return "it is not there any more"
        values = dict(zip(names, found[0], strict=True))
        return values | {name: None for name in large if name not in values}

    def _as_bytes(self, table: str, number: int, large: tuple[str, ...], limit: int) -> dict[str, Any] | str:
        """A row some of whose texts are not UTF-8: those come as text that still holds their bytes."""
        found: dict[str, Any] = {name: None for name in large}
        for name in self.columns(table):
            column, bound = (_bounded(name), (limit,)) if name in large else (_small(name), ())
            query = f"SELECT {column} FROM {quoted(table)} WHERE rowid = ?"
            try:
                found[name] = self.connection.execute(query, (*bound, number)).fetchall()[0][0]
            except UnicodeDecodeError:
                query = f"SELECT CAST({quoted(name)} AS BLOB) FROM {quoted(table)} WHERE rowid = ?"
                raw: Any = self.connection.execute(query, (number,)).fetchall()[0][0]
                found[name] = text_of(raw)
            except TROUBLE as error:
                return f"it can't be read: {error}"
        return found


def _made_whole(path: Path) -> int:
    """How much is missing at the end of a file, by its own header. The copy is filled up with nothing: SQLite reads no
    page of a file that is too short, and only those that are gone of one that is not.
    """
    with open(path, "r+b") as file:
        head = file.read(32)
        size = int.from_bytes(head[16:18], "big")
        claimed = (65536 if size == 1 else size) * int.from_bytes(head[28:32], "big")
        found = file.seek(0, os.SEEK_END)
        if not found < claimed <= CLAIM_MAX:
            return 0
        file.truncate(claimed)
        return claimed - found


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _numbers(table: str) -> str:
    return f"SELECT rowid FROM {quoted(table)} ORDER BY rowid"


def _small(name: str) -> str:
    """The column, unless somebody put into it what belongs into no memory."""
    return f"CASE WHEN coalesce(octet_length({quoted(name)}), 0) <= {SMALL_MAX} THEN {quoted(name)} END"


def _bounded(name: str) -> str:
    """The column as bytes; as a sentence, which is text, when it is too large; a number stays one."""
    column = quoted(name)
    return (
        f"CASE WHEN octet_length({column}) > ? THEN 'it is ' || octet_length({column}) || ' bytes long, too large' "
        f"WHEN typeof({column}) IN ('text', 'blob') THEN CAST({column} AS BLOB) ELSE {column} END"
    )
