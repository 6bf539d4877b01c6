"""LangGraph: a graph with a model and a tool, on `HoldfastSaver` and on its own `AsyncSqliteSaver`."""

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

from holdfast.testing.adapters import Show, Task

INSTALL = ["langgraph>=1.2", "langchain-openai>=1.0", "langgraph-checkpoint-sqlite>=3.0"]
INSTALL += ["langgraph-checkpoint-postgres>=3.0", "psycopg-pool>=3.2"]
INSTALL += ["langgraph-checkpoint-conformance>=0.0.2", "pytest-xdist>=3.8"]
INSTALL += ["langchain-community>=0.4", "langchain-postgres>=0.0.15", "sqlalchemy[asyncio]>=2.0"]
TESTS = ["tests/frameworks/test_langgraph_saver.py", "tests/frameworks/test_langgraph_durable.py"]
TESTS += ["tests/frameworks/test_langgraph_writes.py", "tests/frameworks/test_langgraph_random.py"]
TESTS += ["tests/frameworks/test_langgraph_border.py"]
TESTS += ["tests/frameworks/test_langchain_history.py", "tests/frameworks/test_langchain_border.py"]

# LangChain's history lives in the same environment.
SPEED = ["langgraph", "langchain"]

STORE_CODE = "langgraph/checkpoint/sqlite"


def _builder(task: Task) -> Any:
    from langchain_core.messages import ToolMessage
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI
    from langgraph.graph import END, START, MessagesState, StateGraph

    @tool
    def water(row: int) -> str:
        """Waters a row."""
        return task.water(row)

    chat = ChatOpenAI(
        base_url=task.base_url, api_key="none", model="gpt-test", max_retries=0, streaming=True
    )
    model = chat.bind_tools([water])

    async def think(state: Any) -> Any:
        return {"messages": [await model.ainvoke(state["messages"])]}

    async def act(state: Any) -> Any:
        results = []
        for call in state["messages"][-1].tool_calls:
            said = await asyncio.to_thread(task.water, **call["args"])
            results.append(ToolMessage(said, tool_call_id=call["id"]))
        return {"messages": results}

    def has_calls(state: Any) -> str:
        return "act" if state["messages"][-1].tool_calls else END

    graph = StateGraph(MessagesState)
    graph.add_node("think", think)
    graph.add_node("act", act)
    graph.add_edge(START, "think")
    graph.add_conditional_edges("think", has_calls, ["act", END])
    graph.add_edge("act", "think")
    return graph


def _config(task: Task) -> Any:
    return {"configurable": {"thread_id": task.session}}


def _own(task: Task) -> Any:
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    return AsyncSqliteSaver.from_conn_string(str(Path(task.folder) / "threads.db"))


async def ask(task: Task, show: Show) -> None:
    from langchain_core.messages import HumanMessage

    asked = {"messages": [HumanMessage(task.prompt)]}
    if task.is_own:
        async with _own(task) as saver:
            graph = _builder(task).compile(checkpointer=saver)
            await _show(graph.astream(asked, _config(task), stream_mode="messages"), show)
        return
    from holdfast.adapters.langgraph import HoldfastSaver
    from holdfast.errors import AlreadyAccepted

    ours = HoldfastSaver(task.where)
    graph = ours.durable(_builder(task).compile(checkpointer=ours))
    events = graph.astream(asked, _config(task), stream_mode="messages", event_id=task.request_id)
    try:
        await _show(events, show)
    except AlreadyAccepted as known:
        session = ours.store.session(f"langgraph:{task.session}")
        for message in session.transcript():
            if message.turn == known.turn_id and message.role == "assistant":
                show(message.text)


async def _show(events: Any, show: Show) -> None:
    from langchain_core.messages import AIMessageChunk

    async for message, _ in events:
        if isinstance(message, AIMessageChunk) and message.content:
            show(str(message.content))


async def clear(task: Task) -> None:
    if task.is_own:
        async with _own(task) as saver:
            await saver.adelete_thread(task.session)
        return
    from holdfast.adapters.langgraph import HoldfastSaver

    await HoldfastSaver(task.where).adelete_thread(task.session)


async def compact(task: Task) -> None:
    """As LangGraph's own page has it: all messages are removed, and a summary is put there."""
    if task.is_own:
        async with _own(task) as saver:
            await _compacted(_builder(task).compile(checkpointer=saver), task)
        return
    from holdfast.adapters.langgraph import HoldfastSaver

    saver = HoldfastSaver(task.where)
    await _compacted(_builder(task).compile(checkpointer=saver), task)


async def _compacted(graph: Any, task: Task) -> None:
    from langchain_core.messages import HumanMessage, RemoveMessage
    from langgraph.graph.message import REMOVE_ALL_MESSAGES

    state = await graph.aget_state(_config(task))
    kept = state.values["messages"][-2:]
    messages = [RemoveMessage(REMOVE_ALL_MESSAGES), HumanMessage(task.summary), *kept]
    await graph.aupdate_state(_config(task), {"messages": messages}, as_node="think")


def spoil(task: Task) -> None:
    with sqlite3.connect(Path(task.folder) / "threads.db") as connection:
        newest = "SELECT max(checkpoint_id) FROM checkpoints"
        query = f"UPDATE checkpoints SET checkpoint = x'c1' WHERE checkpoint_id = ({newest})"
        connection.execute(query)
