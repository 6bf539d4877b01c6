"""`HoldfastSession` under the real runner of the OpenAI Agents SDK, with a model on loopback."""

import asyncio
import gc
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    SessionSettings,
    SQLiteSession,
    function_tool,
    set_tracing_disabled,
)
from agents.memory import OpenAIResponsesCompactionSession, Session
from openai import AsyncOpenAI
from pages import example

import holdfast
from holdfast.adapters.openai_agents import HoldfastSession
from holdfast.adapters.openai_agents.run import StreamedRun
from holdfast.domain.repair import UNKNOWN_OUTCOME
from holdfast.errors import AlreadyAccepted, BadArgument, SessionEnded, StoreUnavailable
from holdfast.testing.adapters import ScriptedAnswer, ScriptedProvider, serve
from holdfast.testing.faults.disk import LASTING, WRITING, Faults
from holdfast.testing.oracle import judge

set_tracing_disabled(True)
HELLO = {"role": "user", "content": "Hello"}
CALL = {"type": "function_call", "call_id": "c1", "name": "water", "arguments": '{"row": 7}'}


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    with serve() as made:
        yield made


@function_tool
def water(row: int) -> str:
    """Waters a row."""
    return f"row {row} was watered"


@function_tool(needs_approval=True)
def flood(row: int) -> str:
    """Floods a row."""
    return f"row {row} was flooded"


def gardener(provider: ScriptedProvider, model: Any = OpenAIResponsesModel) -> Agent[Any]:
    client = AsyncOpenAI(base_url=f"{provider.url}/v1", api_key="none", max_retries=0)
    made = model(model="gpt-test", openai_client=client)
    return Agent(name="Gardener", instructions="Be brief.", model=made, tools=[water, flood])


async def streamed(session: HoldfastSession, agent: Any, prompt: Any, **more: Any) -> Any:
    """Runs a prompt to its end; what was shown, and the result."""
    result = Runner.run_streamed(agent, prompt, session=session)
    shown = ""
    async for event in session.stream(result, **more):
        if event.type == "raw_response_event":
            if event.data.type == "response.output_text.delta":
                shown += event.data.delta
    return shown, result


def texts(session: HoldfastSession) -> list[str]:
    store_session = session.store.session(session.session_id)
    return [message.text for message in store_session.transcript()]


def test_items_come_back_verbatim_and_a_batch_is_one_commit(where: str) -> None:
    async def run() -> None:
        session = HoldfastSession("k", where)
        assert isinstance(session, Session)
        odd = {"type": "from_the_future", "x": {"y": [1, None]}, "id": "z"}
        items: list[Any] = [HELLO, CALL, odd]
        await session.add_items(items)
        assert await session.get_items() == items
        assert await session.get_items(limit=2) == items[1:]
        assert await session.get_items(limit=0) == []
        session.session_settings = SessionSettings(limit=1)
        assert await session.get_items() == items[2:]
        again = HoldfastSession("k", where, session_settings={"limit": 2})
        assert await again.get_items() == items[1:]

    asyncio.run(run())


def test_popping_takes_the_last_item_and_the_transcript_keeps_it(where: str) -> None:
    async def run() -> None:
        session = HoldfastSession("k", where)
        assert await session.pop_item() is None
        await session.add_items([HELLO, CALL])
        assert await session.pop_item() == CALL
        assert await session.pop_item() == HELLO
        assert await session.pop_item() is None
        assert await session.get_items() == []
        assert texts(session)[0] == "Hello"

    asyncio.run(run())


def test_a_cleared_session_is_empty_and_a_stale_handle_writes_nothing(where: str) -> None:
    async def run() -> None:
        old, new = HoldfastSession("k", where), HoldfastSession("k", where)
        await old.add_items([HELLO])
        await new.clear_session()
        assert await new.get_items() == []
        with pytest.raises(SessionEnded):
            await old.add_items([HELLO])
        assert await new.get_items() == []
        # Who reads again has the new one.
        assert await old.get_items() == []
        await old.add_items([HELLO])
        assert await new.get_items() == [HELLO]

    asyncio.run(run())


