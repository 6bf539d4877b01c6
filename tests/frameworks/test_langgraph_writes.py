"""What tasks write in LangGraph comes into the commit of the step that follows, and is lost by none."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph_graphs import chat, say, texts, thread

from holdfast.adapters.langgraph import HoldfastSaver, task_writes
from holdfast.adapters.langgraph.thread import Thread
from holdfast.errors import BadArgument, Conflict
from holdfast.runtime.plans.plan import run

LONG_S = 60.0
LOOP = {"source": "loop", "step": 1, "parents": {}}


class Begun:
    """A thread with one step, and its saver. Counts the commits from then on."""

    def __init__(self, saver: HoldfastSaver) -> None:
        self.saver = saver
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = {"messages": [HumanMessage("Hi", id="hi")]}
        checkpoint["channel_versions"] = {"messages": 1}
        config = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        self.first = saver.put(config, checkpoint, {**LOOP, "step": 0}, {"messages": 1})
        self.checkpoint = checkpoint
        found = saver._threads.known("t")
        assert found is not None
        self.thread: Thread = found
        self.commits: list[Any] = []
        self._submit = found.steps_log.engine.submit
        found.steps_log.engine.submit = self._counted  # type: ignore[method-assign]

    def _counted(self, commit: Any) -> Any:
        self.commits.append(commit)
        return self._submit(commit)

    def write(self, *said: Any, task: str = "task") -> None:
        self.saver.put_writes(self.first, [("messages", each) for each in said], task)

    def step(self, *said: Any) -> Any:
        """The step that follows the first one."""
        made = empty_checkpoint()
        made["channel_values"] = {"messages": [HumanMessage("Hi", id="hi"), *said]}
        made["channel_versions"] = {"messages": 2}
        return self.saver.put(self.first, made, LOOP, {"messages": 2})

    def texts(self) -> list[str]:
        session = self.saver.store.session("langgraph:t")
        return [message.text for message in session.transcript()]

    def writes(self) -> list[Any]:
        """What is known to be written at the first step, by a process that knows nothing."""
        found = HoldfastSaver(self.saver.store).get_tuple(self.first)
        assert found is not None
        return [(task, value.content) for task, _, value in found.pending_writes or ()]

    @contextmanager
    def waiting(self, *writing: Any) -> Iterator[list[Any]]:
        """Meanwhile these wait for a step, in the order given."""
        with ThreadPoolExecutor() as pool:
            futures = []
            for number, write in enumerate(writing, 1):
                futures.append(pool.submit(write))
                while len(self.thread.waiting) < number:
                    assert not futures[-1].done(), futures[-1].result()
            yield futures


@pytest.fixture
def begun(where: str, monkeypatch: pytest.MonkeyPatch) -> Begun:
    made = Begun(HoldfastSaver(where))
    # Whoever comes in time is not up to the machine.
    monkeypatch.setattr(task_writes, "STEP_FOLLOWS_S", LONG_S)
    return made


def test_writes_and_the_step_that_follows_are_one_commit(begun: Begun) -> None:
    said = AIMessage("Hello.")
    with begun.waiting(lambda: begun.write(said)) as (written,):
        begun.step(AIMessage("Hello.", id="named by the channel"))
        written.result(LONG_S)
    assert len(begun.commits) == 1
    assert begun.texts() == ["Hi", "Hello."]
    assert begun.writes() == [("task", "Hello.")]
    found = HoldfastSaver(begun.saver.store).get_tuple(thread())
    assert found is not None
    messages = found.checkpoint["channel_values"]["messages"]
    assert [(each.content, each.id) for each in messages] == [
        ("Hi", "hi"),
        ("Hello.", "named by the channel"),
    ]


def test_no_task_is_answered_before_its_commit(begun: Begun) -> None:
    """I-3."""
    seen = []
    submit = begun.thread.steps_log.engine.submit

    def watched(commit: Any) -> Any:
        seen.append(written.done())
        return submit(commit)

    begun.thread.steps_log.engine.submit = watched  # type: ignore[method-assign]
    with begun.waiting(lambda: begun.write(AIMessage("Hello."))) as (written,):
        begun.step(AIMessage("Hello."))
        written.result(LONG_S)
    assert seen == [False]


def test_tasks_that_say_the_same_say_it_twice(begun: Begun) -> None:
    """I-2."""
    one, two = AIMessage("Yes.", id="a"), AIMessage("Yes.", id="b")
    tasks = [lambda: begun.write(one, task="1"), lambda: begun.write(two, task="2")]
    with begun.waiting(*tasks) as written:
        begun.step(one, two)
        for each in written:
            each.result(LONG_S)
    assert len(begun.commits) == 1
    assert begun.texts() == ["Hi", "Yes.", "Yes."]
    assert begun.writes() == [("1", "Yes."), ("2", "Yes.")]


def test_nameless_messages_of_several_tasks_are_each_known_again(begun: Begun) -> None:
    tasks = [
        lambda: begun.write(AIMessage("Yes."), task="1"),
        lambda: begun.write(AIMessage("No."), task="2"),
    ]
    with begun.waiting(*tasks) as written:
        begun.step(AIMessage("Yes.", id="a"), AIMessage("No.", id="b"))
        for each in written:
            each.result(LONG_S)
    assert begun.texts() == ["Hi", "Yes.", "No."]
    values = HoldfastSaver(begun.saver.store).get_tuple(thread()).checkpoint["channel_values"]
    assert [(each.content, each.id) for each in values["messages"]] == [
        ("Hi", "hi"),
        ("Yes.", "a"),
        ("No.", "b"),
    ]


def test_writes_for_which_no_step_comes_are_stored_by_themselves(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_writes, "STEP_FOLLOWS_S", 0.001)
    begun = Begun(HoldfastSaver(where))
    begun.write(AIMessage("Hello."))
    assert len(begun.commits) == 1
    assert begun.writes() == [("task", "Hello.")]
    assert begun.thread.waiting == []


def test_writes_whose_step_is_refused_are_stored_all_the_same(begun: Begun) -> None:
    # Another process is quicker with its step, between the decision and the commit.
    other = HoldfastSaver(begun.saver.store)
    found = other.get_tuple(thread())
    assert found is not None
    engine = begun.thread.steps_log.engine
    submit = engine.submit

    def overtaken(commit: Any) -> Any:
        engine.submit = submit  # type: ignore[method-assign]
        checkpoint = {**found.checkpoint, "id": empty_checkpoint()["id"]}
        other.put(found.config, checkpoint, LOOP, {})
        return submit(commit)

    with begun.waiting(lambda: begun.write(AIMessage("Mine."))) as (written,):
        engine.submit = overtaken  # type: ignore[method-assign]
        with pytest.raises(Conflict):
            begun.step(AIMessage("Mine."))
        written.result(LONG_S)
    assert begun.writes() == [("task", "Mine.")]
    assert begun.texts() == ["Hi", "Mine."]


def test_a_thread_that_another_caller_has_just_made_is_not_forgotten(where: str) -> None:
    threads = HoldfastSaver(where)._threads
    looking = threads.find("t")
    before = next(looking).work()
    made = run(threads.open("t"))
    with pytest.raises(StopIteration):
        looking.send(before)
    assert threads.known("t") is made


def test_a_value_that_cant_be_written_is_told_to_its_own_task_alone(begun: Begun) -> None:
    class Odd:
        def __reduce__(self) -> Any:
            raise TypeError("it can't be written")

    def odd() -> None:
        begun.saver.put_writes(begun.first, [("other", Odd())], "odd")

    with begun.waiting(odd, lambda: begun.write(AIMessage("Hello."))) as (wrong, written):
        begun.step(AIMessage("Hello."))
        written.result(LONG_S)
        [left] = begun.thread.waiting
        left.tell()  # its time is over
        with pytest.raises(BadArgument):
            wrong.result(LONG_S)
    assert begun.writes() == [("task", "Hello.")]


def test_a_step_that_cant_be_written_gives_the_writes_back(begun: Begun) -> None:
    class Odd:
        def __reduce__(self) -> Any:
            raise TypeError("it can't be written")

    with begun.waiting(lambda: begun.write(AIMessage("Hello."))) as (written,):
        with pytest.raises(BadArgument):
            begun.step(Odd())
        written.result(LONG_S)
    assert begun.writes() == [("task", "Hello.")]
    assert begun.texts() == ["Hi", "Hello."]


def test_a_task_that_is_cancelled_while_it_waits_leaves_nothing(begun: Begun) -> None:
    async def cancelled() -> None:
        writes = [("messages", AIMessage("Never mind."))]
        task = asyncio.create_task(begun.saver.aput_writes(begun.first, writes, "task"))
        while not begun.thread.waiting:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert begun.thread.waiting == []
    begun.step(AIMessage("Hello."))
    assert begun.texts() == ["Hi", "Hello."]
    assert begun.writes() == []


def test_on_an_event_loop_they_are_one_commit_too(begun: Begun) -> None:
    async def both() -> None:
        writes = [("messages", AIMessage("Hello."))]
        task = asyncio.create_task(begun.saver.aput_writes(begun.first, writes, "task"))
        while not begun.thread.waiting:
            await asyncio.sleep(0)
        await asyncio.to_thread(begun.step, AIMessage("Hello.", id="a"))
        await task

    asyncio.run(both())
    assert len(begun.commits) == 1
    assert begun.texts() == ["Hi", "Hello."]


def test_large_writes_go_by_themselves(begun: Begun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_writes, "TAKEN_BYTES_MAX", 100)
    with begun.waiting(lambda: begun.write(AIMessage("Hello. " * 100))) as (written,):
        begun.step()
        [left] = begun.thread.waiting
        left.tell()
        written.result(LONG_S)
    assert len(begun.commits) == 2
    assert [task for task, _ in begun.writes()] == ["task"]


@pytest.mark.parametrize("durability", ["async", "sync"])
def test_a_turn_of_a_graph_costs_fewer_commits_than_calls(
    where: str, durability: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_writes, "STEP_FOLLOWS_S", LONG_S)
    begun = Begun(HoldfastSaver(where))
    graph = chat(begun.saver)
    graph.invoke(say("Hello."), thread("other"), durability=durability)
    begun.commits.clear()
    called = []
    put_writes = begun.saver.put_writes

    def counted(*given: Any, **more: Any) -> None:
        called.append(threading.get_ident())
        put_writes(*given, **more)

    monkeypatch.setattr(begun.saver, "put_writes", counted)
    graph.invoke(say("Book a table."), thread("other"), durability=durability)
    # Three steps; what two tasks have written came along.
    assert len(called) == 2
    assert len(begun.commits) == 3
    state = chat(HoldfastSaver(begun.saver.store)).get_state(thread("other"))
    assert len(texts(state.values["messages"])) == 4
