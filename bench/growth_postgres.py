"""`python -m bench.growth_postgres DSN… `: how long calls take in stores of different sizes, one
column for each.

The stores are those that `bench/large_postgres.py` fills. Every call is made in many tenants, so
that caches hold what they would hold; a figure is the median. The first column is what the others
are compared with.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator

import psycopg

import holdfast
from bench.large_postgres import BEGAN_AT

REPEATS = 40

Call = Callable[[holdfast.Store, int], object]
CALLS: dict[str, Call] = {
    "session(key)": lambda store, n: store.session(f"key {n}", create=False),
    "get(id prefix)": lambda store, n: store.get(store.session(f"key {n}", create=False).id[:20]),
    "append": lambda store, n: store.session(f"key {n}", create=False).append("a word"),
    "turn": lambda store, n: store.turn(f"new {n}", "hello").__exit__(None, None, None),
    "context": lambda store, n: store.session(f"key {n}", create=False).context(),
    "sessions(), 50": lambda store, n: store.sessions(),
    'sessions(state="running")': lambda store, n: store.sessions(state="running"),
    'sessions(state="ended")': lambda store, n: store.sessions(state="ended"),
    "sessions(key=)": lambda store, n: store.sessions(key=f"key {n}"),
    "search, one answer": lambda store, n: store.search(f"question {n}"),
    "search, many answers": lambda store, n: store.search("harbour"),
    "forks": lambda store, n: store._work.engine.forks(
        store.tenant, [store.session(f"key {n}", create=False).id]
    ),
    "info of a session": lambda store, n: store.session(f"key {n}", create=False).info(),
    "info of the store": lambda store, n: store.info(),
    "erase, preview": lambda store, n: store.erase(
        store.session(f"key {n}", create=False).id, preview=True
    ),
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description="How long calls take in stores of different sizes."
    )
    parser.add_argument("dsn", nargs="+")
    given = parser.parse_args()
    columns = [dict(measured(dsn)) for dsn in given.dsn]
    for name in CALLS:
        first, *others = (column[name] for column in columns)
        ratios = " ".join(f"{each:8.2f} ms ({each / first:4.2f} x)" for each in others)
        print(f"{name:28} {first:8.2f} ms {ratios}", flush=True)
    return 0


def measured(dsn: str) -> Iterator[tuple[str, float]]:
    """Milliseconds by call."""
    with psycopg.connect(dsn) as connection:
        counts = "SELECT count(*), count(DISTINCT tenant) FROM session WHERE opened_at < %s"
        [(made, tenants)] = connection.execute(counts, [BEGAN_AT + 10**9]).fetchall()
    numbers = [made * at // REPEATS + 3 for at in range(REPEATS)]
    for name, call in CALLS.items():
        taken = []
        for number in numbers:
            with holdfast.open(dsn, tenant=f"tenant {number % tenants}") as store:
                call(store, number)
                began = time.perf_counter()
                call(store, number)
                taken.append(time.perf_counter() - began)
        yield name, statistics.median(taken) * 1000


if __name__ == "__main__":
    sys.exit(main())
