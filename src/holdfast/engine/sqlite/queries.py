"""The named statements of this engine's `.sql` files, ready to run."""

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import apsw

from holdfast.engine import named_sql
from holdfast.engine.sqlite.spoilt_texts import rows_of


def _named(file: str) -> dict[str, str]:
    return named_sql.load(named_sql.beside(__file__, file))


SEARCH = _named("search.sql")
QUERIES = (
    SEARCH
    | _named("filing.sql")
    | _named("restoring.sql")
    | _named("polling.sql")
    | _named("queries.sql")
)
UPKEEP = _named("upkeep.sql")
SCHEMA = named_sql.beside(__file__, "schema.sql")
MIGRATIONS = named_sql.migrations(__file__)


class Statements:
    """The named statements, on one connection that may write."""

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection

    def run(self, name: str, *values: Any) -> apsw.Cursor:
        return self.connection.execute(QUERIES[name], values)

    def rows(self, name: str, *values: Any) -> named_sql.Rows:
        """What a question gives: a text that is none, as its bytes."""
        return rows_of(self.connection, QUERIES[name], values)

    def run_many(self, name: str, rows: Iterable[named_sql.Row]) -> None:
        self.connection.executemany(QUERIES[name], rows)


@contextlib.contextmanager
def transaction(connection: apsw.Connection, kind: str) -> Iterator[None]:
    """`DEFERRED` to read the file as of one moment, `IMMEDIATE` to write it.

    Not the driver's own, `with connection:`. SQLite takes a transaction back by itself when it can't
    write, and the driver then says that there is none, in the place of what was wrong.
    """
    try:
        # one that was interrupted may have left its own behind
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        connection.execute(f"BEGIN {kind}")
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
