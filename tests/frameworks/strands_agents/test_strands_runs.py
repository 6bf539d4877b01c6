"""`HoldfastSessionManager`: invocations of Strands' agents in turns."""

import asyncio
from typing import Any

import pytest
from scripted import ScriptedModel, words_of
from strands import Agent, tool
from strands.agent.conversation_manager import (
    SlidingWindowConversationManager,
    SummarizingConversationManager,
)
from strands.hooks import AfterModelCallEvent, BeforeToolCallEvent
from strands.multiagent import GraphBuilder

import holdfast
from holdfast.adapters.strands import HoldfastRepository, HoldfastSessionManager
from holdfast.errors import AlreadyAccepted, SessionEnded
from holdfast.testing.oracle import judge

KEY = "strands:chat:a"


def agent_on(where: str, *answers: Any, **more: Any) -> Agent:
    return Agent(
        model=ScriptedModel(*answers),
        session_manager=HoldfastSessionManager("chat", where),
        agent_id="a",
        callback_handler=None,
        **more,
    )


def transcript(where: str) -> list[tuple[str, str, str]]:
    session = holdfast.open(where).session(KEY, create=False)
    return [(said.role, said.state, said.text) for said in session.transcript()]


def fails() -> None:
    raise ConnectionError("the line is dead")


@tool
def look(at: str) -> str:
    """Looks."""
    return f"a cat at {at}"


CALL = {"id": "c1", "name": "look", "input": '{"at": "home"}'}


def test_an_invocation_is_one_turn_and_its_messages_are_stored_once(where: str) -> None:
    agent = agent_on(where, ["Hm. ", CALL], ["A ", "cat."], tools=[look])
    assert str(agent("What is there?")).strip() == "A cat."
    assert transcript(where) == [
        ("user", "complete", "What is there?"),
        ("assistant", "complete", "Hm. "),
        ("tool", "complete", "a cat at home"),
        ("assistant", "complete", "A cat."),
    ]
    session = holdfast.open(where).session(KEY, create=False)
    [turn] = session.turns()
    assert (turn.end, turn.usage.input, turn.usage.output) == ("completed", 14, 6)
    other = agent_on(where)
    assert other.messages == agent.messages
    assert judge(holdfast.open(where)) == []


def test_each_piece_is_stored_when_it_is_handed_on(where: str) -> None:
    reader = holdfast.open(where)
    pieces = [f"piece {number} " for number in range(4)]
    agent = agent_on(where, pieces)

    async def main() -> None:
        shown = ""
        async for event in agent.stream_async("Go on."):
            if "data" in event:
                shown += event["data"]
                session = reader.session(KEY, create=False)
                rows = session._log.engine.journal(session.id)
                stored = b"".join(row.body for row in rows).decode()
                assert event["data"] in stored
        assert shown == "".join(pieces)

    asyncio.run(main())


def test_what_was_shown_of_a_stream_that_was_left_is_in_the_next_request(where: str) -> None:
    agent = agent_on(where, ["Casa Lola ", "has a ", "table."], ["Yes."])

    async def leave() -> None:
        events = agent.stream_async("Book a table.")
        async for event in events:
            if event.get("data") == "has a ":
                break
        await events.aclose()

    asyncio.run(leave())
    assert transcript(where)[1:] == [("assistant", "partial", "Casa Lola has a ")]
    agent("Are you there?")  # the same agent, which Strands has told nothing of it
    expected = ["Book a table.", "Casa Lola has a ", "Are you there?"]
    assert words_of(agent.model.asked[-1]) == expected
    assert words_of(agent_on(where).messages) == [*expected, "Yes."]


def test_a_cancelled_agent_keeps_what_it_has_shown(where: str) -> None:
    agent = agent_on(where, ["Casa Lola ", lambda: agent.cancel(), "has a table."])
    result = agent("Book a table.")
    assert result.stop_reason == "cancelled"
    assert words_of(agent.messages)[1] == "Casa Lola Cancelled by user"
    assert words_of(agent_on(where).messages) == words_of(agent.messages)


def test_a_failed_attempt_stays_in_the_transcript_and_leaves_the_view(where: str) -> None:
    agent = agent_on(where, ["Casa ", fails], ["At eight."])
    tries = []

    def again(event: AfterModelCallEvent) -> None:
        tries.append(event.exception)
        event.retry = event.exception is not None

    agent.add_hook(again)
    assert str(agent("Book a table.")).strip() == "At eight."
    assert len(tries) == 2
    said = [("user", "complete", "Book a table."), ("assistant", "partial", "Casa ")]
    assert transcript(where) == [*said, ("assistant", "complete", "At eight.")]
    assert words_of(agent_on(where).messages) == ["Book a table.", "At eight."]


