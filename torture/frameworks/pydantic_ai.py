"""Pydantic AI: its agent with `HoldfastHistory`, beside what its documentation shows for a chat application: the new
messages of each run as JSON in a table of SQLite, when the run is over.
"""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdfast.testing.adapters import Show, Task

INSTALL = ["pydantic-ai-slim[openai]==2.62.0", "pydantic-ai-harness==0.62.0", "anyio>=4.0"]
TESTS = ["tests/frameworks/test_pydantic_ai.py"]
TESTS += [
    "tests/frameworks/test_pydantic_ai_steps.py",
    "tests/frameworks/test_pydantic_ai_border.py",
]
STORE_CODE = "frameworks/pydantic_ai.py"


def agent(task: Task) -> Any:
    from openai import AsyncOpenAI
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    client = AsyncOpenAI(base_url=task.base_url, api_key="none", max_retries=0)
    model = OpenAIChatModel("gpt-test", provider=OpenAIProvider(openai_client=client))
    made = Agent(model, instructions="You keep rows.")

    @made.tool_plain
    def water(row: int) -> str:
        """Waters a row."""
        return task.water(row)

    return made


async def ask(task: Task, show: Show) -> None:
    if task.is_own:
        run = agent(task).run_stream_events(task.prompt, message_history=_read(task))
        result = await shown(run, show)
        with _table(task) as database:
            values = (task.session, result.new_messages_json())
            database.execute("INSERT INTO messages (session, list) VALUES (?, ?)", values)
        return
    await ask_holdfast(task, show)


async def ask_holdfast(task: Task, show: Show) -> None:
    """Asks with our capability."""
    import holdfast
    from holdfast.adapters.pydantic_ai import HoldfastHistory
    from holdfast.errors import AlreadyAccepted

    with holdfast.open(task.where) as store:
        history = HoldfastHistory(store.session(task.session))
        if task.request_id is not None:
            history = history.request(task.request_id)
        try:
            run = agent(task).run_stream_events(task.prompt, capabilities=[history])
            await shown(run, show)
        except AlreadyAccepted:
            show("answered before")


async def shown(run: Any, show: Show) -> Any:
    """Shows the text of a run as it comes; its result."""
    result = None
    async with run as events:
        async for event in events:
            if event.event_kind == "part_start" and event.part.part_kind == "text":
                show(event.part.content)
            elif event.event_kind == "part_delta" and event.delta.part_delta_kind == "text":
                show(event.delta.content_delta)
            elif event.event_kind == "agent_run_result":
                result = event.result
    return result


@contextlib.contextmanager
def _table(task: Task) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(Path(task.folder) / "chat.db")) as database:
        database.execute(
            "CREATE TABLE IF NOT EXISTS messages (id INTEGER PRIMARY KEY, session TEXT, list TEXT)"
        )
        with database:
            yield database


def _read(task: Task) -> list[Any]:
    from pydantic_ai.messages import ModelMessagesTypeAdapter

    found: list[Any] = []
    with _table(task) as database:
        query = "SELECT list FROM messages WHERE session = ? ORDER BY id"
        for (said,) in database.execute(query, (task.session,)):
            found += ModelMessagesTypeAdapter.validate_json(said)
    return found


def clear(task: Task) -> None:
    if task.is_own:
        with _table(task) as database:
            database.execute("DELETE FROM messages WHERE session = ?", (task.session,))
        return
    import holdfast

    with holdfast.open(task.where) as store:
        store.reset(task.session)


def compact(task: Task) -> None:
    """Theirs as such programs do it: all out, then the summary in."""
    if not task.is_own:
        import holdfast

        with holdfast.open(task.where) as store:
            store.session(task.session).compact(task.summary, keep_turns=1)
        return
    from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelRequest, UserPromptPart

    kept = [ModelRequest(parts=[UserPromptPart(task.summary)]), *_read(task)[-2:]]
    clear(task)
    with _table(task) as database:
        values = (task.session, ModelMessagesTypeAdapter.dump_json(kept))
        database.execute("INSERT INTO messages (session, list) VALUES (?, ?)", values)


def spoil(task: Task) -> None:
    with _table(task) as database:
        newest = "SELECT max(id) FROM messages"
        query = f"UPDATE messages SET list = substr(list, 1, 20) WHERE id = ({newest})"
        database.execute(query)


def suite(environment: Path) -> tuple[int, int, list[str]]:
    from torture.frameworks import pydantic_ai_suite

    return pydantic_ai_suite.suite(environment)
