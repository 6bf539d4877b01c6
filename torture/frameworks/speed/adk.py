"""The kit's `SqliteSessionService` and `DatabaseSessionService`, each beside `HoldfastSessionService`; on
PostgreSQL as well, if an address is given.
"""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from torture.frameworks.speed.side_by_side import ASKED, SAID, compare, compare_at, dialect

Make = Callable[[Path], Any]
_services: dict[Path, Any] = {}


class ServedSession:
    """A session of a session service. The kit has no batches: each event is a step."""

    def __init__(self, key: str, folder: Path, make: Make) -> None:
        # All sessions of a round are those of one service, as in a program.
        if folder not in _services:
            _services.clear()
            _services[folder] = make(folder)
        self._service = _services[folder]
        self._place = {"app_name": folder.name, "user_id": "ann", "session_id": key}
        self._session: Any = None

    async def turn(self) -> None:
        if self._session is None:
            self._session = await _patiently(self._service.create_session, **self._place)
        await self._append("user", ASKED)
        await self._append("gardener", SAID)

    async def _append(self, author: str, words: str) -> None:
        from google.adk.events.event import Event
        from google.genai import types

        role = "user" if author == "user" else "model"
        content = types.Content(role=role, parts=[types.Part(text=words)])
        event = Event(author=author, invocation_id="e-1", content=content)
        await _patiently(self._service.append_event, self._session, event)

    async def fill(self, turns: int) -> None:
        for _ in range(turns):
            await self.turn()

    async def load(self) -> int:
        return len((await self._service.get_session(**self._place)).events)


async def _patiently(work: Any, *given: Any, **named: Any) -> Any:
    """What this gives, once the database is not locked: SQLite's own patience is too short for 64 sessions
    of the kit's services.
    """
    while True:
        try:
            return await work(*given, **named)
        except Exception as error:
            if "locked" not in str(error):
                raise


def _sqlite(folder: Path) -> Any:
    from google.adk.sessions.sqlite_session_service import SqliteSessionService

    return SqliteSessionService(str(folder / "own.db"))


def _database(folder: Path) -> Any:
    from google.adk.sessions import DatabaseSessionService

    return DatabaseSessionService(db_url=f"sqlite+aiosqlite:///{folder / 'own.db'}")


def _database_at(address: str, folder: Path) -> Any:
    from google.adk.sessions import DatabaseSessionService

    return DatabaseSessionService(db_url=dialect(address, "asyncpg"))


def _ours(folder: Path) -> Any:
    from holdfast.adapters.adk import HoldfastSessionService

    return HoldfastSessionService(folder / "holdfast.db")


def _ours_at(address: str, folder: Path) -> Any:
    from holdfast.adapters.adk import HoldfastSessionService

    return HoldfastSessionService(address)


def own_at(address: str, key: str, folder: Path) -> ServedSession:
    return ServedSession(key, folder, partial(_database_at, address))


def ours_at(address: str, key: str, folder: Path) -> ServedSession:
    return ServedSession(key, folder, partial(_ours_at, address))


def main() -> None:
    pairs: dict[str, tuple[Make, Make]] = {
        "SqliteSessionService": (_sqlite, _ours),
        "DatabaseSessionService": (_database, _ours),
    }
    for name, (own, ours) in pairs.items():
        print(name)
        compare(partial(ServedSession, make=own), partial(ServedSession, make=ours))
    for address in sys.argv[1:]:
        print(f"DatabaseSessionService, {address}")
        compare_at(address, own_at, ours_at)


if __name__ == "__main__":
    main()
