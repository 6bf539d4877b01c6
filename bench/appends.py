"""Durable appends: `Session.append` of 500-byte messages with all guards on, beside raw SQLite and
the peer.

Raw commits as many messages at once as there are writers: the best that group commit could do.
"""

import asyncio
import time
from typing import Any

import holdfast
from bench import shim
from bench.figure import Figure, Run, interleaved, median, ratio
from bench.peers import Peer
from bench.raw import Raw
from bench.sample import message

NATIVE_BARS = {1: 0.5, 256: 0.15}
SLOWED_BARS = {1: 0.85, 16: 0.85}


def measure(run: Run) -> list[Figure]:
    figures, rates = [], {}
    for writers in (1, 16, 256):
        with shim.scratch() as folder, asyncio.Runner() as runner:
            found = _contest(run, runner, folder, writers)
            figures += found[0]
            rates[writers] = found[1]
    bar = 40 if run.world == "slowed" else None
    times = rates[256] / rates[1]
    figures.append(run.figure("appends, 256 sessions ÷ 1 writer", times, "×", at_least=bar))
    return figures


def _contest(
    run: Run, runner: asyncio.Runner, folder: str, writers: int
) -> tuple[list[Figure], float]:
    """Figures for so many writers, and Holdfast's messages per second."""
    ours, raw = Ours(folder + "/holdfast.db", runner, writers), Raw(folder + "/raw.db")
    peer = Peer(folder + "/peer.db", writers)
    count = {1: run.some(600, 160), 16: run.some(80, 40), 256: run.some(16, 16)}[writers]
    peer_count = {1: run.some(400, 100), 16: run.some(30, 10), 256: run.some(4, 2)}[writers]
    note, body = ours.row()

    def raw_round() -> float:
        return (
            count * writers / sum(raw.entries(commits=count, batch=writers, note=note, body=body))
        )

    rounds: dict[str, Any] = {
        "ours": lambda: ours.round(count),
        "raw": raw_round,
        "peer": lambda: peer.round(runner, peer_count),
    }
    if writers == 1:
        rounds["threaded"] = lambda: ours.threaded(count)
    found = interleaved(run.repeats, rounds)
    peer.close(), raw.close(), ours.close()
    main = found["threaded" if writers == 1 else "ours"]
    who = {1: "1 writer", 16: "16 writers", 256: "256 sessions"}[writers]
    by = (
        f"{median(main):.0f}/s against {median(found['raw']):.0f}/s; {ours.batch:.1f} messages a "
        "sync"
    )
    bar = (NATIVE_BARS if run.world == "native" else SLOWED_BARS).get(writers)
    against = f"{median(found['ours']):.0f}/s against {median(found['peer']):.0f}/s, both asyncio"
    figures = [
        run.figure(f"appends ÷ raw, {who}", ratio(main, found["raw"]), "×", at_least=bar, by=by),
        run.figure(
            f"appends ÷ SQLiteSession, {who}",
            ratio(found["ours"], found["peer"]),
            "×",
            at_least=1.0,
            by=against,
        ),
    ]
    if writers == 1:
        against = f"{median(main):.0f}/s against {median(found['peer']):.0f}/s"
        name = "appends ÷ SQLiteSession, 1 writer, our sync face"
        figures.append(run.figure(name, ratio(main, found["peer"]), "×", at_least=1.0, by=against))
    return figures, median(main)


class Ours:
    """Holdfast with some sessions, each written by a task of its own."""

    def __init__(self, path: str, runner: asyncio.Runner, writers: int) -> None:
        self._runner, self._path = runner, path
        self._messages = self._syncs = 0
        runner.run(self._open(writers))
        self._threaded = holdfast.open(path + ".threaded")

    async def _open(self, writers: int) -> None:
        self._store = await holdfast.open_async(self._path)
        self._sessions = [await self._store.session(f"s{number}") for number in range(writers)]

    def row(self) -> tuple[bytes, bytes]:
        """Note and body of a message as they are stored."""
        session = self._threaded.session("row")
        session.append(message(0, "user"))
        entry = list(session.entries())[-1]
        return entry.note, entry.body

    @property
    def batch(self) -> float:
        """Messages per sync, those for starting the WAL anew counted too."""
        return self._messages / self._syncs

    def round(self, each: int) -> float:
        """Messages per second, all tasks together."""
        messages = [message(number, "user") for number in range(each)]
        return self._runner.run(self._round(messages))

    async def _round(self, messages: list[dict[str, Any]]) -> float:
        async def write(session: Any) -> None:
            for each in messages:
                await session.append(each)

        syncs, began = shim.syncs(), time.perf_counter()
        await asyncio.gather(*(write(session) for session in self._sessions))
        took = time.perf_counter() - began
        count = len(messages) * len(self._sessions)
        self._messages, self._syncs = self._messages + count, self._syncs + shim.syncs() - syncs
        return count / took

    def threaded(self, count: int) -> float:
        """Messages per second of one thread."""
        session = self._threaded.session("s0")
        messages = [message(number, "user") for number in range(count)]
        began = time.perf_counter()
        for each in messages:
            session.append(each)
        return count / (time.perf_counter() - began)

    def close(self) -> None:
        self._runner.run(self._store.close())
        self._threaded.close()