def test_a_failed_invocation_keeps_what_it_has_shown(where: str) -> None:
    agent = agent_on(where, ["Casa ", fails])
    with pytest.raises(ConnectionError):
        agent("Book a table.")
    other = agent_on(where)
    assert words_of(other.messages) == ["Book a table.", "Casa "]
    [turn] = holdfast.open(where).session(KEY, create=False).turns()
    assert turn.end == "failed"


def test_two_agents_on_one_session_know_what_the_other_has_said(where: str) -> None:
    one = agent_on(where, ["one."], ["three."])
    two = agent_on(where, ["two."])
    one("first")
    two("second")
    one.state.set("mine", 1)
    one("third")
    said = ["first", "one.", "second", "two.", "third"]
    assert words_of(one.model.asked[-1]) == said
    assert agent_on(where).state.get("mine") == 1
    assert words_of(agent_on(where).messages) == [*said, "three."]


@pytest.mark.parametrize("how", ["hidden", "rewound"])
def test_an_agent_that_is_kept_knows_what_was_hidden_or_rewound_meanwhile(
    where: str, how: str
) -> None:
    agent = agent_on(where)
    for number in range(3):
        agent(f"question {number}")
    session = holdfast.open(where).session(KEY, create=False)
    said = [*session.transcript()]
    if how == "hidden":
        for message in said[2:]:
            session.label(message.id, visible_to_model=False)
    else:
        session.rewind(said[1].id)
    agent("And now?")
    asked = agent.model.asked  # type: ignore[attr-defined]
    assert words_of(asked[-1]) == ["question 0", "Yes.", "And now?"]
    agent("And then?")
    assert words_of(asked[-1]) == ["question 0", "Yes.", "And now?", "Yes.", "And then?"]


def test_invocations_of_one_session_wait_for_each_other(where: str) -> None:
    agents = [agent_on(where, [f"{name} "] * 3) for name in range(4)]

    async def main() -> None:
        asking = [agent.invoke_async(f"ask {name}") for name, agent in enumerate(agents)]
        await asyncio.gather(*asking)

    asyncio.run(main())
    said = words_of(agent_on(where).messages)
    assert len(said) == 8
    for place in range(0, 8, 2):
        name = said[place].removeprefix("ask ")
        assert said[place + 1] == f"{name} " * 3


def test_the_same_request_is_answered_once(where: str) -> None:
    agent = agent_on(where)
    agent("Book a table.", invocation_state={"event_id": 42})
    again = agent_on(where)
    with pytest.raises(AlreadyAccepted):
        again("Book a table.", invocation_state={"event_id": 42})
    assert len(transcript(where)) == 2
    again("Another.", invocation_state={"event_id": 43})
    assert words_of(again.messages) == ["Book a table.", "Yes.", "Another.", "Yes."]


def test_a_manager_of_a_deleted_session_is_refused(where: str) -> None:
    stale = agent_on(where)
    stale("old")
    HoldfastRepository(where).delete_session("chat")
    agent_on(where)("new")
    with pytest.raises(SessionEnded):
        stale("and on")
    assert words_of(agent_on(where).messages) == ["new", "Yes."]


def start_over(how: str, where: str) -> None:
    """By the means of the store, not by Strands'."""
    store = holdfast.open(where)
    session = store.session(KEY, create=False)
    if how == "end":
        session.end("over")
    elif how == "erase":
        store.erase(session.id)
    else:
        store.reset(KEY)


@pytest.mark.parametrize("how", ["end", "erase", "reset"])
def test_an_agent_whose_messages_were_ended_or_erased_begins_anew(where: str, how: str) -> None:
    agent_on(where)("old")
    start_over(how, where)
    assert agent_on(where).messages == []
    agent_on(where)("new")
    assert words_of(agent_on(where).messages) == ["new", "Yes."]
    assert judge(holdfast.open(where)) == []


@pytest.mark.parametrize("how", ["end", "erase", "reset", "rewind"])
def test_what_a_window_had_left_out_hides_nothing_of_what_was_begun_anew(
    where: str, how: str
) -> None:
    def asked(prompt: str) -> list[str]:
        agent = agent_on(where, conversation_manager=SlidingWindowConversationManager(4))
        agent(prompt)
        return words_of(agent.model.asked[-1])  # type: ignore[attr-defined]

    for number in range(5):
        asked(f"question {number}")
    kept: list[str] = []
    if how == "rewind":
        session = holdfast.open(where).session(KEY, create=False)
        session.rewind([*session.transcript()][1].id)
        kept = ["question 0", "Yes."]
    else:
        start_over(how, where)
    assert asked("new") == [*kept, "new"]
    assert asked("And then?") == [*kept, "new", "Yes.", "And then?"]


