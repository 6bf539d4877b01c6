"""`HoldfastHistoryProvider` under real agents of the Microsoft Agent Framework, with a model on
loopback.
"""

import asyncio
import gc
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_framework import (
    Agent,
    AgentSession,
    Content,
    ContextProvider,
    FileHistoryProvider,
    Message,
    tool,
)
from agent_framework.exceptions import ChatClientException
from agent_framework.openai import OpenAIChatClient, OpenAIChatCompletionClient
from openai import AsyncOpenAI
from pages import example

from holdfast.adapters.agent_framework import HoldfastHistoryProvider
from holdfast.adapters.agent_framework.run import StoredContents
from holdfast.domain.repair import UNKNOWN_OUTCOME
from holdfast.errors import AlreadyAccepted, BadArgument, SessionEnded, TurnInterrupted
from holdfast.testing.adapters import ScriptedAnswer, ScriptedProvider, serve
from holdfast.testing.adapters.damage import spoil_last_message
from holdfast.testing.oracle import judge
from procs import child

CALL = Content.from_function_call("c1", "water", arguments='{"row": 7}')
SAMPLES = [
    Message("system", ["Be kind."]),
    Message(
        "user",
        [
            Content.from_text("look"),
            Content.from_uri("https://x.test/a.png", media_type="image/png"),
            Content.from_data(b"\x89PNG", "image/png"),
        ],
        additional_properties={"odd": [1, {"deep": None}]},
    ),
    Message(
        "assistant",
        [
            Content.from_text_reasoning(text="hm", protected_data="sealed"),
            Content.from_text("I water it."),
            CALL,
            Content.from_function_call("c2", "water", arguments={"row": 8}),
        ],
        author_name="Gardener",
        message_id="m1",
    ),
    Message(
        "tool",
        [
            Content.from_function_result("c1", result="row 7 was watered"),
            Content.from_function_result("c2", result="", exception="too deep"),
        ],
    ),
    Message("assistant", ["A cat.\ud800\0"], message_id="m2"),
    Message("narrator", [Content.from_error(message="broken", error_code="7")]),
    Message("user", [""]),
]
WATER = [("water", {"row": 7})]


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    with serve() as made:
        for number in range(1, 10):
            made.answer(f"ask-{number:02d}", ScriptedAnswer(("Ye", "s.")))
        yield made


@pytest.fixture
def history(where: str) -> HoldfastHistoryProvider:
    return HoldfastHistoryProvider(where)


@tool
def water(row: int) -> str:
    """Waters a row."""
    return f"row {row} was watered"


def gardener(provider: ScriptedProvider, *histories: Any, **options: Any) -> Agent[Any]:
    return gardener_at(provider.url, *histories, **options)


def gardener_at(
    url: str,
    *histories: Any,
    kind: Any = OpenAIChatCompletionClient,
    tools: Any = (water,),
    **options: Any,
) -> Agent[Any]:
    api = AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    client = kind(model="gpt-test", async_client=api)
    options.setdefault("default_options", {"store": False})
    named = {"name": "Gardener", "tools": list(tools), "context_providers": list(histories)}
    return Agent(client, "Be brief.", **named, **options)


def dumps(messages: list[Message]) -> list[Any]:
    return [message.to_dict() for message in messages]


def texts(history: HoldfastHistoryProvider, session_id: str = "k") -> list[tuple[str, str]]:
    said = []
    for message in history.session(session_id).transcript():
        said.append((message.role, message.text))
    return said


def spoken(history: HoldfastHistoryProvider, length: int) -> str:
    """What is stored of the answers, up to this length."""
    words = ""
    if not length:
        return words
    for event in history.session("k").follow():
        if event.kind == "chunk":
            words += event.text
        elif event.entry.kind == "message" and words == "":
            continue
        if len(words) >= length:
            break
    return words[:length]


async def shown(agent: Any, prompt: Any, session: AgentSession) -> str:
    """Runs a prompt to its end, streamed; what was shown."""
    words = ""
    async for update in agent.run(prompt, stream=True, session=session):
        words += update.text
    return words


