"""Searching 100 000 messages: the first page in a new process, more of them, and what it costs to
index a message.

Memory is that of a process that opens a store of 1 000 000 messages and searches it, its highest;
natively only, and with a fifth of the messages when it has to be quick. This module is those
processes too: `python -m bench.searching WHAT PATH`.
"""

import os
import subprocess
import sys
import time

import holdfast
from bench import shim
from bench.figure import Figure, Run, interleaved, median
from bench.sample import message

MESSAGES = 100_000
MANY = 1_000_000
SESSION = 1_000

# A word of all messages, its beginning, one of few, three of all, a phrase of all.
QUESTIONS = ("kelp", "ke", "00050000", "tide rock fast", '"holds fast"')
WORST = '"kelp tide holds"'
"""Words that all messages have many times, in an order that none has."""


def measure(run: Run) -> list[Figure]:
    with shim.scratch() as folder:
        path = folder + "/holdfast.db"
        _fill(path, MESSAGES)
        figures = _pages(run, path)
    if run.world == "native":
        figures += _memory(run)
    return figures


def _fill(path: str, count: int) -> None:
    with holdfast.open(path, durability="process") as store:
        for first in range(0, count, SESSION):
            store.session(f"key {first}").record(
                [message(number) for number in range(first, first + SESSION)]
            )


def _pages(run: Run, path: str) -> list[Figure]:
    took = float(_child("first", path)[0])
    rounds = {
        name: lambda name=name: float(_child(name, path)[0]) for name in ("first", "question")
    }
    found = {name: median(times) * 1e3 for name, times in interleaved(run.repeats, rounds).items()}
    with holdfast.open(path) as store:
        store.search("kelp")
        warm = {text: lambda text=text: _timed(store, text) for text in (*QUESTIONS, WORST)}
        ms = {
            text: median(times) * 1e3 for text, times in interleaved(run.repeats * 2, warm).items()
        }
    worst = ms.pop(WORST)
    slowest = max(ms, key=lambda text: ms[text])
    rest = ", ".join(f"{text} {took:.1f}" for text, took in ms.items())
    return [
        run.figure(
            "search of 100 000, first page, new process",
            found["first"],
            "ms",
            at_most=50,
            by="a word of all messages",
        ),
        run.figure(
            "search of 100 000, first page, new process, other script",
            found["question"],
            "ms",
            at_most=50,
            by="loads what is known of Unicode",
        ),
        run.figure(
            "search of 100 000, first page, warm, the slowest",
            ms[slowest],
            "ms",
            at_most=50,
            by=f"{rest} ms",
        ),
        run.figure("search of 100 000, common words in an order that nobody used", worst, "ms"),
        run.figure(
            "search, indexing a message",
            took / MESSAGES * 1e6,
            "µs",
            by=f"all of them {took:.1f} s",
        ),
    ]


def _memory(run: Run) -> list[Figure]:
    count = MANY // 5 if run.quick else MANY
    with shim.scratch() as folder:
        path = folder + "/holdfast.db"
        _fill(path, count)
        bare = float(_child("opened", path)[1])
        indexed, indexing = _child("first", path)
        took, searching = _child("all", path)
    shown = f"{count:,}".replace(",", " ")
    return [
        run.figure(
            f"a process that searches {shown} messages",
            searching,
            "MB",
            at_most=100,
            by=f"one that only opens the store {bare:.0f} MB",
        ),
        run.figure(
            f"a process that indexes {shown} messages",
            indexing,
            "MB",
            at_most=100,
            by=f"in {indexed:.0f} s",
        ),
        run.figure(f"search of {shown}, {len(QUESTIONS)} first pages", took * 1e3, "ms"),
    ]


def _timed(store: holdfast.Store, text: str) -> float:
    began = time.perf_counter()
    store.search(text)
    return time.perf_counter() - began


def _child(what: str, path: str) -> tuple[float, float]:
    # Compiled modules go beside the store: some environments forbid to write them beside the
    # source.
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": os.path.dirname(path)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-m", "bench.searching", what, path]
    took, memory = subprocess.run(
        command, check=True, env=environment, stdout=subprocess.PIPE
    ).stdout.split()
    return float(took), float(memory)


def _work(what: str, path: str) -> float:
    with holdfast.open(path) as store:
        asked = {"opened": (), "first": ("kelp",), "question": ("kelp ñandú",), "all": QUESTIONS}[
            what
        ]
        return sum(_timed(store, text) for text in asked)


def _highest() -> float:
    """The most memory this process ever had, in MB; what `getrusage` says begins with that of the
    process before it.
    """
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) / 1000


if __name__ == "__main__":
    seconds = _work(*sys.argv[1:])
    print(seconds, _highest())
