"""What is in a store, how large it is, and what is wrong with it; all asked of the server."""

from collections.abc import Callable, Iterator

from holdfast.engine.named_sql import Rows
from holdfast.engine.postgres.maintenance.migrate import SCHEMA_VERSION
from holdfast.engine.postgres.server.binary_arrays import Texts
from holdfast.engine.postgres.server.connection import ServerConnection
from holdfast.engine.postgres.server.replication import Replication
from holdfast.engine.store_info import RESTORE, Law, Problem, StoreInfo

Read = Callable[..., Rows]

TABLES = (
    "activity",
    "binding",
    "blob",
    "entry",
    "event",
    "inbox",
    "journal",
    "mark",
    "outbox",
    "session",
    "store",
    "words",
)
COUNTED_BYTES_MAX = 4 << 20
"""Larger tables are not counted: the server's statistics tell about how many rows they have."""
VACUUMED = ("entry", "blob", "words", "journal", "inbox", "outbox", "event")
"""What erasures and retentions make smaller."""
_LAWS = (
    Law(
        "torn_logs",
        "{3} entries stand at the seqs {4} to {5}, between {1} and {2}",
        "I-1",
        RESTORE,
    ),
    Law("odd_turns", "turn {1} has {2} ends", "I-6"),
    Law("doubled_ids", "entries {1} and {2} have the same id", "I-2"),
    Law(
        "lost_blobs",
        "entry {1} refers to large parts that are missing",
        "I-14",
        RESTORE,
    ),
    Law("stray_bindings", "a key is bound to it that is not its own", "I-8"),
)


def info(read: Read, where: str, replication: Replication) -> StoreInfo:
    """What `Engine.info` tells. Tables stand where SQLite has files."""
    sizes: dict[str, int] = dict(read("info_sizes", name=Texts(TABLES)))
    # counting reads the whole table on a server, unlike in a file
    estimated = sizes.get("session", 0) + sizes.get("journal", 0) > COUNTED_BYTES_MAX
    sessions, entries, tenants, journal_rows, active_at = read(
        "info_estimates" if estimated else "info_rows"
    )[0]
    server, page_bytes = read("info_server")[0]
    total = sum(sizes.values())
    return StoreInfo(
        where=where,
        bytes=total,
        files=sizes,
        sessions=sessions,
        entries=entries,
        tenants=tenants,
        journal_rows=journal_rows,
        active_at=active_at,
        version=SCHEMA_VERSION,
        engine=server,
        page_bytes=page_bytes,
        pages=total // page_bytes,
        free_pages=0,
        log_pages=0,
        file_system=None,
        replication=str(replication),
        estimated=estimated,
    )


def check(read: Read, where: str, replication: Replication | None) -> list[Problem]:
    """What `Engine.check` tells. Pages are the server's affair; how commits are replicated is that
    of the one which writes.
    """
    return list(_problems(read, where, replication))


def _problems(
    read: Read, where: str, replication: Replication | None
) -> Iterator[Problem]:
    if replication is not None and replication.weakness is not None:
        problem, remedy = replication.weakness
        yield Problem(
            rule="weak-replication",
            place=where,
            problem=problem,
            invariant="I-3",
            remedy=remedy,
        )
    for law in _LAWS:
        yield from map(law.broken, read(law.query))


def vacuum(line: ServerConnection) -> int:
    """Writes the tables anew that erasures make smaller; the bytes that this has freed."""
    before = _total(line)
    for name in VACUUMED:
        line.run_slowly(f"vacuum_{name}")
    return before - _total(line)


def _total(line: ServerConnection) -> int:
    sizes: dict[str, int] = dict(line.run("info_sizes", {"name": Texts(TABLES)}))
    return sum(sizes.values())
