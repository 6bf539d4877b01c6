"""The framework's `FileHistoryProvider`, which never syncs, and `HoldfastHistoryProvider`."""

import warnings
from pathlib import Path
from typing import Any

from torture.frameworks.speed.side_by_side import (
    ASKED,
    SAID,
    Unsynced,
    compare_with_unsynced,
)

UNSYNCED = Unsynced()


class ProvidedHistory:
    """A session of a history provider. A run that was not streamed is stored in one batch."""

    def __init__(self, key: str, provider: Any) -> None:
        self._key, self._provider, self._answers = key, provider, 0

    def _turn(self) -> list[Any]:
        from agent_framework import Message

        self._answers += 1
        answer = Message("assistant", [SAID], message_id=f"msg_{self._answers}")
        return [Message("user", [ASKED]), answer]

    async def turn(self) -> None:
        await self._provider.save_messages(self._key, self._turn())

    async def fill(self, turns: int) -> None:
        messages = []
        for _ in range(turns):
            messages += self._turn()
        await self._provider.save_messages(self._key, messages)

    async def load(self) -> int:
        return len(await self._provider.get_messages(self._key))


def own(key: str, folder: Path) -> ProvidedHistory:
    from agent_framework import FileHistoryProvider

    return ProvidedHistory(key, FileHistoryProvider(folder / "history"))


def ours(key: str, folder: Path) -> ProvidedHistory:
    from holdfast.adapters.agent_framework import HoldfastHistoryProvider

    return ProvidedHistory(key, HoldfastHistoryProvider(folder / "holdfast.db"))


def unsynced(key: str, folder: Path) -> ProvidedHistory:
    from holdfast.adapters.agent_framework import HoldfastHistoryProvider

    return ProvidedHistory(key, HoldfastHistoryProvider(UNSYNCED.store(folder)))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    compare_with_unsynced(own, ours, unsynced)
