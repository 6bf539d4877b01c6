"""Random graphs: what HoldfastSaver gives is what LangGraph's own saver in memory gives."""

import asyncio
import operator
import random
from collections import Counter
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, interrupt
from langgraph_graphs import thread
from typing_extensions import TypedDict

from holdfast.adapters.langgraph import HoldfastSaver


class State(TypedDict):
    messages: Annotated[list[Any], add_messages]
    marks: Annotated[list[str], operator.add]


def graph_of(seed: int, saver: Any, uttered: Counter[str], *, fails: bool = False) -> Any:
    """Layers of nodes that run side by side; some stop and ask, and one fails the first time.
    `uttered` counts what they say.
    """
    dice = random.Random(seed)
    failing = {dice.randrange(8)}
    if not fails:
        failing.clear()
    graph = StateGraph(State)
    before = [START]
    number = 0
    for _ in range(dice.randrange(1, 4)):
        layer = []
        for _ in range(dice.randrange(1, 4)):
            name = f"n{number}"
            asks, is_named = dice.random() < 0.2, dice.random() < 0.5

            def node(
                state: Any,
                name: str = name,
                asks: bool = asks,
                is_named: bool = is_named,
                own: int = number,
            ) -> Any:
                if own in failing:
                    failing.discard(own)
                    raise ValueError(name)
                said = f"{name}: {interrupt(name) if asks else 'yes'}"
                place = len(state["messages"])
                id = f"{name}-{place}" if is_named else None
                uttered[said] += 1
                return {"messages": [AIMessage(said, id=id)], "marks": [name]}

            graph.add_node(name, node)
            layer.append(name)
            number += 1
        for name in layer:
            if before == [START]:
                graph.add_edge(START, name)
            else:
                graph.add_edge(before, name)
        before = layer
    return graph.compile(checkpointer=saver)


def told(graph: Any) -> list[Any]:
    """All steps of the thread, without what is made up anew for each run."""
    found = []
    for state in graph.get_state_history(thread()):
        messages = [(each.type, each.content) for each in state.values.get("messages", [])]
        tasks = []
        for task in state.tasks:
            asked = [each.value for each in task.interrupts]
            tasks.append((task.name, asked, str(task.error), _said(task.result)))
        marks = state.values.get("marks")
        found.append((messages, marks, state.next, sorted(tasks), state.metadata["source"]))
    return found


def _said(result: Any) -> Any:
    if not isinstance(result, dict):
        return str(result)
    return [message.content for message in result.get("messages", [])]


def play(seed: int, saver: Any, uttered: Counter[str], *, asynchronous: bool = False) -> list[Any]:
    dice = random.Random(seed)
    # On an event loop it is a matter of chance which tasks a failure cancels.
    graph = graph_of(seed, saver, uttered, fails=not asynchronous)
    given: Any = {"messages": [HumanMessage("Hi", id="q0")]}
    uttered["Hi"] += 1
    for turn in range(1, 7):
        try:
            if asynchronous:
                asyncio.run(graph.ainvoke(given, thread()))
            else:
                graph.invoke(given, thread())
        except ValueError:
            given = None
            continue
        state = graph.get_state(thread())
        if state.next:
            answers = {each.id: f"answer {turn}" for each in state.interrupts}
            given = Command(resume=answers) if dice.random() < 0.8 else None
        else:
            given = {"messages": [HumanMessage(f"And {turn}?", id=f"q{turn}")]}
            uttered[f"And {turn}?"] += 1
    return told(graph)


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_a_random_graph_has_the_steps_that_it_has_in_memory(
    where: str, seed: int, asynchronous: bool
) -> None:
    own = play(seed, InMemorySaver(), Counter(), asynchronous=asynchronous)
    saver, uttered = HoldfastSaver(where), Counter[str]()
    assert play(seed, saver, uttered, asynchronous=asynchronous) == own
    # And in a process that knows nothing.
    assert told(graph_of(seed, HoldfastSaver(saver.store), Counter())) == own
    session = saver.store.session("langgraph:t")
    said = Counter(message.text for message in session.transcript())
    shown = Counter(text for _, text in own[0][0])
    # All of the last state, and nothing twice that was said once.
    assert shown <= said <= uttered