def test_messages_come_back_as_they_were(history: HoldfastHistoryProvider) -> None:
    async def run() -> None:
        assert await history.get_messages("k") == []
        await history.save_messages("k", SAMPLES)
        again = HoldfastHistoryProvider(history.store)
        assert dumps(await again.get_messages("k")) == dumps(SAMPLES)
        assert await history.get_messages("other") == []
        await history.save_messages(None, SAMPLES[:1])
        assert dumps(await history.get_messages(None)) == dumps(SAMPLES[:1])

    asyncio.run(run())
    assert judge(history.store) == []


def test_a_history_is_read_at_once_as_it_is_one_by_one(tmp_path: Path) -> None:
    history = HoldfastHistoryProvider(tmp_path / "agents.db")
    asyncio.run(history.save_messages("k", SAMPLES))
    read = asyncio.run(history.get_messages("k"))
    for message, sample in zip(read, SAMPLES, strict=True):
        single = Message.from_dict(sample.to_dict())
        contents = [vars(content) for content in single.contents]
        assert [vars(content) for content in message.contents] == contents
        said = {**vars(single), "contents": None}
        assert {**vars(message), "contents": None} == said
    # What is given back is its receiver's.
    read[1].additional_properties["odd"][1]["deep"] = "mine"
    read[0].contents[0].text = "mine"
    assert dumps(asyncio.run(history.get_messages("k"))) == dumps(SAMPLES)


def test_words_calls_and_results_are_seen_by_search_and_transcript(
    history: HoldfastHistoryProvider,
) -> None:
    asyncio.run(history.save_messages("k", SAMPLES))
    assert [hit.role for hit in history.store.search("watered")] == ["tool"]
    states = [(call.call_id, call.name, call.state) for call in history.session("k").calls()]
    assert states == [("c1", "water", "done"), ("c2", "water", "done")]
    request = list(history.session("k").context("openai.chat"))
    assert [message["role"] for message in request][:3] == ["system", "user", "assistant"]


def test_the_same_batch_is_stored_once_and_equal_words_are_two_messages(
    history: HoldfastHistoryProvider,
) -> None:
    asked, said = Message("user", ["again?"]), Message("assistant", ["Yes."], message_id="m1")

    async def run() -> None:
        for _ in range(2):
            await history.save_messages("k", [asked, said])
        # Another answer to the same words is another message, and so is one of the same id.
        more = Message("assistant", ["Yes."], message_id="m2")
        other = Message("assistant", ["No."], message_id="m2")
        await history.save_messages("k", [asked, more, other])
        await history.save_messages("k", [asked])
        for _ in range(2):
            await history.save_messages("k", [asked, asked], event_id="import")
        found = await history.get_messages("k")
        words = ["again?", "Yes.", "again?", "Yes.", "No.", "again?", "again?", "again?"]
        assert [message.text for message in found] == words

    asyncio.run(run())


@pytest.mark.parametrize("named_first", [True, False])
def test_a_batch_with_a_name_may_grow_and_come_again(
    history: HoldfastHistoryProvider, named_first: bool
) -> None:
    """As a history does that is taken over more than once, and goes on meanwhile."""
    hi = Message("user", ["Hi."])
    batch = [hi, hi, Message("assistant", ["Yes."], message_id="m1"), hi]
    if not named_first:
        # Without a name for the batch, what stands behind the last id can't be known.
        batch = batch[:-1]
    later = [[hi], [Message("assistant", ["No."], message_id="m2"), hi], [hi]]

    async def run() -> None:
        await history.save_messages("k", batch, event_id="import" if named_first else None)
        for more in later:
            batch.extend(more)
            for _ in range(2):
                await history.save_messages("k", batch, event_id="import")
                assert dumps(await history.get_messages("k")) == dumps(batch)

    asyncio.run(run())