@pytest.mark.parametrize("model", [OpenAIResponsesModel, OpenAIChatCompletionsModel])
def test_a_streamed_run_is_one_turn_with_each_item_once(
    where: str, provider: ScriptedProvider, model: Any
) -> None:
    calls = [("water", {"row": 7})]
    first, then = ScriptedAnswer(("Let ", "me. "), calls), ScriptedAnswer(("Do", "ne."))
    provider.answer("ask-01", first, then)

    async def run() -> None:
        session = HoldfastSession("k", where)
        agent = gardener(provider, model)
        shown, result = await streamed(session, agent, "ask-01")
        assert shown == "Let me. Done."
        assert result.final_output == "Done."
        items = await session.get_items()
        kinds = [item.get("type", item.get("role")) for item in items]
        expected = ["user", "message", "function_call", "function_call_output", "message"]
        assert kinds == expected
        assert texts(session) == ["ask-01", "Let me. ", "row 7 was watered", "Done."]
        stored = session.store.session("k")
        assert [turn.end for turn in stored.turns()] == ["completed"]
        assert [call.state for call in stored.calls()] == ["done"]
        assert (await session.usage()).input == 22
        # A plain run goes on from there, and the provider takes what it is sent.
        provider.answer("ask-02", ScriptedAnswer(("Yes.",)))
        assert (await Runner.run(agent, "ask-02", session=session)).final_output == "Yes."
        assert [asked.problems for asked in provider.asked] == [(), (), ()]

    asyncio.run(run())


def test_what_was_shown_before_a_cancellation_is_there(
    where: str, provider: ScriptedProvider
) -> None:
    provider.answer("ask-01", ScriptedAnswer(("One ", "two ", "three"), stalls_after=2))

    async def run() -> None:
        session = HoldfastSession("k", where)
        result = Runner.run_streamed(gardener(provider), "ask-01", session=session)
        shown = ""
        async for event in session.stream(result):
            if event.type == "raw_response_event":
                if event.data.type == "response.output_text.delta":
                    shown += event.data.delta
            if shown == "One two ":
                result.cancel()
        items = await session.get_items()
        assert items[0] == {"content": "ask-01", "role": "user"}
        assert items[1]["content"][0]["text"] == "One two "
        provider.answer("ask-02", ScriptedAnswer(("Four.",)))
        await streamed(session, gardener(provider), "ask-02")
        assert provider.asked[-1].problems == ()
        assert "One two " in provider.asked[-1].words

    asyncio.run(run())


def test_a_stream_that_is_left_keeps_what_was_shown(where: str, provider: ScriptedProvider) -> None:
    provider.answer("ask-01", ScriptedAnswer(("One ", "two ", "three"), stalls_after=2))

    async def run() -> None:
        session = HoldfastSession("k", where)
        result = Runner.run_streamed(gardener(provider), "ask-01", session=session)
        events = session.stream(result)
        async for event in events:
            if event.type == "raw_response_event":
                if event.data.type == "response.output_text.delta":
                    break
        await events.aclose()  # type: ignore[attr-defined]
        assert texts(session)[1].startswith("One ")
        [turn] = session.store.session("k").turns()
        assert turn.end == "interrupted"

    asyncio.run(run())


def test_the_same_request_is_answered_once(where: str, provider: ScriptedProvider) -> None:
    async def run() -> None:
        session = HoldfastSession("k", where)
        agent = gardener(provider)
        await streamed(session, agent, "ask-01", event_id="r1")
        before = await session.get_items()
        with pytest.raises(AlreadyAccepted):
            await streamed(session, agent, "ask-01", event_id="r1")
        assert await session.get_items() == before
        assert len(provider.asked) == 1

    asyncio.run(run())


def test_two_runs_at_once_are_two_whole_turns(where: str, provider: ScriptedProvider) -> None:
    """Each in an event loop and a thread of its own."""
    failed = []

    def work(numbers: range) -> None:
        async def run() -> None:
            session = HoldfastSession("k", where)
            for number in numbers:
                await streamed(session, gardener(provider), f"ask-{number}")

        try:
            asyncio.run(run())
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(r,)) for r in (range(10, 14), range(20, 24))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    with holdfast.open(where) as store:
        roles = [message.role for message in store.session("k").transcript()]
        assert roles == ["user", "assistant"] * 8


