"""Strands' `FileSessionManager` and `HoldfastSessionManager`, each with Strands' agent and a model that
answers at once, in one piece. Strands' files are never synced.
"""

import warnings
from pathlib import Path
from typing import Any

from torture.frameworks.speed.side_by_side import (
    ASKED,
    SAID,
    Unsynced,
    compare_with_unsynced,
)
from torture.frameworks.strands import answering

AGENT = "gardener"
UNSYNCED = Unsynced()


class AgentSession:
    """An agent in a session."""

    def __init__(self, manager: Any) -> None:
        self._manager = manager
        self._made: Any = None

    @property
    def _agent(self) -> Any:
        from strands import Agent

        if self._made is None:
            self._made = Agent(
                model=answering(SAID),
                session_manager=self._manager,
                agent_id=AGENT,
                callback_handler=None,
            )
        return self._made

    async def turn(self) -> None:
        await self._agent.invoke_async(ASKED)

    async def fill(self, turns: int) -> None:
        for _ in range(turns):
            for role, text in (("user", ASKED), ("assistant", SAID)):
                message = {"role": role, "content": [{"text": text}]}
                self._manager.append_message(message, self._agent)

    async def load(self) -> int:
        from strands.session.repository_session_manager import RepositorySessionManager

        manager: RepositorySessionManager = self._manager
        manager.session_repository.read_agent(manager.session_id, AGENT)
        return len(manager.session_repository.list_messages(manager.session_id, AGENT))


def own(key: str, folder: Path) -> AgentSession:
    from strands.session.file_session_manager import FileSessionManager

    return AgentSession(FileSessionManager(key, storage_dir=str(folder / "sessions")))


def ours(key: str, folder: Path) -> AgentSession:
    from holdfast.adapters.strands import HoldfastSessionManager

    return AgentSession(HoldfastSessionManager(key, folder / "holdfast.db"))


def unsynced(key: str, folder: Path) -> AgentSession:
    from holdfast.adapters.strands import HoldfastSessionManager

    return AgentSession(HoldfastSessionManager(key, UNSYNCED.store(folder)))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    compare_with_unsynced(own, ours, unsynced)
