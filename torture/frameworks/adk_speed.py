"""Turns, loads and bytes of the kit's own services and of `HoldfastSessionService`, in one run.

Runs in the environment of the kit; an address of PostgreSQL as its argument measures both there, too. Each is measured
in turns with the others, several times, and the medians are printed: the machine is the same for all, and what counts
is how they compare.
"""

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import holdfast

ROUNDS = 3
PLACE = {"app_name": "garden", "user_id": "ann"}
MEASURED = ("turns/s, 1 session", "turns/s, 64 sessions", "load of 1,000 events, ms", "kB on disk")
Make = Callable[[Path], Any]


def main() -> None:
    from google.adk.sessions import DatabaseSessionService
    from google.adk.sessions.sqlite_session_service import SqliteSessionService

    from holdfast.adapters.adk import HoldfastSessionService

    services: dict[str, Make] = {
        "Sqlite": lambda folder: SqliteSessionService(str(folder / "own.db")),
        "Database": lambda folder: DatabaseSessionService(
            db_url=f"sqlite+aiosqlite:///{folder / 'own.db'}"
        ),
        "holdfast": lambda folder: HoldfastSessionService(
            holdfast.open(str(folder / "holdfast.db"))
        ),
    }
    if len(sys.argv) > 1:
        address = sys.argv[1]
        theirs = address.replace("postgresql://", "postgresql+asyncpg://")
        services["Database, PG"] = lambda folder: DatabaseSessionService(db_url=theirs)
        services["holdfast, PG"] = lambda folder: HoldfastSessionService(holdfast.open(address))
    found: dict[str, list[list[float]]] = {name: [] for name in services}
    for number in range(ROUNDS):
        for name, make in services.items():
            with tempfile.TemporaryDirectory() as folder:
                found[name].append(asyncio.run(measured(make, Path(folder), number)))
    print(f"{'':<26}" + "".join(f"{name:>14}" for name in services))
    for place, what in enumerate(MEASURED):
        row = [statistics.median(one[place] for one in rounds) for rounds in found.values()]
        print(f"{what:<26}" + "".join(f"{value:>14.1f}" for value in row))


async def measured(make: Make, folder: Path, number: int) -> list[float]:
    """One round: each number in the order of `MEASURED`."""
    service = make(folder)

    async def made(name: str) -> Any:
        return await service.create_session(**PLACE, session_id=f"{number}-{name}")

    alone = await turns(service, [await made("alone")], 60)
    many = await turns(service, [await made(f"s{n}") for n in range(64)], 3)
    await turns(service, [await made("long")], 500)
    size = sum(file.stat().st_size for file in folder.iterdir())
    await closed(service)
    fresh = make(folder)
    await fresh.list_sessions(app_name="nobody")
    started = time.perf_counter()
    loaded = await fresh.get_session(**PLACE, session_id=f"{number}-long")
    took = time.perf_counter() - started
    assert len(loaded.events) == 1000
    await closed(fresh)
    return [alone, many, took * 1000, size / 1000]


async def closed(service: Any) -> None:
    if hasattr(service, "store"):
        service.store.close()
    else:
        await service.close()


async def turns(service: Any, sessions: list[Any], count: int) -> float:
    """Turns a second: each stores its prompt and then its answer, as the runner does."""

    async def one(session: Any) -> None:
        for _ in range(count):
            await _stored(service, session, _said("user", "How are the rows? " * 6))
            await _stored(service, session, _said("gardener", "They are wet. " * 8))

    started = time.perf_counter()
    await asyncio.gather(*(one(session) for session in sessions))
    return len(sessions) * count / (time.perf_counter() - started)


async def _stored(service: Any, session: Any, event: Any) -> None:
    """Appends an event; again, as long as the store says that it is locked: SQLite's own patience is
    not enough for 64 sessions of the kit's services.
    """
    while True:
        try:
            await service.append_event(session, event)
            return
        except Exception as error:
            if "locked" not in str(error):
                raise


def _said(author: str, words: str) -> Any:
    from google.adk.events.event import Event
    from google.genai import types

    role = "user" if author == "user" else "model"
    content = types.Content(role=role, parts=[types.Part(text=words)])
    return Event(author=author, invocation_id="e-1", content=content)


if __name__ == "__main__":
    main()
