"""LangChain's `SQLChatMessageHistory`, which `langchain-community` has, and `HoldfastChatMessageHistory`: what the
runner does with a history, a look at it and then the turn in one piece. On PostgreSQL `PostgresChatMessageHistory`,
which `langchain-postgres` has, beside ours as well, if an address is given.
"""

import asyncio
import sys
import uuid
from collections.abc import Awaitable, Coroutine
from pathlib import Path
from typing import Any

from torture.frameworks.speed.side_by_side import ASKED, SAID, compare, compare_at


class KeptHistory:
    """A chat history."""

    def __init__(self, history: Any) -> None:
        self._history = history

    async def turn(self) -> None:
        assert self._history.messages is not None
        await self.fill(1)

    async def fill(self, turns: int) -> None:
        self._history.add_messages(_turns(turns))

    async def load(self) -> int:
        return len(self._history.messages)


def _turns(count: int) -> list[Any]:
    from langchain_core.messages import AIMessage, HumanMessage

    said: list[Any] = []
    for _ in range(count):
        said += [HumanMessage(ASKED), AIMessage(SAID)]
    return said


TABLE = "chat_history"
_engines: dict[Path, Any] = {}


def own(key: str, folder: Path) -> KeptHistory:
    from langchain_community.chat_message_histories import SQLChatMessageHistory
    from sqlalchemy import create_engine

    if folder not in _engines:
        _engines.clear()
        _engines[folder] = create_engine(f"sqlite:///{folder / 'own.db'}")
    return KeptHistory(SQLChatMessageHistory(key, connection=_engines[folder]))


def ours(key: str, folder: Path) -> KeptHistory:
    from holdfast.adapters.langchain import HoldfastChatMessageHistory

    return KeptHistory(HoldfastChatMessageHistory(key, folder / "holdfast.db"))


class ServedHistory:
    """A chat history in a program with an event loop: the runner awaits a look at it, and then the turn. `made`
    makes it.
    """

    def __init__(self, made: Coroutine[Any, Any, Any]) -> None:
        self._made = asyncio.ensure_future(made)

    async def turn(self) -> None:
        assert await (await self._made).aget_messages() is not None
        await self.fill(1)

    async def fill(self, turns: int) -> None:
        await (await self._made).aadd_messages(_turns(turns))

    async def load(self) -> int:
        return len(await (await self._made).aget_messages())


def own_at(address: str, key: str, folder: Path) -> ServedHistory:
    # One connection for all histories of a round: it takes an open one.
    if folder not in _engines:
        _engines.clear()
        _engines[folder] = asyncio.ensure_future(_connected(address))
    name = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{folder.name} {key}"))
    return ServedHistory(_own_history(name, _engines[folder]))


async def _connected(address: str) -> Any:
    from langchain_postgres import PostgresChatMessageHistory
    from psycopg import AsyncConnection

    connection = await AsyncConnection.connect(address)
    await PostgresChatMessageHistory.acreate_tables(connection, TABLE)
    return connection


async def _own_history(name: str, connection: Awaitable[Any]) -> Any:
    from langchain_postgres import PostgresChatMessageHistory

    return PostgresChatMessageHistory(TABLE, name, async_connection=await connection)


def ours_at(address: str, key: str, folder: Path) -> ServedHistory:
    return ServedHistory(_our_history(f"{folder.name} {key}", address))


async def _our_history(key: str, address: str) -> Any:
    from holdfast.adapters.langchain import HoldfastChatMessageHistory

    return HoldfastChatMessageHistory(key, address)


def main() -> None:
    print("SQLChatMessageHistory")
    compare(own, ours)
    for address in sys.argv[1:]:
        print(f"PostgresChatMessageHistory, {address}")
        compare_at(address, own_at, ours_at)


if __name__ == "__main__":
    main()
