"""LlamaIndex's chat store on Holdfast, with LlamaIndex's own memory and chat engine."""

import asyncio
import random
import threading
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.agent.workflow import AgentOutput, AgentStream, AgentWorkflow, FunctionAgent
from llama_index.core.base.llms.types import ThinkingBlock, ToolCallBlock
from llama_index.core.chat_engine import SimpleChatEngine
from llama_index.core.llms import ChatMessage, ImageBlock, MockLLM, TextBlock
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.storage.chat_store import SimpleChatStore
from llama_index.llms.openai_like import OpenAILike
from pages import example

import holdfast
from engine_calls import EngineCalls
from holdfast.adapters.llama_index import HoldfastChatStore
from holdfast.errors import AlreadyAccepted, BadArgument, StoreUnavailable
from holdfast.testing.adapters import ScriptedAnswer, serve
from holdfast.testing.oracle import judge
from procs import child

SAMPLES = [
    ChatMessage(role="system", content="Be kind."),
    ChatMessage(
        role="user", blocks=[TextBlock(text="look"), ImageBlock(url="https://x.test/a.png")]
    ),
    ChatMessage(
        role="assistant",
        blocks=[
            ThinkingBlock(content="hm"),
            TextBlock(text="I look."),
            ToolCallBlock(tool_call_id="c1", tool_name="look", tool_kwargs={"at": "it"}),
        ],
    ),
    ChatMessage(role="tool", content="a cat", additional_kwargs={"tool_call_id": "c1"}),
    ChatMessage(role="assistant", content="A cat.\ud800\0"),
    ChatMessage(role="user", content="", additional_kwargs={"odd": [1, {"deep": None}]}),
]


@pytest.fixture
def chats(where: str) -> HoldfastChatStore:
    return HoldfastChatStore(where)


def test_messages_come_back_as_they_were(chats: HoldfastChatStore) -> None:
    for message in SAMPLES:
        chats.add_message("a", message)
    assert chats.get_messages("a") == SAMPLES
    assert chats.get_messages("nobody") == []
    other = HoldfastChatStore(chats._store)
    other.set_messages("b", SAMPLES)
    assert other.get_messages("b") == chats.get_messages("a")
    assert chats.get_keys() == ["a", "b"]
    assert judge(chats._store) == []


def test_a_message_is_one_round_trip_once_its_key_is_known(chats: HoldfastChatStore) -> None:
    chats.add_message("a", SAMPLES[0])
    calls = EngineCalls(chats._store)
    chats.add_message("a", SAMPLES[1])
    assert calls.taken() == {"submit": 1}
    asyncio.run(chats.async_add_message("a", SAMPLES[3]))
    assert calls.taken() == {"submit": 1}


def test_a_key_that_was_begun_anew_elsewhere_gets_its_messages(chats: HoldfastChatStore) -> None:
    hello, again = ChatMessage(role="user", content="Hello"), ChatMessage(content="Hello again")
    chats.add_message("a", hello)
    other = HoldfastChatStore(chats._store)
    other.delete_messages("a")
    chats.add_message("a", again)
    assert other.get_messages("a") == [again]
    chats._store.erase(chats.session("a").id)
    asyncio.run(chats.async_add_message("a", hello))
    assert other.get_messages("a") == [hello]


@pytest.mark.parametrize("message", SAMPLES, ids=range(len(SAMPLES)))
def test_a_list_is_read_at_once_as_it_is_one_by_one(tmp_path: Path, message: ChatMessage) -> None:
    chats = HoldfastChatStore(tmp_path / "chats.db")
    chats.set_messages("a", [message, message])
    read = chats.get_messages("a")
    assert read == [message, message]
    assert [each.model_fields_set for each in read] == [
        ChatMessage.model_validate(message.model_dump(mode="json")).model_fields_set
    ] * 2
    # What is given back is its receiver's.
    read[0].additional_kwargs["mine"] = read[0].blocks = []
    assert chats.get_messages("a") == [message, message]


def test_words_in_the_field_of_an_older_release_are_read(chats: HoldfastChatStore) -> None:
    older = {"role": "user", "content": "Hi", "additional_kwargs": {}, "blocks": []}
    chats.session("a").append(older, format="llama_index")
    assert [each.content for each in chats.get_messages("a")] == ["Hi"]


