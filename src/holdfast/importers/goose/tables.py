"""Tables of a goose store that may be damaged: what can be read of them, row by row, and what
can't.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from holdfast.importers.damaged_rows import TROUBLE, Lost, quoted, row_at
from holdfast.importers.reader import UnreadableRecord
from holdfast.importers.sqlite_file import SqliteFile
from holdfast.importers.values import JsonObject, Row

CLAIM_MAX = 1 << 34
SMALL_MAX = 64 << 20
# Of a message that is too large to be held, the size is asked for: SQLite must be able to open it.
_LENGTH_MAX = 1 << 30


class Tables(SqliteFile):
    """A private copy, opened. Once it is known to be damaged, no index of it is believed."""

    def __init__(self, path: Path) -> None:
        lost = _made_whole(path)
        super().__init__(path, length_max=_LENGTH_MAX)
        try:
            self.connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
            # An index that is damaged gives rows in silence, or leaves them out.
            damage = self._checked(path.name)
        except BaseException:
            self.close()
            raise
        # A program that was killed in the middle of a checkpoint leaves a file whose header tells of
        # pages that only the log has: then SQLite finds all of them.
        has_log = os.path.exists(f"{path}-wal") and os.path.getsize(f"{path}-wal") > 0
        if lost and (damage or not has_log):
            problem = f"the last {lost} bytes of the file are not there"
            self.note_problem(None, path.name, problem)
        if damage:
            problem = f"the file is damaged: {damage[0].splitlines()[-1][:200]}"
            self.note_problem(None, path.name, problem)
        self.is_damaged = bool(self.problems)

    def _checked(self, name: str) -> list[str]:
        """What SQLite's own check finds."""
        try:
            check = self.connection.execute("PRAGMA integrity_check(3)")
            return [str(line) for (line,) in check if line != "ok"]
        except TROUBLE as error:
            # It can't be done where, say, a column computes what is too large.
            problem = f"SQLite can't check it ({error}), so its rows were looked for one by one"
            self.note_problem(None, name, problem)
            return []

    def note_problem(
        self, session: str | None, place: str, problem: str, raw: bytes = b""
    ) -> None:
        if UnreadableRecord(session, place, problem, raw) not in self.problems:
            super().note_problem(session, place, problem, raw)

    def _note_lost(self, table: str, row: Row) -> None:
        """Nothing: a value that is lost is told when its whole row is read."""

    def ask(self, query: str, *given: object) -> list[Row]:
        """All answers to a question; none, and a problem noted, when it can't be answered."""
        try:
            return self.connection.execute(query, given).fetchall()
        except TROUBLE as error:
            # Tables and columns that another release of goose has are not missing.
            if "no such" not in str(error):
                table = query.partition(" FROM ")[2].split(" ")[0]
                self.note_problem(None, table or "the file", str(error))
            return []

    def _names(self, table: str) -> list[str]:
        names = self.ask("SELECT name FROM pragma_table_info(?) ORDER BY cid", table)
        return [str(name) for (name,) in names]

    def whole_rows(self, table: str) -> Iterator[tuple[int, JsonObject]]:
        """Every row with all its columns; one that can't be read is noted as a problem."""
        for (number,) in list(self.scan(table, ())):
            columns = self.bounded_row(table, number)
            if isinstance(columns, str):
                self.note_problem(None, f"{table} row {number}", columns)
            else:
                yield number, columns

    def bounded_row(
        self, table: str, number: int, *, large: tuple[str, ...] = (), limit: int = 0
    ) -> JsonObject | str:
        """A row by its columns' names, or a sentence why not. The `large` ones come as bytes, or as
        a sentence when they are more than `limit` or can't be read; all others come as they are, a
        text that is not UTF-8 as bytes.
        """
        names = self.columns(table)
        wanted = []
        for name in names:
            wanted.append(_bounded(name, limit) if name in large else _small(name))
        found = row_at(self.connection, table, number, wanted)
        if found is None:
            return "it is not there any more"
        if all(isinstance(value, Lost) for value in found):
            return f"it can't be read: {found[0].problem}"
        values: JsonObject = dict.fromkeys(large)
        for name, value in zip(names, found, strict=True):
            if not isinstance(value, Lost):
                values[name] = value
            elif name in large:
                values[name] = f"it can't be read: {value.problem}"
            else:
                values[name] = None
        return values


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
