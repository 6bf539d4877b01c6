"""Tables of a SQLite file that may be damaged: what can be read of them, row by row, and what
can't.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from holdfast.importers.damaged_rows import TROUBLE, Gap, Lost, Walk, quoted, row_at
from holdfast.importers.guarded_sqlite import Guarded
from holdfast.importers.reader import UnreadableRecord
from holdfast.importers.sqlite_file import stretch
from holdfast.importers.values import JsonObject, Row

CLAIM_MAX = 1 << 34
SMALL_MAX = 64 << 20


class Tables:
    """A connection to a private copy; what could not be read is in `problems`."""

    def __init__(self, path: Path) -> None:
        self.problems: list[UnreadableRecord] = []
        lost = _made_whole(path)
        self._guarded = Guarded(path)
        self.connection = self._guarded.connection
        self._columns: dict[str, tuple[str, ...]] = {}
        try:
            self.connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
            damage = self._checked(path.name)
        except BaseException:
            self.connection.close()
            raise
        self.is_damaged = bool(damage or lost or self.problems)
        """Or may be: then no index is believed."""
        if lost:
            self.note_problem(
                None, path.name, f"the last {lost} bytes of the file are not there"
            )
        if damage:
            self.note_problem(
                None,
                path.name,
                f"the file is damaged: {damage[0].splitlines()[-1][:200]}",
            )

    def close(self) -> None:
        self.connection.close()

    def _checked(self, name: str) -> list[str]:
        """What SQLite's own check finds. It can't be done where, say, a column computes what is too
        large.
        """
        try:
            return [
                str(line)
                for (line,) in self.connection.execute("PRAGMA integrity_check(3)")
                if line != "ok"
            ]
        except TROUBLE as error:
            self.note_problem(
                None,
                name,
                f"SQLite can't check it ({error}), so its rows were looked for one by one",
            )
            return []

    def note_problem(self, session: str | None, place: str, problem: str) -> None:
        unread = UnreadableRecord(session, place, problem)
        if unread not in self.problems:
            self.problems.append(unread)

    def columns(self, table: str) -> tuple[str, ...]:
        """The columns of a table; none when it isn't there, or is a view or whatever else is no
        table.
        """
        if table.lower() not in self._guarded.tables:
            return ()
        if table not in self._columns:
            found = self.ask(
                "SELECT name FROM pragma_table_info(?) ORDER BY cid", (table,)
            )
            self._columns[table] = tuple(str(name) for (name,) in found)
        return self._columns[table]

    def ask(self, query: str, given: Row) -> list[Row]:
        """All answers to a question; none, and a problem noted, when it can't be answered."""
        try:
            return self.connection.execute(query, given).fetchall()
        except TROUBLE as error:
            if "no such" not in str(error):
                self.note_problem(
                    None,
                    query.partition(" FROM ")[2].split(" ")[0] or "the file",
                    str(error),
                )
            return []

    def scan(self, table: str, columns: tuple[str, ...]) -> Iterator[Row]:
        """Row ids with some columns, by no index, in the order of the ids but for some of a damaged
        page. None stands for a column that is not there, and for a value that can't be read.
        """
        here = self.columns(table)
        wanted = [quoted(name) if name in here else "NULL" for name in columns]
        for row in (
            Walk(
                self.connection, table, wanted, lambda gap: self._note_gap(table, gap)
            ).rows()
            if here
            else ()
        ):
            yield tuple(None if isinstance(value, Lost) else value for value in row)

    def _note_gap(self, table: str, gap: Gap) -> None:
        self.note_problem(None, stretch(table, gap), gap.problem)

    def whole_rows(self, table: str) -> Iterator[tuple[int, JsonObject]]:
        """Every row with all its columns; one that can't be read is noted as a problem."""
        for (number,) in list(self.scan(table, ())):
            columns = self.row(table, number, large=(), limit=0)
            if isinstance(columns, str):
                self.note_problem(None, f"{table} row {number}", columns)
            else:
                yield number, columns

    def row(
        self, table: str, number: int, *, large: tuple[str, ...], limit: int
    ) -> JsonObject | str:
        """A row by its columns' names, or a sentence why not. The `large` ones come as bytes, or as
        a sentence when they are more than `limit` or can't be read; all others come as they are, a
        text that is not UTF-8 as bytes.
        """
        names = self.columns(table)
        wanted = [
            _bounded(name, limit) if name in large else _small(name) for name in names
        ]
        found = row_at(self.connection, table, number, wanted)
        if found is None:
            return "it is not there any more"
        if all(isinstance(value, Lost) for value in found):
            return f"it can't be read: {found[0].problem}"
        values = dict(zip(names, found, strict=True))
        for name in [name for name in values if isinstance(values[name], Lost)]:
            values[name] = (
                f"it can't be read: {values[name].problem}" if name in large else None
            )
        return values | {name: None for name in large if name not in values}


def _made_whole(path: Path) -> int:
    """How much is missing at the end of a file, by its own header. The copy is filled up with
    nothing: SQLite reads no page of a file that is too short, and only those that are gone of one
    that is not.
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


def _small(name: str) -> str:
    """The column, unless somebody put into it what belongs into no memory."""
    return (
        f"CASE WHEN coalesce(octet_length({quoted(name)}), 0) <= {SMALL_MAX} THEN "
        f"{quoted(name)} END"
    )


def _bounded(name: str, limit: int) -> str:
    """The column as bytes; as a sentence, which is text, when it is too large; a number
    stays one.
    """
    column = quoted(name)
    return (
        f"CASE WHEN octet_length({column}) > {limit} "
        f"THEN 'it is ' || octet_length({column}) || ' bytes long, too large' "
        f"WHEN typeof({column}) IN ('text', 'blob') THEN CAST({column} AS BLOB) ELSE {column} END"
    )