def test_a_message_that_is_none_of_theirs_takes_nothing_but_itself(
    chats: HoldfastChatStore,
) -> None:
    chats.add_message("a", SAMPLES[0])
    odd = {"role": "user", "blocks": [{"block_type": "text", "text": 7}]}
    chats.session("a").append(odd, format="llama_index")
    chats.add_message("a", SAMPLES[3])
    read = chats.get_messages("a")
    assert [read[0], read[2]] == [SAMPLES[0], SAMPLES[3]]
    assert read[1].role == "user"


def test_many_that_add_at_once_on_one_loop_are_all_there(chats: HoldfastChatStore) -> None:
    async def speak(key: str) -> list[ChatMessage]:
        for message in SAMPLES:
            await chats.async_add_message(key, message)
        return await chats.aget_messages(key)

    async def speak_all() -> list[list[ChatMessage]]:
        return await asyncio.gather(*(speak(f"k{number}") for number in range(12)))

    assert asyncio.run(speak_all()) == [SAMPLES] * 12
    with pytest.raises(BadArgument):
        asyncio.run(chats.async_add_message("", SAMPLES[0]))


def test_what_is_taken_out_leaves_the_list_and_stays_in_the_transcript(
    chats: HoldfastChatStore,
) -> None:
    chats.set_messages("a", SAMPLES)
    assert chats.delete_last_message("a") == SAMPLES[-1]
    assert chats.delete_message("a", 0) == SAMPLES[0]
    assert chats.delete_message("a", 99) is None
    assert chats.get_messages("a") == SAMPLES[1:-1]
    chats.add_message("a", SAMPLES[0])
    assert chats.get_messages("a") == [*SAMPLES[1:-1], SAMPLES[0]]
    assert len(list(chats.session("a").transcript())) == len(SAMPLES) + 1
    assert chats.delete_messages("a") == [*SAMPLES[1:-1], SAMPLES[0]]
    assert chats.delete_messages("a") is None
    assert (chats.get_messages("a"), chats.get_keys()) == ([], [])
    chats.add_message("a", SAMPLES[1])
    assert chats.get_messages("a") == [SAMPLES[1]]
    assert judge(chats._store) == []


def test_a_list_that_is_set_again_stores_what_is_new_in_it(chats: HoldfastChatStore) -> None:
    said = [ChatMessage(role="user", content=f"word {number}") for number in range(5)]
    for end in range(1, 6):
        chats.set_messages("a", said[:end])
    assert [each.text for each in chats.session("a").transcript()] == [
        each.content for each in said
    ]
    chats.set_messages("a", said[2:])
    assert chats.get_messages("a") == said[2:]
    chats.set_messages("a", [])
    assert chats.get_messages("a") == []
    assert len(list(chats.session("a").transcript())) == 5


def test_a_list_that_is_set_is_the_list_whatever_stood_there(chats: HoldfastChatStore) -> None:
    chance = random.Random(7)
    said = [*SAMPLES, *SAMPLES[3:]]
    for _ in range(60):
        wanted = chance.sample(said, chance.randrange(len(said)))
        chats.set_messages("a", wanted)
        assert chats.get_messages("a") == wanted


def test_what_was_taken_out_and_comes_back_is_stored_once(chats: HoldfastChatStore) -> None:
    for wanted in (SAMPLES[:3], [SAMPLES[0], SAMPLES[2]], SAMPLES[:3]):
        chats.set_messages("a", wanted)
        assert chats.get_messages("a") == wanted
    assert len(list(chats.session("a").transcript())) == 3


