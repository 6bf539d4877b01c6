"""LangGraph's checkpointer on Holdfast: its own conformance suite, and what it promises beyond."""

import asyncio
import operator
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import _messages_delta_reducer
from langgraph.types import Command, Send, interrupt
from langgraph_graphs import agent, chat, run_apart, say, texts, thread
from pages import example
from typing_extensions import TypedDict

import holdfast
from holdfast.adapters.langgraph import HoldfastSaver, threads
from holdfast.domain.message import thaw
from holdfast.errors import BadArgument, Conflict, SessionEnded
from holdfast.runtime.live.session_log import SessionLog
from holdfast.testing.adapters.damage import spoil_last_message


def words(saver: HoldfastSaver, name: str = "t") -> list[tuple[str, str]]:
    session = saver.store.session(f"langgraph:{name}")
    return [(message.role, message.text) for message in session.transcript()]


def test_the_conformance_suite_of_langgraph_passes_whole(where: str) -> None:
    @checkpointer_test(name="HoldfastSaver")
    async def made() -> Any:
        yield HoldfastSaver(where)

    report = asyncio.run(validate(made))
    assert len(report.results) == 8
    for name, result in report.results.items():
        assert result.detected and result.passed, (name, result.failures)
    assert sum(result.tests_passed for result in report.results.values()) >= 81


def test_messages_stand_once_in_a_transcript_that_everybody_reads(where: str) -> None:
    saver = HoldfastSaver(where)
    graph = chat(saver)
    graph.invoke(say("Book a table."), thread())
    graph.invoke(say("Book a table."), thread())
    assert (
        words(saver)
        == [
            ("user", "Book a table."),
            ("assistant", "Casa Lola has a table at eight by the window"),
        ]
        * 2
    )
    hits = saver.store.search("window")
    assert {hit.key for hit in hits} == {"langgraph:t"} and len(hits) == 2
    assert saver.store.check() == []


def test_what_was_stored_comes_back_as_langgraph_has_it_in_memory(where: str) -> None:
    saver = HoldfastSaver(where)
    graph = agent(saver, lambda row: f"row {row} is wet")
    shown = graph.invoke(say("Water the row."), thread())
    again = chat(HoldfastSaver(holdfast.open(where))).get_state(thread())
    assert again.values["messages"] == shown["messages"]
    assert again.next == () and again.metadata["step"] == 3
    assert texts(shown["messages"]) == ["Water the row.", "", "row 1 is wet", "Done."]
    roles = [role for role, _ in words(saver)]
    assert roles == ["user", "assistant", "tool", "assistant"]
    calls = saver.store.session("langgraph:t").calls()
    assert [(call.name, call.state) for call in calls] == [("water", "done")]


def test_async_runs_store_the_same(where: str) -> None:
    saver = HoldfastSaver(where)

    async def both() -> Any:
        graph = chat(saver, asynchronous=True)
        await graph.ainvoke(say("One."), thread())
        await graph.ainvoke(say("Two."), thread())
        return [each async for each in graph.aget_state_history(thread())]

    history = asyncio.run(both())
    assert len(history) == 6
    # Another event loop, the same saver.
    assert len(asyncio.run(both())) == 12
    assert [text for role, text in words(saver) if role == "user"] == ["One.", "Two."] * 2


def test_a_step_is_stored_as_what_it_changes(tmp_path: Path) -> None:
    turns = 60
    with holdfast.open(tmp_path / "ours.db") as store:
        graph = chat(HoldfastSaver(store))
        for number in range(turns):
            graph.invoke(say(f"Question {number}"), thread())
        steps = store.session("langgraph.steps:t")
        bodies = [len(entry.body) for entry in steps.entries()]
    # No entry grows with the history.
    assert max(bodies[-6:]) < max(bodies[:20]) + 40
    with SqliteSaver.from_conn_string(str(tmp_path / "theirs.db")) as theirs:
        graph = chat(theirs)
        for number in range(turns):
            graph.invoke(say(f"Question {number}"), thread())
    ours = (tmp_path / "ours.db").stat().st_size
    # It grows with the square of the turns there: 20 times at 60, several hundred at 500.
    assert (tmp_path / "theirs.db").stat().st_size > 8 * ours


