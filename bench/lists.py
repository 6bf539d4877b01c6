"""A store of many sessions and messages: a page of its list, and what opening and looking at it
costs in a new process.

This module is the child too: `python -m bench.lists PATH` opens, lists, opens a session, reads its
tail, and prints the seconds and the peak of its memory. Loading modules is left aside: that is
measured in `importing`.
"""

import asyncio
import importlib
import re
import subprocess
import sys
import time

import msgspec

import holdfast
from bench import shim
from bench.figure import Figure, Run, interleaved, median
from bench.sample import message

IN_FLIGHT = 500


class Looked(msgspec.Struct):
    """What a child took."""

    open_s: float
    list_s: float
    tail_s: float
    peak_mb: float
    idle_mb: float


def measure(run: Run) -> list[Figure]:
    if run.world == "slowed":
        return []  # reading syncs nothing
    return _pages(run) + _large(run)


def _pages(run: Run) -> list[Figure]:
    count = 10_000 if run.quick else 100_000
    with shim.scratch() as folder:
        path = folder + "/holdfast.db"
        asyncio.run(_fill(path, sessions=count, messages=1))
        with holdfast.open(path) as store:
            half = store.sessions(limit=1000)
            for _ in range(count // 2000):
                half = store.sessions(limit=1000, after=half.next)
            pages = {
                "first": {},
                "middle": {"after": half.next},
                "of a key": {"key": f"k{count // 3}"},
            }
            rounds = {
                name: lambda asked=asked: _page(store, asked) for name, asked in pages.items()
            }
            found = interleaved(run.repeats, rounds)
    ms = {name: median(took) * 1e3 for name, took in found.items()}
    name = f"a page of 50 of {count:,} sessions".replace(",", " ")
    by = f"in the middle {ms['middle']:.1f} ms, of a key {ms['of a key']:.1f} ms"
    return [run.figure(name, max(ms.values()), "ms", at_most=20, by=by)]


def _page(store: holdfast.Store, asked: dict[str, str]) -> float:
    began = time.perf_counter()
    page = store.sessions(**asked)  # type: ignore[arg-type]
    took = time.perf_counter() - began
    assert len(page) >= 1
    return took


def _large(run: Run) -> list[Figure]:
    messages = 100_000 if run.quick else 1_000_000
    with shim.scratch() as folder:
        path = folder + "/holdfast.db"
        asyncio.run(_fill(path, sessions=1_000, messages=messages // 1_000))
        looks = [_child(path) for _ in range(run.repeats)]
    name = f"{messages:,}".replace(",", " ") + " messages, new process"
    by = (
        f"list {_ms(looks, 'list_s'):.1f} ms, a session's last messages "
        f"{_ms(looks, 'tail_s'):.1f} ms"
    )
    peak = median([look.peak_mb for look in looks])
    idle = median([look.idle_mb for look in looks])
    return [
        run.figure(f"open, {name}", _ms(looks, "open_s"), "ms", at_most=50, by=by),
        run.figure(
            f"peak memory, {name}",
            peak,
            "MB",
            at_most=100,
            by=f"{idle:.0f} MB before it was opened",
        ),
    ]


def _ms(looks: list[Looked], field: str) -> float:
    return median([getattr(look, field) for look in looks]) * 1e3


async def _fill(path: str, *, sessions: int, messages: int) -> None:
    async with holdfast.open_async(path, durability="process") as store:
        made = [store.session(f"k{number}") for number in range(sessions)]
        opened = []
        for start in range(0, sessions, IN_FLIGHT):
            opened += await asyncio.gather(*made[start : start + IN_FLIGHT])
        for number in range(messages):
            for start in range(0, sessions, IN_FLIGHT):
                some = opened[start : start + IN_FLIGHT]
                await asyncio.gather(*(session.append(message(number)) for session in some))


def _child(path: str) -> Looked:
    command = [sys.executable, "-m", "bench.lists", path]
    return msgspec.json.decode(
        subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout, type=Looked
    )


def _look(path: str) -> Looked:
    idle = _peak_mb()
    importlib.import_module("holdfast.engine.sqlite.engine")
    began = time.perf_counter()
    store = holdfast.open(path)
    opened = time.perf_counter()
    page = store.sessions()
    listed = time.perf_counter()
    session = store.get(page[0].id)
    last = list(session.transcript(after=page[0].head - 20))
    tail = time.perf_counter()
    assert len(page) == 50 and last
    for event, _ in zip(session.follow(), range(50), strict=False):
        assert event.cursor
    peak = _peak_mb()
    store.close()
    return Looked(opened - began, listed - opened, tail - listed, peak, idle)


def _peak_mb() -> float:
    """The peak of this process alone: what `getrusage` tells is handed down by the parent."""
    with open("/proc/self/status") as status:
        found = re.search(r"VmHWM:\s+(\d+) kB", status.read())
    return int(found[1]) / 1024 if found else 0.0


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(_look(sys.argv[1])))
