"""LangChain's chat history on Holdfast. LangChain publishes no tests for histories; these are its
documented behaviour, with its own runner.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from langchain_community.chat_message_histories import SQLChatMessageHistory
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables.history import RunnableWithMessageHistory
from pages import example

import holdfast
from engine_calls import EngineCalls
from holdfast.adapters.langchain import HoldfastChatMessageHistory
from holdfast.errors import AlreadyAccepted, BadArgument, SessionEnded

ANSWER = "Casa Lola has a table"
CALL = {"name": "water", "args": {"row": 1}, "id": "c1", "type": "tool_call"}


class Scripted(GenericFakeChatModel):
    """Answers the same always, and keeps what it was sent."""

    sent: list[Any] = []

    # Called for a stream, too.
    def _generate(self, messages: Any, *rest: Any, **more: Any) -> Any:
        self.sent.append(list(messages))
        return super()._generate(messages, *rest, **more)


def model() -> Scripted:
    return Scripted(messages=iter([AIMessage(ANSWER)] * 9), sent=[])


def test_a_turn_of_the_runner_is_one_look_and_one_commit(where: str) -> None:
    history = HoldfastChatMessageHistory("k", where)
    history.add_messages([HumanMessage("Hi."), AIMessage("Hello.")])
    assert len(history.messages) == 2
    calls = EngineCalls(history.store)
    assert len(history.messages) == 2
    history.add_messages([HumanMessage("Hi."), AIMessage("Hello.")])
    assert calls.taken() == {"entries": 1, "submit": 1}


def test_messages_come_back_as_they_were_added(where: str) -> None:
    history = HoldfastChatMessageHistory("k", where)
    assert history.messages == []
    added = [
        SystemMessage("Be brief."),
        HumanMessage([{"type": "text", "text": "Look."}], name="ada"),
        AIMessage("", tool_calls=[CALL], usage_metadata=usage()),
        ToolMessage("wet", tool_call_id="c1", status="error"),
        AIMessage("", id="nothing"),
        AIMessage("Done.", response_metadata={"model_name": "m", "odd": [1, None]}),
    ]
    history.add_messages(added)
    history.add_user_message("Hi.")
    history.add_ai_message("Hello.")
    expected = [*added, HumanMessage("Hi."), AIMessage("Hello.")]
    assert history.messages == expected
    assert HoldfastChatMessageHistory("k", holdfast.open(where)).messages == expected
    session = holdfast.open(where).session("k")
    assert [call.state for call in session.calls()] == ["failed"]
    assert [hit.role for hit in holdfast.open(where).search("done")] == ["assistant"]


def usage() -> Any:
    return {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}


def test_the_asynchronous_face_is_the_same(where: str) -> None:
    history = HoldfastChatMessageHistory("k", where)

    async def talk() -> list[Any]:
        await history.aadd_messages([HumanMessage("One."), AIMessage("Two.")])
        return await history.aget_messages()

    assert asyncio.run(talk()) == [HumanMessage("One."), AIMessage("Two.")]
    # Another event loop.
    assert len(asyncio.run(talk())) == 4
    asyncio.run(history.aclear())
    assert history.messages == []


def test_langchains_own_runner_keeps_a_conversation(where: str) -> None:
    prompt = ChatPromptTemplate.from_messages(
        [MessagesPlaceholder("history"), ("human", "{question}")]
    )
    scripted = model()
    chain = RunnableWithMessageHistory(
        prompt | scripted,
        lambda session_id: HoldfastChatMessageHistory(session_id, where),
        input_messages_key="question",
        history_messages_key="history",
    )
    config: Any = {"configurable": {"session_id": "telegram:dm:42"}}
    chain.invoke({"question": "One?"}, config)
    asyncio.run(chain.ainvoke({"question": "Two?"}, config))
    list(chain.stream({"question": "Three?"}, config))
    assert [len(messages) for messages in scripted.sent] == [1, 3, 5]
    found = HoldfastChatMessageHistory("telegram:dm:42", where).messages
    assert [each.content for each in found] == ["One?", ANSWER, "Two?", ANSWER, "Three?", ANSWER]


def test_a_cleared_history_is_closed_to_those_who_had_it(where: str) -> None:
    mine, yours = (HoldfastChatMessageHistory("k", where) for _ in range(2))
    mine.add_user_message("Old.")
    assert len(yours.messages) == 1
    mine.clear()
    mine.add_user_message("New.")
    with pytest.raises(SessionEnded):
        yours.add_ai_message("An answer to the old.")
    assert [each.content for each in mine.messages] == ["New."]


def test_a_batch_that_is_named_is_stored_once(where: str) -> None:
    batch = [HumanMessage("One?", id="h"), AIMessage("Yes.", id="a")]
    history = HoldfastChatMessageHistory("k", where)
    history.add_messages(batch)
    history.add_messages(batch)
    assert history.messages == batch
    for _ in range(2):
        named = HoldfastChatMessageHistory("k", where, request_id="r2")
        named.add_messages([HumanMessage("Two?"), AIMessage("Yes.")])
    assert len(history.messages) == 4
    # Without a name, equal texts are two messages.
    history.add_user_message("Two?")
    history.add_user_message("Two?")
    assert len(history.messages) == 6


def test_a_stream_that_is_left_keeps_its_prompt_and_what_was_shown(where: str) -> None:
    history = HoldfastChatMessageHistory("k", where)
    shown = []
    stream = history.stream(model(), "Book a table.")
    for chunk in stream:
        shown.append(chunk.content)
        if len(shown) == 3:
            break
    stream.close()
    again = HoldfastChatMessageHistory("k", holdfast.open(where))
    first, partial = again.messages
    assert first == HumanMessage("Book a table.")
    assert partial.content == "".join(shown) == "Casa Lola"

    async def go_on() -> str:
        scripted = model()
        words = [chunk.content async for chunk in again.astream(scripted, "Go on.")]
        assert [each.content for each in scripted.sent[0]][1:] == ["Casa Lola", "Go on."]
        return "".join(words)

    assert asyncio.run(go_on()) == ANSWER
    assert [each.content for each in again.messages][2:] == ["Go on.", ANSWER]
    states = [message.state for message in again.session.transcript()]
    assert states == ["complete", "partial", "complete", "complete"]


def test_prompts_that_got_no_answer_are_sent_with_the_next_as_one(where: str) -> None:
    class Broken:
        def stream(self, *given: Any, **more: Any) -> Any:
            raise ConnectionError

        async def astream(self, *given: Any, **more: Any) -> Any:
            raise ConnectionError
            yield

    async def ask(prompt: Any) -> None:
        async for _ in history.astream(Broken(), prompt):
            pass

    history, chain = HoldfastChatMessageHistory("k", where), model()
    picture = [{"type": "image_url", "image_url": {"url": "https://x.test/a.png"}}]
    for prompt in ("One?", "Two?"):
        with pytest.raises(ConnectionError):
            list(history.stream(Broken(), prompt))
    list(history.stream(chain, "Three?"))
    with pytest.raises(ConnectionError):
        asyncio.run(ask(HumanMessage(picture)))
    with pytest.raises(ConnectionError):
        asyncio.run(ask(HumanMessage("And?", name="bob")))
    list(history.stream(chain, HumanMessage("What is it?", name="bob")))
    first, second = ([message.content for message in sent] for sent in chain.sent)
    assert first == ["One?\n\nTwo?\n\nThree?"]
    assert second == [*first, ANSWER, picture, "And?\n\nWhat is it?"]
    said = [message.content for message in history.messages]
    assert said[:4] == ["One?", "Two?", "Three?", ANSWER]
    assert said[4:] == [picture, "And?", "What is it?", ANSWER]


def test_a_prompt_that_comes_again_is_answered_once(where: str) -> None:
    for number in range(2):
        history = HoldfastChatMessageHistory("k", where, request_id="r")
        if number:
            with pytest.raises(AlreadyAccepted):
                list(history.stream(model(), "One?"))
        else:
            list(history.stream(model(), "One?"))
    assert len(HoldfastChatMessageHistory("k", where).messages) == 2


def test_a_call_that_was_left_open_is_closed_behind_a_new_prompt(where: str) -> None:
    history = HoldfastChatMessageHistory("k", where)
    history.add_messages([HumanMessage("Water."), AIMessage("", tool_calls=[CALL])])
    assert len(history.messages) == 2
    scripted = model()
    list(history.stream(scripted, "And?"))
    [sent] = scripted.sent
    assert [each.type for each in sent] == ["human", "ai", "tool", "human"]
    assert sent[2].status == "error" and "unknown" in sent[2].content


def test_a_call_without_an_id_and_bare_texts_take_nothing_away(where: str) -> None:
    nameless = {"name": "water", "args": {}, "id": None, "type": "tool_call"}
    added = [AIMessage("", tool_calls=[nameless, CALL]), AIMessage(["Wet", "."])]
    history = HoldfastChatMessageHistory("k", where)
    history.add_messages([HumanMessage("Water."), *added])
    # A result names its call: there can be none of the nameless one.
    question, asked, result, answer = history.messages
    assert [asked, answer] == added
    assert (question.content, result.tool_call_id) == ("Water.", "c1")


@pytest.mark.parametrize("wrong", ["text", [1], [{"role": "user"}], None])
def test_what_is_no_message_is_refused_before_anything_is_written(where: str, wrong: Any) -> None:
    history = HoldfastChatMessageHistory("k", where)
    with pytest.raises(BadArgument):
        history.add_messages(wrong)
    with pytest.raises(BadArgument):
        history.add_messages(
            [HumanMessage("Good."), ToolMessage("x", tool_call_id="c", artifact={1})]
        )
    assert history.messages == []


@pytest.mark.parametrize("key", ["", None, 7])
def test_a_key_is_text(where: str, key: Any) -> None:
    with pytest.raises(BadArgument):
        HoldfastChatMessageHistory(key, where)


def test_a_history_of_theirs_is_taken_over_and_back_as_the_page_says(
    where: str, tmp_path: Path
) -> None:
    connection = f"sqlite:///{tmp_path / 'theirs.db'}"
    theirs = SQLChatMessageHistory("k", connection=connection)
    said = [HumanMessage("Hello."), AIMessage("", tool_calls=[CALL])]
    said += [ToolMessage("wet", tool_call_id="c1"), AIMessage("Done.")]
    theirs.add_messages(said)
    names = {"HoldfastChatMessageHistory": HoldfastChatMessageHistory, "session_id": "k"}
    names |= {"SQLChatMessageHistory": SQLChatMessageHistory, "connection": connection}
    code = example("langchain.md", "SQLChatMessageHistory").replace('"agent.db"', repr(where))
    for _ in range(2):
        given = dict(names)
        exec(code, given)
    assert given["history"].messages == said
    old = SQLChatMessageHistory("back", connection=connection)
    old.add_messages(given["history"].messages)
    assert old.messages == said
