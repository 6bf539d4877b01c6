"""What is in a store and how large it is, without reading it through."""

import os
from collections.abc import Iterator

import apsw

from holdfast.engine.sqlite.file_guard.mounts import mounted
from holdfast.engine.sqlite.queries import UPKEEP
from holdfast.engine.store_info import StoreInfo

# Beside the database: its log, the log's index, the lock; the search file with what it
# needs.
SUFFIXES = (
    "",
    "-wal",
    "-shm",
    "-lock",
    "-journal",
    "-search",
    "-search-journal",
    "-search-lock",
    "-search-new",
    "-search-new-journal",
)


def files_of(path: str) -> Iterator[tuple[str, os.stat_result]]:
    """The files of a store that are there."""
    for suffix in SUFFIXES:
        try:
            yield path + suffix, os.stat(path + suffix)
        except OSError:
            continue


def info(reader: apsw.Connection, path: str) -> StoreInfo:
    """What `Engine.info` tells."""
    run = reader.execute
    sessions, entries, journal_rows, active_at = run(UPKEEP["info_rows"]).get
    sizes = {os.path.basename(name): found.st_size for name, found in files_of(path)}
    mount = mounted(path)
    return StoreInfo(
        where=path,
        bytes=sum(sizes.values()),
        files=sizes,
        sessions=sessions,
        entries=entries,
        tenants=run(UPKEEP["info_tenants"]).get,
        journal_rows=journal_rows,
        active_at=active_at,
        version=run("PRAGMA user_version").get,
        engine=f"SQLite {apsw.sqlite_lib_version()}",
        page_bytes=run("PRAGMA page_size").get,
        pages=run("PRAGMA page_count").get,
        free_pages=run("PRAGMA freelist_count").get,
        log_pages=_log_pages(reader, sizes.get(os.path.basename(path) + "-wal", 0)),
        file_system=mount.kind if mount is not None else None,
    )


def _log_pages(reader: apsw.Connection, log_bytes: int) -> int:
    """How many pages of the log are not in the database yet; at most, where one may only look."""
    try:
        pages, done = reader.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
        return max(pages - done, 0)
    except apsw.ReadOnlyError:
        page_bytes: int = reader.execute("PRAGMA page_size").get
        return max(log_bytes - 32, 0) // (page_bytes + 24)
