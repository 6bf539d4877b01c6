"""Opening the file: its place and rights, pragmas, schema, and whose file it is."""

import os
import stat
from contextlib import closing

import apsw

from holdfast.engine.sqlite.driver_errors import translated
from holdfast.engine.sqlite.file_guard.damaged_log import refuse_damaged_log
from holdfast.engine.sqlite.file_guard.file_header import (
    FileHeader,
    read_header,
    refuse_lost_database,
)
from holdfast.engine.sqlite.file_guard.file_identity import refuse_beside_strayed
from holdfast.engine.sqlite.file_guard.handled_files import handling
from holdfast.engine.sqlite.file_guard.mounts import refuse_lone_file, refuse_remote
from holdfast.engine.sqlite.file_guard.open_files import unusable
from holdfast.engine.sqlite.file_guard.permissions import make_owned, warn_of_others
from holdfast.engine.sqlite.maintenance.migrate import SCHEMA_VERSION, migrate
from holdfast.engine.sqlite.queries import SCHEMA, transaction
from holdfast.errors import HoldfastError, SchemaMismatch, StoreUnavailable
from holdfast.process_fork import (
    inside,
    note_opened,
    refuse_torn,
)

APPLICATION_ID = 0x484F4C44  # "HOLD"
# before it, two connections that write and checkpoint at once could corrupt the file
SQLITE_NEEDED = (3, 51, 3)


def quoted(path: str) -> str:
    """The path as it stands in a `file:` address."""
    return path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def connect(path: str, *, busy_s: float) -> apsw.Connection:
    """A connection with the pragmas every connection has. It makes no file: SQLite would make one
    with rights for all.
    """
    with inside(), handling(path):
        connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
        note_opened(connection)
        try:
            keep_plans(connection)
            connection.set_busy_timeout(int(busy_s * 1000))
            connection.execute(
                "PRAGMA mmap_size=0; PRAGMA temp_store=MEMORY"
            ).fetchall()
        except BaseException:
            # here: one that is dropped is closed wherever that happens
            connection.close(True)
            raise
        return connection


def keep_plans(connection: apsw.Connection) -> None:
    """A statement is prepared once. Where a plan might depend on a value, such as the place from
    which a log is read, SQLite would prepare it anew for each: that takes longer than the reading.
    """
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)


def connect_writer(path: str, *, durability: str, busy_s: float) -> apsw.Connection:
    """The writing connection. It checkpoints by itself, after it has acknowledged: an automatic
    checkpoint that fails makes a finished commit report an error.
    """
    connection = connect(path, busy_s=busy_s)
    connection.execute(
        "PRAGMA wal_autocheckpoint=0; PRAGMA cache_size=-65536; PRAGMA "
        "journal_size_limit=67108864; "
        # what a page no longer holds is not left in it; erasing counts on that
        "PRAGMA secure_delete=FAST"
    ).fetchall()
    set_lasting(connection, durability == "power")
    return connection


def connect_reader(path: str, *, busy_s: float) -> apsw.Connection:
    """A connection that can't write (I-18)."""
    connection = connect(path, busy_s=busy_s)
    connection.execute("PRAGMA query_only=1; PRAGMA cache_size=-8192").fetchall()
    return connection


def set_lasting(connection: apsw.Connection, lasting: bool) -> None:
    """Whether a commit is synced before it is done; what was written before it is synced with it.
    Between transactions only.
    """
    connection.execute(
        "PRAGMA synchronous=FULL" if lasting else "PRAGMA synchronous=NORMAL"
    ).fetchall()


def check_version(connection: apsw.Connection, path: str) -> None:
    """Refuses a store that a newer release has migrated meanwhile (FAULTS H3)."""
    found = connection.execute("PRAGMA user_version").get
    if found != SCHEMA_VERSION:
        raise SchemaMismatch(where=path, found=found, known=SCHEMA_VERSION)


def version_of(path: str) -> int:
    """The format of the store at this path; nothing is changed."""
    with (
        translated(path),
        inside(),
        handling(path),
        closing(connect_reader(path, busy_s=0)) as connection,
    ):
        version: int = connection.execute("PRAGMA user_version").get
        return version


