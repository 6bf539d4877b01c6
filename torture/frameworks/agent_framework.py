"""The Microsoft Agent Framework: its agents with `HoldfastHistoryProvider`, beside its own
`FileHistoryProvider`.
"""

from pathlib import Path
from typing import Any

from holdfast.testing.adapters import Show, Task

INSTALL = ["agent-framework-core==1.23.0", "agent-framework-openai==1.17.0"]
TESTS = [
    "tests/frameworks/test_agent_framework.py",
    "tests/frameworks/test_agent_framework_prompts.py",
    "tests/frameworks/test_agent_framework_border.py",
]
STORE_CODE = "agent_framework/_sessions"


def _provider(task: Task) -> Any:
    if task.is_own:
        from agent_framework import FileHistoryProvider

        return FileHistoryProvider(_folder(task))
    from holdfast.adapters.agent_framework import HoldfastHistoryProvider

    return HoldfastHistoryProvider(task.where)


def _agent(task: Task, provider: Any) -> Any:
    from agent_framework import Agent
    from agent_framework.openai import OpenAIChatCompletionClient
    from openai import AsyncOpenAI

    def water(row: int) -> str:
        """Waters a row."""
        return task.water(row)

    api = AsyncOpenAI(base_url=task.base_url, api_key="none", max_retries=0)
    client = OpenAIChatCompletionClient(model="gpt-test", async_client=api)
    return Agent(
        client, "You keep rows.", name="Gardener", tools=[water], context_providers=[provider]
    )


async def ask(task: Task, show: Show) -> None:
    from agent_framework import Message

    from holdfast.errors import AlreadyAccepted

    agent = _agent(task, _provider(task))
    session = agent.create_session(session_id=task.session)
    prompt = Message("user", [task.prompt], message_id=task.request_id)
    try:
        async for update in agent.run(prompt, stream=True, session=session):
            show(update.text)
    except AlreadyAccepted:
        show("answered before")


async def clear(task: Task) -> None:
    if task.is_own:
        _file(task).unlink()
    else:
        await _provider(task).clear(task.session)


async def compact(task: Task) -> None:
    """The framework shortens what it keeps in memory; a file is written anew by its users."""
    from agent_framework import Message

    provider = _provider(task)
    if not task.is_own:
        provider.session(task.session).compact(task.summary, keep_turns=1)
        return
    messages = await provider.get_messages(task.session)
    _file(task).unlink()
    kept = [Message("user", [task.summary]), *messages[-2:]]
    await provider.save_messages(task.session, kept)


def spoil(task: Task) -> None:
    place = _file(task)
    place.write_text(place.read_text()[:-20])


def _folder(task: Task) -> Path:
    return Path(task.folder) / "history"


def _file(task: Task) -> Path:
    [found] = _folder(task).iterdir()
    return found