def test_other_values_come_back_whatever_they_are(where: str) -> None:
    saver = HoldfastSaver(where)
    values = {
        "text": "plain",
        "odd": {"$m": "looks like a mark"},
        "set": {1, 2},
        "bytes": b"\x00\xff",
        "point": Point(1, 2),
        "numbers": [1, 2.5, None, True],
        "message": ToolMessage("x", tool_call_id="c", artifact={"raw": b"\x01"}),
        "send": Send("node", {"messages": [HumanMessage("inside", id="i")]}),
        "half": "\ud800",
    }
    step = empty_checkpoint()
    step["channel_values"] = values
    step["channel_versions"] = dict.fromkeys(values, 1)
    config = saver.put(thread(), step, {"source": "update", "step": 1}, step["channel_versions"])
    found = HoldfastSaver(holdfast.open(where)).get_tuple(config)
    assert found is not None
    for name, value in values.items():
        assert found.checkpoint["channel_values"][name] == value, name


@dataclass
class Point:
    x: int
    y: int


def test_a_pickle_is_neither_written_nor_read(where: str) -> None:
    saver = HoldfastSaver(where, serde=JsonPlusSerializer(pickle_fallback=True))
    step = empty_checkpoint()
    step["channel_values"] = {"odd": object}
    step["channel_versions"] = {"odd": 1}
    with pytest.raises(BadArgument, match="pickle"):
        saver.put(thread(), step, {}, {"odd": 1})
    assert saver.get_tuple(thread()) is None

    class Pickles:
        def dumps_typed(self, value: Any) -> tuple[str, bytes]:
            return "msgpack" if value is None else "pickle", pickle.dumps(value)

        def loads_typed(self, data: Any) -> Any:
            return pickle.loads(data[1])

    with pytest.raises(BadArgument, match="pickle"):
        HoldfastSaver(where, serde=Pickles()).put(thread(), step, {}, {"odd": 1})


def test_a_run_that_was_overtaken_is_told_so(where: str) -> None:
    first, second = HoldfastSaver(where), HoldfastSaver(holdfast.open(where))
    chat(first).invoke(say("One."), thread())
    head = second.get_tuple(thread())
    assert head is not None
    chat(first).invoke(say("Two."), thread())
    late = empty_checkpoint()
    with pytest.raises(Conflict, match="another run has gone on"):
        second.put(head.config, late, {"source": "input", "step": 9}, {})
    assert len(words(first)) == 4
    assert (
        second.get_tuple({"configurable": {"thread_id": "t", "checkpoint_id": late["id"]}}) is None
    )


def test_a_thread_that_was_empty_for_two_is_begun_by_one(where: str) -> None:
    first, second = HoldfastSaver(where), HoldfastSaver(holdfast.open(where))
    chat(first).invoke(say("Zero."), thread("other"))
    assert first.get_tuple(thread()) is None and second.get_tuple(thread()) is None
    chat(first).invoke(say("One."), thread())
    second_graph = chat(second)
    assert texts(second_graph.invoke(say("Two."), thread())["messages"])[::2] == ["One.", "Two."]


def test_of_two_runs_that_find_no_thread_one_begins_it_and_one_is_told(where: str) -> None:
    first, second = HoldfastSaver(where), HoldfastSaver(holdfast.open(where))
    begins = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    for name, late in (("t", second), ("u", first)):
        begins["configurable"]["thread_id"] = name
        assert first.get_tuple(begins) is None and second.get_tuple(begins) is None
        chat(first).invoke(say("One."), thread(name))
        with pytest.raises(Conflict, match="another run has gone on"):
            late.put(begins, empty_checkpoint(), {"source": "input", "step": -1}, {})
        messages = chat(HoldfastSaver(where)).get_state(thread(name)).values["messages"]
        assert texts(messages)[::2] == ["One."]


def test_a_run_is_told_that_it_was_overtaken_however_many_threads_came_between(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "THREADS_MAX", 2)
    first, second = HoldfastSaver(where), HoldfastSaver(holdfast.open(where))
    others = [thread(f"other {number}") for number in range(3)]
    for each in (thread(), *others):
        chat(first).invoke(say("One."), each)
    head = second.get_tuple(thread())
    assert head is not None
    for each in others:
        second.get_tuple(each)
    chat(first).invoke(say("Two."), thread())
    with pytest.raises(Conflict, match="another run has gone on"):
        second.put(head.config, empty_checkpoint(), {"source": "input", "step": 9}, {})


