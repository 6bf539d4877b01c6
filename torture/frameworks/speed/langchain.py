"""LangChain's `SQLChatMessageHistory`, which `langchain-community` has, and `HoldfastChatMessageHistory`: what the
runner does with a history, a look at it and then the turn in one piece.
"""

from pathlib import Path
from typing import Any

from torture.frameworks.speed.side_by_side import ASKED, SAID, compare


class KeptHistory:
    """A chat history."""

    def __init__(self, history: Any) -> None:
        self._history = history

    async def turn(self) -> None:
        assert self._history.messages is not None
        self._add(1)

    def _add(self, turns: int) -> None:
        from langchain_core.messages import AIMessage, HumanMessage

        said: list[Any] = []
        for _ in range(turns):
            said += [HumanMessage(ASKED), AIMessage(SAID)]
        self._history.add_messages(said)

    async def fill(self, turns: int) -> None:
        self._add(turns)

    async def load(self) -> int:
        return len(self._history.messages)


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


if __name__ == "__main__":
    compare(own, ours)
