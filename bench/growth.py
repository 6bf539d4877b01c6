"""How calls grow: with the number of sessions in a store, and with the length of a history.

What a gateway calls costs the same in a store of a thousand sessions and of a hundred thousand, on
PostgreSQL of a million in ten thousand tenants (I-27). Calls on one session grow with its history,
whatever that is made of, at most as n log n. A figure is the time in the largest store as a
multiple of that in the smallest; for a history, that divided by how much n log n has grown. One
search can't be flat in any index of words, and is divided by how many messages its tenant has grown
by: words that most messages have, of which no message has both. A retention is measured by what it
takes for each session that it erases, of a few hundred in a tenant of their own. A quick run leaves
the largest sizes out.
"""

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import holdfast
from bench import shim
from bench.database import database
from bench.figure import Figure, Run, median
from bench.large_postgres import fill
from holdfast.runtime.clock import RealWorld
from holdfast.runtime.store import open_store
from holdfast.testing.histories import HISTORIES, Builder

SESSIONS = (1_000, 10_000, 100_000)
SESSIONS_POSTGRES = (1_000, 100_000, 1_000_000)
TENANTS_POSTGRES = 10_000
HISTORY = (1_000, 4_000, 16_000)
SAMPLES = 21
RETAINED = 200
SETTLED_S = 3
"""So long a store that was just filled is still at work, which the first calls would be charged for."""
PAST_MS = 40 * 86_400_000

Call = Callable[[holdfast.Store, int], object]
StoreOf = Callable[[int], holdfast.Store]
"""The store of the session with this number: on PostgreSQL, that of its tenant."""

KEYED: dict[str, Call] = {
    "session(key)": lambda store, n: store.session(f"key {n}", create=False),
    "get(prefix)": lambda store, n: store.get(store.session(f"key {n}", create=False).id[:20]),
    "turn(key)": lambda store, n: store.turn(f"key {n}", "hello").__exit__(None, None, None),
    "accept": lambda store, n: store.accept(f"key {n}", "hello"),
    "append": lambda store, n: store.session(f"key {n}", create=False).append("a word"),
    "context": lambda store, n: store.session(f"key {n}", create=False).context(),
    "info": lambda store, n: store.session(f"key {n}", create=False).info(),
    "sessions(), 50": lambda store, n: store.sessions(),
    "sessions(running)": lambda store, n: store.sessions(state="running"),
    "sessions(ended)": lambda store, n: store.sessions(state="ended"),
    "sessions(key)": lambda store, n: store.sessions(key=f"key {n}"),
    "search, few": lambda store, n: store.search(f"question {n}"),
    "search, many": lambda store, n: store.search("harbour"),
    "search, none": lambda store, n: store.search(f"nothing {n}"),
    "search, rare and common": lambda store, n: store.search(f"{n} harbour"),
    "search, common but apart": lambda store, n: store.search("harbour answer"),
    "search(key)": lambda store, n: store.search("harbour", key=f"key {n}"),
    "pending": lambda store, n: store.pending(),
    "outbox": lambda store, n: store.outbox(),
    "erase(preview)": lambda store, n: store.erase(
        store.session(f"key {n}", create=False).id, preview=True
    ),
    "erase": lambda store, n: _erase_new(store, f"to erase {n}"),
}

LINEAR = {"search, common but apart"}

READING: dict[str, Callable[[holdfast.Store, holdfast.Session], Any]] = {
    "context": lambda store, session: session.context(),
    "context, anthropic": lambda store, session: session.context("anthropic"),
    "transcript": lambda store, session: list(session.transcript()),
    "info": lambda store, session: session.info(),
    "turns": lambda store, session: session.turns(),
    "calls": lambda store, session: session.calls(),
    "pending": lambda store, session: session.pending(),
    "check": lambda store, session: store.check(),
}


def measure(run: Run) -> list[Figure]:
    if run.world == "slowed":
        return []  # a slower sync changes nothing about what grows
    return [*_sqlite(run), *_postgres(run), *_histories(run)]


def _sqlite(run: Run) -> Iterator[Figure]:
    sizes = SESSIONS[:2] if run.quick else SESSIONS
    with shim.scratch() as folder, contextlib.ExitStack() as opened:
        paths = [os.path.join(folder, f"{size}.db") for size in sizes]
        stores: list[StoreOf] = []
        for path, size in zip(paths, sizes, strict=True):
            _fill(path, size)
            store = opened.enter_context(holdfast.open(path, durability="process"))
            stores.append(lambda n, store=store: store)
        columns = _timed(stores, sizes)
        for path, column in zip(paths, columns, strict=True):
            column |= _retained(path)
        yield from _compared(run, "SQLite", sizes, columns)


def _fill(path: str, sessions: int) -> None:
    """A question and an answer each; every hundredth is running, every tenth has ended, every
    fiftieth is a fork.
    """
    with holdfast.open(path, durability="process") as store:
        for n in range(sessions):
            session = store.session(f"key {n}")
            session.append_all(
                [f"question {n} in the harbour", {"role": "assistant", "content": f"answer {n}"}]
            )
            if n % 50 == 49:
                session.fork(key=f"fork {n}")
            if n % 10 == 5:
                session.end("done")
        store.search("harbour")


