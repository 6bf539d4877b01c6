"""The kit's real runner on `HoldfastSessionService`: runs as turns, streams, tools, cuts."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from adk_events import PLACE, run_example, said, words
from gardening import OF_ANN, STREAMED, Scripted, app, ask, asked, message, runner
from google.adk.agents import LlmAgent, ParallelAgent, SequentialAgent
from google.adk.apps.app import App, EventsCompactionConfig
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.adk.workflow import RetryConfig, Workflow
from google.genai import types
from pages import example

from holdfast.adapters.adk import HoldfastPlugin, HoldfastSessionService
from holdfast.domain.repair import INTERRUPTED
from holdfast.errors import AlreadyAccepted, BadArgument, TurnInterrupted
from holdfast.testing.oracle import judge
from procs import child


def stored(service: Any) -> Any:
    return service.session(**PLACE)


def ends(service: Any) -> list[str | None]:
    return [turn.end for turn in stored(service).turns()]


def transcript(service: Any) -> list[tuple[str, str, str]]:
    found = []
    for each in stored(service).transcript():
        found.append((each.role, each.state, each.text))
    return found


async def cancelled_after(events: Any, shown: str) -> None:
    """Cancels a run when it has shown this."""
    pieces: list[str] = []

    async def read() -> None:
        async for event in events:
            pieces.append(event.content.parts[0].text)
            if "".join(pieces) == shown:
                task.cancel()

    task = asyncio.create_task(read())
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_streamed_run_is_one_turn_with_each_event_once(where: str) -> None:
    async def run() -> None:
        model = Scripted().say(["Let ", "me. ", {"row": 7}], ["Do", "ne."], ["Yes."])
        service = HoldfastSessionService(where)
        made = runner(service, app(model, [HoldfastPlugin()]))
        assert await asked(ask(made, "Water row 7.")) == "Let me. Done."
        assert transcript(service) == [
            ("user", "complete", "Water row 7."),
            ("assistant", "complete", "Let me. "),
            ("tool", "complete", "row 7 is wet"),
            ("assistant", "complete", "Done."),
        ]
        assert ends(service) == ["completed"]
        assert [call.state for call in stored(service).calls()] == ["done"]
        await asked(ask(made, "Is it wet?"))
        assert ends(service) == ["completed", "completed"]
        told = ["user: Water row 7.", "model: Let me.  call water"]
        told += ["user: answer {'result': 'row 7 is wet'}", "model: Done.", "user: Is it wet?"]
        assert model.asked[-1] == told
        assert judge(service.store) == []

    asyncio.run(run())


def test_a_run_that_is_not_streamed_is_a_turn_too(where: str) -> None:
    async def run() -> None:
        service = HoldfastSessionService(where)
        made = runner(service, app(Scripted().say(["Yes."]), [HoldfastPlugin()]))
        async for _ in made.run_async(**OF_ANN, new_message=message("Well?")):
            pass
        assert ends(service) == ["completed"]
        assert words(await service.get_session(**PLACE)) == ["Well?", "Yes."]

    asyncio.run(run())


@pytest.mark.parametrize("way", ["plugin", "run"])
def test_what_was_shown_before_a_cancellation_is_told_to_the_model(where: str, way: str) -> None:
    async def run() -> None:
        model = Scripted().say(["One ", "two ", "..."], ["Four."])
        service = HoldfastSessionService(where)
        made = runner(service, app(model, [HoldfastPlugin()]))
        events = ask(made, "Count.")
        if way == "run":
            events = service.run(made, **OF_ANN, new_message=message("Count."), run_config=STREAMED)
        await cancelled_after(events, "One two ")
        assert await asked(ask(made, "Go on.")) == "Four."
        assert model.asked[-1] == ["user: Count.", "model: One two ", "user: Go on."]
        assert ends(service) == ["interrupted", "completed"]
        assert transcript(service)[1] == ("assistant", "partial", "One two ")
        [_, cut, *_] = (await service.get_session(**PLACE)).events
        assert (cut.author, cut.interrupted, cut.partial) == ("gardener", True, None)
        assert judge(service.store) == []

    asyncio.run(run())


def test_a_run_that_is_left_keeps_what_was_shown(where: str) -> None:
    async def run() -> None:
        model = Scripted().say(["One ", "two ", "three"])
        service = HoldfastSessionService(where)
        events = ask(runner(service, app(model, [HoldfastPlugin()])), "Count.")
        async for event in events:
            if event.partial:
                break
        await events.aclose()
        assert transcript(service)[1] == ("assistant", "partial", "One ")
        assert ends(service) == ["interrupted"]

    asyncio.run(run())


def test_a_run_that_fails_keeps_what_was_shown_and_says_why(where: str) -> None:
    async def run() -> None:
        model = Scripted().say(["Let me. ", {"row": 7}], OSError("no model"), ["Yes."])
        service = HoldfastSessionService(where)
        made = runner(service, app(model, [HoldfastPlugin()]))
        with pytest.raises(OSError):
            await asked(ask(made, "Water."))
        [turn] = stored(service).turns()
        assert (turn.end, turn.error) == ("failed", "OSError: no model")
        assert await asked(ask(made, "Well?")) == "Yes."

    asyncio.run(run())


def test_a_killed_run_is_told_with_what_it_had_shown(tmp_path: Path) -> None:
    place = str(tmp_path / "agents.db")
    script = f"""
        import asyncio
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from gardening import *
        from holdfast.adapters.adk import HoldfastPlugin, HoldfastSessionService

        async def main():
            service = HoldfastSessionService({place!r})
            made = runner(service, app(Scripted().say(["One ", "two ", "..."]), [HoldfastPlugin()]))
            async for event in ask(made, "Count."):
                say(event.content.parts[0].text)
        asyncio.run(main())
    """
    with child(script) as process:
        process.wait_for("two")
        process.kill()

    async def run() -> None:
        model = Scripted().say(["Three."])
        service = HoldfastSessionService(place)
        assert words(await service.get_session(**PLACE)) == ["Count.", "One two "]
        await asked(ask(runner(service, app(model, [HoldfastPlugin()])), "Go on."))
        assert model.asked == [["user: Count.", "model: One two ", "user: Go on."]]
        assert ends(service) == ["abandoned", "completed"]

    asyncio.run(run())


def test_a_call_whose_run_was_cut_off_is_told_as_unknown(where: str) -> None:
    async def run() -> None:
        started = asyncio.Event()

        async def water(row: int) -> str:
            """Waters a row."""
            started.set()
            await asyncio.Event().wait()
            return "never"

        model = Scripted().say(["Let me. ", {"row": 7}], ["Sorry."])
        service = HoldfastSessionService(where)
        made = runner(service, app(model, [HoldfastPlugin()], tools=[water]))
        running = asyncio.create_task(asked(ask(made, "Water.")))
        await started.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await asked(ask(made, "And?"))
        expected = ["user: Water.", "model: Let me.  call water"]
        expected += [f"user: answer {{'error': '{INTERRUPTED}'}}", "user: And?"]
        assert model.asked[-1] == expected
        assert [call.state for call in stored(service).calls()] == ["unknown"]

    asyncio.run(run())


def test_a_call_that_runs_long_stays_open_until_it_is_answered(where: str) -> None:
    async def run() -> None:
        def water(row: int) -> None:
            """Asks somebody to water a row."""

        tool = LongRunningFunctionTool(func=water)
        model = Scripted().say([{"row": 7, "id": "long"}], ["Wet."])
        service = HoldfastSessionService(where)
        made = runner(service, app(model, [HoldfastPlugin()], tools=[tool]))
        await asked(ask(made, "Water."))
        assert not (await service.get_session(**PLACE)).events[-1].get_function_responses()
        answer = types.FunctionResponse(id="long", name="water", response={"result": "done"})
        part = types.Part(function_response=answer)
        events = made.run_async(**OF_ANN, new_message=types.Content(role="user", parts=[part]))
        await asked(events)
        assert model.asked[-1][-1] == "user: answer {'result': 'done'}"

    asyncio.run(run())


def test_the_same_request_is_answered_once(where: str) -> None:
    async def run() -> None:
        model = Scripted().say(["One."], ["Two."])
        service = HoldfastSessionService(where)
        made = runner(service, app(model))

        def again(name: Any) -> Any:
            given = {**OF_ANN, "new_message": message("Count."), "run_config": STREAMED}
            return asked(service.run(made, event_id=name, **given))

        assert await again("r1") == "One."
        with pytest.raises(AlreadyAccepted):
            await again("r1")
        assert await again("r2") == "Two."
        found = await service.get_session(**PLACE)
        assert words(found) == ["Count.", "One.", "Count.", "Two."]
        assert ends(service) == ["completed"] * 2
        # What comes later under the name of a run that is over is an event like others.
        await service.append_event(found, said("on", invocation_id=found.events[-1].invocation_id))

    asyncio.run(run())


@pytest.mark.parametrize("way", ["plugin", "run"])
def test_runs_of_one_session_follow_each_other(where: str, way: str) -> None:
    async def one(number: int) -> None:
        model = Scripted().say([f"answer {number}, ", "whole"])
        service = HoldfastSessionService(where)
        made = runner(service, app(model, [HoldfastPlugin()]))
        given = {**OF_ANN, "new_message": message(f"ask {number}"), "run_config": STREAMED}
        events = service.run(made, **given) if way == "run" else made.run_async(**given)
        assert await asked(events) == f"answer {number}, whole"
        told = model.asked[0]
        assert len(told) % 2 == 1
        for question, reply in zip(told[::2], told[1::2], strict=False):
            assert reply == f"model: answer {question.split()[-1]}, whole"

    async def run() -> None:
        service = HoldfastSessionService(where)
        await service.create_session(**PLACE)
        await asyncio.gather(*(one(number) for number in range(6)))
        said = words(await service.get_session(**PLACE))
        assert len(said) == 12
        for question, reply in zip(said[::2], said[1::2], strict=True):
            assert reply == f"answer {question.split()[-1]}, whole"
        assert ends(service) == ["completed"] * 6

    asyncio.run(run())


@pytest.mark.parametrize("kind", [SequentialAgent, ParallelAgent])
def test_agents_that_speak_side_by_side_are_kept_apart(where: str, kind: Any) -> None:
    async def run() -> None:
        service = HoldfastSessionService(where)
        models = [Scripted().say(["I am ", f"{name}."]) for name in ("ann", "bob")]
        agents = [
            LlmAgent(name=name, model=model)
            for name, model in zip(("ann", "bob"), models, strict=True)
        ]
        made = App(
            name=PLACE["app_name"],
            root_agent=kind(name="both", sub_agents=agents),
            plugins=[HoldfastPlugin()],
        )
        await asked(ask(runner(service, made), "Who?"))
        found = await service.get_session(**PLACE)
        spoken = {event.author: event.content.parts[0].text for event in found.events}
        assert spoken == {"user": "Who?", "ann": "I am ann.", "bob": "I am bob."}
        assert len(found.events) == 3
        assert ends(service) == ["completed"]

    asyncio.run(run())


def test_a_cancelled_run_of_several_agents_is_over_for_the_next(where: str) -> None:
    async def run() -> None:
        service = HoldfastSessionService(where)
        model = Scripted().say(["One ", "..."], ["Two."])
        agent = LlmAgent(name="ann", model=model)
        root = SequentialAgent(name="all", sub_agents=[agent])
        made = App(name=PLACE["app_name"], root_agent=root, plugins=[HoldfastPlugin()])
        ours = runner(service, made)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await asked(ask(ours, "Count."))
        async with asyncio.timeout(20):
            await asked(ask(ours, "Go on."))
        assert model.asked[-1] == ["user: Count.", "model: One ", "user: Go on."]

    asyncio.run(run())


def test_what_was_shown_and_then_changed_stays_in_the_transcript(where: str) -> None:
    async def run() -> None:
        def polite(callback_context: Any, llm_response: Any) -> Any:
            if not llm_response.partial:
                llm_response.content.parts[0].text = "I'd rather not say."
            return llm_response

        model = Scripted().say(["Some ", "secret."], ["Fine."])
        service = HoldfastSessionService(where)
        made = runner(service, app(model, [HoldfastPlugin()], after_model_callback=polite))
        assert await asked(ask(made, "Tell me.")) == "Some secret."
        assert [each[2] for each in transcript(service)] == [
            "Tell me.",
            "Some secret.",
            "I'd rather not say.",
        ]
        found = await service.get_session(**PLACE)
        assert words(found) == ["Tell me.", "I'd rather not say."]
        assert ends(service) == ["completed"]

    asyncio.run(run())


def test_a_run_whose_session_was_deleted_writes_nothing_more(where: str) -> None:
    async def run() -> None:
        model = Scripted().say(["One ", "two ", "three"])
        service, other = HoldfastSessionService(where), HoldfastSessionService(where)
        made = runner(service, app(model, [HoldfastPlugin()]))
        events = ask(made, "Count.")
        with pytest.raises(RuntimeError, match="no longer running"):
            async for event in events:
                if event.partial and event.content.parts[0].text == "One ":
                    await other.delete_session(**PLACE)
                    await other.create_session(**PLACE)
        assert (await other.get_session(**PLACE)).events == []
        assert transcript(service) == []

    asyncio.run(run())


def test_a_run_can_be_stopped_from_outside(where: str) -> None:
    async def run() -> None:
        model = Scripted().say(["One."], ["Two."])
        service = HoldfastSessionService(where)
        made = runner(service, app(model))
        given = {**OF_ANN, "new_message": message("Count."), "run_config": STREAMED}
        with pytest.raises(TurnInterrupted):
            async for event in service.run(made, **given):
                if event.partial:
                    await asyncio.to_thread(HoldfastSessionService(where).session(**PLACE).stop)
        assert ends(service) == ["interrupted"]
        assert transcript(service)[1][2] == "One."

    asyncio.run(run())


def test_an_agent_that_is_a_tool_has_sessions_of_its_own(where: str) -> None:
    async def run() -> None:
        inner = LlmAgent(name="water", model=Scripted().say(["It ", "rains."]))
        model = Scripted().say([{"request": "look"}], ["Wet."])
        service = HoldfastSessionService(where)
        made = app(model, [HoldfastPlugin()], tools=[AgentTool(agent=inner)])
        assert await asked(ask(runner(service, made), "Look.")) == "Wet."
        assert [each[2] for each in transcript(service)] == ["Look.", "", "It rains.", "Wet."]
        assert ends(service) == ["completed"]

    asyncio.run(run())


def test_the_plug_in_leaves_other_services_alone(where: str) -> None:
    async def run() -> None:
        service = HoldfastSessionService(where)
        made = runner(InMemorySessionService(), app(Scripted().say(["Yes."]), [HoldfastPlugin()]))
        assert await asked(ask(made, "Well?")) == "Yes."
        with pytest.raises(BadArgument):
            await asked(service.run(made, **OF_ANN, new_message=message("Well?")))
        assert list(service.store.sessions()) == []

    asyncio.run(run())


def test_rewinding_and_compacting_are_the_kits_own(where: str) -> None:
    class Summing:
        async def maybe_summarize_events(self, *, events: Any) -> Any:
            from google.adk.events.event import Event
            from google.adk.events.event_actions import EventActions, EventCompaction

            summary = types.Content(role="model", parts=[types.Part(text="They spoke.")])
            made = EventCompaction(
                start_timestamp=events[0].timestamp,
                end_timestamp=events[-1].timestamp,
                compacted_content=summary,
            )
            return Event(author="user", actions=EventActions(compaction=made), invocation_id="c")

    async def run() -> None:
        model = Scripted().say(*([f"answer {n}."] for n in range(4)))
        service = HoldfastSessionService(where)
        made = app(model, [HoldfastPlugin()])
        made.events_compaction_config = EventsCompactionConfig.model_construct(
            summarizer=Summing(),
            compaction_interval=2,
            overlap_size=0,
            token_threshold=None,
            event_retention_size=None,
        )
        ours = runner(service, made)
        for number in range(3):
            await asked(ask(ours, f"ask {number}"))
        assert model.asked[-1] == ["model: They spoke.", "user: ask 2"]
        found = await service.get_session(**PLACE)
        last = found.events[-1].invocation_id
        await ours.rewind_async(**OF_ANN, rewind_before_invocation_id=last)
        await asked(ask(ours, "ask 3"))
        assert model.asked[-1] == ["model: They spoke.", "user: ask 3"]
        assert "answer 2." in [each[2] for each in transcript(service)]

    asyncio.run(run())


def test_threads_and_event_loops_share_one_service(where: str) -> None:
    service = HoldfastSessionService(where)
    plugin = HoldfastPlugin()

    def one(number: int) -> None:
        made = runner(service, app(Scripted().say(["Yes."], ["No."]), [plugin]))
        for prompt in ("a", "b"):
            given = {"user_id": "ann", "session_id": f"s{number % 2}"}
            list(made.run(**given, new_message=message(prompt), run_config=STREAMED))

    for id in ("s0", "s1"):
        place = {**PLACE, "session_id": id}
        asyncio.run(service.create_session(**place))
    threads = [threading.Thread(target=one, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    async def look() -> None:
        for id in ("s0", "s1"):
            found = await service.get_session(**{**PLACE, "session_id": id})
            assert len(found.events) == 8

    asyncio.run(look())


def test_a_turn_is_not_made_stale_by_what_others_append(where: str) -> None:
    async def run() -> None:
        model = Scripted().say(["One ", "two."], ["Three."])
        service, other = HoldfastSessionService(where), HoldfastSessionService(where)
        made = runner(service, app(model, [HoldfastPlugin()]))
        async for event in ask(made, "Count."):
            if event.partial and event.content.parts[0].text == "One ":
                session = await other.get_session(**PLACE)
                await other.append_event(session, said("by the way", "user", state={"x": 1}))
        found = await service.get_session(**PLACE)
        assert words(found) == ["Count.", "by the way", "One two."]
        assert found.state == {"x": 1}

    asyncio.run(run())


def test_a_run_that_is_read_event_by_event_in_tasks_of_their_own_is_one_turn(where: str) -> None:
    async def run() -> None:
        model = Scripted().say(["One ", "two ", "three."])
        service = HoldfastSessionService(where)
        events = ask(runner(service, app(model, [HoldfastPlugin()])), "Count.")
        count = 0
        while True:
            try:
                await asyncio.create_task(anext(events))
                count += 1
            except StopAsyncIteration:
                break
        assert count == 4
        assert ends(service) == ["completed"]
        assert words(await service.get_session(**PLACE)) == ["Count.", "One two three."]

    asyncio.run(run())


def test_a_run_that_ran_out_of_time_is_over_when_its_task_is(where: str) -> None:
    async def run() -> None:
        model = Scripted().say(["One ", "..."], ["Two."])
        service = HoldfastSessionService(where)
        made = runner(service, app(model, [HoldfastPlugin()]))

        async def impatient() -> None:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await asked(ask(made, "Count."))

        await asyncio.create_task(impatient())
        async with asyncio.timeout(20):
            await asked(ask(made, "Go on."))
        assert model.asked[-1] == ["user: Count.", "model: One ", "user: Go on."]

    asyncio.run(run())


def test_a_workflow_whose_node_is_tried_again_goes_on(where: str) -> None:
    async def run() -> None:
        model = Scripted().say(["One ", "..."], ["Two ", "three."])
        agent = LlmAgent(
            name="counter", model=model, timeout=0.5, retry_config=RetryConfig(initial_delay=0.01)
        )
        flow = Workflow(name="flow", edges=[("START", agent)])
        service = HoldfastSessionService(where)
        made = App(name=PLACE["app_name"], root_agent=flow, plugins=[HoldfastPlugin()])
        await asked(ask(runner(service, made), "Count."))
        assert ends(service) == ["completed"]
        assert words(await service.get_session(**PLACE))[-1] == "Two three."

    asyncio.run(run())


def test_a_message_is_durable_before_the_model_is_asked_and_a_call_before_it_is_run(
    where: str,
) -> None:
    async def run() -> None:
        service, other = HoldfastSessionService(where), HoldfastSessionService(where)
        seen: list[Any] = []

        def water(row: int) -> str:
            """Waters a row."""
            seen.append([call.state for call in other.session(**PLACE).calls()])
            return "wet"

        async def look(callback_context: Any, llm_request: Any) -> None:
            seen.append(words(await other.get_session(**PLACE)))

        made = app(
            Scripted().say([{"row": 7}], ["Done."]),
            [HoldfastPlugin()],
            tools=[water],
            before_model_callback=look,
        )
        await asked(ask(runner(service, made), "Water row 7."))
        assert seen[:2] == [["Water row 7."], ["open"]]

    asyncio.run(run())


def test_the_page_begins_with_lines_that_run(tmp_path: Path, monkeypatch: Any) -> None:
    async def run() -> None:
        agent = LlmAgent(name="gardener", model=Scripted().say(["Casa ", "Lola."]))
        scope = {"agent": agent, "message": message("Where to eat?"), "streamed": STREAMED}
        await run_example(example("adk.md", "service.run"), scope)
        place = {**PLACE, "session_id": "42"}
        found = await HoldfastSessionService("agent.db").get_session(**place)
        assert words(found) == ["Where to eat?", "Casa Lola."]

    monkeypatch.chdir(tmp_path)
    asyncio.run(run())


def test_the_kits_own_servers_find_the_service_by_its_address(tmp_path: Path) -> None:
    from google.adk.cli.service_registry import get_service_registry

    exec(example("adk.md", "get_service_registry()"), {})
    address = f"holdfast://{tmp_path}/agents.db"
    service = get_service_registry().create_session_service(address)
    assert isinstance(service, HoldfastSessionService)
    assert (tmp_path / "agents.db").exists()
