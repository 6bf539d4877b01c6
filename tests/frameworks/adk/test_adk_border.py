"""`HoldfastSessionService` with wrong values: refused, or taken and read back."""

import asyncio
from pathlib import Path
from typing import Any

from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.sessions.base_session_service import GetSessionConfig
from google.genai import types
from wrong_values import raw_errors

from holdfast.adapters.adk import HoldfastSessionService

PLACE = {"app_name": "garden", "user_id": "ann", "session_id": "s"}
WHOSE = {"app_name": "garden", "user_id": "ann"}


def test_wrong_values_are_refused_or_read_back(tmp_path: Path) -> None:
    service = HoldfastSessionService(tmp_path / "agents.db")
    asyncio.run(service.create_session(**PLACE))
    number = 0

    async def create(**given: Any) -> None:
        nonlocal number
        number += 1
        made = await service.create_session(**{**WHOSE, "session_id": f"s{number}", **given})
        names = {"app_name": made.app_name, "user_id": made.user_id}
        assert await service.get_session(**names, session_id=made.id) is not None

    def configured(**fields: Any) -> Any:
        return service.get_session(**PLACE, config=GetSessionConfig.model_construct(**fields))

    wrong = raw_errors(create, **WHOSE, state={"a": 1})
    wrong += raw_errors(lambda value: create(state={"a": value}), value=1)
    wrong += raw_errors(lambda value: create(state={"app:a": value}), value=1)
    wrong += raw_errors(service.get_session, **PLACE, config=GetSessionConfig())
    wrong += raw_errors(configured, num_recent_events=1, after_timestamp=1.0)
    wrong += raw_errors(service.list_sessions, **WHOSE)
    wrong += raw_errors(service.get_user_state, **WHOSE)
    wrong += raw_errors(service.delete_session, **{**PLACE, "session_id": "q"})
    wrong += raw_errors(service.run, runner=None, user_id="ann", session_id="s")
    wrong += raw_errors(HoldfastSessionService, store=tmp_path / "agents.db")
    assert wrong == [], "\n".join(wrong)


def test_what_is_in_an_event_is_read_back_or_refused(tmp_path: Path) -> None:
    service = HoldfastSessionService(tmp_path / "agents.db")
    asyncio.run(service.create_session(**PLACE))

    async def append(event: Any) -> None:
        await service.append_event(await service.get_session(**PLACE), event)
        assert await service.get_session(**PLACE) is not None

    def said(**fields: Any) -> Event:
        content = types.Content(role="user", parts=[types.Part(text="Water?")])
        return Event(author="ann", invocation_id="i", content=content, **fields)

    def changing(value: Any) -> Any:
        return append(said(actions=EventActions(state_delta={"a": value})))

    wrong = raw_errors(append, event=said())
    wrong += raw_errors(lambda session: service.append_event(session, said()), session=None)
    wrong += raw_errors(changing, value=1)
    wrong += raw_errors(lambda value: append(said(custom_metadata={"a": value})), value=1)
    assert wrong == [], "\n".join(wrong)
