"""The fastest peer: the OpenAI Agents SDK's `SQLiteSession`, on a file, through its own API."""

import asyncio
import time
from typing import Any

from agents.memory.sqlite_session import SQLiteSession

from bench.sample import message


class Peer:
    """Some sessions in one file, each written by a task of its own."""

    def __init__(self, path: str, sessions: int) -> None:
        self._sessions = [SQLiteSession(f"s{number}", path) for number in range(sessions)]

    def round(self, runner: asyncio.Runner, each: int) -> float:
        """Messages per second."""
        items = [message(number, "user") for number in range(each)]
        return runner.run(self._round(items))

    async def _round(self, items: list[dict[str, Any]]) -> float:
        async def write(session: SQLiteSession) -> None:
            for item in items:
                await session.add_items([item])  # type: ignore[list-item]

        began = time.perf_counter()
        await asyncio.gather(*(write(session) for session in self._sessions))
        return len(items) * len(self._sessions) / (time.perf_counter() - began)

    def close(self) -> None:
        for session in self._sessions:
            session.close()