def test_a_call_whose_outcome_nobody_knows_is_closed(
    where: str, provider: ScriptedProvider
) -> None:
    async def run() -> None:
        session = HoldfastSession("k", where)
        with session.store.session("k").turn("ask-01", format="openai.responses") as turn:
            turn.add(CALL)
        items = await session.get_items()
        assert items[1:] == [
            CALL,
            {"type": "function_call_output", "call_id": "c1", "output": UNKNOWN_OUTCOME},
        ]
        await streamed(session, gardener(provider), "ask-02")
        assert provider.asked[-1].problems == ()
        assert UNKNOWN_OUTCOME in provider.asked[-1].words

    asyncio.run(run())


def test_a_compaction_is_one_commit_and_loses_nothing(where: str) -> None:
    async def run() -> None:
        session = HoldfastSession("k", where)
        await session.add_items([HELLO, {"role": "assistant", "content": "Hi"}])
        await session.run_compaction({"force": True})
        assert len(await session.get_items()) == 2

        async def shorter(items: list[Any]) -> list[Any]:
            return [{"role": "user", "content": f"{len(items)} items"}, items[-1]]

        session.compact_with = shorter
        await session.run_compaction()
        items = await session.get_items()
        assert items[0] == {"role": "user", "content": "2 items"}
        assert items[1] == {"role": "assistant", "content": "Hi"}
        assert len(items) == 2
        assert "Hello" in texts(session)

    asyncio.run(run())


def test_the_sdks_own_compaction_swaps_in_one_step(where: str) -> None:
    async def run() -> None:
        session = HoldfastSession("k", where)
        outer = OpenAIResponsesCompactionSession("k", session, model="gpt-4.1")
        await outer.add_items([HELLO, {"role": "assistant", "content": "Hi"}])
        await outer._replace_underlying_session_items(
            output_items=[{"role": "user", "content": "Summed up"}],
            previous_items=await session.get_items(),
        )
        assert await session.get_items() == [{"role": "user", "content": "Summed up"}]
        assert "Hello" in texts(session)

    asyncio.run(run())


def test_an_approval_of_ours_is_one_of_theirs(where: str, provider: ScriptedProvider) -> None:
    calls = [("flood", {"row": 7})]
    provider.answer("ask-01", ScriptedAnswer(("May I?",), calls), ScriptedAnswer(("Wet.",)))

    async def run() -> None:
        session = HoldfastSession("k", where)
        agent = gardener(provider)
        _, result = await streamed(session, agent, "ask-01")
        [waiting] = session.store.session("k").calls()
        assert waiting.state == "waiting"
        await session.save_state(result.to_state())

        later = HoldfastSession("k", where)
        later.store.session("k").decide(waiting.call_id, True, by="ann")
        state = await later.load_state(agent)
        shown, result = await streamed(later, agent, state)
        assert shown == "Wet."
        assert "row 7 was flooded" in texts(later)
        [call] = later.store.session("k").calls()
        assert call.state == "done"
        assert provider.asked[-1].problems == ()

    asyncio.run(run())


def test_a_record_that_cannot_be_read_takes_away_itself_alone(tmp_path: Path) -> None:
    from holdfast.testing.adapters.damage import spoil_last_message

    path = str(tmp_path / "agents.db")

    async def fill() -> None:
        await HoldfastSession("k", path).add_items([HELLO, {"role": "user", "content": "Two"}])

    asyncio.run(fill())
    gc.collect()
    spoil_last_message(path)

    async def look() -> None:
        items = await HoldfastSession("k", path).get_items()
        assert items[0] == HELLO
        assert items[1]["role"] in ("user", "assistant")
        assert "read" in items[1]["content"]

    asyncio.run(look())