@pytest.mark.parametrize("how", ["set", "set with what it covers", "emptied", "first", "last"])
def test_a_summary_is_taken_out_of_a_list_as_a_message_is(
    chats: HoldfastChatStore, how: str
) -> None:
    def texts() -> list[str | None]:
        return [message.content for message in chats.get_messages("a")]

    said = [ChatMessage(role="user", content=f"ask {number}") for number in range(3)]
    for message in said[:2]:
        chats.add_message("a", message)
    chats.session("a").compact("They talked.", keep_turns=0)
    if how == "last":
        assert chats.delete_last_message("a").content.endswith("They talked.")
    chats.add_message("a", said[2])
    if how == "first":
        assert chats.delete_message("a", 0).content.endswith("They talked.")
    elif how != "last":
        wanted = {"set": said[2:], "set with what it covers": said, "emptied": []}[how]
        chats.set_messages("a", wanted)
        assert texts() == [message.content for message in wanted]
        chats.set_messages("a", said[2:])
    assert texts() == ["ask 2"]
    chats.add_message("a", ChatMessage(role="assistant", content="Yes."))
    assert texts() == ["ask 2", "Yes."]
    transcript = [message.text for message in chats.session("a").transcript()]
    # What was taken out and is added again was said again.
    again = ["ask 2"] if how == "emptied" else []
    assert transcript == ["ask 0", "ask 1", "ask 2", *again, "Yes."]
    assert judge(chats._store) == []


def test_words_calls_and_results_are_seen_by_search_and_transcript(
    chats: HoldfastChatStore,
) -> None:
    chats.set_messages("a", SAMPLES)
    assert [hit.role for hit in chats._store.search("cat")] == ["assistant", "tool"]
    [call] = chats.session("a").calls()
    assert (call.call_id, call.name, call.state) == ("c1", "look", "done")


def test_a_chat_engine_goes_on_in_another_process(tmp_path: Path) -> None:
    place = str(tmp_path / "agents.db")
    script = f"""
        from llama_index.core.chat_engine import SimpleChatEngine
        from llama_index.core.llms import MockLLM
        from llama_index.core.memory import ChatMemoryBuffer
        from holdfast.adapters.llama_index import HoldfastChatStore
        memory = ChatMemoryBuffer.from_defaults(
            chat_store=HoldfastChatStore({place!r}), chat_store_key="user")
        engine = SimpleChatEngine.from_defaults(llm=MockLLM(), memory=memory)
        engine.chat("first question")
        say("answered")
        hear()
    """
    with child(script) as process:
        process.wait_for("answered")
        process.kill()
    memory = ChatMemoryBuffer.from_defaults(
        chat_store=HoldfastChatStore(place), chat_store_key="user"
    )
    [asked, answered] = memory.get_all()
    assert asked.content == "first question"
    assert "first question" in answered.content
    engine = SimpleChatEngine.from_defaults(llm=MockLLM(), memory=memory)
    engine.chat("second")
    assert len(memory.get_all()) == 4


def test_what_was_shown_of_a_stream_is_in_the_list_after_a_kill(tmp_path: Path) -> None:
    place = str(tmp_path / "agents.db")
    script = f"""
        from llama_index.core.chat_engine import SimpleChatEngine
        from llama_index.core.llms import MockLLM
        from llama_index.core.memory import ChatMemoryBuffer
        from holdfast.adapters.llama_index import HoldfastChatStore
        chats = HoldfastChatStore({place!r})
        memory = ChatMemoryBuffer.from_defaults(chat_store=chats, chat_store_key="user")
        engine = SimpleChatEngine.from_defaults(llm=MockLLM(), memory=memory)
        shown = ""
        for text in chats.stream("user", engine.stream_chat("question").response_gen):
            shown += text
            if len(shown) > 5:
                break_here = hear() if say("shown", shown.encode().hex()) is None else None
    """
    with child(script) as process:
        line = process.wait_for("shown")
        process.kill()
    shown = bytes.fromhex(line.split()[-1]).decode()
    [asked, answered] = HoldfastChatStore(place).get_messages("user")
    assert asked.content == "question"
    assert answered.role == "assistant"
    assert answered.content.startswith(shown.strip())


def test_a_stream_that_was_read_to_its_end_stands_once(chats: HoldfastChatStore) -> None:
    memory = ChatMemoryBuffer.from_defaults(chat_store=chats, chat_store_key="user")
    engine = SimpleChatEngine.from_defaults(llm=MockLLM(), memory=memory)
    shown = "".join(chats.stream("user", engine.stream_chat("question").response_gen))

    async def again() -> str:
        answer = await engine.astream_chat("another")
        texts = [text async for text in chats.astream("user", answer.async_response_gen())]
        return "".join(texts)

    more = asyncio.run(again())
    said = [message.content for message in chats.get_messages("user")]
    assert said == ["question", shown.strip(), "another", more.strip()]
    assert judge(chats._store) == []