@pytest.mark.parametrize("how", ["end", "erase", "reset"])
def test_a_summary_of_what_was_ended_is_not_told_in_what_was_begun_anew(
    where: str, how: str
) -> None:
    def agent(*answers: Any) -> Agent:
        manager = SummarizingConversationManager(summary_ratio=0.8, preserve_recent_messages=1)
        return agent_on(where, *answers, conversation_manager=manager)

    for number in range(5):
        agent()(f"question {number}")
    long = agent(["They spoke."])
    long.conversation_manager.reduce_context(long)
    long("And now?")
    assert words_of(agent().messages)[0] == "They spoke."
    start_over(how, where)
    agent()("new")
    assert words_of(agent().messages) == ["new", "Yes."]


def test_a_guardrail_redacts_what_the_user_said(where: str) -> None:
    redact = {"redactContent": {"redactUserContentMessage": "[redacted]"}}
    agent = agent_on(where, ["I can't.", redact])
    agent("my card is 4000")
    assert words_of(agent.messages) == ["[redacted]", "I can't."]
    assert words_of(agent_on(where).messages) == ["[redacted]", "I can't."]
    context = holdfast.open(where).session(KEY, create=False).context("openai.chat")
    assert "4000" not in str(list(context))


def test_calls_that_a_killed_process_left_open_are_closed(where: str) -> None:
    repository = HoldfastRepository(where)
    agent = agent_on(where, tools=[look])
    agent("first")
    call = {"toolUse": {"toolUseId": "c1", "name": "look", "input": {"at": "home"}}}
    session = repository.conversation("chat", "a").session  # type: ignore[union-attr]
    session.append({"role": "assistant", "content": [call]}, format="strands")
    agent("second")  # it does not know of the call before its turn has begun
    asked = agent.model.asked[-1]
    assert [message["role"] for message in asked][-2:] == ["assistant", "user"]
    results = [block for block in asked[-1]["content"] if "toolResult" in block]
    assert [block["toolResult"]["status"] for block in results] == ["error"]
    fresh = agent_on(where, tools=[look])
    fresh("third")
    assert judge(holdfast.open(where)) == []


def test_a_prompt_without_an_answer_and_the_next_one_are_sent_as_one_message(where: str) -> None:
    agent = agent_on(where, [fails])
    with pytest.raises(ConnectionError):
        agent("Book a table.")
    other = agent_on(where)
    other("For two.")
    assert words_of(other.model.asked[0]) == ["Book a table.For two."]
    assert words_of(other.messages) == ["Book a table.", "For two.", "Yes."]


def test_what_is_sent_begins_with_a_prompt_though_the_first_one_is_hidden(where: str) -> None:
    agent_on(where)("Book a table.")
    session = holdfast.open(where).session(KEY, create=False)
    session.label(next(iter(session.transcript())).id, visible_to_model=False)
    agent = agent_on(where)
    agent("For two.")
    [asked] = agent.model.asked  # type: ignore[attr-defined]
    assert [message["role"] for message in asked] == ["user", "assistant", "user"]
    assert words_of(asked) == ["(earlier messages are not shown)", "Yes.", "For two."]
    assert words_of(agent_on(where).messages) == ["Yes.", "For two.", "Yes."]


def test_a_graph_goes_on_where_it_was(where: str) -> None:
    def graph(*answers: Any) -> Any:
        builder = GraphBuilder()
        for name in ("n1", "n2"):
            model = ScriptedModel(*answers)
            builder.add_node(Agent(model=model, agent_id=name, callback_handler=None), name)
        builder.add_edge("n1", "n2")
        builder.set_entry_point("n1")
        builder.set_graph_id("g")
        builder.set_session_manager(HoldfastSessionManager("graphs", where))
        return builder.build()

    asyncio.run(graph(["done"]).invoke_async("go"))
    state = HoldfastRepository(where).read_multi_agent("graphs", "g")
    assert state is not None and sorted(state["completed_nodes"]) == ["n1", "n2"]
    graph(["done"])  # it is restored


def test_an_interrupt_is_answered_by_another_process(where: str) -> None:
    def ask(event: BeforeToolCallEvent) -> None:
        if event.interrupt("approval", reason="May I look?") != "yes":
            event.cancel_tool = "no"

    agent = agent_on(where, ["Hm. ", CALL], tools=[look])
    agent.add_hook(ask)
    result = agent("What is there?")
    assert result.stop_reason == "interrupt"
    other = agent_on(where, ["A cat."], tools=[look])
    other.add_hook(ask)
    answer = {"interruptId": result.interrupts[0].id, "response": "yes"}
    assert str(other([{"interruptResponse": answer}])).strip() == "A cat."
    told = [text for _, _, text in transcript(where)]
    assert told == ["What is there?", "Hm. ", "a cat at home", "A cat."]
    assert agent_on(where, tools=[look]).messages == other.messages
