"""A store that does not answer, for as long as a test wants."""

from collections.abc import Iterator
from contextlib import contextmanager

from procs import child


@contextmanager
def held(where: str) -> Iterator[None]:
    """Somebody else has the session's row, or the file, and does not let go of it."""
    if where.startswith("postgresql"):
        import psycopg

        with psycopg.connect(where) as connection:
            connection.execute("select * from session for update")
            yield
            connection.rollback()
        return
    script = """
        import sqlite3
        connection = sqlite3.connect(sys.argv[1], isolation_level=None)
        connection.execute("begin immediate")
        say("held")
        hear()
    """
    with child(script, where) as other:
        other.wait_for("held")
        yield
