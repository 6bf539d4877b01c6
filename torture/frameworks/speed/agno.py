"""Agno's `SqliteDb` and `HoldfastDb`: a run is stored as the row of its session, then the run. On PostgreSQL its
`PostgresDb` beside ours as well, if an address is given.
"""

import sys
from pathlib import Path
from typing import Any

from torture.frameworks.speed.side_by_side import ASKED, SAID, compare, compare_at, dialect


class KeptRuns:
    """A session of an Agno database."""

    def __init__(self, key: str, db: Any) -> None:
        self._key, self._db, self._runs = key, db, 0

    async def turn(self) -> None:
        from agno.models.message import Message
        from agno.run.agent import RunOutput
        from agno.session import AgentSession

        self._runs += 1
        said = [Message(role="user", content=ASKED), Message(role="assistant", content=SAID)]
        run = RunOutput(f"{self._key}-{self._runs}", "a", content=SAID, messages=said)
        self._db.upsert_session(
            AgentSession(self._key, "a", session_data={"n": self._runs}, created_at=1)
        )
        self._db.upsert_run(run, self._key, run_index=self._runs)

    async def fill(self, turns: int) -> None:
        for _ in range(turns):
            await self.turn()

    async def load(self) -> int:
        return len(self._db.get_session(self._key).get_messages())


_opened: dict[Path, Any] = {}
"""One database for all sessions of a round, as in a program."""


def own(key: str, folder: Path) -> KeptRuns:
    from agno.db.sqlite import SqliteDb

    if folder not in _opened:
        _opened.clear()
        _opened[folder] = SqliteDb(db_file=str(folder / "own.db"))
    return KeptRuns(key, _opened[folder])


def ours(key: str, folder: Path) -> KeptRuns:
    from holdfast.adapters.agno import HoldfastDb

    place = folder / "holdfast.db"
    if place not in _opened:
        _opened.clear()
        _opened[place] = HoldfastDb(place)
    return KeptRuns(key, _opened[place])


def own_at(address: str, key: str, folder: Path) -> KeptRuns:
    from agno.db.postgres import PostgresDb

    if folder not in _opened:
        _opened.clear()
        _opened[folder] = PostgresDb(db_url=dialect(address, "psycopg"))
    return KeptRuns(f"{folder.name} {key}", _opened[folder])


def ours_at(address: str, key: str, folder: Path) -> KeptRuns:
    from holdfast.adapters.agno import HoldfastDb

    if folder not in _opened:
        _opened.clear()
        _opened[folder] = HoldfastDb(address)
    return KeptRuns(f"{folder.name} {key}", _opened[folder])


def main() -> None:
    print("SqliteDb")
    compare(own, ours)
    for address in sys.argv[1:]:
        print(f"PostgresDb, {address}")
        compare_at(address, own_at, ours_at)


if __name__ == "__main__":
    main()