def test_a_history_that_was_erased_begins_anew(
    history: HoldfastHistoryProvider, provider: ScriptedProvider
) -> None:
    for by_call in (True, False):
        agent = gardener(provider, history, require_per_service_call_history_persistence=by_call)

        async def run(agent: Any = agent) -> None:
            session = agent.create_session(session_id="k")
            await agent.run("ask-01", session=session)
            history.store.erase(history.session("k").id)
            await agent.run("ask-02", session=session)

        asyncio.run(run())
        assert texts(history) == [("user", "ask-02"), ("assistant", "Yes.")]
        history.store.erase(history.session("k").id)


@pytest.mark.parametrize("is_streamed", [True, False])
@pytest.mark.parametrize("kind", [OpenAIChatCompletionClient, OpenAIChatClient])
def test_a_run_is_one_turn_with_each_message_once(
    history: HoldfastHistoryProvider, provider: ScriptedProvider, kind: Any, is_streamed: bool
) -> None:
    first = ScriptedAnswer(("Let ", "me. "), WATER)
    provider.answer("ask-01", first, ScriptedAnswer(("Do", "ne.")))
    agent = gardener(provider, history, kind=kind)

    async def run() -> None:
        session = agent.create_session(session_id="k")
        if is_streamed:
            assert await shown(agent, "ask-01: water", session) == "Let me. Done."
        else:
            await agent.run("ask-01: water", session=session)
        await agent.run("ask-02: and?", session=session)

    asyncio.run(run())
    said = [("user", "ask-01: water"), ("assistant", "Let me. "), ("tool", "row 7 was watered")]
    said += [("assistant", "Done."), ("user", "ask-02: and?"), ("assistant", "Yes.")]
    assert texts(history) == said
    assert [turn.end for turn in history.session("k").turns()] == ["completed"] * 2
    assert history.session("k").turns()[0].usage.output > 0
    assert [asked.problems for asked in provider.asked] == [()] * 3
    assert judge(history.store) == []
    found = asyncio.run(history.get_messages("k"))
    assert {message.author_name for message in found} == {None, "Gardener"}


def test_what_ours_gives_a_model_is_what_their_own_provider_gives(
    history: HoldfastHistoryProvider, provider: ScriptedProvider, tmp_path: Path
) -> None:
    first = ScriptedAnswer(("Let ", "me. "), WATER)
    provider.answer("ask-01", first, ScriptedAnswer(("Do", "ne.")))

    async def run(own: Any) -> Any:
        agent = gardener(provider, own)
        session = agent.create_session(session_id="k")
        await shown(agent, "ask-01: water", session)
        await agent.run("ask-02: and?", session=session)
        return provider.asked[-1].messages

    theirs = asyncio.run(run(FileHistoryProvider(tmp_path / "files")))
    ours = asyncio.run(run(history))
    for messages in (ours, theirs):
        for message in messages:
            message.pop("tool_call_id", None)
            for call in message.get("tool_calls", ()):
                call.pop("id")
    assert ours == theirs


def test_prompt_and_words_are_durable_before_they_are_used(
    history: HoldfastHistoryProvider, provider: ScriptedProvider
) -> None:
    provider.answer("ask-01", ScriptedAnswer(("one ", "two ", "three")))
    agent = gardener(provider, history)

    async def run() -> None:
        session = agent.create_session(session_id="k")
        words = ""
        async for update in agent.run("ask-01", stream=True, session=session):
            words += update.text
            assert await asyncio.to_thread(spoken, history, len(words)) == words
            assert texts(history)[0] == ("user", "ask-01")

    asyncio.run(run())


