"""The disk: how large a store is beside its payloads, and whether an append costs more in a long
session.
"""

import asyncio
import os
import time

import holdfast
from bench import shim
from bench.figure import Figure, Run, median, ratio
from bench.sample import MESSAGE_BYTES, message

WIDTH = 500


def measure(run: Run) -> list[Figure]:
    return size(run) + flatness(run)


def size(run: Run) -> list[Figure]:
    """One session of 1 000 messages of 500 bytes; all files, after the store was closed."""
    with shim.scratch() as folder:
        with holdfast.open(folder + "/holdfast.db") as store:
            session = store.session("s")
            for number in range(1000):
                session.append(message(number))
        files = {
            name: os.path.getsize(os.path.join(folder, name)) for name in sorted(os.listdir(folder))
        }
    by = ", ".join(f"{name} {size}" for name, size in files.items() if size)
    return [
        run.figure(
            "file bytes ÷ payload bytes, 1 000 × 500 B",
            sum(files.values()) / (1000 * MESSAGE_BYTES),
            "×",
            at_most=1.3,
            by=by,
        )
    ]


def flatness(run: Run) -> list[Figure]:
    """Blocks of appends, in turn, to a session of 10 to 1 000 messages and to one of 100 000, each
    in its own store.
    """
    long = 10_000 if run.quick else 100_000
    block = run.some(100, 40)
    took: dict[str, list[float]] = {"short": [], "long": []}
    with shim.scratch() as folder:
        asyncio.run(_grow(folder + "/long.db", long))
        asyncio.run(_grow(folder + "/short.db", 10))
        with (
            holdfast.open(folder + "/long.db") as grown,
            holdfast.open(folder + "/short.db") as new,
        ):
            sessions = {"short": new.session("s"), "long": grown.session("s")}
            for _ in range(min(run.repeats, 900 // block)):
                for name, session in sessions.items():
                    took[name].append(median(_appends(session, block)))
    by = (
        f"{median(took['short']) * 1e3:.2f} ms at 10…1 000, {median(took['long']) * 1e3:.2f} ms "
        f"at {long}"
    )
    return [
        run.figure(
            f"an append at {long:,} messages ÷ at 10…1 000".replace(",", " "),
            ratio(took["long"], took["short"]),
            "×",
            at_most=1.25,
            by=by,
        )
    ]


async def _grow(path: str, messages: int) -> None:
    async with holdfast.open_async(path) as store:
        session = await store.session("s")
        for start in range(0, messages, WIDTH):
            numbers = range(start, min(start + WIDTH, messages))
            await asyncio.gather(*(session.append(message(number)) for number in numbers))


def _appends(session: holdfast.Session, count: int) -> list[float]:
    took = []
    for number in range(count):
        payload = message(number)
        began = time.perf_counter()
        session.append(payload)
        took.append(time.perf_counter() - began)
    return took
