"""A SQLite file of somebody else's, read as far as it can be read.

The version number of a foreign store is not trusted: columns are asked for. A damaged page costs
the rows on it and no others, and a value that can't be read costs itself (`walking`). A row that is
too large to be held is told, not loaded.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.errors import StoreUnavailable
from holdfast.importers.damaged_rows import TROUBLE, Gap, Lost, Walk, quoted, row_at
from holdfast.importers.guarded_sqlite import Guarded
from holdfast.importers.private_copy import read_start
from holdfast.importers.reader import UnreadableRecord
from holdfast.importers.values import JsonObject, Row

ROW_BYTES_MAX = 64 << 20
_TOGETHER = 256
_FIRST, _LAST = -(2**62), 2**62
_TOO_MUCH = "its rows hold more than a file of its size can"


class TableColumn(NamedTuple):
    """A column as its table defines it. `key` is its place in the primary key, from 1; 0 when it is
    not in it.
    """

    name: str
    type: str
    required: bool
    default: str | None
    key: int


class SqliteFile:
    """Tables of a private copy. What can't be read is in `problems`."""

    def __init__(self, path: Path) -> None:
        self.problems: list[UnreadableRecord] = []
        self._problems: dict[str | None, list[UnreadableRecord]] = {}
        self.gaps: dict[str, list[tuple[int, int]]] = {}
        """By table, the rowids between which nothing could be read: the first and the last."""
        self._columns: dict[str, tuple[str, ...]] = {}
        self._guarded = Guarded(path, length_max=ROW_BYTES_MAX)
        self.connection = self._guarded.connection

    def close(self) -> None:
        self.connection.close()

    def note_if_cut(self, path: Path) -> None:
        """Tells of pages that are missing at the end, whatever was on them. A log may make a file
        seem short.
        """
        log = Path(f"{path}-wal")
        if log.exists() and log.stat().st_size:
            return
        pages, size = (
            self.connection.pragma(name) for name in ("page_count", "page_size")
        )
        there = path.stat().st_size // size
        claimed = int.from_bytes(read_start(path, 32)[28:32], "big")
        if there < max(pages, claimed):
            self.note_problem(
                None,
                "the end of the file",
                f"it is cut: {there} of {max(pages, claimed)} pages are there",
            )

    def columns(self, table: str) -> tuple[str, ...]:
        """The columns of a table; none when it isn't there, or is a view or whatever else is no
        table. What is computed whenever it is read is no column.
        """
        if table.lower() not in self._guarded.tables:
            return ()
        if table not in self._columns:
            query = "SELECT CAST(name AS BLOB) FROM pragma_table_info(?) ORDER BY cid"
            found: Any = self.connection.execute(query, (table,))
            self._columns[table] = tuple(
                name.decode("utf-8", "replace") for (name,) in found
            )
        return self._columns[table]

    def definitions(self, table: str) -> list[TableColumn]:
        """The columns of a table with what was said of them; none where that is not text."""
        query = (
            'SELECT name, type, "notnull", dflt_value, pk FROM pragma_table_info(?) '
            "ORDER BY cid"
        )
        try:
            found: Any = (
                self.connection.execute(query, (table,)).fetchall()
                if self.columns(table)
                else []
            )
        except UnicodeDecodeError:
            return []
        return [
            TableColumn(name, type or "", bool(required), default, key)
            for name, type, required, default, key in found
        ]

    def schema(self) -> list[tuple[str, str, str]]:
        """Kind, name and definition of all that is in it; what is not text is left out."""
        query = (
            "SELECT CAST(type AS BLOB), CAST(name AS BLOB), CAST(sql AS BLOB) FROM "
            "sqlite_schema"
        )
        found: Any = self.connection.execute(query)
        made = []
        for kind, name, sql in found:
            try:
                made.append((kind.decode(), name.decode(), sql.decode()))
            except (UnicodeDecodeError, AttributeError):
                continue  # an index that SQLite made by itself has no definition
        return made

    def row(self, table: str, rowid: int) -> JsonObject | str:
        """One row by its columns' names, or a sentence why not. A text that is not UTF-8 comes as
        bytes, a value that can't be read as `Lost`.
        """
        values = row_at(
            self.connection,
            table,
            rowid,
            [quoted(name) for name in self.columns(table)],
        )
        if values is None:
            return "it is not there any more"
        if all(isinstance(value, Lost) for value in values):
            return str(values[0].problem)
        return dict(zip(self.columns(table), values, strict=False))

    def rows(
        self, table: str, rowids: Sequence[int]
    ) -> Iterator[tuple[int, JsonObject | str]]:
        """Many rows by their rowids, in ascending order; each as `row` gives it."""
        columns, held = self.columns(table), 0
        for start in range(0, len(rowids), _TOGETHER):
            wanted = rowids[start : start + _TOGETHER]
            done = 0
            among = ",".join(map(str, wanted))
            query = (
                f"SELECT rowid, {self._all(table)} FROM {quoted(table)} WHERE rowid IN "
                f"({among}) ORDER BY rowid"
            )
            try:
                for rowid, *values in self.connection.execute(query):
                    if rowid != wanted[done]:
                        break
                    done += 1
                    held += sum(
                        len(value) for value in values if isinstance(value, str | bytes)
                    )
                    if held > self._guarded.holds_max:
                        raise StoreUnavailable(
                            where=table, problem=_TOO_MUCH, remedy="Look for a backup"
                        )
                    yield rowid, dict(zip(columns, values, strict=False))
            except TROUBLE:
                pass  # one of them can't be read: which one, the rest says one by one
            for rowid in wanted[done:]:
                yield rowid, self.row(table, rowid)

    def _all(self, table: str) -> str:
        return ", ".join(map(quoted, self.columns(table))) or "NULL"

    def scan(self, table: str, columns: tuple[str, ...]) -> Iterator[Row]:
        """Every row that can be found, with its rowid first. Columns that the table lacks are None.
        Rows come in the order of their rowids, but for some of a damaged page, which come last.
        """
        here = self.columns(table)
        if here:
            wanted = [quoted(name) if name in here else "NULL" for name in columns]
            for row in Walk(
                self.connection, table, wanted, lambda gap: self._note_gap(table, gap)
            ).rows():
                yield self._without_lost(table, row) if Lost in map(type, row) else row

    def _without_lost(self, table: str, row: Row) -> Row:
        """The row with None for each value that can't be read, which is told once."""
        place = f"{table}.rowid={row[0]}"
        lost = [value.problem for value in row if isinstance(value, Lost)]
        if not any(one.place == place for one in self.problems_of(None)):
            self.note_problem(None, place, f"a value of it can't be read ({lost[0]})")
        return tuple(None if isinstance(value, Lost) else value for value in row)

    def note_problem(
        self, session: str | None, place: str, problem: str, raw: bytes = b""
    ) -> None:
        trouble = UnreadableRecord(session, place, problem, raw)
        self.problems.append(trouble)
        self._problems.setdefault(session, []).append(trouble)

    def problems_of(self, session: str | None) -> list[UnreadableRecord]:
        """What could not be read of a session; of no session in particular, when it is None."""
        return self._problems.get(session, [])

    def _note_gap(self, table: str, gap: Gap) -> None:
        ends = (
            _FIRST if gap.first is None else gap.first,
            _LAST if gap.last is None else gap.last,
        )
        if ends in self.gaps.setdefault(table, []):
            return
        self.gaps[table].append(ends)
        self.note_problem(None, stretch(table, gap), gap.problem)


def stretch(table: str, gap: Gap) -> str:
    """Where a gap is, for people."""
    if gap.first is not None and gap.first == gap.last:
        return f"{table}, row {gap.first}"
    first = "the first row" if gap.first is None else f"row {gap.first}"
    return f"{table}, {first} to {'the end' if gap.last is None else f'row {gap.last}'}"
