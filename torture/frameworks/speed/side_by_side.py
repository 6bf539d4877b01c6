"""Turns, loads and bytes of a framework's own store and of ours, in one run.

Runs in the environment of the framework. Both are measured in turns, several times, and the median of each is
printed: the machine is the same for both, and their ratio is what counts. CPU is that of the process, without a
server's: on a busy machine it tells more than the clock.
"""

import asyncio
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

ROUNDS = 5
PAUSE_S = 1.0
ASKED = "How are the rows? " * 6
SAID = "They are wet. " * 8
MEASURED = (
    "turns/s, 1 session",
    "turns/s, 64 sessions",
    "CPU of a turn, 1 session, ms",
    "load of 1,000 messages, ms",
    "CPU of that load, ms",
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
Round = Callable[[Path], Coroutine[Any, Any, list[float]]]


MadeAt = Callable[[str, str, Path], MeasuredSession]
"""As `Made`, at an address."""


def compare(own: Made, ours: Made) -> None:
    """Prints the table."""

    async def measured(make: Made, folder: Path) -> list[float]:
        return await _measured(make, folder, lambda: _size(folder))

    _compare(partial(measured, own), partial(measured, ours))


def compare_at(address: str, own: MadeAt, ours: MadeAt) -> None:
    """Prints the table of stores on a PostgreSQL, each round in a database of its own there."""
    import psycopg

    made: list[str] = []

    async def measured(make: MadeAt, folder: Path) -> list[float]:
        name = f"speed_{secrets.token_hex(4)}"
        server.execute(f'CREATE DATABASE "{name}"'.encode())
        made.append(name)
        there = another_database(address, name)
        size_before = _size_at(there)
        found = await _measured(partial(make, there), folder, lambda: _size_at(there))
        return [*found[:-1], found[-1] - size_before / 1000]

    with psycopg.connect(address, autocommit=True) as server:
        try:
            _compare(partial(measured, own), partial(measured, ours))
        finally:
            for name in made:
                server.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())


def another_database(address: str, database: str) -> str:
    """The address of another database of the same server."""
    return urlsplit(address)._replace(path=f"/{database}").geturl()


def _compare(own: Round, ours: Round) -> None:
    found: dict[str, list[list[float]]] = {"own": [], "holdfast": []}
    for _ in range(ROUNDS):
        for name, measured in (("own", own), ("holdfast", ours)):
            with tempfile.TemporaryDirectory() as folder:
                found[name].append(asyncio.run(measured(Path(folder))))
    print(f"{'':<28}{'own':>10}{'holdfast':>10}{'ratio':>8}")
    for place, what in enumerate(MEASURED):
        theirs, our = (
            statistics.median(round[place] for round in rounds) for rounds in found.values()
        )
        print(f"{what:<28}{theirs:>10.1f}{our:>10.1f}{our / theirs:>8.2f}", flush=True)


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


async def _measured(make: Made, folder: Path, size: Callable[[], int]) -> list[float]:
    """One round: each number in the order of `MEASURED`."""
    cpu = time.process_time()
    alone = await _turns([make("alone", folder)], 150)
    cpu = time.process_time() - cpu
    many = await _turns([make(f"session {number}", folder) for number in range(64)], 6)
    await make("long", folder).fill(500)
    # A session is loaded by a run that comes later: not while what was just stored is being indexed.
    await asyncio.sleep(PAUSE_S)
    fresh = make("long", folder)
    started, loading = time.perf_counter(), time.process_time()
    assert await fresh.load() == 1000
    took, loading = time.perf_counter() - started, time.process_time() - loading
    times = [cpu * 1000 / 150, took * 1000, loading * 1000]
    return [alone, many, *times, size() / 1000]


def _size(folder: Path) -> int:
    """What the files of a folder take. Looked at in a process of its own: whoever closes a file of an
    open store releases that store's locks.
    """
    program = "from torture.frameworks.speed.side_by_side import looked_up; looked_up()"
    asked = [sys.executable, "-c", program, str(folder)]
    return int(subprocess.run(asked, check=True, capture_output=True, text=True).stdout)


def _size_at(address: str) -> int:
    """What the database at this address takes."""
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
