"""Chunks: how soon a streamed piece is durable and handed on, what it costs, and how much is
written for it.

`streams` has 256 of them say 32 bytes twenty times a second; a chunk's clock runs from the moment
its producer has it to the moment `deliver` yields it. `burst` sends 20 000 chunks down one stream
as fast as it takes them.
"""

import asyncio
import random
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec

import holdfast
from bench import shim
from bench.figure import Figure, Run, median, percentile
from bench.raw import Raw
from bench.sample import CHUNK_BYTES, chat_chunk, text

STREAMS = 256
PER_SECOND = 20
BURST = 20_000


def measure(run: Run) -> list[Figure]:
    return streams(run) + burst(run)


def streams(run: Run) -> list[Figure]:
    """256 streams beside raw commits of as many journal rows as Holdfast put into one."""
    seconds = 1.5 if run.quick else 3.0
    ours: list[Streams] = []
    raw_took: list[list[float]] = []
    with shim.scratch() as folder:
        raw = Raw(folder + "/raw.db")
        body = b'[["text",0,"' + text(CHUNK_BYTES, 0).encode() + b'"]]'
        for repeat in range(run.repeats):
            one = Streams(seconds)
            asyncio.run(one.run(f"{folder}/{repeat}.db"))
            ours.append(one)
            batch = max(1, round(one.rows / max(1, one.syncs)))
            raw_took.append(raw.chunks(commits=run.some(800, 400), batch=batch, body=body))
        raw.close()
    raw_p50, raw_p99 = (
        median(percentile(took, share) for took in raw_took) * 1e3 for share in (0.5, 0.99)
    )
    p50, p99 = (
        median(percentile(one.latencies, share) for one in ours) * 1e3 for share in (0.5, 0.99)
    )
    rows = median(one.rows / max(1, one.syncs) for one in ours)
    sent = len(msgspec.json.encode(chat_chunk(text(CHUNK_BYTES, 0))))
    times = median(one.written / (one.count * CHUNK_BYTES) for one in ours)
    cpu = median(one.cpu / one.count for one in ours) * 1e6
    by = f"raw commit {raw_p50:.2f} ms; {rows:.1f} rows a sync"
    return [
        run.figure("256 streams × 20/s, p50", p50, "ms", at_most=1.5 * raw_p50 + 1, by=by),
        run.figure(
            "256 streams × 20/s, p99",
            p99,
            "ms",
            at_most=2 * raw_p99 + 20,
            by=f"raw commit {raw_p99:.2f} ms",
        ),
        run.figure(
            "256 streams, bytes written ÷ text",
            times,
            "×",
            at_most=12,
            by="wchar; chunks of 32 bytes of text",
        ),
        run.figure(
            "256 streams, bytes written ÷ chunks as OpenAI sends them",
            times * CHUNK_BYTES / sent,
            "×",
            at_most=12,
            by=f"the same 32 bytes in {sent} of JSON",
        ),
        run.figure("256 streams, CPU per chunk, producers included", cpu, "µs"),
    ]


class Streams:
    """One run of all streams on a new store."""

    def __init__(self, seconds: float) -> None:
        self._each = int(seconds * PER_SECOND)
        self._dice = random.Random(1)
        self._words = [text(CHUNK_BYTES, number) for number in range(self._each)]
        self.latencies: list[float] = []
        self.count = STREAMS * self._each
        self.rows = 0

    async def run(self, path: str) -> None:
        async with holdfast.open_async(path) as store:
            sessions = [await store.session(f"s{number}") for number in range(STREAMS)]
            turns = [await session.turn("Go on.") for session in sessions]
            began = time.perf_counter() + 0.1
            phases = [began + self._dice.random() / PER_SECOND for _ in turns]
            syncs, written, cpu = shim.syncs(), shim.written(), time.process_time()
            await asyncio.gather(
                *(self._stream(turn, phase) for turn, phase in zip(turns, phases, strict=True))
            )
            self.syncs, self.written = shim.syncs() - syncs, shim.written() - written
            self.cpu = time.process_time() - cpu
            for turn in turns:
                await turn.__aexit__(None, None, None)

    async def _stream(self, turn: Any, first: float) -> None:
        stamps: deque[float] = deque()
        async for words in turn.deliver(self._producer(first, stamps)):
            now = time.perf_counter()
            self.rows += 1
            for _ in range(len(words) // CHUNK_BYTES):
                self.latencies.append(now - stamps.popleft())

    async def _producer(self, due: float, stamps: deque[float]) -> AsyncIterator[str]:
        for words in self._words:
            wait = due - time.perf_counter()
            if wait > 0:
                await asyncio.sleep(wait)
            stamps.append(time.perf_counter())
            yield words
            due += 1 / PER_SECOND


def burst(run: Run) -> list[Figure]:
    """One fast stream: CPU of all threads per chunk, that of the producer alone taken off, and
    bytes written.
    """
    figures = []
    kinds: list[tuple[str, str, list[Any]]] = [
        ("text", "text", [text(CHUNK_BYTES, number) for number in range(BURST)]),
        (
            "openai.chat",
            "openai.chat",
            [chat_chunk(text(CHUNK_BYTES, number)) for number in range(BURST)],
        ),
    ]
    for name, format, chunks in kinds:
        alone, threaded, tasks, times = [], [], [], []
        with shim.scratch() as folder:
            for repeat in range(run.repeats):
                alone.append(_cpu_alone(chunks))
                with holdfast.open(f"{folder}/{repeat}.db") as store:
                    written = shim.written()
                    threaded.append(_cpu_threaded(store, chunks, format) - alone[-1])
                    times.append((shim.written() - written) / (BURST * CHUNK_BYTES))
                tasks.append(asyncio.run(_cpu_tasks(f"{folder}/{repeat}-tasks.db", chunks, format)))
        per = 1e6 / BURST
        by = f"20 000 chunks of 32 bytes; the producer alone {median(alone) * per:.2f} µs"
        figures += [
            run.figure(
                f"one stream, {name}, CPU per chunk, sync",
                median(threaded) * per,
                "µs",
                at_most=20,
                by=by,
            ),
            run.figure(
                f"one stream, {name}, CPU per chunk, asyncio", median(tasks) * per, "µs", at_most=20
            ),
            run.figure(
                f"one stream, {name}, bytes written ÷ text",
                median(times),
                "×",
                at_most=12,
                by="wchar, sync",
            ),
        ]
    return figures


def _produce(chunks: list[Any]) -> Iterator[Any]:
    yield from chunks


async def _produce_tasks(chunks: list[Any]) -> AsyncIterator[Any]:
    for chunk in chunks:
        yield chunk


def _cpu_alone(chunks: list[Any]) -> float:
    began = time.process_time()
    for _ in _produce(chunks):
        pass
    return time.process_time() - began


def _cpu_threaded(store: Any, chunks: list[Any], format: str) -> float:
    with store.session("s").turn("Go on.") as turn:
        began = time.process_time()
        for _ in turn.deliver(_produce(chunks), format=format):
            pass
        return time.process_time() - began


async def _cpu_tasks(path: str, chunks: list[Any], format: str) -> float:
    began = time.process_time()
    async for _ in _produce_tasks(chunks):
        pass
    alone = time.process_time() - began
    async with holdfast.open_async(path) as store:
        async with (await store.session("s")).turn("Go on.") as turn:
            began = time.process_time()
            async for _ in turn.deliver(_produce_tasks(chunks), format=format):
                pass
            return time.process_time() - began - alone
