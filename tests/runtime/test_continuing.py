"""What a context ends with: while a turn runs, with something for the model to answer (I-9)."""

import asyncio
import json

import pytest

import holdfast
from holdfast.domain.repair import CONTINUE
from holdfast.testing.providers import check
from thorough import few_cases

FORMATS = ("openai.chat", "openai.responses", "anthropic", "holdfast")


@pytest.fixture
def where(tmp_path):
    return tmp_path / "agent.db"


@pytest.fixture
def session(where):
    with holdfast.open(where) as store:
        yield store.session("k")


def is_request(format, context):
    return check(format, context, prefill=False) == []


def own_turn(session):
    """The agent wakes up by itself."""
    with session.turn("Hi.") as turn:
        turn.say("Hello!")
    return session.turn()


def late_approval(session):
    """A call waited, the model said so, and somebody approved it afterwards."""
    with session.turn("Pay.") as turn:
        turn.call("pay", {"amount": 80}, call_id="c1", needs_approval=True)
        turn.say("I have asked for approval.")
    session.decide("c1", True, by="ann")
    turn = session.turn()
    turn.call("pay", {"amount": 80}, call_id="c1")
    turn.result("c1", "paid")
    return turn


def cut_answer(session):
    """The stream broke, and the caller asks again in the same turn."""
    turn = session.turn("Hi.")
    chunks = [{"choices": [{"index": 0, "delta": {"content": "Hel"}, "finish_reason": None}]}]
    list(turn.deliver(chunks, format="openai.chat"))
    return turn


def words_before(session):
    """The agent said something by itself, then asks the model."""
    turn = session.turn("Hi.")
    turn.say("One moment.")
    return turn


@few_cases(every=3)
@pytest.mark.parametrize("begin", [own_turn, late_approval, cut_answer, words_before])
@pytest.mark.parametrize("format", FORMATS)
def test_a_running_turn_s_context_never_ends_with_the_model_s_own_message(
    session, where, begin, format
):
    with begin(session) as turn:
        context = turn.context(format)
        assert is_request(format, context) and CONTINUE in json.dumps(context[-1])
        with holdfast.open(where) as other:
            assert list(other.get(session.id).context(format)) == list(context), (
                "every process computes the same"
            )
        going_on = turn.context(format, prefill=True)
        assert list(going_on) == list(context)[:-1] and check(format, going_on) == []
        assert not is_request(format, going_on)
    assert CONTINUE not in json.dumps([message.text for message in session.transcript()])


@pytest.mark.parametrize("format", FORMATS)
def test_between_turns_a_context_is_the_history_that_the_next_message_follows(session, format):
    with session.turn("Hi.") as turn:
        turn.say("Hello!")
    assert CONTINUE not in json.dumps(session.context(format))
    with session.turn("And?") as turn:
        assert CONTINUE not in json.dumps(turn.context(format)) and is_request(
            format, turn.context(format)
        )


def test_what_is_appended_to_a_context_takes_the_place_of_the_word_to_continue(session):
    mine = {"role": "user", "content": "Mine."}
    with own_turn(session) as turn:
        appended, extended, added = turn.context(), turn.context(), turn.context()
        appended.append(mine)
        extended.extend([mine])
        for grown in (appended, extended, added + [mine]):
            assert list(grown) == [*turn.context(prefill=True), mine]
        appended.pop()
        appended.append(mine)
        assert list(appended) == [*turn.context(prefill=True), mine]


@pytest.mark.parametrize("format", FORMATS)
def test_a_list_with_the_word_to_continue_can_be_recorded_and_nobody_has_said_it(
    session, where, format
):
    """I-12: an agent that keeps its own list takes it from the context of its own turn."""
    with own_turn(session) as turn:
        messages = list(turn.context(format))
        answer = {"role": "assistant", "parts": [{"type": "text", "text": "Done."}]}
        answer = answer if format == "holdfast" else {"role": "assistant", "content": "Done."}
        assert len(session.record([*messages, answer], format=format).new) == 1
    assert [message.text for message in session.transcript()] == ["Hi.", "Hello!", "Done."]


def test_the_async_faces_ask_alike(where):
    async def scene():
        async with holdfast.open_async(where) as store:
            session = await store.session("k")
            async with session.turn("Hi.") as turn:
                await turn.say("Hello!")
            async with session.turn() as turn:
                for context in (
                    await turn.context("anthropic"),
                    await session.context("anthropic"),
                ):
                    assert is_request("anthropic", context)
                for context in (
                    await turn.context("anthropic", prefill=True),
                    await session.context("anthropic", prefill=True),
                ):
                    assert [message["role"] for message in context] == ["user", "assistant"]

    asyncio.run(scene())


def test_a_turn_that_anthropic_paused_goes_on_where_it_was(session):
    """With `prefill` the use of the provider's own tool is the end of the request; without, it is
    left out.
    """
    use = {
        "type": "server_tool_use",
        "id": "srvtoolu_1",
        "name": "web_search",
        "input": {"query": "q"},
    }
    said = {"role": "assistant", "content": [{"type": "text", "text": "Let me look."}, use]}
    with session.turn("Search.", format="anthropic") as turn:
        turn.add(said)
        assert (
            turn.context(prefill=True)[-1] == said
            and check("anthropic", turn.context(prefill=True)) == []
        )
        assert is_request("anthropic", turn.context()) and "srvtoolu_1" not in json.dumps(
            turn.context()
        )