def test_what_was_shown_before_a_kill_is_what_the_next_model_is_told(
    tmp_path: Path, provider: ScriptedProvider
) -> None:
    place = str(tmp_path / "agents.db")
    provider.answer("ask-01", ScriptedAnswer(("one ", "two ", "three"), stalls_after=2))
    script = f"""
        import asyncio
        from agent_framework import Agent
        from agent_framework.openai import OpenAIChatCompletionClient
        from openai import AsyncOpenAI
        from holdfast.adapters.agent_framework import HoldfastHistoryProvider
        async def run():
            api = AsyncOpenAI(base_url={provider.url + "/v1"!r}, api_key="none")
            client = OpenAIChatCompletionClient(model="m", async_client=api)
            history = HoldfastHistoryProvider({place!r})
            agent = Agent(client, context_providers=[history])
            session = agent.create_session(session_id="k")
            words = ""
            async for update in agent.run("ask-01: count", stream=True, session=session):
                words += update.text
                if words == "one two ":
                    say("shown")
        asyncio.run(run())
    """
    with child(script) as process:
        process.wait_for("shown")
        process.kill()
    provider.go_on.set()
    history = HoldfastHistoryProvider(place)
    agent = gardener(provider, history)
    asyncio.run(agent.run("ask-02: go on", session=agent.create_session(session_id="k")))
    roles = [message["role"] for message in provider.asked[-1].messages]
    assert roles == ["system", "user", "assistant", "user"]
    assert "one two " in provider.asked[-1].words
    assert provider.asked[-1].problems == ()
    assert judge(history.store) == []


@pytest.mark.parametrize("how", ["cancelled", "left", "held"])
def test_a_run_that_is_given_up_leaves_what_was_shown(
    history: HoldfastHistoryProvider, provider: ScriptedProvider, how: str
) -> None:
    provider.answer("ask-01", ScriptedAnswer(("one ", "two ", "three"), stalls_after=2))
    agent = gardener(provider, history)

    async def ask(session: AgentSession, held: list[Any]) -> None:
        stream = agent.run("ask-01: count", stream=True, session=session)
        if how == "held":
            held.append(stream)
        words = ""
        async for update in stream:
            words += update.text
            if words == "one two " and how != "cancelled":
                return

    async def run() -> None:
        session, held = agent.create_session(session_id="k"), []
        if how == "cancelled":
            task = asyncio.create_task(ask(session, held))
            await asyncio.to_thread(spoken, history, len("one two "))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            await ask(session, held)
        provider.go_on.set()
        await agent.run("ask-02: go on", session=session)

    asyncio.run(run())
    assert [words for _, words in texts(history)] == [
        "ask-01: count",
        "one two ",
        "ask-02: go on",
        "Yes.",
    ]
    ends = [turn.end for turn in history.session("k").turns()]
    assert ends == ["interrupted", "completed"]
    assert provider.asked[-1].problems == ()


def test_a_stream_that_was_dropped_by_a_task_that_is_over_ends_its_run(
    history: HoldfastHistoryProvider, provider: ScriptedProvider
) -> None:
    """The framework's streams hold themselves: nothing but a collection finds one that was dropped."""
    provider.answer("ask-01", ScriptedAnswer(("one ", "two ", "three")))
    agent = gardener(provider, history)

    async def ask(session: AgentSession) -> None:
        async for update in agent.run("ask-01: count", stream=True, session=session):
            if update.text:
                return

    async def run() -> None:
        session = agent.create_session(session_id="k")
        await asyncio.create_task(ask(session))
        # It would wait for ever.
        await asyncio.wait_for(agent.run("ask-02: go on", session=session), 20)

    gc.disable()
    try:
        asyncio.run(run())
    finally:
        gc.enable()
    assert [turn.end for turn in history.session("k").turns()] == ["interrupted", "completed"]


def test_a_model_that_fails_leaves_the_prompt(
    history: HoldfastHistoryProvider, provider: ScriptedProvider
) -> None:
    agent = gardener(provider, history)

    async def run() -> None:
        session = agent.create_session(session_id="k")
        # OpenAI takes two answers in a row; the provider of the tests is stricter.
        await history.save_messages("k", [Message("assistant", [each]) for each in ("A.", "B.")])
        with pytest.raises(ChatClientException, match="twice in a row") as first:
            await shown(agent, "ask-01", session)
        with pytest.raises(ChatClientException, match="twice in a row"):
            await agent.run("ask-02", session=session)
        assert first.value is not None

    asyncio.run(run())
    assert [words for _, words in texts(history)] == ["A.", "B.", "ask-01", "ask-02"]
    assert [turn.end for turn in history.session("k").turns()] == ["failed"] * 2


