"""Durable appends on PostgreSQL, with all guards on, beside raw psycopg and two peers on the same
server.
"""

import asyncio
import time
from typing import Any

import holdfast
from bench.database import database
from bench.figure import Figure, Run, interleaved, median, ratio
from bench.postgres_peers import Alchemy, Saver, rate
from bench.postgres_raw import PostgresRaw
from bench.sample import message

NATIVE_BARS = {1: 0.5, 16: 0.6, 256: 0.6}
SLOWED_BARS = {1: 0.8, 16: 0.8, 256: 0.8}
WHO = {1: "1 session", 16: "16 sessions", 256: "256 sessions"}


def measure(run: Run) -> list[Figure]:
    figures = []
    with database(run) as dsn:
        for sessions in (1, 16, 256):
            with asyncio.Runner() as runner:
                figures += _contest(run, runner, dsn, sessions)
    return figures


def _contest(run: Run, runner: asyncio.Runner, dsn: str, sessions: int) -> list[Figure]:
    ours = Ours(dsn, runner, sessions)
    note, body = ours.row()
    raw = PostgresRaw(dsn, sessions, note=note, body=body)
    peers = {"PostgresSaver": Saver(), "SQLAlchemySession": Alchemy()}
    for peer in peers.values():
        runner.run(peer.open(dsn, sessions))
    count = {1: run.some(1200, 160), 16: run.some(400, 120), 256: run.some(60, 60)}[sessions]
    peer_count = {1: run.some(120, 60), 16: run.some(16, 12), 256: run.some(4, 4)}[sessions]
    rounds: dict[str, Any] = {
        "ours": lambda: ours.threaded(count) if sessions == 1 else ours.round(count),
        "raw": lambda: raw.round(ours.batches),
        "ideal": lambda: raw.round([sessions] * count),
        **{
            name: lambda peer=peer: runner.run(rate(peer.writers, peer_count))
            for name, peer in peers.items()
        },
    }
    found = interleaved(run.repeats, rounds)
    for peer in peers.values():
        runner.run(peer.close())
    raw.close(), ours.close()
    bar = (NATIVE_BARS if run.world == "native" else SLOWED_BARS)[sessions]
    return [
        _figure(
            run,
            f"PostgreSQL: appends ÷ {name}, {WHO[sessions]}",
            found["ours"],
            found[key],
            at_least,
        )
        for name, key, at_least in (
            ("raw in the same batches", "raw", bar),
            ("raw, all sessions in one commit", "ideal", None),
            *((name, name, 1.0) for name in peers),
        )
    ]


def _figure(
    run: Run, name: str, ours: list[float], theirs: list[float], at_least: float | None
) -> Figure:
    by = f"{median(ours):.0f}/s against {median(theirs):.0f}/s"
    return run.figure(name, ratio(ours, theirs), "×", at_least=at_least, by=by)


class Ours:
    """Holdfast with some sessions: one is written by a thread, several by a task each. `batches`
    has the sizes of those that its writers made in the last round.
    """

    def __init__(self, dsn: str, runner: asyncio.Runner, sessions: int) -> None:
        self._runner = runner
        self.batches: list[int] = []
        self._threaded = holdfast.open(dsn)
        runner.run(self._open(dsn, sessions))
        for store in (self._threaded, self._store):
            for writer in store._work.engine._writer_pool._writers:
                writer._apply = self._counted(writer._apply)

    def _counted(self, apply: Any) -> Any:
        def counted(commits: Any) -> Any:
            self.batches.append(len(commits))
            return apply(commits)

        return counted

    async def _open(self, dsn: str, sessions: int) -> None:
        self._store = await holdfast.open_async(dsn)
        self._writers = [
            (await self._store.session(f"{sessions} {n}")).append for n in range(sessions)
        ]

    def row(self) -> tuple[bytes, bytes]:
        """Note and body of a message as they are stored."""
        session = self._threaded.session("row")
        session.append(message(0, "user"))
        entry = list(session.entries())[-1]
        return entry.note, entry.body

    def round(self, each: int) -> float:
        """Messages per second, all tasks together."""
        self.batches.clear()
        return self._runner.run(rate(self._writers, each))

    def threaded(self, count: int) -> float:
        """Messages per second of one thread."""
        session = self._threaded.session("threaded")
        messages = [message(number, "user") for number in range(count)]
        self.batches.clear()
        began = time.perf_counter()
        for each in messages:
            session.append(each)
        return count / (time.perf_counter() - began)

    def close(self) -> None:
        self._runner.run(self._store.close())
        self._threaded.close()
