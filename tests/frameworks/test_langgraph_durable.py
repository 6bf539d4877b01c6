"""Runs as turns: what the user was shown is stored, and is told to the model next."""

import asyncio
import time
from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_stream_writer
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.pregel._messages import StreamMessagesHandler
from langgraph_graphs import (
    ANSWER,
    FIRST,
    SECOND,
    SEEN,
    Scripted,
    agent,
    chat,
    endless,
    model,
    run_apart,
    say,
    says,
    texts,
    thread,
)

from holdfast.adapters.langgraph import HoldfastSaver, durable
from holdfast.errors import AlreadyAccepted, BadArgument, TurnInterrupted
from holdfast.runtime.turns.streams.push_stream import PushStream
from holdfast.runtime.turns.streams.push_stream_async import AsyncPushStream


def states(saver: HoldfastSaver) -> list[tuple[str, str]]:
    session = saver.store.session("langgraph:t")
    return [(message.state, message.text) for message in session.transcript()]


def test_text_that_was_shown_before_a_kill_is_in_the_next_context(where: str) -> None:
    HoldfastSaver(where)
    process = run_apart("langgraph_graphs:killed_in_the_middle", where, "Book a table.")
    shown, _ = process.communicate(timeout=60)
    assert process.returncode == -9 and shown == "Casa Lola has"
    saver = HoldfastSaver(where)
    graph = saver.durable(chat(saver))
    SEEN.clear()
    state = graph.invoke(say("Still there?"), thread())
    [sent] = SEEN
    assert [message.type for message in sent] == ["human", "ai", "human"]
    # What was delivered is a prefix of what is stored (I-5).
    assert sent[1].content.startswith(shown) and ANSWER.startswith(sent[1].content)
    assert texts(state["messages"]) == ["Book a table.", sent[1].content, "Still there?", ANSWER]
    assert states(saver)[1] == ("partial", sent[1].content)
    assert len(states(saver)) == 4
    assert saver.store.check() == []
    # Once: the next run finds nothing left to settle.
    assert len(graph.invoke(say("Thanks."), thread())["messages"]) == 6


KINDS = ["in one node", "side by side", "in a graph inside", "in a graph that goes on"]


@pytest.mark.parametrize("kind", KINDS)
def test_each_answer_that_was_shown_before_a_kill_is_in_the_next_context(
    where: str, kind: str
) -> None:
    HoldfastSaver(where)
    process = run_apart("langgraph_graphs:killed_in_the_second_answer", where, kind)
    shown, _ = process.communicate(timeout=60)
    assert process.returncode == -9 and shown == FIRST + SECOND.split()[0]
    saver = HoldfastSaver(where)
    SEEN.clear()
    saver.durable(chat(saver)).invoke(say("Still there?"), thread())
    [sent] = SEEN
    said = [message.content for message in sent if message.type != "tool"]
    assert said[:2] == ["Book a table.", FIRST] and said[3:] == ["Still there?"]
    assert SECOND.startswith(said[2]) and (FIRST + said[2]).startswith(shown)
    # A tool of a graph inside had given its result.
    results = [message.content for message in sent if message.type == "tool"]
    assert results == (["wet"] if "graph" in kind else [])
    assert saver.store.check() == []


def test_what_a_task_has_kept_for_itself_stays_out_of_the_next_context(where: str) -> None:
    saver = HoldfastSaver(where)
    inside = StateGraph(MessagesState)
    inside.add_node("thinks", says("A thought."))
    inside.add_edge(START, "thinks")
    thought = inside.compile()

    def routes(state: Any) -> Any:
        model("Rather a poem.").invoke(state["messages"])

    def thinks(state: Any) -> Any:
        thought.invoke({"messages": []})
        return {"messages": [AIMessage("Hm.")]}

    def breaks(state: Any) -> Any:
        says("Once upon a time")(state)
        raise OSError("the line went dead")

    outer = StateGraph(MessagesState)
    outer.add_sequence([("routes", routes), ("greets", says("Hello.")), ("breaks", breaks)])
    outer.add_node("thinks", thinks)
    outer.add_edge(START, "routes")
    outer.add_edge("greets", "thinks")
    graph = saver.durable(outer.compile(checkpointer=saver))
    with pytest.raises(OSError):
        list(graph.stream(say("One."), thread(), stream_mode="messages"))
    SEEN.clear()
    saver.durable(chat(saver)).invoke(say("Two."), thread())
    assert set(texts(SEEN[0])) == {"One.", "Hello.", "Hm.", "Once upon a time", "Two."}


def test_a_call_without_a_result_is_closed_for_the_next_prompt(where: str) -> None:
    HoldfastSaver(where)
    process = run_apart("langgraph_graphs:killed_in_a_tool", where)
    process.communicate(timeout=60)
    assert process.returncode == -9
    saver = HoldfastSaver(where)
    SEEN.clear()
    saver.durable(agent(saver, lambda row: "wet")).invoke(say("And now?"), thread())
    [sent] = SEEN
    assert [message.type for message in sent] == ["human", "ai", "tool", "human"]
    assert sent[2].tool_call_id == "call_1" and "unknown" in sent[2].content
    assert sent[2].status == "error"