@pytest.mark.parametrize("wrong", [None, "", 7])
def test_what_is_no_session_id_is_refused(wrong: Any, tmp_path: Path) -> None:
    with pytest.raises(BadArgument, match="session_id"):
        HoldfastSession(wrong, tmp_path / "a.db")


def test_a_batch_with_something_that_is_no_json_is_refused_whole(where: str) -> None:
    async def run() -> None:
        session = HoldfastSession("k", where)
        with pytest.raises(holdfast.errors.InvalidMessage):
            await session.add_items([HELLO, {"role": "user", "content": object()}])
        with pytest.raises(BadArgument):
            await session.add_items("Hello")  # type: ignore[arg-type]
        assert await session.get_items() == []

    asyncio.run(run())


class Counting(HoldfastSession):
    """A subclass whose calls do not take the run's context."""

    added = 0

    async def add_items(self, items: list[Any]) -> None:  # type: ignore[override]
        self.added += len(items)
        await super().add_items(items)


def test_it_may_be_subclassed(where: str, provider: ScriptedProvider) -> None:
    async def run() -> None:
        session = Counting("k", where)
        await Runner.run(gardener(provider), "ask-01", session=session)
        assert session.added == 2
        assert len(await session.get_items()) == 2

    asyncio.run(run())


def test_a_handoff_is_stored_as_the_sdk_stores_it(where: str, provider: ScriptedProvider) -> None:
    calls = [("transfer_to_gardener", {})]
    first, then = ScriptedAnswer(("One moment. ",), calls), ScriptedAnswer(("Here ", "I am."))
    provider.answer("ask-01", first, then)

    async def run() -> None:
        gardening = gardener(provider)
        host = Agent(name="Host", model=gardening.model, handoffs=[gardening])
        ours, theirs = HoldfastSession("k", where), SQLiteSession("k")
        shown, result = await streamed(ours, host, "ask-01")
        assert (shown, result.last_agent.name) == ("One moment. Here I am.", "Gardener")
        await Runner.run(host, "ask-01", session=theirs)
        kept = [_without_ids(item) for item in await ours.get_items()]
        assert kept == [_without_ids(item) for item in await theirs.get_items()]
        [call] = ours.store.session("k").calls()
        assert (call.name, call.state) == ("transfer_to_gardener", "done")
        # The next run begins with the host again, and is told of the handoff.
        provider.answer("ask-02", ScriptedAnswer(("Yes.",)))
        await streamed(ours, host, "ask-02")
        assert provider.asked[-1].problems == ()
        assert "transfer_to_gardener" in provider.asked[-1].words

    asyncio.run(run())


def _without_ids(item: Any) -> Any:
    """An item without what the provider has counted."""
    return {name: value for name, value in item.items() if name not in ("id", "call_id")}


async def cut_before_the_call(
    session: HoldfastSession, provider: ScriptedProvider, cut: Callable[[Any], None]
) -> list[int]:
    """A run that is refused: the store is cut off between the words of a response and its call of
    a tool. Which rows were watered.
    """
    watered: list[int] = []
    is_decided = threading.Event()

    @function_tool
    def water(row: int) -> str:
        """Waters a row."""
        watered.append(row)
        is_decided.set()
        return "wet"

    calls = [("water", {"row": 7})]
    first = ScriptedAnswer(("Let ", "me. ", "Now."), calls, stalls_after=2)
    provider.answer("ask-01", first, ScriptedAnswer(("Done.",)))
    agent = gardener(provider)
    agent.tools = [water]
    result = Runner.run_streamed(agent, "ask-01", session=session)
    assert result.run_loop_task is not None
    result.run_loop_task.add_done_callback(lambda task: is_decided.set())
    shown = ""
    with pytest.raises(StoreUnavailable):
        async for event in session.stream(result):
            if event.type == "raw_response_event":
                if event.data.type == "response.output_text.delta":
                    shown += event.data.delta
            if shown == "Let me. " and not provider.go_on.is_set():
                cut(result)
                provider.go_on.set()
                # The runner runs ahead of its reader: to the tool, or to the run's end.
                await asyncio.to_thread(is_decided.wait, 60)
    return watered


