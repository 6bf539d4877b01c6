"""LlamaIndex's `SimpleChatStore`, written to a file of its own for each session after each turn, which
never syncs; and `HoldfastChatStore`. On PostgreSQL `PostgresChatStore`, which is a package of its own, beside ours as
well, if an address is given.
"""

import sys
import warnings
from pathlib import Path
from typing import Any

from torture.frameworks.speed.side_by_side import (
    ASKED,
    SAID,
    Unsynced,
    compare_at,
    compare_with_unsynced,
    dialect,
)

UNSYNCED = Unsynced()


class ChatSession:
    """A key's list in a chat store; `file`: where the store is written to after each turn."""

    def __init__(self, chats: Any, key: str, file: str | None = None) -> None:
        self._chats, self._key, self._file = chats, key, file

    async def turn(self) -> None:
        for message in _turn():
            await self._chats.async_add_message(self._key, message)
        self._keep()

    async def fill(self, turns: int) -> None:
        messages = [message for _ in range(turns) for message in _turn()]
        self._chats.set_messages(self._key, messages)
        self._keep()

    async def load(self) -> int:
        return len(await self._chats.aget_messages(self._key))

    def _keep(self) -> None:
        if self._file is not None:
            self._chats.persist(self._file)


def _turn() -> list[Any]:
    from llama_index.core.llms import ChatMessage

    return [ChatMessage(role="user", content=ASKED), ChatMessage(role="assistant", content=SAID)]


class OwnSession(ChatSession):
    """Loaded from its file, as a program does that starts."""

    def __init__(self, key: str, folder: Path) -> None:
        from llama_index.core.storage.chat_store import SimpleChatStore

        file = str(folder / f"{key}.json")
        super().__init__(SimpleChatStore.from_persist_path(file), key, file)

    async def load(self) -> int:
        from llama_index.core.storage.chat_store import SimpleChatStore

        self._chats = SimpleChatStore.from_persist_path(self._file)
        return await super().load()


def ours(key: str, folder: Path) -> ChatSession:
    from holdfast.adapters.llama_index import HoldfastChatStore

    return ChatSession(HoldfastChatStore(folder / "holdfast.db"), key)


def unsynced(key: str, folder: Path) -> ChatSession:
    from holdfast.adapters.llama_index import HoldfastChatStore

    return ChatSession(HoldfastChatStore(UNSYNCED.store(folder)), key)


_stores: dict[Path, Any] = {}


def own_at(address: str, key: str, folder: Path) -> ChatSession:
    from llama_index.storage.chat_store.postgres import PostgresChatStore

    if folder not in _stores:
        _stores.clear()
        _stores[folder] = PostgresChatStore.from_params(
            connection_string=dialect(address, "psycopg"),
            async_connection_string=dialect(address, "asyncpg"),
        )
    return ChatSession(_stores[folder], f"{folder.name} {key}")


def ours_at(address: str, key: str, folder: Path) -> ChatSession:
    from holdfast.adapters.llama_index import HoldfastChatStore

    return ChatSession(HoldfastChatStore(address), f"{folder.name} {key}")


def main() -> None:
    warnings.simplefilter("ignore")
    print("SimpleChatStore")
    compare_with_unsynced(OwnSession, ours, unsynced)
    for address in sys.argv[1:]:
        print(f"PostgresChatStore, {address}")
        compare_at(address, own_at, ours_at)


if __name__ == "__main__":
    main()
