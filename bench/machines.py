"""Several processes on one PostgreSQL, as several machines would be.

`python -m bench.machines write|follow DSN NAME SECONDS` is one such process. It says when it is
ready, and begins when it is told to. Times are compared across processes: they have one machine,
and one clock.
"""

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator

import holdfast
from bench.database import database
from bench.figure import Figure, Run, interleaved, median, percentile, ratio
from bench.sample import message

SESSIONS = 16
PROCESSES = 4
PER_SECOND = 20
DELAY_MS_MAX = 100.0


def measure(run: Run) -> list[Figure]:
    with database(run) as dsn:
        holdfast.open(dsn).close()
        return [_together(run, dsn), *_following(run, dsn)]


def _together(run: Run, dsn: str) -> Figure:
    """What four processes append, each to sessions of its own, beside what one does."""
    seconds = 1.0 if run.quick else 3.0
    with contextlib.ExitStack() as stack:
        writers = [
            stack.enter_context(_process("write", dsn, f"m{n}", seconds)) for n in range(PROCESSES)
        ]

        def rate(count: int) -> float:
            for writer in writers[:count]:
                writer.tell("go")
            return sum(float(writer.hear()) for writer in writers[:count])

        found = interleaved(run.repeats, {"one": lambda: rate(1), "four": lambda: rate(PROCESSES)})
    by = (
        f"{median(found['four']):.0f}/s against {median(found['one']):.0f}/s; {SESSIONS} "
        "sessions in each process"
    )
    return run.figure(
        "PostgreSQL: appends, 4 processes ÷ 1", ratio(found["four"], found["one"]), "×", by=by
    )


def _following(run: Run, dsn: str) -> list[Figure]:
    """How long after its turn has shown it a chunk is seen by a follower in another process."""
    seconds = 3.0 if run.quick else 10.0
    delays: list[float] = []
    with holdfast.open(dsn) as store, _process("follow", dsn, "followed", seconds) as follower:
        session = store.session("followed")
        follower.tell(session.id)
        assert follower.hear() == "following"
        with session.turn("Go on.") as turn:
            for words in turn.deliver(_stamps(seconds)):
                shown = time.perf_counter()
                delays += [float(follower.hear()) - shown for _ in words.split()]
    p50, p99 = (percentile(delays, share) * 1e3 for share in (0.5, 0.99))
    by = f"{len(delays)} chunks, {PER_SECOND} a second"
    name = "PostgreSQL: a follower in another process, "
    return [
        run.figure(name + "p50", p50, "ms", at_most=DELAY_MS_MAX, by=by),
        run.figure(name + "p99", p99, "ms", at_most=DELAY_MS_MAX, by=by),
    ]


def _stamps(seconds: float) -> Iterator[str]:
    for _ in range(int(seconds * PER_SECOND)):
        time.sleep(1 / PER_SECOND)
        yield "words "


class _Process:
    """Another process of this module, talked to line by line."""

    def __init__(self, *words: str) -> None:
        command = [sys.executable, "-m", "bench.machines", *words]
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def tell(self, line: str) -> None:
        assert self._child.stdin is not None
        print(line, file=self._child.stdin, flush=True)

    def hear(self) -> str:
        assert self._child.stdout is not None
        return self._child.stdout.readline().strip()

    def close(self) -> None:
        assert self._child.stdin is not None
        self._child.stdin.close()
        self._child.wait()


@contextlib.contextmanager
def _process(part: str, dsn: str, name: str, seconds: float) -> Iterator[_Process]:
    process = _Process(part, dsn, name, str(seconds))
    try:
        assert process.hear() == "ready"
        yield process
    finally:
        process.close()


async def _write(dsn: str, name: str, seconds: float) -> None:
    async with holdfast.open_async(dsn) as store:
        sessions = [await store.session(f"{name} {number}") for number in range(SESSIONS)]
        print("ready", flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            began = time.perf_counter()
            counts = await asyncio.gather(
                *(_appended(session, began + seconds) for session in sessions)
            )
            print(sum(counts) / (time.perf_counter() - began), flush=True)


async def _appended(session: holdfast.AsyncSession, until: float) -> int:
    count = 0
    while time.perf_counter() < until:
        await session.append(message(count, "user"))
        count += 1
    return count


def _follow(dsn: str) -> None:
    with holdfast.open(dsn) as store:
        print("ready", flush=True)
        events = store.get(sys.stdin.readline().strip()).follow()
        print("following", flush=True)
        for event in events:
            for _ in (event.text or "").split() if event.kind == "chunk" else ():
                print(time.perf_counter(), flush=True)
            if event.entry is not None and event.entry.kind == "end":
                return


if __name__ == "__main__":
    _, part, dsn, name, seconds = sys.argv
    if part == "write":
        asyncio.run(_write(dsn, name, float(seconds)))
    else:
        _follow(dsn)
