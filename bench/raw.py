"""Raw SQLite, the limit: apsw, the store's own tables and pragmas, rows made beforehand, and no
library.

It makes the same durable commits of the same bytes, judges nothing, and starts the WAL anew every
1000 pages, as the engine does.
"""

import os
import time

import apsw

from holdfast.engine.sqlite.queries import QUERIES, SCHEMA

WAL_PAGES_MAX = 1000


class Raw:
    """A file, written by the calling thread."""

    def __init__(self, path: str) -> None:
        self.connection = connection = apsw.Connection(path)
        connection.execute(
            "PRAGMA mmap_size=0; PRAGMA temp_store=MEMORY; PRAGMA page_size=4096; PRAGMA "
            "journal_mode=WAL; "
            "PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=0; PRAGMA cache_size=-65536; "
            "PRAGMA journal_size_limit=67108864"
        ).fetchall()
        connection.execute(SCHEMA)
        connection.set_wal_hook(self._grown)
        self._pages = self._position = 0
        self._heads: dict[int, int] = {}

    def _grown(self, _connection: apsw.Connection, _database: str, pages: int) -> int:
        self._pages = pages
        return apsw.SQLITE_OK

    def close(self) -> None:
        self.connection.close()

    def entries(self, *, commits: int, batch: int, note: bytes, body: bytes) -> list[float]:
        """Appends `batch` entries to as many sessions, `commits` times; how long each
        commit took.
        """
        batches = []
        for _ in range(commits):
            rows = []
            for session in range(1, batch + 1):
                seq = self._heads[session] = self._heads.get(session, 0) + 1
                rows.append(
                    (session, seq, "message", None, os.urandom(16), 1_700_000_000_000, note, body)
                )
            batches.append(rows)
        return self._commit(QUERIES["add_entry"], batches)

    def chunks(self, *, commits: int, batch: int, body: bytes) -> list[float]:
        """Appends `batch` journal rows, `commits` times; how long each commit took."""
        batches = []
        for _ in range(commits):
            rows = []
            for session in range(1, batch + 1):
                self._position += 1
                rows.append((self._position, session, 1, b"m" * 16, 1, body))
            batches.append(rows)
        return self._commit(QUERIES["add_chunk_a"], batches)

    def _commit(self, statement: str, batches: list[list[tuple[object, ...]]]) -> list[float]:
        connection, clock = self.connection, time.perf_counter
        took = []
        for rows in batches:
            began = clock()
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(statement, rows)
            connection.execute("COMMIT")
            took.append(clock() - began)
            if self._pages > WAL_PAGES_MAX:
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        return took
