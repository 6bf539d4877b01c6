"""Peers on PostgreSQL, through their own faces: LangGraph's PostgresSaver, the Agents SDK's
SQLAlchemySession.

A saver stores the state of a graph after every step: the message is all the state there is, which
is the least it could have to do; in life its state has every message so far. Both get as many
connections as they can use.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

from agents.extensions.memory import SQLAlchemySession
from langgraph.checkpoint.base import create_checkpoint, empty_checkpoint
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool
from sqlalchemy.ext.asyncio import create_async_engine

from bench.sample import message

CONNECTIONS = 16

Write = Callable[[Any], Coroutine[Any, Any, Any]]


async def rate(writers: list[Write], each: int) -> float:
    """Messages per second of tasks that write one after the other."""
    messages = [message(number, "user") for number in range(each)]

    async def work(write: Write) -> None:
        for one in messages:
            await write(one)

    began = time.perf_counter()
    await asyncio.gather(*map(work, writers))
    return each * len(writers) / (time.perf_counter() - began)


class Saver:
    """LangGraph's checkpointer."""

    async def open(self, dsn: str, sessions: int) -> None:
        options = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
        self._pool: Any = AsyncConnectionPool(dsn, max_size=CONNECTIONS, kwargs=options, open=False)
        await self._pool.open()
        self._saver = AsyncPostgresSaver(self._pool)
        await self._saver.setup()
        self.writers = [self._writer(f"s{number}") for number in range(sessions)]

    def _writer(self, name: str) -> Write:
        config: Any = {"configurable": {"thread_id": name, "checkpoint_ns": ""}}
        step = 0

        async def write(item: Any) -> None:
            nonlocal config, step
            step += 1
            state = create_checkpoint(empty_checkpoint(), None, step)
            state["channel_values"], state["channel_versions"] = (
                {"messages": [item]},
                {"messages": f"{step:032}"},
            )
            metadata: Any = {"source": "loop", "step": step, "parents": {}}
            config = await self._saver.aput(config, state, metadata, state["channel_versions"])

        return write

    async def close(self) -> None:
        await self._pool.close()


class Alchemy:
    """The Agents SDK's sessions on SQLAlchemy."""

    async def open(self, dsn: str, sessions: int) -> None:
        url = dsn.replace("postgresql://", "postgresql+asyncpg://")
        self._engine = create_async_engine(url, pool_size=CONNECTIONS, max_overflow=0)
        made = [
            SQLAlchemySession(f"s{n}", engine=self._engine, create_tables=True)
            for n in range(sessions)
        ]
        await made[0].add_items([message(0, "user")])  # type: ignore[list-item]
        self.writers: list[Write] = [self._writer(session) for session in made]

    def _writer(self, session: SQLAlchemySession) -> Write:
        async def write(item: Any) -> None:
            await session.add_items([item])

        return write

    async def close(self) -> None:
        await self._engine.dispose()
