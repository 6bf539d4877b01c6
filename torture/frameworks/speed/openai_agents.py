"""The SDK's `SQLiteSession` and `HoldfastSession`; on PostgreSQL its `SQLAlchemySession` beside ours as well, if an
address is given.
"""

import sys
from pathlib import Path
from typing import Any

from torture.frameworks.speed.side_by_side import ASKED, SAID, compare, compare_at, dialect

USER = {"role": "user", "content": ASKED}
TEXT = {"type": "output_text", "text": SAID, "annotations": []}
ANSWER = {"type": "message", "role": "assistant", "id": "msg_1", "content": [TEXT]}


class ItemSession:
    """A session of the SDK's protocol."""

    def __init__(self, session: Any) -> None:
        self._session = session

    async def turn(self) -> None:
        await self._session.add_items([USER])
        await self._session.add_items([ANSWER])

    async def fill(self, turns: int) -> None:
        await self._session.add_items([USER, ANSWER] * turns)

    async def load(self) -> int:
        return len(await self._session.get_items())


def own(key: str, folder: Path) -> ItemSession:
    from agents import SQLiteSession

    return ItemSession(SQLiteSession(key, folder / "own.db"))


def ours(key: str, folder: Path) -> ItemSession:
    from holdfast.adapters.openai_agents import HoldfastSession

    return ItemSession(HoldfastSession(key, folder / "holdfast.db"))


_engines: dict[Path, Any] = {}


def own_at(address: str, key: str, folder: Path) -> ItemSession:
    from agents.extensions.memory import SQLAlchemySession
    from sqlalchemy.ext.asyncio import create_async_engine

    # One engine for all sessions of a round, as in a program.
    if folder not in _engines:
        _engines.clear()
        _engines[folder] = create_async_engine(dialect(address, "asyncpg"))
    key = f"{folder.name} {key}"
    return ItemSession(SQLAlchemySession(key, engine=_engines[folder], create_tables=True))


def ours_at(address: str, key: str, folder: Path) -> ItemSession:
    from holdfast.adapters.openai_agents import HoldfastSession

    return ItemSession(HoldfastSession(f"{folder.name} {key}", address))


def main() -> None:
    print("SQLiteSession")
    compare(own, ours)
    for address in sys.argv[1:]:
        print(f"SQLAlchemySession, {address}")
        compare_at(address, own_at, ours_at)


if __name__ == "__main__":
    main()
