"""Turns, loads and bytes of a framework's own store and of ours, in one run.

Runs in the environment of the framework. Both are measured in turns, several times, and the median of each is
printed: the machine is the same for both, and their ratio is what counts.
"""

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

ROUNDS = 5
ASKED = "How are the rows? " * 6
SAID = "They are wet. " * 8
MEASURED = (
    "turns/s, 1 session",
    "turns/s, 64 sessions",
    "load of 1,000 messages, ms",
    "kB on disk",
)
PAGES = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1])
[(pages,)] = database.execute("PRAGMA page_count")
[(size,)] = database.execute("PRAGMA page_size")
print(pages * size)
"""


class MeasuredSession(Protocol):
    """A session in a store: what a framework's runner does with it."""

    async def turn(self) -> None:
        """Stores a prompt and its answer, in as many steps as the runner does."""
        ...

    async def fill(self, turns: int) -> None:
        """Stores so many turns, in as few steps as the store allows."""
        ...

    async def load(self) -> int:
        """Loads the session as the runner does before a run; how many messages it has."""
        ...


Made = Callable[[str, Path], MeasuredSession]


def compare(own: Made, ours: Made, address: str | None = None) -> None:
    """Prints the table. With an address, what they store lies on that PostgreSQL."""
    found: dict[str, list[list[float]]] = {"own": [], "holdfast": []}
    for _ in range(ROUNDS):
        for name, make in (("own", own), ("holdfast", ours)):
            with tempfile.TemporaryDirectory() as folder:
                found[name].append(asyncio.run(_measured(make, Path(folder), address)))
    print(f"{'':<28}{'own':>10}{'holdfast':>10}{'ratio':>8}")
    for place, what in enumerate(MEASURED):
        theirs, our = (
            statistics.median(round[place] for round in rounds) for rounds in found.values()
        )
        print(f"{what:<28}{theirs:>10.1f}{our:>10.1f}{our / theirs:>8.2f}")


def dialect(address: str, driver: str) -> str:
    """The address of a PostgreSQL as SQLAlchemy has it, for a driver."""
    return address.replace("postgresql://", f"postgresql+{driver}://", 1)


class Unsynced:
    """A store for each folder, with the durability of stores that never sync: what it holds survives
    a killed process, and not a power cut.
    """

    def __init__(self) -> None:
        self._place, self._store = Path(), None

    def store(self, folder: Path) -> Any:
        """The store of this folder, opened once. The one of the folder before is let go."""
        import holdfast

        if folder != self._place:
            place = folder / "holdfast.db"
            self._store = holdfast.open(place, durability="process")
            self._place = folder
        return self._store


def compare_with_unsynced(own: Made, ours: Made, unsynced: Made) -> None:
    """Prints two tables for a store that never syncs: beside ours as it is by default, when a turn
    survives a power cut, and beside ours with the durability of theirs.
    """
    print("theirs without a sync, ours with a power cut in mind")
    compare(own, ours)
    print('both without a sync: ours with durability="process"')
    compare(own, unsynced)


async def _measured(make: Made, folder: Path, address: str | None) -> list[float]:
    """One round: each number in the order of `MEASURED`."""
    size_before = _size(folder, address)
    alone = await _turns([make("alone", folder)], 150)
    many = await _turns([make(f"session {number}", folder) for number in range(64)], 6)
    await make("long", folder).fill(500)
    fresh = make("long", folder)
    started = time.perf_counter()
    assert await fresh.load() == 1000
    took = time.perf_counter() - started
    size = _size(folder, address) - size_before
    return [alone, many, took * 1000, size / 1000]


def _size(folder: Path, address: str | None) -> int:
    """What a server's database takes, or the files of a folder. These are looked at in a process of its
    own: whoever closes a file of an open store releases that store's locks.
    """
    if address is not None:
        return _size_at(address)
    program = "from torture.frameworks.speed.side_by_side import looked_up; looked_up()"
    asked = [sys.executable, "-c", program, str(folder)]
    return int(subprocess.run(asked, check=True, capture_output=True, text=True).stdout)


def _size_at(address: str) -> int:
    import psycopg

    with psycopg.connect(address) as connection:
        answer = connection.execute("SELECT pg_database_size(current_database())").fetchone()
    assert answer is not None
    return int(answer[0])


def looked_up() -> None:
    """Prints what the files of the folder take that the command line names."""
    print(sum(_bytes(file) for file in Path(sys.argv[1]).rglob("*") if file.is_file()))


def _bytes(file: Path) -> int:
    """What a file takes. Of a SQLite database all pages count, also those that wait in its log: they are brought into
    it in their own time, and the log is used again.
    """
    if file.name.endswith(("-wal", "-shm", "-lock", "-journal")):
        return 0
    with file.open("rb") as opened:
        if opened.read(15) != b"SQLite format 3":
            return file.stat().st_size
    # By another process: one that has a store open is not to open its file by other means.
    asked = subprocess.run(
        [sys.executable, "-c", PAGES, file], check=True, capture_output=True, text=True
    )
    return int(asked.stdout)


async def _turns(sessions: list[MeasuredSession], count: int) -> float:
    """Turns a second."""

    async def one(session: MeasuredSession) -> None:
        for _ in range(count):
            await session.turn()

    started = time.perf_counter()
    await asyncio.gather(*(one(session) for session in sessions))
    return len(sessions) * count / (time.perf_counter() - started)
