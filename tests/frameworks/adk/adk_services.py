"""The services of the kit's sessions: its own three, and ours on both engines."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from google.adk.sessions import DatabaseSessionService
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.adk.sessions.sqlite_session_service import SqliteSessionService

from holdfast.adapters.adk import HoldfastSessionService

SERVICES = ["holdfast sqlite", "holdfast postgres", "InMemory", "Sqlite", "Database"]


class Kit:
    """One kind of service; `make` gives one on the same store each time."""

    def __init__(self, name: str, make: Callable[[], Any]) -> None:
        self.name, self.make = name, make

    def judge(self, law: Any, broken_by: dict[str, str]) -> None:
        """Runs a law on a service. One that is said to break it has to: what is said stays true."""
        if self.name not in broken_by:
            asyncio.run(self._run(law))
            return
        try:
            asyncio.run(self._run(law))
        except (Exception, pytest.fail.Exception):
            return
        pytest.fail(f"{self.name} keeps this law now; it was said: {broken_by[self.name]}")

    async def _run(self, law: Any) -> None:
        async with _opened(self.make()) as service:
            await law(service)


@asynccontextmanager
async def _opened(service: Any) -> AsyncIterator[Any]:
    try:
        yield service
    finally:
        if hasattr(service, "close"):
            await service.close()


def service_named(name: str, place: str) -> Callable[[], Any]:
    """What makes the service of this name, with its store at this place."""
    if name == "InMemory":
        return InMemorySessionService
    if name == "Sqlite":
        return lambda: SqliteSessionService(place)
    if name == "Database":
        return lambda: DatabaseSessionService(db_url=f"sqlite+aiosqlite:///{place}")
    return lambda: HoldfastSessionService(place)
