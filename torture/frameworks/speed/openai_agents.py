"""The SDK's `SQLiteSession` and `HoldfastSession`."""

from pathlib import Path
from typing import Any

from torture.frameworks.speed.side_by_side import ASKED, SAID, compare

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


if __name__ == "__main__":
    compare(own, ours)
