"""`context()` for the next turn after a compaction, in a new process: flat in the length of the
history.

This module is the child too: `python -m bench.compacted PATH` prints seconds, imports and opening
left aside.
"""

import subprocess
import sys
import time

import holdfast
from bench import shim
from bench.figure import Figure, Run, interleaved, median, ratio
from bench.sample import message

KEY = "long"
KEPT_TURNS = 25
"""Of two messages each: fifty are left."""


def measure(run: Run) -> list[Figure]:
    lengths = (1_000, 10_000) if run.quick else (1_000, 10_000, 100_000)
    with shim.scratch() as folder:
        paths = {length: f"{folder}/{length}.db" for length in lengths}
        for length, path in paths.items():
            _fill(path, length)
        found = interleaved(
            run.repeats, {length: lambda path=path: _child(path) for length, path in paths.items()}
        )
    ms = {length: median(took) * 1e3 for length, took in found.items()}
    longest = max(lengths)
    return [
        run.figure(
            "next context() after a compaction of 10 000, 50 left, new process",
            ms[10_000],
            "ms",
            at_most=5,
        ),
        run.figure(
            f"the same at {longest:,} ÷ at 1 000".replace(",", " "),
            ratio(found[longest], found[1_000]),
            "×",
            at_most=1.25,
            by=", ".join(f"{length}: {took:.2f} ms" for length, took in ms.items()),
        ),
    ]


def _fill(path: str, length: int) -> None:
    with holdfast.open(path, durability="process") as store:
        session = store.session(KEY)
        session.record([message(number) for number in range(length - 2 * KEPT_TURNS)])
        for number in range(KEPT_TURNS):
            with session.turn(message(number, "user")) as turn:
                turn.add(message(number, "assistant"))
        session.compact("They spoke of tides.", keep_turns=KEPT_TURNS)


def _child(path: str) -> float:
    command = [sys.executable, "-m", "bench.compacted", path]
    return float(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def _next_context(path: str) -> float:
    with holdfast.open(path) as store:
        session = store.session(KEY)
        with session.turn("And then?") as turn:
            began = time.perf_counter()
            context = turn.context("openai.chat")
            took = time.perf_counter() - began
            assert 50 <= len(context) <= 60 + 2 * KEPT_TURNS
            turn.interrupt()
    return took


if __name__ == "__main__":
    print(_next_context(sys.argv[1]))