def test_a_call_that_cannot_be_stored_is_not_run(
    tmp_path: Path, provider: ScriptedProvider
) -> None:
    """I-22: the disk is full when the model asks for a tool."""

    async def run() -> None:
        session = HoldfastSession("k", tmp_path / "agents.db")

        def cut(result: Any) -> None:
            faults.fail_at(faults.count + 1)

        assert await cut_before_the_call(session, provider, cut) == []
        faults.heal()
        stored = session.store.session("k")
        assert list(stored.calls()) == []
        assert texts(session) == ["ask-01", "Let me. "]
        assert judge(session.store) == []

    with Faults(trouble="full", times=LASTING, verbs=WRITING) as faults:
        asyncio.run(run())


def test_a_call_that_is_not_stored_in_time_is_not_run(
    where: str, provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I-22: storing takes longer than the runner waits."""
    monkeypatch.setattr("holdfast.adapters.openai_agents.run.CALL_LIMIT_S", 0.1)
    may_go_on = threading.Event()

    async def run() -> None:
        session = HoldfastSession("k", where)

        def cut(result: Any) -> None:
            [streamed_run] = session._runs.values()
            assert isinstance(streamed_run, StreamedRun)
            streamed_run._thread.submit(may_go_on.wait)
            # What leaving the run stores waits behind it.
            result.run_loop_task.add_done_callback(lambda task: may_go_on.set())

        assert await cut_before_the_call(session, provider, cut) == []
        assert [turn.end for turn in session.store.session("k").turns()] == ["failed"]

    asyncio.run(run())


@pytest.mark.parametrize("way", ["closed", "dropped"])
def test_a_stream_that_is_left_before_its_first_event_ends_its_run(
    where: str, provider: ScriptedProvider, way: str
) -> None:
    provider.answer("ask-01", ScriptedAnswer(("One ", "two"), stalls_after=1))

    async def run() -> None:
        session = HoldfastSession("k", where)
        result = Runner.run_streamed(gardener(provider), "ask-01", session=session)
        events = session.stream(result)
        [streamed_run] = session._runs.values()
        assert isinstance(streamed_run, StreamedRun)
        # The runner runs ahead: its turn has begun, and the model speaks.
        await asyncio.to_thread(provider.stalled.wait, 60)
        if way == "closed":
            await events.aclose()  # type: ignore[attr-defined]
        else:
            del events
            gc.collect()
        assert result.run_loop_task is not None
        await asyncio.wait([result.run_loop_task], timeout=30)
        provider.go_on.set()
        assert result.run_loop_task.cancelled()
        # Another run has its turn, and does not wait for that one.
        await streamed(session, gardener(provider), "ask-02")
        ends = [turn.end for turn in session.store.session("k").turns()]
        assert ends == ["interrupted", "completed"]
        assert session._runs == {}
        assert streamed_run._thread._shutdown

    asyncio.run(run())


@pytest.mark.parametrize("late", ["before the history", "in the answer", "in a tool", "at the end"])
def test_a_stream_that_is_asked_for_late_doubles_nothing(
    where: str, provider: ScriptedProvider, late: str
) -> None:
    stall = 1 if late == "in the answer" else None
    calls = [("slow", {})]
    first = ScriptedAnswer(("Let ", "me. "), calls, stalls_after=stall)
    provider.answer("ask-01", first, ScriptedAnswer(("Done.",)))
    in_tool, may_go_on = asyncio.Event(), asyncio.Event()

    @function_tool
    async def slow() -> str:
        in_tool.set()
        await may_go_on.wait()
        return "it was slow"

    async def run() -> None:
        session = HoldfastSession("k", where)
        agent = gardener(provider)
        agent.tools.append(slow)
        result = Runner.run_streamed(agent, "ask-01", session=session)
        if late == "before the history":
            await asyncio.sleep(0)
        if late == "in the answer":
            await asyncio.to_thread(provider.stalled.wait, 60)
        if late == "in a tool":
            await asyncio.wait_for(in_tool.wait(), 60)
        if late == "at the end":
            may_go_on.set()
            await result.run_loop_task
        events = session.stream(result)
        may_go_on.set()
        provider.go_on.set()
        async for _ in events:
            pass
        own = await session.get_items()
        kinds = [item.get("type", item.get("role")) for item in own]
        parts = ["message", "function_call", "function_call_output", "message"]
        assert kinds == ["user", *parts]
        await streamed(session, agent, "ask-02")
        assert provider.asked[-1].problems == ()
        assert [call.state for call in session.store.session("k").calls()] == ["done"]
        assert judge(session.store) == []

    asyncio.run(run())


def test_a_request_with_a_name_is_refused_when_it_is_under_way(
    where: str, provider: ScriptedProvider
) -> None:
    provider.answer("ask-01", ScriptedAnswer(("One ", "two"), stalls_after=1))

    async def run() -> None:
        session = HoldfastSession("k", where)
        result = Runner.run_streamed(gardener(provider), "ask-01", session=session)
        await asyncio.to_thread(provider.stalled.wait, 60)
        with pytest.raises(BadArgument):
            session.stream(result, event_id="r1")
        await asyncio.wait([result.run_loop_task], timeout=60)
        assert result.run_loop_task.cancelled()
        provider.go_on.set()

    asyncio.run(run())


def test_a_run_is_streamed_once(where: str, provider: ScriptedProvider) -> None:
    async def run() -> None:
        session = HoldfastSession("k", where)
        result = Runner.run_streamed(gardener(provider), "ask-01", session=session)
        events = session.stream(result)
        with pytest.raises(BadArgument):
            session.stream(result)
        async for _ in events:
            pass
        assert [message.role for message in session.store.session("k").transcript()] == [
            "user",
            "assistant",
        ]

    asyncio.run(run())


def test_a_stream_that_is_kept_and_never_read_lets_others_have_their_turn(
    where: str, provider: ScriptedProvider
) -> None:
    asks = ScriptedAnswer(("One ", "two"), [("water", {"row": 7})])
    provider.answer("ask-01", asks, ScriptedAnswer(("Done.",)))

    async def run() -> None:
        session = HoldfastSession("k", where)
        result = Runner.run_streamed(gardener(provider), "ask-01", session=session)
        events = session.stream(result)
        await asyncio.wait([result.run_loop_task], timeout=60)
        await asyncio.wait_for(streamed(session, gardener(provider), "ask-02"), 60)
        ends = [turn.end for turn in session.store.session("k").turns()]
        assert ends == ["completed", "completed"]
        assert result.final_output is not None
        await events.aclose()  # type: ignore[attr-defined]
        assert session._runs == {}

    asyncio.run(run())


def test_a_run_that_was_cancelled_has_an_interrupted_turn(
    where: str, provider: ScriptedProvider
) -> None:
    provider.answer("ask-01", ScriptedAnswer(("One ", "two"), stalls_after=1))

    async def run() -> None:
        session = HoldfastSession("k", where)
        result = Runner.run_streamed(gardener(provider), "ask-01", session=session)
        async for event in session.stream(result):
            if event.type == "raw_response_event":
                if event.data.type == "response.output_text.delta":
                    result.cancel()
        provider.go_on.set()
        assert texts(session)[1].startswith("One ")
        [turn] = session.store.session("k").turns()
        assert turn.end == "interrupted"

    asyncio.run(run())


def test_prompts_in_a_row_are_sent_as_one_as_the_page_says(
    where: str, provider: ScriptedProvider
) -> None:
    names: dict[str, Any] = {}
    exec(example("openai-agents.md", "prompts_joined"), names)

    async def run() -> None:
        session = HoldfastSession("k", where)
        agent = gardener(provider, OpenAIChatCompletionsModel)
        for prompt in ("ask-01", "ask-02"):
            await streamed(session, agent, prompt)
        session.store.session("k").compact("It was summed up.", keep_turns=1)
        session.store.session("k").append({"role": "user", "content": "cut off"})
        result = Runner.run_streamed(agent, "ask-03", session=session, run_config=names["config"])
        async for _ in session.stream(result):
            pass
        assert provider.asked[-1].problems == ()
        for said in ("It was summed up.", "ask-02", "cut off", "ask-03"):
            assert said in provider.asked[-1].words

    asyncio.run(run())


@pytest.mark.parametrize("model", [OpenAIResponsesModel, OpenAIChatCompletionsModel])
def test_a_call_that_was_hidden_takes_its_output_with_it(
    where: str, provider: ScriptedProvider, model: Any
) -> None:
    async def run() -> None:
        session = HoldfastSession("k", where)
        output = {"type": "function_call_output", "call_id": "c1", "output": "wet"}
        said = {"role": "assistant", "content": "Done."}
        await session.add_items([HELLO, CALL, output, said])
        kept = session.store.session("k")
        _, call, *_ = kept.transcript()
        kept.label(call.id, visible_to_model=False)
        await streamed(session, gardener(provider, model), "ask-01")
        assert provider.asked[-1].problems == ()
        assert "wet" not in provider.asked[-1].words

    asyncio.run(run())


def test_half_of_a_character_does_not_block_a_session(
    where: str, provider: ScriptedProvider
) -> None:
    async def run() -> None:
        session = HoldfastSession("k", where)
        with pytest.raises(UnicodeEncodeError):  # the client's
            await streamed(session, gardener(provider), "ask-01 \ud800")
        await streamed(session, gardener(provider), "ask-02")
        assert provider.asked[-1].problems == ()
        assert "ask-01 \ufffd" in provider.asked[-1].words
        assert texts(session)[0] == "ask-01 \ud800"
        items = await session.get_items()
        assert items[0] == {"role": "user", "content": "ask-01 \ud800"}

    asyncio.run(run())


@pytest.mark.parametrize("is_taken_up", [True, False])
def test_a_denial_of_ours_is_an_item_that_can_be_sent(
    where: str, provider: ScriptedProvider, is_taken_up: bool
) -> None:
    calls = [("flood", {"row": 7}), ("water", {"row": 8}), ("flood", {"row": 9})]
    provider.answer("ask-01", ScriptedAnswer(("May I?",), calls), ScriptedAnswer(("Wet.",)))

    async def run() -> None:
        session = HoldfastSession("k", where)
        agent = gardener(provider)
        _, result = await streamed(session, agent, "ask-01")
        await session.save_state(result.to_state())
        stored = session.store.session("k")
        first, _, last = (call.call_id for call in stored.calls())
        stored.decide(last, False, by="bob")
        if is_taken_up:
            stored.decide(first, True, by="ann")
            await streamed(session, agent, await session.load_state(agent))
            assert provider.asked[-1].problems == ()
        items = await session.get_items()
        answers = [item["call_id"] for item in items if "output" in item]
        assert len(answers) == len(set(answers))
        assert last in answers
        await streamed(session, agent, "ask-02")
        assert provider.asked[-1].problems == ()
        assert judge(session.store) == []

    asyncio.run(run())


def test_what_was_said_in_another_format_comes_back_as_items(
    where: str, provider: ScriptedProvider
) -> None:
    async def run() -> None:
        session = HoldfastSession("k", where)
        stored = session.store.session("k")
        with stored.turn("Hello") as turn:
            turn.call("water", {"row": 7}, call_id="c1")
            turn.result("c1", "row 7 was watered")
            turn.say("Done.")
        look = {"type": "text", "text": "Look"}
        picture = {"type": "image", "source": {"type": "url", "url": "https://x.test/a.png"}}
        stored.append({"role": "user", "content": [look, picture]}, format="anthropic")
        assert await session.get_items() == [
            HELLO,
            {**CALL, "arguments": '{"row":7}'},
            {"type": "function_call_output", "call_id": "c1", "output": "row 7 was watered"},
            {"role": "assistant", "content": "Done."},
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "Look"},
                    {"type": "input_image", "image_url": "https://x.test/a.png"},
                ],
            },
        ]
        await session.pop_item()
        await streamed(session, gardener(provider), "ask-02")
        assert provider.asked[-1].problems == ()

    asyncio.run(run())
