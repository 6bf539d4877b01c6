"""A connection to a SQLite file that somebody else made: it reads tables, and nothing else can be
made of it.

A schema is a program. Views, virtual tables, triggers and generated columns run whatever their
author wrote as soon as somebody reads; a page can say that a row of a small file has gigabytes. So
only tables that lie in the file are read, by an authorizer that knows the few functions we use
ourselves; no other file can be attached; no value is larger than the file can hold, and all that is
read together not more than some passes over it. Between two rows there is so much work and no more,
and signals are seen meanwhile.
"""

import os
from pathlib import Path

import apsw

from holdfast.errors import StoreUnavailable
from holdfast.importers.values import Row
from holdfast.process_fork import inside
from holdfast.stepping_connection import SteppingConnection

# Instructions of SQLite's machine between two looks: a millisecond, in which a signal
# is seen.
STEPS = 100_000
# So often is looked before the next row is there: some tens of seconds.
LOOKS_MAX = 20_000
PASSES_MAX = 64
SPARE = 1 << 20
_SCHEMA = frozenset(
    {
        "sqlite_schema",
        "sqlite_master",
        "sqlite_sequence",
        "pragma_table_info",
        "pragma_table_xinfo",
    }
)
_PRAGMAS = frozenset(
    {"table_info", "table_xinfo", "integrity_check", "page_count", "page_size"}
)
_OURS = {
    "char",
    "coalesce",
    "count",
    "glob",
    "ltrim",
    "max",
    "min",
    "octet_length",
    "typeof",
}
# What stands in the defaults and checks of honest tables. None of them makes much of
# little.
_IN_SCHEMAS = {
    "current_date",
    "current_time",
    "current_timestamp",
    "date",
    "datetime",
    "ifnull",
    "json_valid",
    "julianday",
    "length",
    "lower",
    "strftime",
    "time",
    "trim",
    "unixepoch",
    "upper",
}
_FUNCTIONS = frozenset(_OURS | _IN_SCHEMAS)


class Guarded:
    """A private copy of a file, opened. `connection` may be asked for rows of `tables`, which are
    in lower case.
    """

    def __init__(self, path: Path, *, length_max: int = 1 << 30) -> None:
        self._path = path
        self._looks = 0
        self._read = 0
        # No more can come out of this file in one pass, whatever its texts are encoded in.
        self.holds_max = 2 * _size(path) + SPARE
        self.tables: frozenset[str] = frozenset()
        # It is a private copy, and its log has to be played back into it.
        flags = apsw.SQLITE_OPEN_READWRITE
        self.connection = SteppingConnection(str(path), flags=flags)
        try:
            with inside():
                self._close_doors(min(length_max, self.holds_max))
            query = (
                "SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage > 0 AND "
                "typeof(name) = 'text'"
            )
            names = [str(name).lower() for (name,) in self.connection.execute(query)]
            self.tables = frozenset(names)
        except BaseException:
            self.connection.close()
            raise

    def _close_doors(self, length_max: int) -> None:
        connection = self.connection
        for name, value in (
            ("DEFENSIVE", 1),
            ("TRUSTED_SCHEMA", 0),
            ("ENABLE_VIEW", 0),
            ("ENABLE_TRIGGER", 0),
        ):
            connection.config(getattr(apsw, f"SQLITE_DBCONFIG_{name}"), value)
        # No other file can be reached from this one.
        connection.limit(apsw.SQLITE_LIMIT_ATTACHED, 0)
        connection.limit(apsw.SQLITE_LIMIT_LENGTH, length_max)
        connection.limit(apsw.SQLITE_LIMIT_EXPR_DEPTH, 200)
        connection.authorizer = self._judge
        connection.row_trace = self._pass_on
        # A query over damaged pages may go round in circles.
        connection.set_progress_handler(self._look, STEPS)

    def _judge(
        self,
        action: int,
        first: str | None,
        second: str | None,
        database: str | None,
        source: str | None,
    ) -> int:
        """Whether a statement, as far as this part of it goes, does nothing but read tables. A
        function that a schema calls, in a default or a check, gives nothing.
        """
        name = (first or "").lower()
        if action == apsw.SQLITE_FUNCTION:
            is_known = (second or "").lower() in _FUNCTIONS
            return int(apsw.SQLITE_OK if is_known else apsw.SQLITE_IGNORE)
        if action == apsw.SQLITE_SELECT:
            is_fine = source is None  # else it is a view that selects
        elif action == apsw.SQLITE_READ:
            # A statement that reads no column of a table names none.
            is_fine = name in self.tables or name in _SCHEMA or not name
        else:
            is_fine = action == apsw.SQLITE_PRAGMA and name in _PRAGMAS
        return int(apsw.SQLITE_OK if is_fine else apsw.SQLITE_DENY)

    def _pass_on(self, cursor: apsw.Cursor, row: Row) -> Row:
        # Once for every row that is read: a loop of its own would be felt.
        self._looks = 0
        self._read += sum(
            len(value) for value in row if type(value) is str or type(value) is bytes
        )
        if self._read > PASSES_MAX * self.holds_max:
            raise self._endless("more comes out of it than a file of its size can hold")
        return row

    def _look(self) -> bool:
        self._looks += 1
        if self._looks > LOOKS_MAX:
            raise self._endless("reading it does not come to an end")
        return False

    def _endless(self, problem: str) -> StoreUnavailable:
        remedy = "It is damaged, or was made to do harm: look at it with SQLite's own `.recover`"
        return StoreUnavailable(where=str(self._path), problem=problem, remedy=remedy)


def _size(path: Path) -> int:
    size = 0
    for name in (f"{path}", f"{path}-wal"):
        if os.path.exists(name):
            size += os.path.getsize(name)
    return size