def test_a_cancelled_tool_is_told_as_unknown(
    history: HoldfastHistoryProvider, provider: ScriptedProvider
) -> None:
    provider.answer("ask-01", ScriptedAnswer(("Let me. ",), WATER), ScriptedAnswer(("Done.",)))

    async def run() -> None:
        began = asyncio.Event()

        @tool(name="water")
        async def slow(row: int) -> str:
            """Waters a row."""
            began.set()
            await asyncio.Event().wait()
            return ""

        agent = gardener(provider, history, tools=[slow])
        session = agent.create_session(session_id="k")
        task = asyncio.create_task(shown(agent, "ask-01", session))
        await began.wait()
        # It is stored before the tool runs.
        [call] = history.session("k").calls()
        assert (call.name, call.state) == ("water", "open")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await agent.run("ask-02", session=session)

    asyncio.run(run())
    asked = provider.asked[-1]
    assert asked.problems == ()
    assert UNKNOWN_OUTCOME in asked.words
    assert judge(history.store) == []


def test_the_same_request_is_answered_once(
    history: HoldfastHistoryProvider, provider: ScriptedProvider
) -> None:
    agent = gardener(provider, history)

    async def run() -> None:
        session = agent.create_session(session_id="k")
        await agent.run(Message("user", ["ask-01"], message_id="r1"), session=session)
        with pytest.raises(AlreadyAccepted):
            await agent.run(Message("user", ["ask-01"], message_id="r1"), session=session)
        await agent.run(Message("user", ["ask-01"], message_id="r2"), session=session)

    asyncio.run(run())
    assert len(provider.asked) == 2
    assert len(texts(history)) == 4


def test_a_run_in_a_session_that_was_begun_anew_is_refused(
    history: HoldfastHistoryProvider, provider: ScriptedProvider
) -> None:
    provider.answer("ask-01", ScriptedAnswer(("one ", "two ", "three"), stalls_after=2))
    agent = gardener(provider, history)

    async def run() -> None:
        session = agent.create_session(session_id="k")
        words = ""
        with pytest.raises((SessionEnded, TurnInterrupted)):
            async for update in agent.run("ask-01", stream=True, session=session):
                words += update.text
                if words == "one two ":
                    await HoldfastHistoryProvider(history.store).clear("k")
                    provider.go_on.set()
        assert await history.get_messages("k") == []
        await agent.run("ask-02", session=session)
        assert len(await history.get_messages("k")) == 2
        # The protocol alone: whoever has read the old one stores nothing in the new one.
        state: dict[str, Any] = {}
        await history.get_messages("k", state=state)
        await history.clear("k")
        with pytest.raises(SessionEnded):
            await history.save_messages("k", SAMPLES[:1], state=state)
        assert await history.get_messages("k", state=state) == []
        await history.save_messages("k", SAMPLES[:1], state=state)

    asyncio.run(run())
    assert len(texts(history)) == 1


def test_runs_of_one_session_wait_for_each_other(
    history: HoldfastHistoryProvider, provider: ScriptedProvider
) -> None:
    for number in range(6):
        provider.answer(f"ask-{number}", ScriptedAnswer((f"w{number}-", "a ", "b")))

    async def ask(numbers: range) -> None:
        agent = gardener(provider, history)
        for number in numbers:
            session = agent.create_session(session_id="k")
            await shown(agent, f"ask-{number}", session)

    async def both() -> None:
        await asyncio.gather(ask(range(0, 2)), ask(range(2, 4)))

    threads = [threading.Thread(target=lambda: asyncio.run(both()))]
    threads.append(threading.Thread(target=lambda: asyncio.run(ask(range(4, 6)))))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    said = [message.text for message in asyncio.run(history.get_messages("k"))]
    assert len(said) == 12
    for at in range(0, 12, 2):
        assert said[at + 1] == f"w{said[at][-1]}-a b"