def prepare(path: str, *, busy_s: float, durability: str) -> None:
    """Makes the store if there is none, and refuses a file that is not ours or newer than we are:
    such a file is not touched.

    Called `inside` and under the fair lock, so two processes that open a new store at once make one.
    """
    refuse_beside_strayed(path)
    with translated(path), handling(path):
        _refuse_by_header(path)
        with closing(connect(path, busy_s=busy_s)) as connection:
            # a store that is refused stays as it is
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            refuse_damaged_log(connection, path, durability=durability)
            _check_or_create(connection, path)
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)


def refuse_stranger(path: str, *, busy_s: float) -> None:
    """Before the lock file is made: beside a file that is not ours, none is left."""
    lock = path + "-lock"
    if os.path.lexists(lock):
        return
    try:
        with translated(path), inside(), handling(path):
            if _refuse_by_header(path) is None and os.path.exists(path + "-wal"):
                with closing(connect(path, busy_s=busy_s)) as connection:
                    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
                    _refuse_other_owner(connection, path)
    except HoldfastError:
        # Somebody makes a store here at this moment, and its lock first: what was seen is
        # judged again under that.
        if not os.path.lexists(lock):
            raise


def _refuse_by_header(path: str) -> FileHeader | None:
    header = read_header(path)
    if header is not None:
        is_ours = header.application_id == APPLICATION_ID
        if header.whole and not is_ours:
            raise not_ours(path)
        if is_ours:
            refuse_newer(header.version, path)
    return header


def _refuse_other_owner(connection: apsw.Connection, path: str) -> int:
    """How many tables there are; with any, they are Holdfast's."""
    tables: int = connection.execute("SELECT count(*) FROM sqlite_master").get
    owner = connection.execute("PRAGMA application_id").get
    if tables and owner != APPLICATION_ID:
        raise not_ours(path)
    return tables


def make_file(path: str) -> None:
    """An empty, owner-only file, unless there is one: SQLite gives its side files the same rights.
    A file that is there is not opened: closing it again would let go of the locks that another
    handle of this process has on it.
    """
    refuse_torn(path)
    version = tuple(int(part) for part in apsw.sqlite_lib_version().split("."))
    if version < SQLITE_NEEDED:
        raise StoreUnavailable(
            where=path,
            problem=f"the linked SQLite {apsw.sqlite_lib_version()} can corrupt files that "
            "several processes write",
            remedy="Install apsw 3.51.3 or newer",
        )
    refuse_remote(path)
    refuse_lone_file(path)
    try:
        _make_or_check(path)
        warn_of_others(path)
    except OSError as error:
        remedy = "Check that its folder exists and that the file is yours to write"
        raise unusable(error, path, remedy) from error


def _make_or_check(path: str) -> None:
    if os.path.exists(path):
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise OSError(0, "it is not a file")
        if not os.access(
            path,
            os.R_OK | os.W_OK,
            # a program with the rights of another user is judged by those
            effective_ids=os.access in os.supports_effective_ids,
        ):
            raise OSError(0, "it can't be written")
        return
    refuse_lost_database(path)
    make_owned(path)


def _check_or_create(connection: apsw.Connection, path: str) -> None:
    if not _refuse_other_owner(connection, path):
        # both before the first table: the page size can't be changed later
        connection.execute("PRAGMA page_size=4096; PRAGMA journal_mode=WAL").fetchall()
        with transaction(connection, "IMMEDIATE"):
            connection.execute(SCHEMA)
            connection.execute(
                f"PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version={SCHEMA_VERSION}"
            ).fetchall()
        return
    refuse_newer(connection.execute("PRAGMA user_version").get, path)
    # a copy that another program made may have lost it
    connection.execute("PRAGMA journal_mode=WAL").fetchall()
    migrate(connection)


def refuse_newer(version: int, path: str) -> None:
    if version > SCHEMA_VERSION:
        raise SchemaMismatch(where=path, found=version, known=SCHEMA_VERSION)


def not_ours(path: str) -> StoreUnavailable:
    problem = "it is a database of another program"
    return StoreUnavailable(
        where=path, problem=problem, remedy="Give Holdfast a file of its own"
    )
