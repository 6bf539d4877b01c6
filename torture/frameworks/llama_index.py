"""LlamaIndex: its agents with `HoldfastChatStore`, beside its own `SimpleChatStore`, which its users
write to a file after each run.
"""

from pathlib import Path
from typing import Any

from holdfast.testing.adapters import Show, Task

INSTALL = ["llama-index-core>=0.14.25", "llama-index-llms-openai-like>=0.8"]
# With a newer one, LlamaIndex's own store can't be written to a file.
INSTALL += ["pydantic<2.13", "llama-index-storage-chat-store-postgres>=0.3"]
TESTS = ["tests/frameworks/test_llama_index.py", "tests/frameworks/test_llama_index_border.py"]
STORE_CODE = "llama_index/core/storage/chat_store"


def _chats(task: Task) -> Any:
    if task.is_own:
        from llama_index.core.storage.chat_store import SimpleChatStore

        return SimpleChatStore.from_persist_path(_file(task))
    from holdfast.adapters.llama_index import HoldfastChatStore

    return HoldfastChatStore(task.where)


def _agent(task: Task) -> Any:
    from llama_index.core.agent.workflow import FunctionAgent
    from llama_index.llms.openai_like import OpenAILike

    def water(row: int) -> str:
        """Waters a row."""
        return task.water(row)

    llm = OpenAILike(
        model="gpt-test",
        api_base=task.base_url,
        api_key="none",
        is_chat_model=True,
        is_function_calling_model=True,
        max_retries=0,
    )
    return FunctionAgent(llm=llm, tools=[water])


async def ask(task: Task, show: Show) -> None:
    from llama_index.core.agent.workflow import AgentStream
    from llama_index.core.memory import ChatMemoryBuffer

    from holdfast.errors import AlreadyAccepted

    chats, agent = _chats(task), _agent(task)
    if task.is_own:
        named = {"chat_store": chats, "chat_store_key": task.session}
        memory = ChatMemoryBuffer.from_defaults(llm=agent.llm, **named)
        handler = agent.run(user_msg=task.prompt, memory=memory)
        async for event in handler.stream_events():
            if isinstance(event, AgentStream) and event.delta:
                show(event.delta)
        await handler
        chats.persist(_file(task))
        return
    try:
        asked = {"request_id": task.request_id}
        async for event in chats.run(task.session, agent, task.prompt, **asked):
            if isinstance(event, AgentStream) and event.delta:
                show(event.delta)
    except AlreadyAccepted:
        show("answered before")


def clear(task: Task) -> None:
    chats = _chats(task)
    chats.delete_messages(task.session)
    if task.is_own:
        chats.persist(_file(task))


def compact(task: Task) -> None:
    from llama_index.core.llms import ChatMessage

    chats = _chats(task)
    if not task.is_own:
        chats.session(task.session).compact(task.summary, keep_turns=1)
        return
    messages = chats.get_messages(task.session)
    kept = [ChatMessage(role="user", content=task.summary), *messages[-2:]]
    chats.set_messages(task.session, kept)
    chats.persist(_file(task))


def spoil(task: Task) -> None:
    place = Path(_file(task))
    place.write_text(place.read_text()[:-20])


def _file(task: Task) -> str:
    return str(Path(task.folder) / "chats.json")
