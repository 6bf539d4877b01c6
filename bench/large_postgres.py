"""A large store in PostgreSQL, made by the server itself: sessions by the million in a minute or
two.

    fill(dsn, sessions=1_000_000, tenants=10_000)

The tables are those of a store that was opened here before, so they are this release's. Every
session has an `opened` entry, a question and an answer, a key, and a place in lists; every
hundredth is running, every tenth has ended, every fiftieth is a fork of the one before. Marks and
words are as if everything was searched, so a search finds nothing left to read. What it writes,
Holdfast can read: the tests and the growth bench use it for that.
"""

import argparse
import sys
import time
from typing import Any

import psycopg

BEGAN_AT = 1_700_000_000_000
CHUNK = 50_000

_NUMBERED = """
    SELECT n, convert_to('tenant ' || (n %% {tenants}), 'UTF8') AS tenant,
           md5('session ' || n)::uuid AS id, convert_to('key ' || n, 'UTF8') AS key,
           CASE WHEN n %% 50 = 49 THEN 2 ELSE 0 END AS origin, {began} + n AS at
    FROM generate_series({first}::bigint, {last}::bigint) AS n
"""
_STATEMENTS = (
    """INSERT INTO session (tenant, id, key, epoch, ended, head, fence, turn, holder, lease_until, origin, opened_at,
                            listed_at, last_at, stamp, unread, parent)
       SELECT tenant, id, key, 1, CASE WHEN n %% 10 = 5 THEN 1 ELSE 0 END, origin + 3, 1,
              CASE WHEN n %% 100 = 7 THEN 1 END, CASE WHEN n %% 100 = 7 THEN convert_to('elsewhere', 'UTF8') END,
              CASE WHEN n %% 100 = 7 THEN 4e9 END, origin, at, at, at, n, false,
              CASE WHEN origin > 0 THEN md5('session ' || (n - 1))::uuid END
       FROM ({numbered}) AS made""",
    """INSERT INTO activity (tenant, session, key, state, active_at, unread)
       SELECT tenant, id, key, CASE WHEN n %% 10 = 5 THEN 2 WHEN n %% 100 = 7 THEN 1 ELSE 0 END, at, false
       FROM ({numbered}) AS made""",
    """INSERT INTO binding (tenant, key, session, epoch) SELECT tenant, key, id, 1 FROM ({numbered}) AS made""",
    """INSERT INTO entry (tenant, session, seq, kind, turn, id, at, note, body)
       SELECT tenant, id, origin + 1, 'opened', NULL, decode(md5('o' || n), 'hex'), at,
              convert_to('{{"key":"key ' || n || '","epoch":1' || CASE WHEN origin > 0 THEN
                  ',"parent":"' || md5('session ' || (n - 1))::uuid || '","parent_seq":2' ELSE '' END || '}}', 'UTF8'),
              ''
       FROM ({numbered}) AS made""",
    """INSERT INTO entry (tenant, session, seq, kind, turn, id, at, note, body)
       SELECT tenant, id, origin + 2, 'message', NULL, decode(md5('q' || n), 'hex'), at, '',
              convert_to('{{"role":"user","content":"question ' || n || ' about the harbour"}}', 'UTF8')
       FROM ({numbered}) AS made""",
    """INSERT INTO entry (tenant, session, seq, kind, turn, id, at, note, body)
       SELECT tenant, id, origin + 3, 'message', NULL, decode(md5('a' || n), 'hex'), at,
              convert_to('{{"role":"assistant"}}', 'UTF8'),
              convert_to('{{"role":"assistant","content":"answer ' || n || ': the tide, and then some"}}', 'UTF8')
       FROM ({numbered}) AS made""",
    """INSERT INTO mark (tenant, session, seq) SELECT tenant, id, origin + 3 FROM ({numbered}) AS made""",
    """INSERT INTO words (tenant, session, seq, at, lexemes)
       SELECT tenant, id, origin + 2, at, array_to_tsvector(ARRAY[
                  begins || 'question', begins || n, begins || 'about', begins || 'the', begins || 'harbour',
                  begins || 'r:user', begins || 'p:0'])
       FROM (SELECT *, encode(substring(sha256(tenant) FOR 3), 'base64') AS begins
             FROM ({numbered}) AS made) AS made""",
)


def fill(dsn: str, *, sessions: int, tenants: int, after: int = 0, tell: Any = None) -> None:
    """Adds sessions number `after` to `sessions`, spread over the tenants, and has the server look
    at its tables.
    """
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = off")
        for first in range(after, sessions, CHUNK):
            last = min(first + CHUNK, sessions) - 1
            numbered = _NUMBERED.format(
                tenants=tenants, began=BEGAN_AT, first=first, last=last
            ).replace("%%", "%")
            for statement in _STATEMENTS:
                connection.execute(statement.replace("%%", "%").format(numbered=numbered))  # type: ignore[arg-type]
            if tell is not None:
                tell(last + 1)
        connection.execute("VACUUM ANALYZE")


def tenant_of(number: int, tenants: int) -> str:
    """Whose session this is."""
    return f"tenant {number % tenants}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Fills a store in PostgreSQL that was opened before."
    )
    parser.add_argument("dsn")
    parser.add_argument("--sessions", type=int, default=1_000_000)
    parser.add_argument("--tenants", type=int, default=10_000)
    given = parser.parse_args()
    began = time.perf_counter()
    fill(
        given.dsn,
        sessions=given.sessions,
        tenants=given.tenants,
        tell=lambda n: print(n, file=sys.stderr),
    )
    print(f"{given.sessions} sessions in {time.perf_counter() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
