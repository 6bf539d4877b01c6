"""Turns, loads and bytes of the SDK's `SQLiteSession` and of `HoldfastSession`, in one run.

Runs in the environment of the SDK. Both are measured in turns, several times, and the median of each is printed:
the machine is the same for both, and their ratio is what counts.
"""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROUNDS = 5
USER = {"role": "user", "content": "How are the rows? " * 6}
TEXT = {"type": "output_text", "text": "They are wet. " * 8, "annotations": []}
SAID = {"type": "message", "role": "assistant", "id": "msg_1", "content": [TEXT]}
MEASURED = ("turns/s, 1 session", "turns/s, 64 sessions", "load of 1,000 items, ms", "kB on disk")


def main() -> None:
    from agents import SQLiteSession

    from holdfast.adapters.openai_agents import HoldfastSession

    stores: dict[str, Callable[[str, Path], Any]] = {
        "own": lambda key, folder: SQLiteSession(key, folder / "own.db"),
        "holdfast": lambda key, folder: HoldfastSession(key, folder / "holdfast.db"),
    }
    found: dict[str, list[list[float]]] = {name: [] for name in stores}
    for _ in range(ROUNDS):
        for name, make in stores.items():
            with tempfile.TemporaryDirectory() as folder:
                found[name].append(asyncio.run(measured(make, Path(folder))))
    print(f"{'':<26}{'own':>10}{'holdfast':>10}{'ratio':>8}")
    for place, what in enumerate(MEASURED):
        own, ours = (
            statistics.median(round[place] for round in rounds) for rounds in found.values()
        )
        print(f"{what:<26}{own:>10.1f}{ours:>10.1f}{ours / own:>8.2f}")


async def measured(make: Callable[[str, Path], Any], folder: Path) -> list[float]:
    """One round: each number in the order of `MEASURED`."""
    alone = await turns([make("alone", folder)], 150)
    many = await turns([make(f"session {number}", folder) for number in range(64)], 6)
    await make("long", folder).add_items([USER, SAID] * 500)
    fresh = make("long", folder)
    started = time.perf_counter()
    assert len(await fresh.get_items()) == 1000
    took = time.perf_counter() - started
    size = sum(file.stat().st_size for file in folder.iterdir())
    return [alone, many, took * 1000, size / 1000]


async def turns(sessions: list[Any], count: int) -> float:
    """Turns a second: each stores its prompt and then its answer, as the runner does."""

    async def one(session: Any) -> None:
        for _ in range(count):
            await session.add_items([USER])
            await session.add_items([SAID])

    started = time.perf_counter()
    await asyncio.gather(*(one(session) for session in sessions))
    return len(sessions) * count / (time.perf_counter() - started)


if __name__ == "__main__":
    main()