def test_an_agent_that_is_a_tool_does_not_wait_for_its_own_run(
    history: HoldfastHistoryProvider, provider: ScriptedProvider
) -> None:
    calls = [("Helper", {"task": "ask-09"})]
    provider.answer("ask-01", ScriptedAnswer(("Let me. ",), calls), ScriptedAnswer(("Done.",)))
    provider.answer("ask-09", ScriptedAnswer(("Helped.",)))
    helper = gardener(provider, history, tools=[])
    helper.name = "Helper"
    agent = gardener(provider, history, tools=[helper.as_tool(propagate_session=True)])

    async def run() -> None:
        session = agent.create_session(session_id="k")
        await asyncio.wait_for(shown(agent, "ask-01", session), 60)
        await agent.run("ask-02", session=session)

    asyncio.run(run())
    words = [words for _, words in texts(history)]
    assert words.count("ask-01") == 1
    assert "Helped." in words
    assert [asked.problems for asked in provider.asked] == [()] * len(provider.asked)


@pytest.mark.parametrize("approved", [True, False])
@pytest.mark.parametrize("is_streamed", [True, False])
def test_a_call_that_waits_for_approval_is_not_closed(
    history: HoldfastHistoryProvider,
    provider: ScriptedProvider,
    is_streamed: bool,
    approved: bool,
) -> None:
    ran = []

    @tool(name="water", approval_mode="always_require")
    def guarded(row: int) -> str:
        """Waters a row."""
        ran.append(row)
        return f"row {row} was watered"

    provider.answer("ask-01", ScriptedAnswer(("Let me. ",), WATER), ScriptedAnswer(("Done.",)))
    agent = gardener(provider, history, tools=[guarded])

    async def run() -> None:
        session = agent.create_session(session_id="k")
        if is_streamed:
            stream = agent.run("ask-01", stream=True, session=session)
            response = await stream.get_final_response()
        else:
            response = await agent.run("ask-01", session=session)
        [request] = response.user_input_requests
        assert ran == []
        # Another process goes on, with the state that the framework keeps.
        session = AgentSession.from_dict(session.to_dict())
        other = gardener(provider, HoldfastHistoryProvider(history.store), tools=[guarded])
        answer = Message("user", [request.to_function_approval_response(approved)])
        if is_streamed:
            assert await shown(other, answer, session) == "Done."
        else:
            await other.run(answer, session=session)
        await other.run("ask-02", session=session)

    asyncio.run(run())
    assert ran == ([7] if approved else [])
    assert [asked.problems for asked in provider.asked] == [()] * 3
    roles = [message["role"] for message in provider.asked[-1].messages]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "user"]
    assert judge(history.store) == []


def test_what_is_stored_can_be_chosen_as_with_every_provider(
    history: HoldfastHistoryProvider, provider: ScriptedProvider
) -> None:
    class Hint(ContextProvider):
        async def before_run(self, *, context: Any, **more: Any) -> None:
            context.extend_messages(self, [Message("system", ["a hint"])])

    store = history.store
    inputs = HoldfastHistoryProvider(store, source_id="inputs", store_outputs=False)
    outputs = HoldfastHistoryProvider(store, source_id="outputs", store_inputs=False)
    audit = HoldfastHistoryProvider(store, source_id="audit", load_messages=False)
    everything = HoldfastHistoryProvider(store, source_id="all", store_context_messages=True)

    async def run(name: str, own: Any) -> list[str]:
        agent = gardener(provider, own, Hint("hint"))
        session = agent.create_session(session_id=name)
        await shown(agent, "ask-01", session)
        await agent.run("ask-02", session=session)
        return [message.text for message in await own.get_messages(name)]

    assert asyncio.run(run("i", inputs)) == ["ask-01", "ask-02"]
    assert asyncio.run(run("o", outputs)) == ["Yes.", "Yes."]
    assert asyncio.run(run("a", audit)) == ["ask-01", "Yes.", "ask-02", "Yes."]
    said = ["a hint", "ask-01", "Yes.", "a hint", "ask-02", "Yes."]
    assert asyncio.run(run("e", everything)) == said