def test_two_threads_and_several_loops_lose_nothing(chats: HoldfastChatStore) -> None:
    async def speak(name: str) -> None:
        for number in range(10):
            message = ChatMessage(role="user", content=f"{name} {number}")
            await chats.async_add_message("a", message)

    threads = []
    for name in ("one", "two", "three"):
        threads.append(threading.Thread(target=lambda name=name: asyncio.run(speak(name))))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    said = [message.content for message in asyncio.run(chats.aget_messages("a"))]
    assert len(said) == 30
    for name in ("one", "two", "three"):
        own = [text for text in said if text.startswith(name)]
        assert own == [f"{name} {number}" for number in range(10)]


@pytest.mark.parametrize("wrong", [None, 7, "text", {"role": "user"}])
def test_what_is_no_message_is_refused_and_nothing_is_written(
    chats: HoldfastChatStore, wrong: Any
) -> None:
    with pytest.raises(BadArgument):
        chats.add_message("a", wrong)
    with pytest.raises(BadArgument):
        chats.set_messages("a", [SAMPLES[0], wrong])
    with pytest.raises(BadArgument):
        chats.add_message(wrong if wrong != "text" else "", SAMPLES[0])
    assert chats.get_keys() == []


def test_it_may_be_subclassed_and_dumped(where: str) -> None:
    class Mine(HoldfastChatStore):
        colour: str = "blue"

    mine = Mine(where, colour="red")
    mine.add_message("a", SAMPLES[0])
    assert mine.colour == "red"
    assert mine.get_messages("a") == [SAMPLES[0]]


def test_a_message_that_somebody_else_has_said_is_there_in_words(where: str) -> None:
    with holdfast.open(where) as store:
        chats = HoldfastChatStore(store)
        chats.session("a").append("from elsewhere")
        assert [each.content for each in chats.get_messages("a")] == ["from elsewhere"]


def test_another_store_is_taken_over_and_back_as_the_page_says(where: str) -> None:
    theirs = SimpleChatStore()
    theirs.set_messages("one", SAMPLES)
    theirs.set_messages("two", SAMPLES[:2])
    chats = HoldfastChatStore(where)
    code = example("llama-index.md", "old.get_keys()")
    for _ in range(2):
        exec(code, {"chats": chats, "old": theirs})
    assert {key: chats.get_messages(key) for key in chats.get_keys()} == theirs.store
    assert len(list(chats.session("one").transcript())) == len(SAMPLES)
    back = SimpleChatStore()
    exec(code, {"chats": back, "old": chats})
    assert back.store == theirs.store


def _gardener(url: str, done: list[int], name: str = "gardener") -> Any:
    def water(row: int) -> str:
        """Waters a row."""
        done.append(row)
        return f"row {row} is wet"

    llm = OpenAILike(
        model="gpt-test",
        api_base=f"{url}/v1",
        api_key="none",
        is_chat_model=True,
        is_function_calling_model=True,
        max_retries=0,
    )
    return FunctionAgent(name=name, description="Waters.", llm=llm, tools=[water])


def _watered(provider: Any) -> None:
    calls = [("water", {"row": 7})]
    provider.answer("ask-01", ScriptedAnswer(("I ", "look. "), calls), ScriptedAnswer(("Wet.",)))


async def _run(chats: HoldfastChatStore, agent: Any, prompt: Any, **more: Any) -> list[Any]:
    return [event async for event in chats.run("a", agent, prompt, **more)]


def _two_gardeners(url: str, done: list[int]) -> Any:
    agents = [_gardener(url, done, name) for name in ("one", "two")]
    return AgentWorkflow(agents=agents, root_agent="one")


