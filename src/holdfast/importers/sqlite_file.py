"""A SQLite file of somebody else's, read as far as it can be read.

The version number of a foreign store is not trusted: columns are asked for. A damaged page costs
the rows on it and no others, and a value that can't be read costs itself (`damaged_rows`). A row
that is too large to be held is told, not loaded.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.errors import StoreUnavailable
from holdfast.importers.damaged_rows import TROUBLE, Gap, Lost, Walk, quoted, row_at
from holdfast.importers.guarded_sqlite import Guarded
from holdfast.importers.private_copy import PrivateCopy, read_start
from holdfast.importers.reader import UnreadableRecord
from holdfast.importers.values import JsonObject, Row

ROW_BYTES_MAX = 64 << 20
_TOGETHER = 256
# Ends of a gap without a first or a last row: beyond all rowids that are compared with them.
_FIRST, _LAST = -(2**62), 2**62
UNREADABLE = "it can't be read"
RECOVER = "Look for a backup; `sqlite3 .recover` may find rows that are left"
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


@contextmanager
def opening(copy: PrivateCopy, *, problem: str, remedy: str) -> Iterator[None]:
    """Closes a private copy when the store in it can't be opened, and raises `StoreUnavailable`
    where SQLite is to blame.
    """
    try:
        yield
    # The size of a page may be zero in a damaged header, and sizes are divided by it.
    except (*TROUBLE, ZeroDivisionError) as error:
        copy.close()
        raise StoreUnavailable(
            where=str(copy.source), problem=f"{problem} ({error})", remedy=remedy
        ) from error
    except BaseException:
        copy.close()
        raise


def has_columns(path: Path, needed: Mapping[str, set[str]]) -> bool:
    """Whether the tables of a SQLite file have these columns; `TROUBLE` where it can't say."""
    with PrivateCopy(path) as copy, closing(SqliteFile(copy.path)) as file:
        return all(
            columns <= set(file.columns(table)) for table, columns in needed.items()
        )


