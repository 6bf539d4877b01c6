"""Raw psycopg, the limit: one connection, the store's own table, rows made beforehand, and no
library.

It inserts the same bytes in batches of a given size, each in one prepared statement with arrays,
which is one round trip and one commit. It judges nothing and keeps no heads of sessions.
"""

import os
import time
import uuid
from collections.abc import Sequence
from typing import Any

import psycopg

INSERT = """
    INSERT INTO entry (tenant, session, seq, kind, turn, id, at, note, body)
    SELECT * FROM unnest(%b::bytea[], %b::uuid[], %b::bigint[], %s::text[], %s::bigint[], %b::bytea[], %b::bigint[],
                         %b::bytea[], %b::bytea[])
"""


class PostgresRaw:
    """A connection, used by the calling thread. The store's tables are there already."""

    def __init__(self, dsn: str, sessions: int, *, note: bytes, body: bytes) -> None:
        self._connection = psycopg.connect(dsn, autocommit=True, prepare_threshold=0)
        self._sessions = [uuid.uuid4() for _ in range(sessions)]
        self._seq = 0
        self._note, self._body = note, body

    def round(self, sizes: Sequence[int]) -> float:
        """Rows per second, in batches of these sizes."""
        batches = [self._batch(size) for size in sizes]
        execute = self._connection.execute
        began = time.perf_counter()
        for batch in batches:
            execute(INSERT, batch)
        return sum(sizes) / (time.perf_counter() - began)

    def _batch(self, count: int) -> list[list[Any]]:
        self._seq += 1
        ids = [os.urandom(16) for _ in range(count)]
        when, turns, kinds = [1_700_000_000_000] * count, [None] * count, ["message"] * count
        tenants = [b"raw"] * count
        sessions = [self._sessions[at % len(self._sessions)] for at in range(count)]
        seqs = [self._seq * 1000 + at // len(self._sessions) for at in range(count)]
        return [
            tenants,
            sessions,
            seqs,
            kinds,
            turns,
            ids,
            when,
            [self._note] * count,
            [self._body] * count,
        ]

    def close(self) -> None:
        self._connection.close()
