"""Graphs with scripted models, and processes that run them: what the tests of LangGraph share."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.graph import END, START, MessagesState, StateGraph

from holdfast.adapters.langgraph import HoldfastSaver

HERE = Path(__file__).resolve()
ANSWER = "Casa Lola has a table at eight by the window"
SEEN: list[list[Any]] = []
"""What the models of this process were sent."""


class Scripted(GenericFakeChatModel):
    """Says what it is given to say, word by word when it streams."""

    # Called for a stream, too.
    def _generate(self, messages: Any, *rest: Any, **more: Any) -> Any:
        SEEN.append(list(messages))
        return super()._generate(messages, *rest, **more)


def endless(text: str = ANSWER) -> Iterator[AIMessage]:
    while True:
        yield AIMessage(text)


def chat(saver: Any, model: Any = None, *, asynchronous: bool = False) -> Any:
    """A graph of one node that answers."""
    model = model or Scripted(messages=endless())

    def answer(state: Any) -> Any:
        return {"messages": [model.invoke(state["messages"])]}

    async def aanswer(state: Any) -> Any:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", aanswer if asynchronous else answer)
    graph.add_edge(START, "model")
    graph.add_edge("model", END)
    return graph.compile(checkpointer=saver)


def agent(saver: Any, water: Any) -> Any:
    """A graph that calls a tool when it is asked to, and then answers."""

    def think(state: Any) -> Any:
        SEEN.append(list(state["messages"]))
        if state["messages"][-1].content == "Water the row.":
            call = {"name": "water", "args": {"row": 1}, "id": "call_1", "type": "tool_call"}
            return {"messages": [AIMessage("", tool_calls=[call], id="asks")]}
        return {"messages": [AIMessage("Done.")]}

    def act(state: Any) -> Any:
        call = state["messages"][-1].tool_calls[0]
        return {"messages": [ToolMessage(water(**call["args"]), tool_call_id=call["id"])]}

    def has_calls(state: Any) -> str:
        return "act" if state["messages"][-1].tool_calls else END

    graph = StateGraph(MessagesState)
    graph.add_node("think", think)
    graph.add_node("act", act)
    graph.add_edge(START, "think")
    graph.add_conditional_edges("think", has_calls, ["act", END])
    graph.add_edge("act", "think")
    return graph.compile(checkpointer=saver)


FIRST, SECOND = "Let me look that up.", "Casa Lola has a table."


def model(text: str) -> Scripted:
    """Says this, however often it is asked."""
    return Scripted(messages=endless(text))


def says(text: str) -> Any:
    """A node that says this."""

    def node(state: Any) -> Any:
        return {"messages": [model(text).invoke(state["messages"])]}

    return node


def two_answers(saver: Any, kind: str) -> Any:
    """A graph that says `FIRST` and then `SECOND`, in one step."""
    has_spoken = threading.Event()

    def in_one_node(state: Any) -> Any:
        return {"messages": [model(text).invoke(state["messages"]) for text in (FIRST, SECOND)]}

    def one_side(state: Any) -> Any:
        said = says(FIRST)(state)
        has_spoken.set()
        time.sleep(60)
        return said

    def other_side(state: Any) -> Any:
        has_spoken.wait(60)
        return says(SECOND)(state)

    def act(state: Any) -> Any:
        return {"messages": [ToolMessage("wet", tool_call_id="call_1")]}

    def call(state: Any) -> Any:
        said = says(FIRST)(state)["messages"][0]
        call = {"name": "water", "args": {}, "id": "call_1", "type": "tool_call"}
        return {"messages": [said.model_copy(update={"tool_calls": [call]})]}

    graph = StateGraph(MessagesState)
    if kind == "in one node":
        nodes = {"node": in_one_node}
    elif kind == "side by side":
        nodes = {"one": one_side, "other": other_side}
    else:
        inside = StateGraph(MessagesState)
        inside.add_sequence([("call", call), ("act", act), ("answer", says(SECOND))])
        inside.add_edge(START, "call")
        nodes = {"inside": inside.compile(checkpointer=kind == "in a graph that goes on" or None)}
    for name, node in nodes.items():
        graph.add_node(name, node)
        graph.add_edge(START, name)
    return graph.compile(checkpointer=saver)


def killed_in_the_second_answer(where: str, kind: str) -> None:
    """A run that is killed when its user has seen the first answer and a word of the second."""
    saver = HoldfastSaver(where)
    graph = saver.durable(two_answers(saver, kind))
    for _, (message, _) in graph.stream(
        say("Book a table."), thread(), stream_mode="messages", subgraphs=True
    ):
        if message.type != "tool":
            print(message.content, end="", flush=True)
        if message.content == SECOND.split()[0]:
            os.kill(os.getpid(), 9)


def thread(name: str = "t") -> Any:
    return {"configurable": {"thread_id": name}}


def say(text: str) -> Any:
    return {"messages": [HumanMessage(text)]}


def texts(messages: Any) -> list[str]:
    return [message.content for message in messages]


def run_apart(code: str, *arguments: str) -> subprocess.Popen[str]:
    """A function of the tests, in a process of its own: `module:function`."""
    module, function = code.split(":")
    line = f"import sys; from {module} import {function}; {function}(*sys.argv[1:])"
    path = os.pathsep.join([str(HERE.parent), *sys.path])
    return subprocess.Popen(
        [sys.executable, "-c", line, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )


def killed_in_the_middle(where: str, prompt: str) -> None:
    """A run that is killed when its user has seen five chunks."""
    saver = HoldfastSaver(where)
    graph = saver.durable(chat(saver))
    events = graph.stream(say(prompt), thread(), stream_mode="messages")
    for shown, (message, _) in enumerate(events, 1):
        print(message.content, end="", flush=True)
        if shown == 5:
            os.kill(os.getpid(), 9)


def killed_in_a_tool(where: str) -> None:
    """A run that is killed while its tool works."""

    def water(row: int) -> str:
        os.kill(os.getpid(), 9)
        return ""

    saver = HoldfastSaver(where)
    saver.durable(agent(saver, water)).invoke(say("Water the row."), thread())


def many_turns(where: str, name: str, count: str, held: str) -> None:
    """Turns of one of several processes; the prompts of those that were answered are printed."""
    from holdfast.errors import Conflict

    saver = HoldfastSaver(where)
    graph = chat(saver)
    if held == "held":
        graph = saver.durable(graph)
    for number in range(int(count)):
        while True:
            try:
                graph.invoke(say(f"{name} {number}"), thread())
            except Conflict:
                continue
            break
        print(f"{name} {number}", flush=True)
