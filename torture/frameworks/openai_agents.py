"""The OpenAI Agents SDK: its runner with `HoldfastSession`, beside its own `SQLiteSession`."""

import sqlite3
from pathlib import Path
from typing import Any

from holdfast.testing.adapters import Show, Task

INSTALL = ["openai-agents==0.24.0", "sqlalchemy[asyncio]>=2.0", "asyncpg>=0.30"]
TESTS = ["tests/frameworks/test_openai_agents.py", "tests/frameworks/test_openai_agents_border.py"]
STORE_CODE = "agents/memory"


def _agent(task: Task) -> Any:
    from agents import Agent, OpenAIResponsesModel, function_tool, set_tracing_disabled
    from openai import AsyncOpenAI

    set_tracing_disabled(True)

    @function_tool
    def water(row: int) -> str:
        """Waters a row."""
        return task.water(row)

    client = AsyncOpenAI(base_url=task.base_url, api_key="none", max_retries=0)
    model = OpenAIResponsesModel(model="gpt-test", openai_client=client)
    return Agent(name="Gardener", instructions="You keep rows.", model=model, tools=[water])


def _session(task: Task) -> Any:
    if task.is_own:
        from agents import SQLiteSession

        return SQLiteSession(task.session, Path(task.folder) / "sessions.db")
    from holdfast.adapters.openai_agents import HoldfastSession

    return HoldfastSession(task.session, task.where)


async def ask(task: Task, show: Show) -> None:
    from agents import Runner

    from holdfast.errors import AlreadyAccepted

    session = _session(task)
    result = Runner.run_streamed(_agent(task), task.prompt, session=session)
    if task.is_own:
        events = result.stream_events()
    else:
        events = session.stream(result, event_id=task.request_id)
    try:
        async for event in events:
            if event.type == "raw_response_event":
                if event.data.type == "response.output_text.delta":
                    show(event.data.delta)
    except AlreadyAccepted:
        show("answered before")


async def clear(task: Task) -> None:
    await _session(task).clear_session()


async def compact(task: Task) -> None:
    """As the SDK does it for a session that it can't swap: all out, then all in; ours in one."""
    session = _session(task)
    items = await session.get_items()
    kept = [{"role": "user", "content": task.summary}, *items[-2:]]
    if task.is_own:
        await session.clear_session()
        await session.add_items(kept)
        return

    async def summed_up(items: list[Any]) -> list[Any]:
        return kept

    session.compact_with = summed_up
    await session.run_compaction()


def spoil(task: Task) -> None:
    with sqlite3.connect(Path(task.folder) / "sessions.db") as database:
        database.execute(
            "UPDATE agent_messages SET message_data = substr(message_data, 1, 9) "
            "WHERE id = (SELECT max(id) FROM agent_messages)"
        )


def suite(environment: Path) -> tuple[int, int, list[str]]:
    from torture.frameworks import openai_agents_suite

    return openai_agents_suite.suite(environment)