@pytest.mark.parametrize("is_streamed", [True, False])
def test_persistence_by_service_call_works(
    history: HoldfastHistoryProvider, provider: ScriptedProvider, is_streamed: bool
) -> None:
    provider.answer("ask-01", ScriptedAnswer(("Let me. ",), WATER), ScriptedAnswer(("Done.",)))
    option = {"require_per_service_call_history_persistence": True}
    agent = gardener(provider, history, **option)

    async def run() -> None:
        session = agent.create_session(session_id="k")
        if is_streamed:
            await shown(agent, "ask-01", session)
        else:
            await agent.run("ask-01", session=session)
        await agent.run("ask-02", session=session)

    asyncio.run(run())
    words = [words for _, words in texts(history)]
    assert words == ["ask-01", "Let me. ", "row 7 was watered", "Done.", "ask-02", "Yes."]
    assert [asked.problems for asked in provider.asked] == [()] * 3


def test_a_record_that_cannot_be_read_takes_nothing_but_itself(
    tmp_path: Path, provider: ScriptedProvider
) -> None:
    place = str(tmp_path / "agents.db")
    asyncio.run(HoldfastHistoryProvider(place).save_messages("k", SAMPLES[:3]))
    spoil_last_message(place)
    history = HoldfastHistoryProvider(place)
    asyncio.run(history.save_messages("k", SAMPLES[3:5]))
    found = asyncio.run(history.get_messages("k"))
    assert dumps(found[:2]) == dumps(SAMPLES[:2])
    assert "can't be read" in found[2].text
    # Its calls are gone, so nobody is told of their results.
    assert dumps(found[3:]) == dumps(SAMPLES[4:5])


@pytest.mark.parametrize("wrong", ["text", None, 7, [{"role": "user"}], [None], SAMPLES[0]])
def test_what_is_no_list_of_messages_is_refused(
    history: HoldfastHistoryProvider, wrong: Any
) -> None:
    async def run() -> None:
        with pytest.raises(BadArgument):
            await history.save_messages("k", wrong)
        with pytest.raises(BadArgument):
            await history.save_messages(7, SAMPLES)  # type: ignore[arg-type]
        with pytest.raises(BadArgument):
            await history.get_messages(b"k")  # type: ignore[arg-type]

    asyncio.run(run())
    assert list(history.store.sessions()) == []


class Counting(HoldfastHistoryProvider):
    """A subclass that sees what is stored, as those of other providers do."""

    saved = 0

    async def save_messages(self, session_id: Any, messages: Any, **more: Any) -> None:
        self.saved += len(messages)
        await super().save_messages(session_id, messages, **more)


def test_it_may_be_subclassed(where: str, provider: ScriptedProvider) -> None:
    counting = Counting(where)
    agent = gardener(provider, counting)
    session = agent.create_session(session_id="k")
    asyncio.run(shown(agent, "ask-01", session))
    assert counting.saved == 2
    assert len(texts(counting)) == 2


def test_another_store_is_taken_over_and_back_as_the_page_says(
    history: HoldfastHistoryProvider, tmp_path: Path
) -> None:
    theirs, back = FileHistoryProvider(tmp_path / "a"), FileHistoryProvider(tmp_path / "b")
    kept = [message for message in SAMPLES if "\ud800" not in message.text]
    code = "async def move(history, old, session_id):\n"
    for line in example("agent-framework.md", "old.get_messages").splitlines():
        code += f"    {line}\n"
    space: dict[str, Any] = {}
    exec(code, space)

    async def run() -> None:
        await theirs.save_messages("k", kept)
        for _ in range(2):
            await space["move"](history, theirs, "k")
        assert dumps(await history.get_messages("k")) == dumps(kept)
        await back.save_messages("k", await history.get_messages("k"))
        assert dumps(await back.get_messages("k")) == dumps(kept)

    asyncio.run(run())


def test_of_what_a_run_has_stored_a_piece_is_something_else():
    """A middleware may answer with a word of what the model said; a join of all is nothing new."""
    stored = StoredContents()
    for words in ("It is ", "wet."):
        stored.note({"role": "assistant", "contents": [{"type": "text", "text": words}]})
    for words, is_new in [("It is wet.", False), ("wet.", False), ("wet", True), ("is ", True)]:
        said = {"role": "assistant", "contents": [{"type": "text", "text": words}]}
        assert (stored.rest(said) is not None) == is_new, words