def test_going_on_without_a_prompt_runs_the_tool_as_langgraph_does(where: str) -> None:
    HoldfastSaver(where)
    run_apart("langgraph_graphs:killed_in_a_tool", where).communicate(timeout=60)
    saver = HoldfastSaver(where)
    state = saver.durable(agent(saver, lambda row: "wet")).invoke(None, thread())
    assert texts(state["messages"]) == ["Water the row.", "", "wet", "Done."]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_stream_that_is_left_keeps_what_was_shown(where: str, asynchronous: bool) -> None:
    saver = HoldfastSaver(where)
    graph = saver.durable(chat(saver, asynchronous=asynchronous))
    shown = []

    async def some() -> None:
        stream = graph.astream(say("One."), thread(), stream_mode="messages")
        async for message, _ in stream:
            shown.append(message.content)
            if len(shown) == 3:
                break
        await stream.aclose()

    if asynchronous:
        asyncio.run(some())
    else:
        stream = graph.stream(say("One."), thread(), stream_mode="messages")
        for message, _ in stream:
            shown.append(message.content)
            if len(shown) == 3:
                break
        stream.close()
    [turn] = saver.store.session("langgraph:t").turns()
    assert turn.end == "interrupted"
    SEEN.clear()
    again = saver.durable(chat(saver))
    again.invoke(say("Two."), thread())
    assert SEEN[0][1].content.startswith("".join(shown))


def test_a_run_that_is_left_has_stopped_when_its_turn_ends(where: str) -> None:
    saver = HoldfastSaver(where)
    held = []

    async def answers(state: Any) -> Any:
        return {"messages": [await model(ANSWER).ainvoke(state["messages"])]}

    async def waits(state: Any) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.2)  # it has something to put in order
            held.append(saver.store.session("langgraph:t").info().running)

    async def some() -> None:
        graph = StateGraph(MessagesState)
        for node in (answers, waits):
            graph.add_node(node.__name__, node)
            graph.add_edge(START, node.__name__)
        compiled = saver.durable(graph.compile(checkpointer=saver))
        stream = compiled.astream(say("One."), thread(), stream_mode="messages")
        await anext(stream)
        await stream.aclose()
        assert held and held[0] is not None

    asyncio.run(some())


@pytest.mark.parametrize("asynchronous", [False, True])
def test_words_of_a_graph_inside_are_stored_before_they_are_shown(
    where: str, monkeypatch: pytest.MonkeyPatch, asynchronous: bool
) -> None:
    stored: list[str] = []

    def slowly(push: Any) -> Any:
        def slow(self: Any, chunk: Any) -> str:
            time.sleep(0.05)
            text: str = push(self, chunk)
            stored.append(text)
            return text

        async def aslow(self: Any, chunk: Any) -> str:
            await asyncio.sleep(0.05)
            text: str = await push(self, chunk)
            stored.append(text)
            return text

        return aslow if asynchronous else slow

    stream, recorder = (
        (AsyncPushStream, durable._AsyncRecorder)
        if asynchronous
        else (PushStream, durable._Recorder)
    )
    monkeypatch.setattr(stream, "push", slowly(stream.push))
    # LangChain keeps the handlers of a graph inside in a set: here the one that shows
    # comes before ours.
    monkeypatch.setattr(StreamMessagesHandler, "__hash__", lambda self: 0)
    monkeypatch.setattr(recorder, "__hash__", lambda self: 1)
    saver = HoldfastSaver(where)
    outer = StateGraph(MessagesState)
    outer.add_node("inside", chat(None, asynchronous=asynchronous))
    outer.add_edge(START, "inside")
    graph = saver.durable(outer.compile(checkpointer=saver))
    shown: list[str] = []

    def see(event: Any) -> None:
        shown.append(event[1][0].content)
        assert "".join(stored).startswith("".join(shown))

    async def all_of_it() -> None:
        async for event in graph.astream(*asked, **options):
            see(event)

    asked = say("One."), thread()
    options: Any = {"stream_mode": "messages", "subgraphs": True}
    if asynchronous:
        asyncio.run(all_of_it())
    else:
        for event in graph.stream(*asked, **options):
            see(event)
    assert "".join(shown) == ANSWER


def test_a_model_that_fails_in_the_middle_leaves_what_it_said(where: str) -> None:
    class Breaking(Scripted):
        def _stream(self, messages: Any, *rest: Any, **more: Any) -> Any:
            for number, chunk in enumerate(super()._stream(messages, *rest, **more)):
                if number == 4:
                    raise OSError("the line went dead")
                yield chunk

    saver = HoldfastSaver(where)
    graph = saver.durable(chat(saver, Breaking(messages=endless())))
    with pytest.raises(OSError):
        list(graph.stream(say("One."), thread(), stream_mode="messages"))
    assert states(saver)[-1] == ("partial", "Casa Lola ")
    [turn] = saver.store.session("langgraph:t").turns()
    assert turn.end == "failed" and "went dead" in (turn.error or "")


