"""Strands Agents: its agent with `HoldfastSessionManager`, beside its own `FileSessionManager`."""

import warnings
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from holdfast.testing.adapters import Show, Task

INSTALL = ["strands-agents[openai]==1.62.0"]
TESTS = ["tests/frameworks/strands_agents"]
STORE_CODE = "strands/session"
AGENT = "gardener"


def _manager(task: Task) -> Any:
    if task.is_own:
        from strands.session.file_session_manager import FileSessionManager

        warnings.simplefilter("ignore")
        return FileSessionManager(task.session, storage_dir=str(Path(task.folder) / "sessions"))
    from holdfast.adapters.strands import HoldfastSessionManager

    return HoldfastSessionManager(task.session, task.where)


def _agent(task: Task) -> Any:
    from strands import Agent, tool
    from strands.agent.conversation_manager import SummarizingConversationManager
    from strands.models.openai import OpenAIModel

    @tool
    def water(row: int) -> str:
        """Waters a row."""
        return task.water(row)

    client = {"base_url": task.base_url, "api_key": "none", "max_retries": 0}
    summing_up = Agent(model=answering(task.summary), callback_handler=None)
    window = SummarizingConversationManager(
        summary_ratio=0.8, preserve_recent_messages=2, summarization_agent=summing_up
    )
    return Agent(
        model=OpenAIModel(client_args=client, model_id="gpt-test"),
        tools=[water],
        system_prompt="You keep rows.",
        session_manager=_manager(task),
        conversation_manager=window,
        agent_id=AGENT,
        callback_handler=None,
    )


def answering(words: str) -> Any:
    """A model that has this answer ready, in one piece."""
    from strands.models import Model

    class Ready(Model):
        def update_config(self, **config: Any) -> None:
            return

        def get_config(self) -> Any:
            return {}

        def structured_output(self, *given: Any, **more: Any) -> Any:
            raise NotImplementedError

        async def stream(self, *given: Any, **more: Any) -> AsyncIterator[Any]:
            yield {"messageStart": {"role": "assistant"}}
            yield {"contentBlockDelta": {"delta": {"text": words}}}
            yield {"contentBlockStop": {}}
            yield {"messageStop": {"stopReason": "end_turn"}}

    return Ready()


async def ask(task: Task, show: Show) -> None:
    from holdfast.errors import AlreadyAccepted

    state = {} if task.request_id is None else {"event_id": task.request_id}
    events = _agent(task).stream_async(task.prompt, invocation_state=state)
    try:
        async for event in events:
            show(event.get("data", ""))
    except AlreadyAccepted:
        show("answered before")


def clear(task: Task) -> None:
    if task.is_own:
        _manager(task).delete_session(task.session)
        return
    from holdfast.adapters.strands import HoldfastRepository

    HoldfastRepository(task.where).delete_session(task.session)


def compact(task: Task) -> None:
    agent = _agent(task)
    agent.conversation_manager.reduce_context(agent)
    agent._session_manager.sync_agent(agent)


def spoil(task: Task) -> None:
    folder = Path(task.folder) / "sessions"
    messages = folder.glob("session_*/agents/agent_*/messages/message_*.json")
    last = max(messages, key=lambda place: int(place.stem.split("_")[1]))
    last.write_text(last.read_text()[:-20])


def suite(environment: Path) -> tuple[int, int, list[str]]:
    from torture.frameworks import strands_suite

    return strands_suite.suite(environment)