@pytest.mark.parametrize("make", [_gardener, _two_gardeners])
def test_a_run_of_agents_stands_once_in_the_list(where: str, make: Any) -> None:
    done: list[int] = []
    with serve() as provider:
        _watered(provider)
        chats = HoldfastChatStore(where)
        events = asyncio.run(_run(chats, make(provider.url, done), "ask-01"))
        asked = [request.body["messages"] for request in provider.asked]
    assert "".join(each.delta for each in events if isinstance(each, AgentStream)) == "I look. Wet."
    said = chats.get_messages("a")
    assert [(each.role.value, each.content) for each in said] == [
        ("user", "ask-01"),
        ("assistant", "I look. "),
        ("tool", "row 7 is wet"),
        ("assistant", "Wet."),
    ]
    # What the agent reads of its memory while it works has nothing twice.
    assert [len(messages) for messages in asked] == [1, 3]
    assert done == [7]
    assert judge(chats._store) == []


def test_the_same_request_is_run_once(where: str) -> None:
    done: list[int] = []
    with serve() as provider:
        _watered(provider)
        chats = HoldfastChatStore(where)
        agent = _gardener(provider.url, done)
        asyncio.run(_run(chats, agent, "ask-01", request_id="r1"))
        with pytest.raises(AlreadyAccepted):
            asyncio.run(_run(chats, agent, "ask-01", request_id="r1"))
        assert len(provider.asked) == 2
    assert len(chats.get_messages("a")) == 4


def test_a_tool_does_not_begin_before_its_call_is_stored(where: str, monkeypatch: Any) -> None:
    done: list[int] = []
    chats = HoldfastChatStore(where)

    async def refuse(run: Any, payload: Any) -> None:
        raise StoreUnavailable(where="here", problem="it is full", remedy="Make room")

    monkeypatch.setattr("holdfast.adapters.llama_index.agent_run.ClaimedRun._add", refuse)
    with serve() as provider:
        _watered(provider)
        with pytest.raises(StoreUnavailable):
            asyncio.run(_run(chats, _gardener(provider.url, done), "ask-01"))
    assert done == []


def test_a_call_of_a_run_that_was_left_has_an_outcome_that_says_so(where: str) -> None:
    chats = HoldfastChatStore(where)

    async def leave(agent: Any) -> None:
        async with aclosing(chats.run("a", agent, "ask-01")) as events:
            async for event in events:
                if isinstance(event, AgentOutput):
                    return

    with serve() as provider:
        _watered(provider)
        asyncio.run(leave(_gardener(provider.url, [])))
    said = chats.get_messages("a")
    assert [each.role.value for each in said] == ["user", "assistant", "tool"]
    [call] = [block for block in said[1].blocks if isinstance(block, ToolCallBlock)]
    assert said[-1].additional_kwargs == {"tool_call_id": call.tool_call_id}
    assert judge(chats._store) == []


def test_a_memory_of_another_list_is_refused(where: str) -> None:
    chats = HoldfastChatStore(where)
    for other in (
        ChatMemoryBuffer.from_defaults(chat_store=chats, chat_store_key="b"),
        ChatMemoryBuffer.from_defaults(chat_store=SimpleChatStore(), chat_store_key="a"),
        "a memory",
    ):
        with pytest.raises(BadArgument):
            asyncio.run(_run(chats, _gardener("http://127.0.0.1:9", []), "hi", memory=other))
    with pytest.raises(BadArgument):
        asyncio.run(_run(chats, "an agent", "hi"))
    with pytest.raises(BadArgument):
        asyncio.run(_run(chats, _gardener("http://127.0.0.1:9", []), 7))
    assert chats.get_keys() == []


def test_two_processes_add_to_one_key(tmp_path: Path) -> None:
    place = str(tmp_path / "agents.db")
    script = f"""
        from llama_index.core.llms import ChatMessage
        from holdfast.adapters.llama_index import HoldfastChatStore
        chats = HoldfastChatStore({place!r})
        say("ready")
        name = hear()
        for number in range(20):
            chats.add_message("a", ChatMessage(role="user", content=f"{{name}} {{number}}"))
    """
    with child(script) as one, child(script) as two:
        for process, name in ((one, "one"), (two, "two")):
            process.wait_for("ready")
            process.tell(name)
        one.end()
        two.end()
    said = [message.content for message in HoldfastChatStore(place).get_messages("a")]
    assert len(said) == 40
    for name in ("one", "two"):
        own = [text for text in said if text.startswith(name)]
        assert own == [f"{name} {number}" for number in range(20)]