def test_threads_that_are_asked_for_and_never_made_are_not_remembered_for_ever(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "MARKS_MAX", 3)
    saver = HoldfastSaver(where)
    for number in range(9):
        assert saver.get_tuple(thread(f"never {number}")) is None
    kept = saver._threads
    assert len(kept._found_empty) == len(kept._begun_anew) == 3


@pytest.mark.parametrize("looks", range(6))
def test_a_step_that_is_read_while_it_is_stored_has_its_messages(
    where: str, monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    reader, writer = HoldfastSaver(where), HoldfastSaver(holdfast.open(where))
    chat(writer).invoke(say("One."), thread())
    assert reader.get_tuple(thread()) is not None
    chat(writer).invoke(say("Two."), thread())
    page, left = SessionLog.page, [looks]

    def then_another_turn(log: SessionLog, *rest: Any, **more: Any) -> Any:
        found = page(log, *rest, **more)
        left[0] -= 1
        if left[0] == -1:
            chat(writer).invoke(say("Three."), thread())
        return found

    with monkeypatch.context() as looking:
        looking.setattr(SessionLog, "page", then_another_turn)
        said = texts(chat(reader).get_state(thread()).values["messages"])
    answers = texts(chat(writer).get_state(thread()).values["messages"])
    assert said[:4] == answers[:4]
    assert said == answers[: len(said)]


def test_going_back_runs_a_graph_inside_again_from_where_it_stood(where: str) -> None:
    def told(saver: Any) -> list[list[str]]:
        inner = StateGraph(MessagesState)
        inner.add_node("inner", lambda state: {"messages": [AIMessage("Inside.")]})
        inner.add_edge(START, "inner")
        outer = StateGraph(MessagesState)
        outer.add_node("sub", inner.compile(checkpointer=True))
        outer.add_edge(START, "sub")
        graph = outer.compile(checkpointer=saver)
        for text in ("One.", "Two."):
            graph.invoke(say(text), thread())
        answers = []
        for step in list(graph.get_state_history(thread())):
            answers.append(texts(graph.invoke(None, step.config)["messages"]))
        return answers

    assert told(HoldfastSaver(where)) == told(InMemorySaver())


def test_a_new_thread_is_there_whole_or_not_at_all(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is cut off at any commit of its first step leaves no half of a thread (I-3)."""
    kinds: list[Any] = []
    while kinds.count("done") == 0:
        saver = HoldfastSaver(holdfast.open(where))
        engine, commits = saver.store._work.engine, len(kinds)
        name, submit, made = f"t{commits}", engine.submit, []

        def cut(commit: Any, submit: Any = submit, made: Any = made, most: int = commits) -> Any:
            if len(made) == most:
                raise KeyboardInterrupt
            made.append(commit)
            return submit(commit)

        with monkeypatch.context() as patch:
            patch.setattr(engine, "submit", cut)
            try:
                saver.put(thread(name), empty_checkpoint(), {"source": "input", "step": -1}, {})
                kinds.append("done")
            except KeyboardInterrupt:
                kinds.append("cut")
        store = holdfast.open(where)._work
        keys = f"langgraph:{name}", f"langgraph.steps:{name}"
        spoken, steps = [store.engine.current(store.tenant, key) for key in keys]
        assert (spoken is None) == (steps is None)
        if spoken is not None and steps is not None:
            bond = store.session_log(steps).page(1, 1)[0]
            assert thaw(bond.body) == {"kind": "thread", "words": spoken.id}
        # It is begun, or gone on with, as any other.
        chat(HoldfastSaver(holdfast.open(where))).invoke(say("One."), thread(name))
    assert kinds == ["cut", "cut", "done"]


def test_going_back_to_an_older_step_makes_a_branch(where: str) -> None:
    saver = HoldfastSaver(where)
    graph = chat(saver)
    for text in ("One.", "Two.", "Three."):
        graph.invoke(say(text), thread())
    history = list(graph.get_state_history(thread()))
    after_one = next(each for each in history if len(each.values.get("messages", [])) == 2)
    graph.invoke(say("Otherwise."), after_one.config)
    prompts = texts(graph.get_state(thread()).values["messages"])[::2]
    assert prompts == ["One.", "Otherwise."]
    # All of it happened.
    said = [text for role, text in words(saver) if role == "user"]
    assert said == ["One.", "Two.", "Three.", "Otherwise."]
    three = next(each for each in history if len(each.values.get("messages", [])) == 6)
    old = graph.get_state(three.config).values["messages"]
    assert texts(old)[::2] == ["One.", "Two.", "Three."]


@pytest.mark.parametrize("held", ["held", "free"])
def test_two_processes_on_one_thread_lose_no_turn(where: str, held: str) -> None:
    HoldfastSaver(where)
    apart = [
        run_apart("langgraph_graphs:many_turns", where, name, "8", held) for name in ("a", "b")
    ]
    acknowledged = []
    for process in apart:
        out, _ = process.communicate(timeout=100)
        assert process.returncode == 0
        acknowledged += out.split("\n")[:-1]
    assert len(acknowledged) == 16
    messages = chat(HoldfastSaver(where)).get_state(thread()).values["messages"]
    assert sorted(texts(messages)[::2]) == sorted(acknowledged)
    assert [message.type for message in messages] == ["human", "ai"] * 16


def test_a_deleted_thread_stays_deleted_for_those_who_had_it(where: str) -> None:
    saver, other = HoldfastSaver(where), HoldfastSaver(holdfast.open(where))
    chat(saver).invoke(say("A secret."), thread())
    stale = saver.get_tuple(thread())
    assert stale is not None
    other.delete_thread("t")
    with pytest.raises(SessionEnded):
        saver.put(stale.config, empty_checkpoint(), {"source": "loop", "step": 2}, {})
    with pytest.raises(SessionEnded):
        saver.put_writes(stale.config, [("messages", AIMessage("late"))], "task")
    assert saver.get_tuple(thread()) is None
    assert list(saver.list(None)) == []
    # A new one of the same name has nothing of the old, and the old run nothing of it.
    chat(other).invoke(say("Anew."), thread())
    for each in (saver, other):
        with pytest.raises(SessionEnded):
            each.put(stale.config, empty_checkpoint(), {"source": "loop", "step": 2}, {})
        each.put_writes(stale.config, [("messages", AIMessage("late"))], "task")
        assert texts(chat(each).get_state(thread()).values["messages"])[::2] == ["Anew."]
    assert [role for role, _ in words(other)] == ["user", "assistant"]
    assert saver.store.search("secret") == []


def test_a_reset_of_the_words_ends_the_thread(where: str) -> None:
    saver = HoldfastSaver(where)
    chat(saver).invoke(say("One."), thread())
    saver.store.reset("langgraph:t")
    assert saver.get_tuple(thread()) is None
    chat(saver).invoke(say("Two."), thread())
    assert texts(chat(saver).get_state(thread()).values["messages"])[::2] == ["Two."]


def test_a_copy_goes_its_own_way_and_outlives_its_source(where: str) -> None:
    saver = HoldfastSaver(where)
    graph = chat(saver)
    graph.invoke(say("One."), thread())
    saver.copy_thread("t", "copy")
    with pytest.raises(BadArgument):
        saver.copy_thread("t", "copy")
    saver.delete_thread("t")
    graph.invoke(say("Two."), thread("copy"))
    assert texts(graph.get_state(thread("copy")).values["messages"])[::2] == ["One.", "Two."]
    assert len(words(saver, "copy")) == 4


def test_messages_that_are_removed_or_edited_stay_in_the_transcript(where: str) -> None:
    saver = HoldfastSaver(where)
    graph = chat(saver)
    graph.invoke({"messages": [HumanMessage("One.", id="h1")]}, thread())
    graph.update_state(thread(), {"messages": [RemoveMessage("h1")]})
    graph.update_state(thread(), {"messages": [HumanMessage("Uno.", id="h2")]})
    graph.update_state(thread(), {"messages": [HumanMessage("Eins.", id="h2")]})
    state = chat(HoldfastSaver(holdfast.open(where))).get_state(thread())
    assert texts(state.values["messages"]) == [
        "Casa Lola has a table at eight by the window",
        "Eins.",
    ]
    said = [text for role, text in words(saver) if role == "user"]
    assert said == ["One.", "Uno.", "Eins."]


def test_pruning_hides_old_steps_and_delta_channels_stay_whole(where: str) -> None:
    class Many(TypedDict):
        messages: Annotated[list, DeltaChannel(_messages_delta_reducer)]

    saver = HoldfastSaver(where)
    graph = StateGraph(Many)
    graph.add_node("model", lambda state: {"messages": [AIMessage("Yes.")]})
    graph.add_edge(START, "model")
    graph.add_edge("model", END)
    made = graph.compile(checkpointer=saver)
    for text in ("One.", "Two.", "Three."):
        made.invoke(say(text), thread())
    expected = ["One.", "Yes.", "Two.", "Yes.", "Three.", "Yes."]
    assert texts(made.get_state(thread()).values["messages"]) == expected
    saver.prune(["t"])
    assert len(list(saver.list(thread()))) == 1
    fresh = graph.compile(checkpointer=HoldfastSaver(holdfast.open(where)))
    assert texts(fresh.get_state(thread()).values["messages"]) == expected
    assert [text for _, text in words(saver)] == expected


def test_an_interrupt_is_resumed_in_another_process(where: str) -> None:
    class State(TypedDict):
        answers: Annotated[list, operator.add]

    def ask(state: Any) -> Any:
        return {"answers": [interrupt("May I?")]}

    graph = StateGraph(State)
    graph.add_node("ask", ask)
    graph.add_edge(START, "ask")
    first = graph.compile(checkpointer=HoldfastSaver(where))
    waiting = first.invoke({"answers": ["begun"]}, thread())
    assert waiting["__interrupt__"][0].value == "May I?"
    second = graph.compile(checkpointer=HoldfastSaver(holdfast.open(where)))
    assert second.get_state(thread()).tasks[0].interrupts
    assert second.invoke(Command(resume="yes"), thread())["answers"] == ["begun", "yes"]


def test_a_damaged_message_takes_away_nothing_but_itself(tmp_path: Path) -> None:
    import apsw

    place = tmp_path / "agents.db"
    with holdfast.open(place) as store:
        graph = chat(HoldfastSaver(store))
        for text in ("One.", "Two.", "Three."):
            graph.invoke(say(text), thread())
    connection = apsw.Connection(str(place))
    [table] = [
        name
        for (name,) in connection.execute("select name from sqlite_schema where type = 'table'")
        if name in ("log", "entries", "entry")
    ]
    changed = connection.execute(
        f"update {table} set body = x'00ff' where cast(body as text) like '%Two.%' "
        'and cast(body as text) like \'{"type":"human"%\' returning 1'
    ).fetchall()
    assert changed
    connection.close()
    with holdfast.open(place) as store:
        messages = chat(HoldfastSaver(store)).get_state(thread()).values["messages"]
        assert len(messages) == 6
        assert texts(messages)[0] == "One." and "can't be read" in texts(messages)[2]
        assert chat(HoldfastSaver(store)).invoke(say("Four."), thread())


def test_a_damaged_answer_is_still_an_answer(where: str) -> None:
    """A provider wants the two to speak in turns."""
    with holdfast.open(where) as store:
        for text in ("One.", "Two."):
            chat(HoldfastSaver(store)).invoke(say(text), thread())
        [hit] = store.search("Two.")
    spoil_last_message(where, hit.key)
    with holdfast.open(where) as store:
        messages = chat(HoldfastSaver(store)).get_state(thread()).values["messages"]
        assert [message.type for message in messages] == ["human", "ai"] * 2
        assert "can't be read" in texts(messages)[3]


@pytest.mark.parametrize(
    "config", [None, {}, {"configurable": {}}, {"configurable": {"thread_id": b"t"}}, "t"]
)
def test_bad_configs_are_refused_before_anything_is_written(where: str, config: Any) -> None:
    saver = HoldfastSaver(where)
    with pytest.raises(BadArgument):
        saver.get_tuple(config)
    with pytest.raises(BadArgument):
        saver.put(config, empty_checkpoint(), {}, {})
    with pytest.raises(BadArgument):
        saver.put_writes(config, [], "task")
    with pytest.raises(BadArgument):
        saver.put_writes(thread(), [], "task")
    with pytest.raises(BadArgument):
        saver.prune(["t"], strategy="everything")
    assert len(saver.store.sessions()) == 0


@pytest.mark.parametrize(
    "call",
    [
        lambda saver, step: saver.put_writes(step, None, "task"),
        lambda saver, step: saver.put_writes(step, ["xy"], "task"),
        lambda saver, step: saver.put_writes(step, [("x",)], "task"),
        lambda saver, step: saver.put_writes(step, [(1, 2)], "task"),
        lambda saver, step: saver.put_writes(step, [("x", 1)], "\ud800"),
        lambda saver, step: list(saver.list(thread(), limit="x")),
        lambda saver, step: list(saver.list(thread(), limit=-1)),
        lambda saver, step: list(saver.list(thread(), filter=5)),
        lambda saver, step: list(saver.list(thread(), before={})),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_written(where: str, call: Any) -> None:
    saver = HoldfastSaver(where)
    chat(saver).invoke(say("One."), thread())
    before = saver.get_tuple(thread())
    assert before is not None
    with pytest.raises(BadArgument):
        call(saver, before.config)
    assert saver.get_tuple(thread()) == before


def test_a_subclass_and_a_copy_with_another_serialiser_work(where: str) -> None:
    class Mine(HoldfastSaver):
        pass

    saver = Mine(where)
    clone = saver.with_allowlist([("m", "C")])
    chat(clone).invoke(say("One."), thread(name="7"))
    found = saver.get_tuple({"configurable": {"thread_id": 7}})
    assert found is not None and len(found.checkpoint["channel_values"]["messages"]) == 2


def test_subgraphs_keep_steps_of_their_own_and_share_the_words(where: str) -> None:
    saver = HoldfastSaver(where)
    inner = StateGraph(MessagesState)
    inner.add_node("inner", lambda state: {"messages": [AIMessage("Inside.", id="in")]})
    inner.add_edge(START, "inner")
    outer = StateGraph(MessagesState)
    outer.add_node("sub", inner.compile(checkpointer=True))
    outer.add_edge(START, "sub")
    graph = outer.compile(checkpointer=saver)
    graph.invoke(say("One."), thread())
    spaces = {each.config["configurable"]["checkpoint_ns"] for each in saver.list(thread())}
    assert spaces == {"", "sub"}
    assert [text for _, text in words(saver)] == ["One.", "Inside."]


def test_threads_of_another_saver_come_and_go_as_the_page_says(where: str, tmp_path: Path) -> None:
    page: dict[str, Any] = {}
    exec(example("langgraph.md", "def bring_over"), page)
    with SqliteSaver.from_conn_string(str(tmp_path / "theirs.db")) as theirs:
        for text in ("one", "two"):
            chat(theirs).invoke(say(text), thread())
        expected = chat(theirs).get_state(thread())
        saver = HoldfastSaver(where)
        for _ in range(2):
            page["bring_over"](theirs, saver, "t")
        found = chat(saver).get_state(thread())
        assert found.values == expected.values
        assert (found.next, found.metadata) == (expected.next, expected.metadata)
        assert [text for _, text in words(saver)] == texts(expected.values["messages"])
    with SqliteSaver.from_conn_string(str(tmp_path / "back.db")) as back:
        page["bring_over"](saver, back, "t")
        assert chat(back).get_state(thread()).values == expected.values
    chat(saver).invoke(say("three"), thread())
    assert len(chat(saver).get_state(thread()).values["messages"]) == 6


def test_what_was_written_side_by_side_comes_over_in_its_order(where: str) -> None:
    def graph(saver: Any) -> Any:
        class Rows(TypedDict, total=False):
            rows: Annotated[list[Any], DeltaChannel(lambda rows, new: [*rows, *sum(new, [])])]

        built = StateGraph(Rows)
        built.add_node("water", lambda state: {"rows": [state["row"]]})
        rows = [Send("water", {"row": number}) for number in range(20)]
        built.add_conditional_edges(START, lambda state: rows, ["water"])
        return built.compile(checkpointer=saver)

    page: dict[str, Any] = {}
    exec(example("langgraph.md", "def bring_over"), page)
    theirs, saver, back = InMemorySaver(), HoldfastSaver(where), InMemorySaver()
    graph(theirs).invoke({}, thread())
    page["bring_over"](theirs, saver, "t")
    page["bring_over"](saver, back, "t")
    for each in (theirs, saver, back):
        assert graph(each).get_state(thread()).values["rows"] == list(range(20))