def test_what_is_streamed_stands_once_in_the_transcript(where: str) -> None:
    saver = HoldfastSaver(where)
    graph = saver.durable(chat(saver))
    shown = list(graph.stream(say("One."), thread(), stream_mode=["messages", "updates"]))
    words = "".join(event[0].content for mode, event in shown if mode == "messages")
    assert words == ANSWER
    assert states(saver) == [("complete", "One."), ("complete", ANSWER)]
    assert graph.get_state(thread()).values["messages"][1].content == ANSWER
    [turn] = saver.store.session("langgraph:t").turns()
    assert turn.end == "completed" and turn.messages == 2


def test_a_request_that_comes_again_is_answered_once(where: str) -> None:
    saver = HoldfastSaver(where)
    graph = saver.durable(chat(saver))
    graph.invoke(say("One."), thread(), event_id="request-1")
    with pytest.raises(AlreadyAccepted):
        graph.invoke(say("One."), thread(), event_id="request-1")
    assert len(states(saver)) == 2


def test_a_run_can_be_stopped_from_outside(where: str) -> None:
    saver = HoldfastSaver(where)
    graph = saver.durable(chat(saver))
    shown = []
    with pytest.raises(TurnInterrupted):
        for message, _ in graph.stream(say("One."), thread(), stream_mode="messages"):
            shown.append(message.content)
            if len(shown) == 3:
                saver.store.session("langgraph:t").stop()
    assert states(saver)[-1][0] == "partial"


def test_what_tasks_had_finished_is_kept_by_the_next_prompt(where: str) -> None:
    saver = HoldfastSaver(where)
    graph = agent(saver, lambda row: "wet")
    graph.invoke(say("Water the row."), thread(), interrupt_before=["act"])
    head = saver.get_tuple(thread())
    assert head is not None
    # As a tool's task leaves it that was finished when its process was killed.
    late = ToolMessage("wet", tool_call_id="call_1", id="late")
    saver.put_writes(head.config, [("messages", [late])], "task", "~act")
    SEEN.clear()
    saver.durable(graph).invoke(say("And now?"), thread())
    assert [message.content for message in SEEN[0]] == ["Water the row.", "", "wet", "And now?"]


def test_the_rest_of_a_graph_is_its_own(where: str) -> None:
    saver = HoldfastSaver(where)
    graph = saver.durable(chat(saver).with_config(configurable={"thread_id": "t"}))
    graph.invoke(say("One."))
    assert isinstance(graph.get_state(thread()).values["messages"][1], AIMessage)
    with pytest.raises(BadArgument):
        saver.durable(chat(None))
    with pytest.raises(BadArgument, match="one with another"):
        saver.durable(chat(InMemorySaver()))
    with pytest.raises(BadArgument):
        saver.durable(chat(saver)).invoke(say("One."))


NOTE = AIMessage("A note of the node's own.", id="note")


@pytest.mark.parametrize(
    "options",
    [
        {"stream_mode": "custom"},
        {"stream_mode": "custom", "subgraphs": True},
        {"stream_mode": ["custom", "updates"]},
        {"stream_mode": ["custom"], "subgraphs": True},
        {"stream_mode": ["custom", "updates"], "version": "v2"},
    ],
)
@pytest.mark.parametrize("asynchronous", [False, True])
def test_what_a_node_writes_itself_is_handed_on_at_once(
    where: str, monkeypatch: pytest.MonkeyPatch, options: Any, asynchronous: bool
) -> None:
    """Nobody waits for a message that goes nowhere but to the reader."""

    def answer(state: Any) -> Any:
        get_stream_writer()({"note": NOTE})
        return {"messages": [AIMessage("Done.", id="done")]}

    builder = StateGraph(MessagesState)
    builder.add_node("model", answer)
    builder.add_edge(START, "model")
    saver = HoldfastSaver(where)
    graph = saver.durable(builder.compile(checkpointer=saver))
    looked = looks_of(graph, monkeypatch)
    if asynchronous:

        async def all_events() -> list[Any]:
            return [event async for event in graph.astream(say("One."), thread(), **options)]

        events = asyncio.run(all_events())
    else:
        events = list(graph.stream(say("One."), thread(), **options))
    assert any("note" in str(event) for event in events)
    assert all(is_on_its_way is False for event, is_on_its_way in looked if "note" in str(event))
    # What a node gives to a channel is waited for.
    assert states(saver) == [("complete", "One."), ("complete", "Done.")]


def looks_of(graph: Any, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, bool]]:
    """What was found each time that somebody looked whether an event is stored."""
    looked = []
    look = graph._is_on_its_way

    def watched(thread_id: str, event: Any, options: Any) -> bool:
        looked.append((event, look(thread_id, event, options)))
        return looked[-1][1]

    monkeypatch.setattr(graph, "_is_on_its_way", watched)
    return looked
