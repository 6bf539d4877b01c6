"""Agno: its agents with `HoldfastDb`, beside its own `SqliteDb`."""

import sqlite3
from pathlib import Path
from typing import Any

from holdfast.testing.adapters import Show, Task

INSTALL = ["agno==3.1.10", "openai>=2.0", "sqlalchemy[asyncio]>=2.0"]
TESTS = ["tests/frameworks/test_agno.py", "tests/frameworks/test_agno_border.py"]
STORE_CODE = "agno/db/sqlite"


def _db(task: Task) -> Any:
    if task.is_own:
        from agno.db.sqlite import SqliteDb

        return SqliteDb(db_file=str(Path(task.folder) / "agno.db"))
    from holdfast.adapters.agno import HoldfastDb

    return HoldfastDb(task.where)


def _agent(task: Task, db: Any) -> Any:
    from agno.agent import Agent
    from agno.models.openai import OpenAIChat

    def water(row: int) -> str:
        """Waters a row."""
        return task.water(row)

    model = OpenAIChat(id="gpt-test", base_url=task.base_url, api_key="none", max_retries=0)
    history = {"add_history_to_context": True, "num_history_runs": 100}
    return Agent(id="gardener", model=model, db=db, tools=[water], telemetry=False, **history)


async def ask(task: Task, show: Show) -> None:
    from holdfast.errors import AlreadyAccepted

    db = _db(task)
    agent = _agent(task, db)
    if task.is_own:
        events = agent.arun(task.prompt, session_id=task.session, stream=True)
    else:
        named = {"session_id": task.session, "request_id": task.request_id}
        events = db.astream(agent, task.prompt, **named)
    try:
        async for event in events:
            if event.event == "RunContent":
                show(event.content)
    except AlreadyAccepted:
        show("answered before")


def clear(task: Task) -> None:
    _db(task).delete_session(task.session)


def spoil(task: Task) -> None:
    with sqlite3.connect(Path(task.folder) / "agno.db") as database:
        columns = [row[1] for row in database.execute("PRAGMA table_info(agno_runs)")]
        body = "run_data" if "run_data" in columns else "messages"
        database.execute(
            f"UPDATE agno_runs SET {body} = substr({body}, 1, 9) "
            "WHERE rowid = (SELECT max(rowid) FROM agno_runs)"
        )