class SqliteFile:
    """Tables of a private copy. What can't be read is in `problems`."""

    def __init__(self, path: Path, *, length_max: int | None = None) -> None:
        self.problems: list[UnreadableRecord] = []
        self._problems: dict[str | None, list[UnreadableRecord]] = {}
        # By table, the rowids between which nothing could be read: the first and the last.
        self.gaps: dict[str, list[tuple[int, int]]] = {}
        self._columns: dict[str, tuple[str, ...]] = {}
        self._guarded = Guarded(path, length_max=length_max or ROW_BYTES_MAX)
        self.connection = self._guarded.connection

    @classmethod
    def of_copy(cls, copy: PrivateCopy) -> "SqliteFile":
        """The file of a private copy, with what is known to be missing of it among its problems."""
        file = cls(copy.path)
        file._note_if_cut(copy.path)
        for one in copy.left_out:
            file.note_problem(None, one.place, one.problem)
        return file

    def close(self) -> None:
        self.connection.close()

    def _note_if_cut(self, path: Path) -> None:
        """Tells of pages that are missing at the end, whatever was on them."""
        log = Path(f"{path}-wal")
        # Pages that are still in the log make a whole file seem short.
        if log.exists() and log.stat().st_size:
            return
        there = path.stat().st_size // self.connection.pragma("page_size")
        # SQLite counts the pages that are there; the header says how many there should be.
        claimed = int.from_bytes(read_start(path, 32)[28:32], "big")
        pages = max(self.connection.pragma("page_count"), claimed)
        if there < pages:
            problem = f"it is cut: {there} of {pages} pages are there"
            self.note_problem(None, "the end of the file", problem)

    def columns(self, table: str) -> tuple[str, ...]:
        """The columns of a table; none when it isn't there, or is a view or whatever else is no
        table. What is computed whenever it is read is no column.
        """
        if table.lower() not in self._guarded.tables:
            return ()
        if table not in self._columns:
            self._columns[table] = tuple(self._names(table))
        return self._columns[table]

    def _names(self, table: str) -> list[str]:
        query = "SELECT CAST(name AS BLOB) FROM pragma_table_info(?) ORDER BY cid"
        found: Any = self.connection.execute(query, (table,))
        # A name that is not UTF-8 must not cost the columns beside it.
        return [name.decode("utf-8", "replace") for (name,) in found]

    def definitions(self, table: str) -> list[TableColumn]:
        """The columns of a table with what was said of them; none where that is not text."""
        if not self.columns(table):
            return []
        query = (
            'SELECT name, type, "notnull", dflt_value, pk FROM pragma_table_info(?) '
            "ORDER BY cid"
        )
        try:
            found: Any = self.connection.execute(query, (table,)).fetchall()
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
        columns = self.columns(table)
        values = row_at(self.connection, table, rowid, list(map(quoted, columns)))
        if values is None:
            return "it is not there any more"
        if all(isinstance(value, Lost) for value in values):
            return str(values[0].problem)
        return dict(zip(columns, values, strict=False))

    def rows(
        self, table: str, rowids: Sequence[int]
    ) -> Iterator[tuple[int, JsonObject | str]]:
        """Many rows by their rowids, in ascending order; each as `row` gives it."""
        columns = self.columns(table)
        wanted_columns = ", ".join(map(quoted, columns)) or "NULL"
        held = 0
        for start in range(0, len(rowids), _TOGETHER):
            # So many at once that the query costs little, and so few that one broken row costs
            # little.
            wanted = rowids[start : start + _TOGETHER]
            done = 0
            query = (
                f"SELECT rowid, {wanted_columns} FROM {quoted(table)} WHERE rowid IN "
                f"({','.join(map(str, wanted))}) ORDER BY rowid"
            )
            try:
                for rowid, *values in self.connection.execute(query):
                    # One of them is gone, or the page gives them out of order: both are seen one
                    # by one.
                    if rowid != wanted[done]:
                        break
                    done += 1
                    held += _size(values)
                    # In a crafted file, many rows can share the same pages.
                    if held > self._guarded.holds_max:
                        raise StoreUnavailable(
                            where=table, problem=_TOO_MUCH, remedy="Look for a backup"
                        )
                    yield rowid, dict(zip(columns, values, strict=False))
            except TROUBLE:
                pass  # one of them can't be read: which one, the rest says one by one
            for rowid in wanted[done:]:
                yield rowid, self.row(table, rowid)

    def scan(self, table: str, columns: tuple[str, ...]) -> Iterator[Row]:
        """Every row that can be found, with its rowid first. Columns that the table lacks are None,
        and so are values that can't be read. Rows come in the order of their rowids, but for some
        of a damaged page, which come last.
        """
        here = self.columns(table)
        if not here:
            return
        wanted = [quoted(name) if name in here else "NULL" for name in columns]
        walk = Walk(
            self.connection, table, wanted, lambda gap: self._note_gap(table, gap)
        )
        for row in walk.rows():
            if Lost in map(type, row):
                self._note_lost(table, row)
                yield tuple(None if isinstance(value, Lost) else value for value in row)
            else:
                yield row

    def _note_lost(self, table: str, row: Row) -> None:
        """Tells once of a row with a value that can't be read."""
        place = f"{table}.rowid={row[0]}"
        if any(one.place == place for one in self.problems_of(None)):
            return
        lost = next(value for value in row if isinstance(value, Lost))
        self.note_problem(None, place, f"a value of it can't be read ({lost.problem})")

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
        first = _FIRST if gap.first is None else gap.first
        last = _LAST if gap.last is None else gap.last
        gaps = self.gaps.setdefault(table, [])
        # A table is walked more than once, and its gaps are met each time.
        if (first, last) not in gaps:
            gaps.append((first, last))
            self.note_problem(None, stretch(table, gap), gap.problem)


def stretch(table: str, gap: Gap) -> str:
    """Where a gap is, for people."""
    if gap.first is not None and gap.first == gap.last:
        return f"{table}, row {gap.first}"
    first = "the first row" if gap.first is None else f"row {gap.first}"
    last = "the end" if gap.last is None else f"row {gap.last}"
    return f"{table}, {first} to {last}"


def _size(values: Sequence[Any]) -> int:
    return sum(len(value) for value in values if isinstance(value, str | bytes))
