"""A SQLite file of somebody else's, read as far as it can be read.

The version number of a foreign store is not trusted: columns are asked for. A damaged page costs the rows on it and no
others: reading goes on behind it, and the gap is told. A row that is too large to be held is told, not loaded.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from holdfast.errors import StoreUnavailable
from holdfast.foreign.guarding import Guarded
from holdfast.foreign.private import read_start
from holdfast.foreign.shelf import Unreadable

ROW_BYTES_MAX = 64 << 20
GAPS_MAX = 10_000
_TOGETHER = 256
_LAST = 2**62
_TROUBLE = (apsw.Error, UnicodeDecodeError, OverflowError, MemoryError)
_TOO_MUCH = "its rows hold more than a file of its size can"


class Column(NamedTuple):
    """A column as its table defines it. `key` is its place in the primary key, from 1; 0 when it is not in it."""

    name: str
    type: str
    required: bool
    default: str | None
    key: int


class SqliteFile:
    """Tables of a private copy. What can't be read is in `problems`."""

    def __init__(self, path: Path) -> None:
        self.problems: list[Unreadable] = []
        self._problems: dict[str | None, list[Unreadable]] = {}
        self.gaps: dict[str, list[tuple[int, int]]] = {}
        """By table, the rowids between which nothing could be read: the first and the last."""
        self._columns: dict[str, tuple[str, ...]] = {}
        self._guarded = Guarded(path, length_max=ROW_BYTES_MAX)
        self.connection = self._guarded.connection

    def close(self) -> None:
        self.connection.close()

    def tell_if_cut(self, path: Path) -> None:
        """Tells of pages that are missing at the end, whatever was on them. A log may make a file seem short."""
        log = Path(f"{path}-wal")
        if log.exists() and log.stat().st_size:
            return
        pages, size = (self.connection.pragma(name) for name in ("page_count", "page_size"))
        there = path.stat().st_size // size
        claimed = int.from_bytes(read_start(path, 32)[28:32], "big")
        if there < max(pages, claimed):
            self.tell(None, "the end of the file", f"it is cut: {there} of {max(pages, claimed)} pages are there")

    def columns(self, table: str) -> tuple[str, ...]:
        """The columns of a table; none when it isn't there, or is a view or whatever else is no table. What is computed
        whenever it is read is no column.
        """
        if table.lower() not in self._guarded.tables:
            return ()
        if table not in self._columns:
            query = "SELECT CAST(name AS BLOB) FROM pragma_table_info(?) ORDER BY cid"
            found: Any = self.connection.execute(query, (table,))
            self._columns[table] = tuple(name.decode("utf-8", "replace") for (name,) in found)
        return self._columns[table]

    def definitions(self, table: str) -> list[Column]:
        """The columns of a table with what was said of them; none where that is not text."""
        query = 'SELECT name, type, "notnull", dflt_value, pk FROM pragma_table_info(?) ORDER BY cid'
        try:
            found: Any = self.connection.execute(query, (table,)).fetchall() if self.columns(table) else []
        except UnicodeDecodeError:
            return []
        return [Column(name, type or "", bool(required), default, key) for name, type, required, default, key in found]

    def schema(self) -> list[tuple[str, str, str]]:
        """Kind, name and definition of all that is in it; what is not text is left out."""
        query = "SELECT CAST(type AS BLOB), CAST(name AS BLOB), CAST(sql AS BLOB) FROM sqlite_schema"
        found: Any = self.connection.execute(query)
        made = []
        for kind, name, sql in found:
            try:
                made.append((kind.decode(), name.decode(), sql.decode()))
            except (UnicodeDecodeError, AttributeError):
                continue  # an index that SQLite made by itself has no definition
        return made

    def row(self, table: str, rowid: int) -> dict[str, Any] | str:
        """One row by its columns' names, or a sentence why not."""
        try:
            query = f"SELECT {self._all(table)} FROM {quoted(table)} WHERE rowid = ?"
            found = self.connection.execute(query, (rowid,)).fetchall()
        except _TROUBLE as error:
            return reason(error)
        return dict(zip(self.columns(table), found[0], strict=False)) if found else "it is not there any more"

    def rows(self, table: str, rowids: Sequence[int]) -> Iterator[tuple[int, dict[str, Any] | str]]:
        """Many rows by their rowids, in ascending order; each as `row` gives it."""
        columns, held = self.columns(table), 0
        for start in range(0, len(rowids), _TOGETHER):
            wanted = rowids[start : start + _TOGETHER]
            done = 0
            among = ",".join(map(str, wanted))
            query = f"SELECT rowid, {self._all(table)} FROM {quoted(table)} WHERE rowid IN ({among}) ORDER BY rowid"
            try:
                for rowid, *values in self.connection.execute(query):
                    if rowid != wanted[done]:
                        break
                    done += 1
                    held += sum(len(value) for value in values if isinstance(value, str | bytes))
                    if held > self._guarded.holds_max:
                        raise StoreUnavailable(where=table, problem=_TOO_MUCH, remedy="Look for a backup")
                    yield rowid, dict(zip(columns, values, strict=False))
            except _TROUBLE:
                pass  # one of them can't be read: which one, the rest says one by one
            for rowid in wanted[done:]:
                yield rowid, self.row(table, rowid)

    def _all(self, table: str) -> str:
        return ", ".join(map(quoted, self.columns(table))) or "NULL"

    def rest_of_row(self, table: str, rowid: int) -> dict[str, Any]:
        """What can be read of a row that can't be read whole."""
        found: dict[str, Any] = {}
        for name in self.columns(table):
            query = f"SELECT {quoted(name)} FROM {quoted(table)} WHERE rowid = ?"
            try:
                for (value,) in self.connection.execute(query, (rowid,)):
                    found[name] = value
            except _TROUBLE:
                continue
        return found

    def scan(self, table: str, columns: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
        """Rows in the order of their rowids, each with its rowid first. Columns that the table lacks are None."""
        here = self.columns(table)
        if not here:
            return
        wanted = ", ".join(quoted(name) if name in here else "NULL" for name in columns)
        query = f"SELECT rowid, {wanted} FROM {quoted(table)} NOT INDEXED WHERE rowid > ? ORDER BY rowid"
        last = -_LAST
        for _ in range(GAPS_MAX):
            try:
                for row in self.connection.execute(query, (last,)):
                    if type(row[0]) is not int or row[0] <= last:
                        break  # the tree is out of order: the rest of this page is not to be believed
                    last = row[0]
                    yield row
                else:
                    return
                problem = "its rows are out of order"
            except _TROUBLE as error:
                problem = reason(error)
            following = self._behind(table, last)
            self._tell_gap(table, last, following, problem)
            if following is None:
                return
            last = following

    def tell(self, session: str | None, place: str, problem: str, raw: bytes = b"") -> None:
        trouble = Unreadable(session, place, problem, raw)
        self.problems.append(trouble)
        self._problems.setdefault(session, []).append(trouble)

    def problems_of(self, session: str | None) -> list[Unreadable]:
        """What could not be read of a session; of no session in particular, when it is None."""
        return self._problems.get(session, [])

    def _tell_gap(self, table: str, last: int, following: int | None, problem: str) -> None:
        first = "the first row" if last == -_LAST else f"row {last + 1}"
        until = "the end" if following is None else f"row {following}"
        self.tell(None, f"{table}, {first} to {until}", problem)
        self.gaps.setdefault(table, []).append((last + 1, _LAST if following is None else following))

    def _behind(self, table: str, last: int) -> int | None:
        """The last rowid that can't be read after this one; None when nothing behind it can."""
        query = f"SELECT rowid FROM {quoted(table)} NOT INDEXED WHERE rowid > ? ORDER BY rowid LIMIT 1"
        try:
            found: list[Any] = self.connection.execute(query, (last,)).fetchall()
            if found and found[0][0] > last:
                return int(found[0][0])  # the row is there, and something in it can't be read
        except apsw.Error:
            pass
        bad, step = max(last, 0), 1
        while not self._can_read(query, bad + step):
            step *= 2
            if bad + step > _LAST:
                return None
        good = bad + step
        while good - bad > 1:
            middle = (bad + good) // 2
            if self._can_read(query, middle):
                good = middle
            else:
                bad = middle
        return good if self.connection.execute(query, (good,)).fetchall() else None

    def _can_read(self, query: str, rowid: int) -> bool:
        try:
            found: list[Any] = self.connection.execute(query, (rowid,)).fetchall()
        except apsw.Error:
            return False
        return not found or bool(found[0][0] > rowid)


def quoted(name: str) -> str:
    """A name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def reason(error: BaseException) -> str:
    """Why something could not be read, in a few words."""
    if isinstance(error, apsw.TooBigError):
        return f"it is larger than {ROW_BYTES_MAX >> 20} MiB"
    if isinstance(error, UnicodeDecodeError):
        return f"its text is not UTF-8 (byte {error.start})"
    return f"SQLite says: {error}"
