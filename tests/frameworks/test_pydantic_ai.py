"""`HoldfastHistory` under Pydantic AI's real agent, with a model on loopback."""

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI
from pages import example
from pydantic_ai import Agent, DeferredToolRequests, ModelRetry, Tool
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import (
    BinaryContent,
    ImageUrl,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    NativeToolCallPart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturn,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

import holdfast
from holdfast.adapters.pydantic_ai import HoldfastHistory
from holdfast.domain.chunk import shown, unpack
from holdfast.errors import AlreadyAccepted, BadArgument, HoldfastError, SessionEnded
from holdfast.testing.adapters import ScriptedAnswer, ScriptedProvider, serve
from holdfast.testing.adapters.damage import spoil_last_message
from holdfast.testing.oracle import judge

SAMPLES: list[Any] = [
    ModelRequest(
        parts=[
            SystemPromptPart("Be kind."),
            UserPromptPart(["look", ImageUrl("https://x.test/a.png")]),
            UserPromptPart([BinaryContent(b"\0\xff", media_type="image/png")]),
        ],
        instructions="Be brief.",
    ),
    ModelResponse(
        parts=[
            ThinkingPart("hm", signature="s", provider_name="anthropic"),
            TextPart("I look.\ud800\0"),
            NativeToolCallPart("web_search", {"q": None}, "n1"),
            ToolCallPart("look", '{"at": "it"}', "c1"),
            ToolCallPart("look", {"at": None}, "c2"),
        ],
        model_name="m",
        provider_details={"x": [1, None]},
    ),
    ModelRequest(
        parts=[
            ToolReturnPart("look", {"seen": ["a cat", None]}, "c1"),
            ToolReturnPart("look", None, "c2"),
            UserPromptPart("and then?"),
        ]
    ),
    ModelResponse(parts=[TextPart("A cat.")], metadata={"odd": {"deep": None}}),
]
# As the framework reads what it has dumped: a picture is then one of its own class.
SAMPLES = ModelMessagesTypeAdapter.validate_python(
    ModelMessagesTypeAdapter.dump_python(SAMPLES, mode="json")
)


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    with serve() as made:
        yield made


@pytest.fixture
def store(where: str) -> Iterator[holdfast.Store]:
    with holdfast.open(where) as opened:
        yield opened


def gardener(
    provider: ScriptedProvider, model: Any = OpenAIChatModel, **more: Any
) -> Agent[Any, Any]:
    client = AsyncOpenAI(base_url=f"{provider.url}/v1", api_key="none", max_retries=0)
    made = model("gpt-test", provider=OpenAIProvider(openai_client=client))
    tools = [Tool(water), Tool(flood, requires_approval=True)]
    return Agent(made, instructions="Be brief.", system_prompt="You water.", tools=tools, **more)


def water(row: int) -> str:
    """Waters a row."""
    return f"row {row} was watered"


def flood(row: int) -> str:
    """Floods a row."""
    return f"row {row} was flooded"


def as_json(messages: Any) -> Any:
    return ModelMessagesTypeAdapter.dump_python(list(messages), mode="json")


def texts(history: HoldfastHistory) -> list[str]:
    return [message.text for message in history.session.transcript()]


def calling(*calls: tuple[str, dict[str, Any]]) -> ScriptedAnswer:
    return ScriptedAnswer(("Let ", "me. "), calls)


def test_messages_come_back_as_they_were(store: holdfast.Store) -> None:
    history = HoldfastHistory(store.session("k"))
    history.append(SAMPLES)
    assert HoldfastHistory(store.session("k")).messages() == SAMPLES
    assert asyncio.run(history.amessages()) == SAMPLES
    assert [message.role for message in history.session.transcript()] == [
        "user",
        "assistant",
        "user",
        "assistant",
    ]
    assert [call.state for call in history.session.calls()] == ["done", "done"]
    assert judge(store) == []


def test_the_messages_of_a_run_are_stored_once(store: holdfast.Store) -> None:
    history = HoldfastHistory(store.session("k"))
    run = [ModelRequest(parts=[UserPromptPart("Hello")], run_id="r")]
    run.append(ModelResponse(parts=[TextPart("Hi")], run_id="r"))  # type: ignore[arg-type]
    history.append(run)
    history.append(run)
    asyncio.run(history.aappend(run))
    assert history.messages() == run
    # What nobody has named is another one each time.
    history.append([ModelRequest(parts=[UserPromptPart("Hello")])])
    assert texts(history) == ["Hello", "Hi", "Hello"]


@pytest.mark.parametrize("model", [OpenAIChatModel, OpenAIResponsesModel])
def test_a_run_is_one_turn_and_its_messages_are_the_history(
    store: holdfast.Store, provider: ScriptedProvider, model: Any
) -> None:
    provider.answer("ask-01", calling(("water", {"row": 7})), ScriptedAnswer(("Do", "ne.")))
    history = HoldfastHistory(store.session("k"))
    agent = gardener(provider, model, capabilities=[history])
    first = agent.run_sync("ask-01")
    assert first.output == "Done."
    assert as_json(history.messages()) == as_json(first.all_messages())
    assert texts(history) == ["ask-01", "Let me. ", "row 7 was watered", "Done."]

    second = agent.run_sync("ask-02")
    assert as_json(history.messages()) == as_json(second.all_messages())
    assert "Let me. " in provider.asked[-1].words
    assert [asked.problems for asked in provider.asked] == [(), (), ()]
    session = store.session("k")
    assert [turn.end for turn in session.turns()] == ["completed", "completed"]
    assert [call.state for call in session.calls()] == ["done"]
    assert session.info().usage.input == 33
    assert judge(store) == []


def test_text_is_stored_before_it_is_shown(
    store: holdfast.Store, provider: ScriptedProvider
) -> None:
    provider.answer("ask-01", ScriptedAnswer(("One ", "two ", "three")))
    history = HoldfastHistory(store.session("k"))

    async def run() -> None:
        said = ""
        async with gardener(provider).run_stream("ask-01", capabilities=[history]) as result:
            async for text in result.stream_text(delta=True, debounce_by=None):
                said += text
                assert said in _spoken(store)
        assert said == "One two three"
        assert as_json(history.messages()) == as_json(result.all_messages())

    asyncio.run(run())


def _spoken(store: holdfast.Store) -> str:
    """What another reader of the session has been told so far of the last message."""
    log = store.session("k")._log
    return "".join(shown(unpack(row.body)) for row in log.engine.journal(log.id))


def test_what_was_shown_before_a_cancellation_is_there(
    store: holdfast.Store, provider: ScriptedProvider
) -> None:
    provider.answer("ask-01", ScriptedAnswer(("One ", "two ", "three"), stalls_after=2))
    history = HoldfastHistory(store.session("k"))
    agent = gardener(provider, capabilities=[history])

    async def run() -> None:
        half_shown = asyncio.Event()

        async def show(ctx: Any, events: Any) -> None:
            text = ""
            async for event in events:
                if event.event_kind == "part_start":
                    text += event.part.content
                elif event.event_kind == "part_delta":
                    text += event.delta.content_delta
                if text == "One two ":
                    half_shown.set()

        asking = asyncio.create_task(agent.run("ask-01", event_stream_handler=show))
        await half_shown.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        [_, answer] = await history.amessages()
        assert (answer.text, answer.state) == ("One two ", "interrupted")
        [turn] = store.session("k").turns()
        assert turn.end == "interrupted"
        provider.answer("ask-02", ScriptedAnswer(("Four.",)))
        await agent.run("ask-02")
        assert provider.asked[-1].problems == ()
        assert "One two " in provider.asked[-1].words

    asyncio.run(run())


def test_a_stream_that_is_left_keeps_what_was_shown(
    store: holdfast.Store, provider: ScriptedProvider
) -> None:
    provider.answer("ask-01", ScriptedAnswer(("One ", "two ", "three"), stalls_after=2))
    history = HoldfastHistory(store.session("k"))

    async def run() -> None:
        async with gardener(provider).run_stream_events("ask-01", capabilities=[history]) as events:
            async for event in events:
                if event.event_kind == "part_start":
                    break
        provider.go_on.set()
        assert texts(history)[1].startswith("One ")
        [_, answer] = await history.amessages()
        assert answer.state == "interrupted"

    asyncio.run(run())


def test_the_same_request_is_answered_once(
    store: holdfast.Store, provider: ScriptedProvider
) -> None:
    history = HoldfastHistory(store.session("k"))
    agent = gardener(provider)
    agent.run_sync("ask-01", capabilities=[history.request(17)])
    before = history.messages()
    with pytest.raises(AlreadyAccepted):
        agent.run_sync("ask-01", capabilities=[history.request("17")])
    assert history.messages() == before
    assert len(provider.asked) == 1
    agent.run_sync("ask-01", capabilities=[history.request("18")])
    assert len(history.messages()) == 4


def test_a_run_that_raises_keeps_what_it_had(
    store: holdfast.Store, provider: ScriptedProvider
) -> None:
    provider.answer("ask-01", calling(("burn", {})))
    history = HoldfastHistory(store.session("k"))
    agent = gardener(provider, capabilities=[history])

    @agent.tool_plain
    def burn() -> str:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        agent.run_sync("ask-01")
    assert texts(history)[:2] == ["ask-01", "Let me. "]
    [turn] = store.session("k").turns()
    assert turn.end == "failed"
    provider.answer("ask-02", ScriptedAnswer(("Four.",)))
    agent.run_sync("ask-02")
    assert provider.asked[-1].problems == ()
    assert "burn" in provider.asked[-1].words
    assert "interrupted" in provider.asked[-1].words


def test_a_call_whose_outcome_nobody_knows_is_closed_in_their_form(
    store: holdfast.Store, provider: ScriptedProvider
) -> None:
    history = HoldfastHistory(store.session("k"))
    call = ModelResponse(parts=[ToolCallPart("water", {"row": 7}, "c1")])
    with store.session("k").turn("ask-01") as turn:
        turn.add(as_json([call])[0], "pydantic_ai")
    [prompt, _, answer] = history.messages()
    assert prompt.parts[0].content == "ask-01"
    [part] = answer.parts
    assert (part.tool_call_id, part.outcome) == ("c1", "interrupted")
    gardener(provider).run_sync("ask-02", capabilities=[history])
    assert provider.asked[-1].problems == ()
    assert "interrupted" in provider.asked[-1].words


def test_a_session_that_was_rewound_to_a_call_goes_on(
    store: holdfast.Store, provider: ScriptedProvider
) -> None:
    provider.answer("ask-01", calling(("water", {"row": 7})), ScriptedAnswer(("Done.",)))
    history = HoldfastHistory(store.session("k"))
    agent = gardener(provider)
    agent.run_sync("ask-01", capabilities=[history])
    _, calls, *_ = store.session("k").transcript()
    store.session("k").rewind(calls.id)
    agent.run_sync("ask-02", capabilities=[history])
    assert provider.asked[-1].problems == ()
    assert "interrupted" in provider.asked[-1].words


def test_a_call_whose_id_was_used_before_is_closed_too(
    store: holdfast.Store, provider: ScriptedProvider
) -> None:
    history = HoldfastHistory(store.session("k"))
    call = ModelResponse(parts=[ToolCallPart("water", {"row": 7}, "c1")])
    answer = ModelRequest(parts=[ToolReturnPart("water", "wet", "c1")])
    with store.session("k").turn("ask-01") as turn:
        for message in (call, answer, ModelResponse(parts=[TextPart("Done.")])):
            turn.add(as_json([message])[0], "pydantic_ai")
    with store.session("k").turn("ask-02") as turn:
        turn.add(as_json([call])[0], "pydantic_ai")
    gardener(provider).run_sync("ask-03", capabilities=[history])
    assert provider.asked[-1].problems == ()
    assert "interrupted" in provider.asked[-1].words


def test_the_answer_of_one_tool_is_stored_while_another_runs(
    store: holdfast.Store, provider: ScriptedProvider
) -> None:
    calls = ("water", {"row": 7}), ("wait", {})
    provider.answer("ask-01", calling(*calls), ScriptedAnswer(("Done.",)))
    history = HoldfastHistory(store.session("k"))
    agent = gardener(provider, capabilities=[history])
    seen: list[Any] = []

    @agent.tool_plain
    async def wait() -> str:
        while not seen:
            for message in await history.amessages():
                if "row 7 was watered" in str(message.parts):
                    seen.append(message)
            await asyncio.sleep(0)
        return "waited"

    result = agent.run_sync("ask-01")
    assert (seen[0].kind, seen[0].state) == ("request", "interrupted")
    assert as_json(history.messages()) == as_json(result.all_messages())
    assert judge(store) == []


def test_two_runs_at_once_are_two_whole_turns(where: str, provider: ScriptedProvider) -> None:
    """Each in an event loop and a thread of its own."""
    failed = []

    def work(numbers: range) -> None:
        with holdfast.open(where) as store:
            history = HoldfastHistory(store.session("k"))
            try:
                for number in numbers:
                    gardener(provider).run_sync(f"ask-{number}", capabilities=[history])
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
        assert len(HoldfastHistory(store.session("k")).messages()) == 16


def test_a_stale_history_writes_nothing(store: holdfast.Store, provider: ScriptedProvider) -> None:
    old = HoldfastHistory(store.session("k"))
    agent = gardener(provider)
    agent.run_sync("ask-01", capabilities=[old])
    new = HoldfastHistory(store.reset("k"))
    with pytest.raises(SessionEnded):
        agent.run_sync("ask-02", capabilities=[old])
    with pytest.raises(SessionEnded):
        old.append(SAMPLES)
    assert new.messages() == []
    assert len(provider.asked) == 1


def test_a_run_that_is_overtaken_by_a_reset_says_nothing_in_the_new_session(
    store: holdfast.Store, provider: ScriptedProvider
) -> None:
    provider.answer("ask-01", ScriptedAnswer(("One ", "two ", "three"), stalls_after=1))
    history = HoldfastHistory(store.session("k"))

    def run() -> None:
        with pytest.raises(HoldfastError):
            gardener(provider).run_sync("ask-01", capabilities=[history])

    thread = threading.Thread(target=run)
    thread.start()
    provider.stalled.wait()
    new = HoldfastHistory(store.reset("k"))
    provider.go_on.set()
    thread.join()
    assert new.messages() == []


def test_an_approval_of_ours_is_one_of_theirs(
    store: holdfast.Store, provider: ScriptedProvider
) -> None:
    provider.answer(
        "ask-01",
        calling(("flood", {"row": 7}), ("flood", {"row": 8}), ("water", {"row": 9})),
        ScriptedAnswer(("Wet.",)),
    )
    history = HoldfastHistory(store.session("k"))
    agent = gardener(provider, output_type=[str, DeferredToolRequests])
    result = agent.run_sync("ask-01", capabilities=[history])
    assert isinstance(result.output, DeferredToolRequests)
    calls = store.session("k").calls()
    assert [call.state for call in calls] == ["waiting", "waiting", "done"]
    assert as_json(history.messages()) == as_json(result.all_messages())
    assert history.deferred_tool_results().approvals == {}

    store.session("k").decide(calls[0].call_id, True, by="ann")
    store.session("k").decide(calls[1].call_id, False, by="ann")
    later = HoldfastHistory(store.session("k"))
    decided = later.deferred_tool_results()
    result = agent.run_sync(deferred_tool_results=decided, capabilities=[later])
    assert result.output == "Wet."
    words = "\n".join(texts(later))
    assert "row 7 was flooded" in words and "row 8 was flooded" not in words
    # The framework makes one request of two that stand next to each other.
    parts = [part for message in later.messages() for part in message.parts]
    assert parts == [part for message in result.all_messages() for part in message.parts]
    denied = next(part for part in parts if "Denied" in str(part))
    assert denied.tool_name == "flood"
    assert [call.state for call in store.session("k").calls()] == ["done", "denied", "done"]
    assert later.deferred_tool_results().approvals == {}
    assert provider.asked[-1].problems == ()
    assert judge(store) == []


def test_a_call_that_is_answered_elsewhere_stays_open(
    store: holdfast.Store, provider: ScriptedProvider
) -> None:
    from pydantic_ai.exceptions import CallDeferred
    from pydantic_ai.tools import DeferredToolResults

    provider.answer("ask-01", calling(("far", {})), ScriptedAnswer(("Here.",)))
    history = HoldfastHistory(store.session("k"))
    agent = gardener(provider, output_type=[str, DeferredToolRequests])

    @agent.tool_plain
    def far() -> str:
        raise CallDeferred

    result = agent.run_sync("ask-01", capabilities=[history])
    [call] = result.output.calls
    assert as_json(history.messages()) == as_json(result.all_messages())
    answers = DeferredToolResults(calls={call.tool_call_id: "from afar"})
    result = agent.run_sync(deferred_tool_results=answers, capabilities=[history])
    assert result.output == "Here."
    assert "from afar" in texts(history)
    assert as_json(history.messages()) == as_json(result.all_messages())


def test_a_history_that_the_caller_brings_is_recorded(
    store: holdfast.Store, provider: ScriptedProvider
) -> None:
    history = HoldfastHistory(store.session("k"))
    agent = gardener(provider, capabilities=[history])
    agent.run_sync("ask-01")
    agent.run_sync("ask-02", message_history=history.messages())
    assert texts(history).count("ask-01") == 1
    kept = [ModelRequest(parts=[UserPromptPart("It was summed up.")]), *history.messages()[2:]]
    agent.run_sync("ask-03", message_history=kept)
    assert "It was summed up." in provider.asked[-1].words
    assert "ask-01" not in provider.asked[-1].words
    assert "ask-01" in texts(history)
    assert len(history.messages()) == 5


class Shortening(AbstractCapability[Any]):
    """Puts a summary in the place of the history before the model is asked, as compactions do."""

    async def before_model_request(self, ctx: Any, request_context: Any) -> Any:
        if len(ctx.messages) > 4:
            summary = ModelRequest(parts=[UserPromptPart("It was summed up.")])
            ctx.messages[:-1] = [summary]
            request_context.messages = list(ctx.messages)
        return request_context


def test_what_another_capability_compacts_is_the_view_and_the_transcript_has_all(
    store: holdfast.Store, provider: ScriptedProvider
) -> None:
    history = HoldfastHistory(store.session("k"))
    agent = gardener(provider, capabilities=[Shortening(), history])
    for number in (1, 2, 3):
        result = agent.run_sync(f"ask-0{number}")
    assert as_json(history.messages()) == as_json(result.all_messages())
    assert [message.kind for message in history.messages()] == ["request", "request", "response"]
    assert "ask-01" in texts(history)
    assert judge(store) == []


def test_our_own_compaction_is_told_to_the_model(
    store: holdfast.Store, provider: ScriptedProvider
) -> None:
    history = HoldfastHistory(store.session("k"))
    agent = gardener(provider, capabilities=[history])
    agent.run_sync("ask-01")
    agent.run_sync("ask-02")
    store.session("k").compact("It was summed up.", keep_turns=1)
    agent.run_sync("ask-03")
    words = provider.asked[-1].words
    assert "It was summed up." in words and "ask-02" in words and "ask-01" not in words
    assert provider.asked[-1].problems == ()


def test_what_waits_in_the_inbox_is_taken_into_the_run(
    store: holdfast.Store, provider: ScriptedProvider
) -> None:
    store.accept("k", "ask-01: from a webhook")
    history = HoldfastHistory(store.session("k"))
    gardener(provider).run_sync("ask-02", capabilities=[history])
    words = provider.asked[-1].words
    assert words.index("ask-01: from a webhook") < words.index("ask-02")
    assert store.session("k").pending() == []


def test_a_record_that_cannot_be_read_takes_away_itself_alone(where: str) -> None:
    with holdfast.open(where) as store:
        HoldfastHistory(store.session("k")).append([SAMPLES[0], SAMPLES[3]])
    spoil_last_message(where)
    with holdfast.open(where) as store:
        [first, last] = HoldfastHistory(store.session("k")).messages()
    assert first == SAMPLES[0]
    assert "read" in str(last.parts[0].content)


def test_a_payload_of_another_release_is_told_in_words(store: holdfast.Store) -> None:
    history = HoldfastHistory(store.session("k"))
    odd = {"kind": "response", "parts": [{"part_kind": "text", "content": "Hi"}], "usage": 7}
    history.append([SAMPLES[0]])
    store.session("k").append(odd, format="pydantic_ai")
    store.session("k").append("from elsewhere")
    [first, second, third] = history.messages()
    assert first == SAMPLES[0]
    assert second.text == "Hi"
    assert third.parts[0].content == "from elsewhere"


@pytest.mark.parametrize("wrong", [None, 7, "text", {"kind": "request"}])
def test_what_is_no_message_is_refused_and_nothing_is_written(
    store: holdfast.Store, wrong: Any
) -> None:
    history = HoldfastHistory(store.session("k"))
    for given in (wrong, [SAMPLES[0], wrong]):
        with pytest.raises(BadArgument):
            history.append(given)
    unheld = ModelRequest(parts=[ToolReturnPart("look", object(), "c1")])
    with pytest.raises(HoldfastError):
        history.append([SAMPLES[0], unheld])
    with pytest.raises(BadArgument):
        HoldfastHistory(wrong)
    with pytest.raises(BadArgument):
        history.request(None)  # type: ignore[arg-type]
    assert history.messages() == []


class Counting(HoldfastHistory):
    """A subclass with something of its own."""

    asked = 0

    async def before_model_request(self, ctx: Any, request_context: Any) -> Any:
        Counting.asked += 1
        return await super().before_model_request(ctx, request_context)


def test_it_may_be_subclassed(store: holdfast.Store, provider: ScriptedProvider) -> None:
    Counting.asked = 0
    history = Counting(store.session("k"))
    gardener(provider, capabilities=[history]).run_sync("ask-01")
    assert Counting.asked == 1
    assert len(history.messages()) == 2


def test_an_async_session_will_do(tmp_path: Path, provider: ScriptedProvider) -> None:
    async def run() -> None:
        async with holdfast.open_async(tmp_path / "a.db") as store:
            history = HoldfastHistory(await store.session("k"))
            await gardener(provider).run("ask-01", capabilities=[history])
            assert len(await history.amessages()) == 2

    asyncio.run(run())


def test_messages_of_another_store_are_taken_over_and_back_as_the_page_says(
    store: holdfast.Store,
) -> None:
    code = example("pydantic-ai.md", "old_messages_json")
    said = ModelMessagesTypeAdapter.dump_json(SAMPLES[2:])
    given: dict[str, Any] = {"old_messages_json": said, "store": store}
    exec(code, given)
    history = HoldfastHistory(store.session("telegram:dm:42"))
    assert history.messages() == SAMPLES[2:]
    assert json.loads(given["back"]) == json.loads(said)


def test_the_lines_at_the_top_of_the_page_run(
    provider: ScriptedProvider,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    provider.answer("Book", ScriptedAnswer(("At ", "eight.")))
    monkeypatch.setenv("OPENAI_BASE_URL", f"{provider.url}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.chdir(tmp_path)
    exec(example("pydantic-ai.md", "result.stream_text"), {"__name__": "__main__"})
    assert capsys.readouterr().out == "At eight."
    with holdfast.open("agent.db") as store:
        said = [message.text for message in store.session("telegram:dm:42").transcript()]
    assert said == ["Book a table for two.", "At eight."]


def test_an_approval_is_given_as_the_page_says(
    store: holdfast.Store, provider: ScriptedProvider
) -> None:
    provider.answer("ask-01", calling(("flood", {"row": 7})), ScriptedAnswer(("Wet.",)))
    agent = gardener(provider, output_type=[str, DeferredToolRequests])
    history = HoldfastHistory(store.session("telegram:dm:42"))
    agent.run_sync("ask-01", capabilities=[history])
    [call] = store.session("telegram:dm:42").calls()
    lines = example("pydantic-ai.md", "history.deferred_tool_results()").splitlines()
    code = "\n".join(
        ["async def lines():", *(f"    {line}" for line in lines), "    return result"]
    )
    given = {"store": store, "agent": agent, "history": history, "call_id": call.call_id}
    exec(code, given)
    assert asyncio.run(given["lines"]()).output == "Wet."


@pytest.mark.parametrize("strategy", ["graceful", "early", "exhaustive"])
@pytest.mark.parametrize("output", [str, int])
def test_what_tools_say_after_a_streamed_answer_is_stored(
    store: holdfast.Store, provider: ScriptedProvider, strategy: Any, output: Any
) -> None:
    """`run_stream` runs the calls that come with the answer when it was streamed."""
    calls = [("water", {"row": 7}), ("refuse", {}), ("tell", {})]
    if output is int:
        calls.append(("final_result", {"response": 3}))
        # Another strategy has other words for it.
        calls += [("final_result", {"response": 4})] * (strategy != "exhaustive")
    provider.answer("ask-01", calling(*calls))
    history = HoldfastHistory(store.session("k"))
    agent = gardener(provider, end_strategy=strategy)

    @agent.tool_plain
    def refuse() -> str:
        raise ModelRetry("Not this one.")

    @agent.tool_plain
    def tell() -> ToolReturn:
        return ToolReturn("told", content="Look at this.", metadata={"row": 7})

    async def run() -> Any:
        asked = agent.run_stream("ask-01", capabilities=[history], output_type=output)
        async with asked as result:
            async for _ in result.stream_output():
                pass
        return result.all_messages()

    told = as_json(asyncio.run(run()))
    kept = as_json(history.messages())
    for message in [*told, *kept]:
        for part in [message, *message["parts"]]:
            part.pop("timestamp", None)
        # The framework has them in the order in which they were done.
        message["parts"].sort(key=lambda part: str(part.get("tool_call_id")))
    assert kept == told
    assert {call.state for call in store.session("k").calls()} <= {"done", "failed"}
    provider.answer("ask-02", ScriptedAnswer(("Done.",)))
    agent.run_sync("ask-02", capabilities=[history])
    assert provider.asked[-1].problems == ()
    assert judge(store) == []


def test_what_a_tool_has_said_is_kept_when_another_fails_after_a_streamed_answer(
    store: holdfast.Store, provider: ScriptedProvider
) -> None:
    provider.answer("ask-01", calling(("water", {"row": 7}), ("burn", {})))
    history = HoldfastHistory(store.session("k"))
    agent = gardener(provider)

    @agent.tool_plain(sequential=True)
    def burn() -> str:
        raise ZeroDivisionError

    async def run() -> None:
        async with agent.run_stream("ask-01", capabilities=[history]) as result:
            async for _ in result.stream_text():
                pass

    with pytest.raises(ZeroDivisionError):
        asyncio.run(run())
    states = [(call.name, call.state) for call in store.session("k").calls()]
    assert states == [("water", "done"), ("burn", "unknown")]
    provider.answer("ask-02", ScriptedAnswer(("Done.",)))
    agent.run_sync("ask-02", capabilities=[history])
    assert provider.asked[-1].problems == ()
    assert "row 7 was watered" in provider.asked[-1].words


@pytest.mark.parametrize("parts", [[], [TextPart("")]])
def test_an_answer_that_was_cut_off_before_a_word_does_not_block_the_next(
    store: holdfast.Store, provider: ScriptedProvider, parts: Any
) -> None:
    """As the framework leaves it when a run is cancelled whose model has not said anything yet."""
    history = HoldfastHistory(store.session("k"))
    asked = ModelRequest(parts=[UserPromptPart("ask-01")])
    history.append([asked, ModelResponse(parts=parts, state="interrupted")])
    before = as_json(history.messages())
    provider.answer("ask-02", ScriptedAnswer(("Done.",)))
    gardener(provider).run_sync("ask-02", capabilities=[history])
    assert provider.asked[-1].problems == ()
    words = provider.asked[-1].words
    assert words.index("ask-01") < words.index("ask-02")
    assert as_json(history.messages())[:2] == before
    assert judge(store) == []


def test_half_of_a_character_does_not_block_a_session(
    store: holdfast.Store, provider: ScriptedProvider
) -> None:
    history = HoldfastHistory(store.session("k"))
    with pytest.raises(UnicodeEncodeError):  # the client's
        gardener(provider).run_sync("ask-01 \ud800", capabilities=[history])
    provider.answer("ask-02", ScriptedAnswer(("Done.",)))
    gardener(provider).run_sync("ask-02", capabilities=[history])
    assert provider.asked[-1].problems == ()
    assert "ask-01 \ufffd" in provider.asked[-1].words
    assert texts(history)[0] == "ask-01 \ud800"
