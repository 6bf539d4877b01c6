"""Opening the file: rights, pragmas, schema, and whose file it is."""

import os

import apsw

from holdfast.engine.sqlite.queries import SCHEMA
from holdfast.engine.sqlite.trouble import translate
from holdfast.errors import SchemaMismatch, StoreUnavailable

APPLICATION_ID = 0x484F4C44  # "HOLD"
SCHEMA_VERSION = 1
SQLITE_NEEDED = (3, 51, 3)  # before it, two connections that write and checkpoint at once could corrupt the file


def connect(path: str, *, busy_s: float) -> apsw.Connection:
    """A connection with the pragmas every connection has."""
    connection = apsw.Connection(path)
    connection.set_busy_timeout(int(busy_s * 1000))
    connection.execute("PRAGMA mmap_size=0; PRAGMA temp_store=MEMORY").fetchall()
    return connection


def connect_writer(path: str, *, durability: str, busy_s: float) -> apsw.Connection:
    """The writing connection. It checkpoints by itself, after it has acknowledged: an automatic checkpoint that fails
    makes a finished commit report an error."""
    connection = connect(path, busy_s=busy_s)
    level = "FULL" if durability == "power" else "NORMAL"
    connection.execute(
        f"PRAGMA synchronous={level}; PRAGMA wal_autocheckpoint=0; PRAGMA cache_size=-65536; "
        "PRAGMA journal_size_limit=67108864"
    ).fetchall()
    return connection


def connect_reader(path: str, *, busy_s: float) -> apsw.Connection:
    """A connection that can't write (I-18)."""
    connection = connect(path, busy_s=busy_s)
    connection.execute("PRAGMA query_only=1; PRAGMA cache_size=-8192").fetchall()
    return connection


def prepare(path: str, *, busy_s: float) -> None:
    """Makes the store if there is none, and refuses a file that is not ours or newer than we are.

    Called under the fair lock, so two processes that open a new store at once make one.
    """
    version = tuple(int(part) for part in apsw.sqlite_lib_version().split("."))
    if version < SQLITE_NEEDED:
        raise StoreUnavailable(
            where=path,
            problem=f"the linked SQLite {apsw.sqlite_lib_version()} can corrupt files that several processes write",
            remedy="Install apsw 3.51.3 or newer",
        )
    make_file(path)
    try:
        connection = connect(path, busy_s=busy_s)
        try:
            _check_or_create(connection, path)
        finally:
            connection.close()
    except apsw.Error as error:
        raise translate(error, path) from error


def make_file(path: str) -> None:
    """An empty, owner-only file, unless there is one: SQLite gives its side files the same rights."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        remedy = "Check that its folder exists and that the file is yours to write"
        raise StoreUnavailable(where=path, problem=error.strerror or str(error), remedy=remedy) from error


def _check_or_create(connection: apsw.Connection, path: str) -> None:
    tables = connection.execute("SELECT count(*) FROM sqlite_master").get
    owner = connection.execute("PRAGMA application_id").get
    if not tables:
        connection.execute("PRAGMA page_size=4096; PRAGMA journal_mode=WAL").fetchall()
        with connection:
            connection.execute(SCHEMA)
            connection.execute(
                f"PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version={SCHEMA_VERSION}"
            ).fetchall()
        return
    if owner != APPLICATION_ID:
        raise StoreUnavailable(
            where=path,
            problem="it is a database of another program",
            remedy="Give Holdfast a file of its own",
        )
    found = connection.execute("PRAGMA user_version").get
    if found > SCHEMA_VERSION:
        raise SchemaMismatch(where=path, found=found, known=SCHEMA_VERSION)
