"""`HoldfastStepStore` under the real `StepPersistence` of pydantic-ai-harness. The laws are those of the harness's own
stores, which are run through them beside ours.
"""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pages import example
from pydantic_ai import Agent
from pydantic_ai.messages import (
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.test import TestModel
from pydantic_ai_harness.step_persistence import (
    ContinuableSnapshot,
    FileStepStore,
    InMemoryStepStore,
    RunRecord,
    SqliteStepStore,
    StepEvent,
    StepPersistence,
    StepStore,
    ToolEffectRecord,
    continue_run,
    fork_run,
)

import holdfast
from holdfast.adapters.pydantic_ai import HoldfastStepStore
from holdfast.errors import BadArgument, SessionEnded
from holdfast.testing.adapters import serve
from holdfast.testing.oracle import judge
from procs import child

HELLO = ModelRequest(parts=[UserPromptPart("Hello")])
HI = ModelResponse(parts=[TextPart("Hi"), ToolCallPart("look", {"at": None}, "c1")])
SEEN = ModelRequest(parts=[ToolReturnPart("look", {"cat": None}, "c1")])
MESSAGES: list[Any] = [HELLO, HI, SEEN]
BASE = datetime(2026, 1, 1, tzinfo=UTC)

Make = Callable[[], Any]


@pytest.fixture(params=["memory", "file", "sqlite", "holdfast", "holdfast on postgres"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Opens the same store once more; that in memory is one object."""
    name = request.param
    if name == "memory":
        one = InMemoryStepStore()
        return lambda: one
    if name == "file":
        return lambda: FileStepStore(tmp_path)
    if name == "sqlite":
        return lambda: SqliteStepStore(database=tmp_path / "steps.db")
    where = str(tmp_path / "agents.db")
    if name == "holdfast on postgres":
        where = request.getfixturevalue("databases")(schema=True)
    return lambda: HoldfastStepStore(where)


def snapshot(messages: list[Any], **more: Any) -> ContinuableSnapshot:
    return ContinuableSnapshot(**{"run_id": "r", "step_index": 0, "messages": messages, **more})


def test_it_is_a_step_store(make: Make) -> None:
    assert isinstance(make(), StepStore)


def test_what_was_stored_comes_back_as_it_was(make: Make) -> None:
    run = RunRecord(run_id="r", conversation_id="c", metadata={"a": "b"}, registration_id="x")
    event = StepEvent(run_id="r", kind="run_failed", step_index=2, error="no", metadata={"k": "v"})
    effect = ToolEffectRecord(tool_call_id="c1", tool_name="look", run_id="r", status="started")
    taken = snapshot(MESSAGES, conversation_id="c", state="interrupted", idempotency_key="0:0:x")

    async def store() -> None:
        steps = make()
        await steps.register_run(run)
        await steps.append_event(event)
        await steps.record_tool_effect(effect)
        await steps.save_snapshot(taken)

    async def look() -> None:
        steps = make()
        assert await steps.get_run(run_id="r") == run
        assert await steps.list_runs() == [run]
        assert await steps.list_events(run_id="r") == [event]
        assert await steps.get_tool_effect(run_id="r", tool_call_id="c1") == effect
        assert await steps.list_unresolved_tool_effects(run_id="r") == [effect]
        assert await steps.latest_snapshot(run_id="r") is None
        found = await steps.latest_snapshot(run_id="r", include_interrupted=True)
        assert found == taken

    asyncio.run(store())
    asyncio.run(look())


def test_what_nobody_has_stored_is_not_there(make: Make) -> None:
    async def run() -> None:
        steps = make()
        assert await steps.get_run(run_id="r") is None
        assert await steps.list_runs() == []
        assert await steps.list_runs(conversation_id="c", parent_run_id="p") == []
        assert await steps.list_events(run_id="r") == []
        assert await steps.latest_snapshot(run_id="r") is None
        assert await steps.list_snapshots(run_id="r") == []
        assert await steps.get_tool_effect(run_id="r", tool_call_id="c") is None
        assert await steps.list_unresolved_tool_effects(run_id="r") == []

    asyncio.run(run())


def test_runs_are_listed_by_time_and_by_what_they_belong_to(make: Make) -> None:
    async def run() -> None:
        steps = make()
        for number, parent, conversation in ((3, "p", "a"), (1, "p", "b"), (2, None, "a")):
            await steps.register_run(
                RunRecord(
                    run_id=f"r{number}",
                    parent_run_id=parent,
                    conversation_id=conversation,
                    started_at=BASE + timedelta(seconds=number),
                )
            )

        async def listed(**filters: Any) -> list[str]:
            return [run.run_id for run in await make().list_runs(**filters)]

        assert await listed() == ["r1", "r2", "r3"]
        assert await listed(parent_run_id="p") == ["r1", "r3"]
        assert await listed(conversation_id="a") == ["r2", "r3"]
        assert await listed(conversation_id="a", parent_run_id="p") == ["r3"]
        assert await listed(conversation_id="nobody") == []

    asyncio.run(run())


def test_what_has_a_key_is_stored_once(make: Make) -> None:
    event = StepEvent(run_id="r", kind="run_started", step_index=0, idempotency_key="0")
    first = snapshot([HELLO], idempotency_key="0:0:complete")
    second = snapshot(MESSAGES, idempotency_key="1:1:complete")
    bare = StepEvent(run_id="r", kind="run_completed", step_index=0)

    async def run() -> None:
        for each in (event, event, bare, bare):
            await make().append_event(each)
        for taken in (first, second, first):
            await make().save_snapshot(taken)
        assert await make().list_events(run_id="r") == [event, bare, bare]
        assert await make().latest_snapshot(run_id="r") == second
        assert await make().list_snapshots(run_id="r") == [first, second]

    asyncio.run(run())


def test_the_last_effect_of_a_call_counts(make: Make) -> None:
    async def run() -> None:
        for call, status in (("c1", "started"), ("c2", "started"), ("c1", "failed")):
            record = ToolEffectRecord(
                tool_call_id=call,
                tool_name="look",
                run_id="r",
                status=status,  # type: ignore[arg-type]
            )
            await make().record_tool_effect(record)
        [open_one] = await make().list_unresolved_tool_effects(run_id="r")
        assert open_one.tool_call_id == "c2"
        done = await make().get_tool_effect(run_id="r", tool_call_id="c1")
        assert done.status == "failed"

    asyncio.run(run())


def test_equal_messages_in_one_history_are_as_many_as_they_were(make: Make) -> None:
    async def run() -> None:
        await make().save_snapshot(snapshot([HELLO, HELLO, HI, SEEN, HELLO]))
        await make().save_snapshot(snapshot([HELLO, HI]))
        await make().save_snapshot(snapshot([]))
        found = await make().list_snapshots(run_id="r")
        assert [len(taken.messages) for taken in found] == [5, 2, 0]
        assert found[0].messages == [HELLO, HELLO, HI, SEEN, HELLO]

    asyncio.run(run())


def gardener(steps: Any) -> Agent[None, str]:
    agent = Agent(TestModel(), capabilities=[StepPersistence(store=steps)])

    @agent.tool_plain
    def add(a: int, b: int) -> int:
        return a + b

    return agent


def test_an_agent_goes_on_from_its_last_snapshot(make: Make) -> None:
    async def run() -> None:
        first = await gardener(make()).run("one", conversation_id="c")
        [kept] = await make().list_runs(conversation_id="c")
        history = await continue_run(make(), run_id=kept.run_id)
        assert history == first.all_messages()
        assert await fork_run(make(), run_id=kept.run_id) == history
        second = await gardener(make()).run("two", message_history=history, conversation_id="c")
        runs = await make().list_runs(conversation_id="c")
        assert len(runs) == 2
        assert await continue_run(make(), run_id=runs[-1].run_id) == second.all_messages()
        kinds = [event.kind for event in await make().list_events(run_id=kept.run_id)]
        assert kinds[0] == "run_started" and kinds[-1] == "run_completed"
        assert await make().list_unresolved_tool_effects(run_id=kept.run_id) == []

    asyncio.run(run())


def test_a_message_is_stored_once_for_all_snapshots_and_runs(tmp_path: Path) -> None:
    async def run() -> None:
        steps = HoldfastStepStore(tmp_path / "a.db")
        said: list[Any] = []
        for number in range(20):
            said = [*said, ModelRequest(parts=[UserPromptPart(f"word {number}")])]
            taken = snapshot(said, run_id=f"r{number % 3}", conversation_id="c")
            await steps.save_snapshot(taken)
        session = steps.store.session("pydantic_ai.words:conversation:c")
        assert [each.text for each in session.transcript()] == [f"word {n}" for n in range(20)]
        assert len(steps.store.search("word")) == 20
        for record in steps._kept["pydantic_ai.run:r0"].catch_up().snapshots:
            assert len(record["messages"]) == 1
        assert judge(steps.store) == []

    asyncio.run(run())


def test_a_run_that_was_killed_in_a_tool_names_it(tmp_path: Path) -> None:
    place = str(tmp_path / "agents.db")
    script = f"""
        import asyncio
        from pydantic_ai import Agent, RunContext
        from pydantic_ai.models.test import TestModel
        from pydantic_ai_harness.step_persistence import StepPersistence, annotate_tool_effect
        from holdfast.adapters.pydantic_ai import HoldfastStepStore
        steps = HoldfastStepStore({place!r})
        agent = Agent(TestModel(), capabilities=[StepPersistence(store=steps, run_id="r")])
        @agent.tool
        async def burn(ctx: RunContext) -> str:
            await annotate_tool_effect(steps, ctx, effect_summary="burns")
            say("burning")
            hear()
        agent.run_sync("go")
    """
    with child(script) as process:
        process.wait_for("burning")
        process.kill()

    async def look() -> None:
        steps = HoldfastStepStore(place)
        [effect] = await steps.list_unresolved_tool_effects(run_id="r")
        assert (effect.tool_name, effect.effect_summary) == ("burn", "burns")
        assert [event.kind for event in await steps.list_events(run_id="r")][
            -1
        ] == "tool_call_started"

    asyncio.run(look())


def test_two_processes_store_snapshots_of_one_conversation(tmp_path: Path) -> None:
    place = str(tmp_path / "agents.db")
    script = f"""
        import asyncio
        from pydantic_ai.messages import ModelRequest, UserPromptPart
        from pydantic_ai_harness.step_persistence import ContinuableSnapshot
        from holdfast.adapters.pydantic_ai import HoldfastStepStore
        steps = HoldfastStepStore({place!r})
        say("ready")
        name = hear()
        async def go():
            said = []
            for number in range(15):
                said.append(ModelRequest(parts=[UserPromptPart(f"{{name}} {{number}}")]))
                await steps.save_snapshot(ContinuableSnapshot(
                    run_id=name, step_index=number, messages=list(said), conversation_id="c"))
        asyncio.run(go())
    """
    with child(script) as one, child(script) as two:
        for process, name in ((one, "one"), (two, "two")):
            process.wait_for("ready")
            process.tell(name)
        one.end()
        two.end()

    async def look() -> None:
        steps = HoldfastStepStore(place)
        for name in ("one", "two"):
            taken = await steps.list_snapshots(run_id=name)
            assert [len(each.messages) for each in taken] == list(range(1, 16))
            words = [message.parts[0].content for message in taken[-1].messages]
            assert words == [f"{name} {number}" for number in range(15)]

    asyncio.run(look())


def test_a_run_is_registered_once(tmp_path: Path) -> None:
    async def run() -> None:
        steps = HoldfastStepStore(tmp_path / "a.db")
        record = RunRecord(run_id="r", registration_id="x", agent_name="a")
        await steps.register_run(record)
        await HoldfastStepStore(steps.store).register_run(record)
        with pytest.raises(BadArgument):
            await steps.register_run(RunRecord(run_id="r", registration_id="y"))
        with pytest.raises(ValueError, match="already in the store"):
            agent = Agent(TestModel(), capabilities=[StepPersistence(store=steps, run_id="r")])
            await agent.run("go")
        assert await steps.list_runs() == [record]

    asyncio.run(run())


def test_a_store_that_was_meant_for_a_run_that_is_over_is_refused(tmp_path: Path) -> None:
    async def run() -> None:
        steps = HoldfastStepStore(tmp_path / "a.db")
        event = StepEvent(run_id="r", kind="run_started", step_index=0)
        await steps.append_event(event)
        steps.store.reset("pydantic_ai.run:r")
        with pytest.raises(SessionEnded):
            await steps.append_event(event)
        assert await HoldfastStepStore(steps.store).list_events(run_id="r") == []

    asyncio.run(run())


@pytest.mark.parametrize("wrong", [None, 7, "text", {"run_id": "r"}])
def test_what_is_no_record_is_refused(tmp_path: Path, wrong: Any) -> None:
    async def run() -> None:
        steps = HoldfastStepStore(tmp_path / "a.db")
        for call in (steps.register_run, steps.append_event, steps.save_snapshot):
            with pytest.raises(BadArgument):
                await call(wrong)
        with pytest.raises(BadArgument):
            await steps.record_tool_effect(wrong)
        with pytest.raises(BadArgument):
            await steps.save_snapshot(snapshot([HELLO, wrong]))
        with pytest.raises(BadArgument):
            await steps.append_event(StepEvent(run_id="", kind="run_started", step_index=0))
        assert await steps.list_runs() == []
        assert list(steps.store.sessions()) == [] or await steps.list_snapshots(run_id="r") == []

    asyncio.run(run())


def test_it_may_be_subclassed_and_given_an_open_store(tmp_path: Path) -> None:
    class Mine(HoldfastStepStore):
        colour = "red"

    async def run(store: holdfast.Store) -> None:
        await gardener(Mine(store)).run("one")
        assert len(await HoldfastStepStore(store).list_runs()) == 1

    with holdfast.open(tmp_path / "a.db") as store:
        asyncio.run(run(store))


def test_a_store_of_theirs_is_taken_over_as_the_page_says(tmp_path: Path) -> None:
    old = SqliteStepStore(database=tmp_path / "old.db")
    new = HoldfastStepStore(tmp_path / "new.db")
    asyncio.run(gardener(old).run("one", conversation_id="c"))
    given: dict[str, Any] = {}
    exec(example("pydantic-ai.md", "async def bring_over"), given)
    for _ in range(2):
        asyncio.run(given["bring_over"](old, new))

    async def look() -> None:
        [run] = await old.list_runs()
        assert await new.list_runs() == [run]
        assert await new.list_events(run_id=run.run_id) == await old.list_events(run_id=run.run_id)
        taken = await new.list_snapshots(run_id=run.run_id)
        assert taken == await old.list_snapshots(run_id=run.run_id)

    asyncio.run(look())


def test_the_lines_of_the_page_make_an_agent_whose_steps_are_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with serve() as provider:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{provider.url}/v1")
        given: dict[str, Any] = {"Agent": Agent}
        exec(example("pydantic-ai.md", "StepPersistence(store=steps)"), given)
        assert given["agent"].run_sync("Hello.").output == "Yes."
    [run] = asyncio.run(given["steps"].list_runs())
    assert asyncio.run(given["steps"].latest_snapshot(run_id=run.run_id)) is not None