def _postgres(run: Run) -> Iterator[Figure]:
    sizes = SESSIONS_POSTGRES[:2] if run.quick else SESSIONS_POSTGRES
    with contextlib.ExitStack() as opened:
        addresses: list[str] = []
        stores: list[StoreOf] = []
        for size in sizes:
            tenants = max(1, TENANTS_POSTGRES * size // SESSIONS_POSTGRES[-1])
            dsn = opened.enter_context(database(run))
            with holdfast.open(dsn):
                pass
            fill(dsn, sessions=size, tenants=tenants)
            store = opened.enter_context(holdfast.open(dsn))
            addresses.append(dsn)
            stores.append(lambda n, store=store, all=tenants: store.for_tenant(f"tenant {n % all}"))
        columns = _timed(stores, sizes)
        for dsn, column in zip(addresses, columns, strict=True):
            column |= _retained(dsn)
        yield from _compared(run, "PostgreSQL", sizes, columns)


def _timed(stores: Sequence[StoreOf], sizes: Sequence[int]) -> list[dict[str, float]]:
    """Seconds by call for each store, each the median over sessions from the whole store, none of
    which has ended. The stores take turns, so that a busy moment hits all of them.
    """
    time.sleep(SETTLED_S)
    columns: list[dict[str, float]] = [{} for _ in stores]
    for name, call in KEYED.items():
        samples: list[list[float]] = [[] for _ in stores]
        for at in range(SAMPLES):
            for store_of, size, times in zip(stores, sizes, samples, strict=True):
                number = at * (size // SAMPLES) // 10 * 10
                times.append(_sample(call, store_of(number), number))
        for column, times in zip(columns, samples, strict=True):
            column[name] = median(times)
    return columns


def _sample(call: Call, store: holdfast.Store, number: int) -> float:
    call(store, number)
    began = time.perf_counter()
    call(store, number)
    return time.perf_counter() - began


def _erase_new(store: holdfast.Store, key: str) -> None:
    session = store.session(key)
    session.append("a word")
    store.erase(session.id)


class _Past(RealWorld):
    """A world in which it is long ago."""

    def now(self) -> int:
        return super().now() - PAST_MS


def _retained(where: str) -> dict[str, float]:
    """Seconds for each session that a retention erases, and for each that it previews."""
    with open_store(where, durability="process", tenant="retained", world=_Past()) as store:
        for n in range(RETAINED):
            question = {"role": "user", "content": f"question {n} of long ago"}
            store.session(f"old {n}").append_all(
                [question, {"role": "assistant", "content": f"answer {n}"}]
            )
    found = {}
    with holdfast.open(where, durability="process", tenant="retained") as store:
        for name, preview in (("retain(preview), each", True), ("retain, each", False)):
            began = time.perf_counter()
            done = store.retain(30, preview=preview)
            found[name] = (time.perf_counter() - began) / RETAINED
            assert len(done) == RETAINED
    return found


def _compared(
    run: Run, where: str, sizes: tuple[int, ...], columns: list[dict[str, float]]
) -> Iterator[Figure]:
    for name in columns[0]:
        times = [column[name] for column in columns]
        by = ", ".join(
            f"{size:,}: {took * 1e3:.2f} ms" for size, took in zip(sizes, times, strict=True)
        )
        title = f"{where}: {name}, {sizes[-1]:,} ÷ {sizes[0]:,} sessions"
        ratio = times[-1] / times[0]
        if name in LINEAR and where == "SQLite":  # a tenant on PostgreSQL has as many in each
            title += ", ÷ n"
            ratio *= sizes[0] / sizes[-1]
        yield run.figure(title, ratio, "×", at_most=2, by=by)


def _histories(run: Run) -> Iterator[Figure]:
    sizes = HISTORY[:2] if run.quick else HISTORY
    grown = sizes[-1] * math.log(sizes[-1]) / (sizes[0] * math.log(sizes[0]))
    for build in HISTORIES:
        columns = [_of_history(build, size) for size in sizes]
        ratios = {name: columns[-1][name] / columns[0][name] / grown for name in columns[0]}
        worst = max(ratios, key=lambda name: ratios[name])
        by = f"{worst}: " + ", ".join(
            f"{size:,}: {column[worst] * 1e3:.1f} ms"
            for size, column in zip(sizes, columns, strict=True)
        )
        title = f"history of {build.__name__.replace('_', ' ')}: the worst call ÷ n log n"
        yield run.figure(title, ratios[worst], "×", at_most=1.5, by=by)


def _of_history(build: Builder, size: int) -> dict[str, float]:
    with shim.scratch() as folder:
        path = os.path.join(folder, "history.db")
        with holdfast.open(path, durability="process") as store:
            began = time.perf_counter()
            build(store, store.session("key"), size)
            found = {"writing it": time.perf_counter() - began}
        for name, call in READING.items():
            found[name] = min(_read(path, call) for _ in range(3))
    return found


def _read(path: str, call: Callable[[holdfast.Store, holdfast.Session], Any]) -> float:
    with holdfast.open(path, durability="process") as store:
        session = store.session("key")
        began = time.perf_counter()
        call(store, session)
        return max(time.perf_counter() - began, 5e-3)  # what takes less says nothing
