"""Several messages in one commit: all of them or none, checked before anything is written."""

import asyncio

import pytest

import holdfast
from holdfast.errors import BadArgument, InvalidMessage, SessionEnded, TurnInterrupted
from thorough import few_on_postgres

pytestmark = few_on_postgres(
    "messages are checked in `runtime/changes`; one commit has its laws in the conformance suite",
)


@pytest.fixture
def session(where):
    with holdfast.open(where, durability="process") as store:
        yield store.session("k")


CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
ROUND = [
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "seen"},
    {"role": "assistant", "content": "I have looked."},
]


def said(session):
    return [message.payload for message in session.transcript()]


def test_messages_are_appended_in_order_and_named(session):
    ids = session.append_all(["hello", *ROUND])
    assert [message.id for message in session.transcript()] == ids
    assert said(session) == [{"role": "user", "content": "hello"}, *ROUND]
    assert session.append_all([]) == []


@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_that_is_no_message_takes_all_of_them_with_it(session, place):
    messages = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
    messages.insert(place, {"role": "user", "content": object()})
    head = session.head()
    with pytest.raises(InvalidMessage):
        session.append_all(messages)
    assert session.head() == head
    with session.turn("Hi.") as turn:
        head = session.head()
        with pytest.raises(InvalidMessage):
            turn.add_all(messages)
        assert session.head() == head
        turn.say("Hello.")


@pytest.mark.parametrize("wrong", ["hello", {"role": "user", "content": "a"}, None, 5])
def test_one_message_is_not_a_list_of_them(session, wrong):
    with pytest.raises(BadArgument):
        session.append_all(wrong)


def test_an_ended_session_takes_none(session):
    session.end("over")
    with pytest.raises(SessionEnded):
        session.append_all(["a", "b"])


def test_a_turn_stores_a_whole_round(session):
    with session.turn("Look.") as turn:
        ids = turn.add_all(ROUND)
        assert turn.calls() == [], "the call came with its answer"
    assert [message.id for message in session.transcript()][1:] == ids
    assert [call.state for call in session.calls()] == ["done"]
    with session.turn("Again.") as turn:
        turn.add_all(ROUND[:1])
        assert [call.call_id for call in turn.calls()] == ["c1"]


def test_a_turn_that_is_over_keeps_them_as_late(session):
    turn = session.turn("Look.")
    session.stop()
    with pytest.raises(TurnInterrupted):
        turn.add_all(ROUND)
    assert [message.late for message in session.transcript()] == [False, True, True, True]


def test_asyncio_does_the_same(where):
    async def story():
        async with holdfast.open_async(where) as store:
            session = await store.session("k")
            await session.append_all(["a", "b"])
            async with session.turn("Look.") as turn:
                await turn.add_all(ROUND)
            return [message.text async for message in session.transcript()][:3]

    assert asyncio.run(story()) == ["a", "b", "Look."]
