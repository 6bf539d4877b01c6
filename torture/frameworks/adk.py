"""Google ADK: its runner on `HoldfastSessionService`, beside its own `SqliteSessionService`."""

import sqlite3
from pathlib import Path
from typing import Any

from holdfast.testing.adapters import Show, Task

INSTALL = ["google-adk[openai]==2.13.0", "sqlalchemy[asyncio]>=2", "asyncpg>=0.30"]
TESTS = ["tests/frameworks/adk"]
STORE_CODE = "google/adk/sessions"
APP, USER = "garden", "ann"


def _app(task: Task) -> Any:
    from google.adk.agents import LlmAgent
    from google.adk.apps.app import App
    from google.adk.integrations.openai import OpenAILlm

    def water(row: int) -> str:
        """Waters a row."""
        return task.water(row)

    model = OpenAILlm(model="gpt-test", base_url=task.base_url, api_key="none")
    agent = LlmAgent(name="gardener", model=model, instruction="You keep rows.", tools=[water])
    return App(name=APP, root_agent=agent)


def _service(task: Task) -> Any:
    if task.is_own:
        from google.adk.sessions.sqlite_session_service import SqliteSessionService

        return SqliteSessionService(str(Path(task.folder) / "sessions.db"))
    from holdfast.adapters.adk import HoldfastSessionService

    return HoldfastSessionService(task.where)


def _place(task: Task) -> dict[str, str]:
    return {"app_name": APP, "user_id": USER, "session_id": task.session}


async def ask(task: Task, show: Show) -> None:
    from google.adk.agents.run_config import RunConfig, StreamingMode
    from google.adk.runners import Runner
    from google.genai import types

    from holdfast.errors import AlreadyAccepted

    service = _service(task)
    runner = Runner(app=_app(task), session_service=service, auto_create_session=True)
    asked: dict[str, Any] = {
        "user_id": USER,
        "session_id": task.session,
        "new_message": types.Content(role="user", parts=[types.Part(text=task.prompt)]),
        "run_config": RunConfig(streaming_mode=StreamingMode.SSE),
    }
    if task.is_own:
        events = runner.run_async(**asked)
    else:
        events = service.run(runner, event_id=task.request_id, **asked)
    try:
        async for event in events:
            if event.partial and event.content:
                for part in event.content.parts or ():
                    show(part.text or "")
    except AlreadyAccepted:
        show("answered before")


async def clear(task: Task) -> None:
    service = _service(task)
    await service.delete_session(**_place(task))
    await service.create_session(**_place(task))


async def compact(task: Task) -> None:
    """As the kit does it: one event that says which others it stands for, by their times."""
    from google.adk.events.event import Event
    from google.adk.events.event_actions import EventActions, EventCompaction
    from google.genai import types

    service = _service(task)
    session = await service.get_session(**_place(task))
    summary = types.Content(role="model", parts=[types.Part(text=task.summary)])
    covered = session.events[:-2]
    compaction = EventCompaction(
        start_timestamp=covered[0].timestamp,
        end_timestamp=covered[-1].timestamp,
        compacted_content=summary,
    )
    actions = EventActions(compaction=compaction)
    event = Event(author="user", invocation_id=Event.new_id(), actions=actions)
    await service.append_event(session, event)


def spoil(task: Task) -> None:
    with sqlite3.connect(Path(task.folder) / "sessions.db") as database:
        database.execute(
            "UPDATE events SET event_data = substr(event_data, 1, 9) "
            "WHERE rowid = (SELECT max(rowid) FROM events)"
        )
