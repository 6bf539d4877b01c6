"""Questions that had no answer: Hermes joins them for its model, in place, and each stays one message."""

import pytest

import holdfast
from holdfast.adapters.hermes.spoken.conversation import Conversation
from holdfast.adapters.hermes.spoken.live_list import plain, unmerged


@pytest.fixture
def session(tmp_path):
    with holdfast.open(tmp_path / "holdfast.db") as store:
        yield store.session("hermes:s1")


def asks(conversation, text):
    turn = conversation.session.turn(text)
    conversation.begin(turn, [{"role": "user", "content": text}])
    return turn


def cut(conversation, turn):
    conversation.finish(cut=True)
    turn.interrupt("interrupted")


def record(conversation, *lives):
    conversation.record(unmerged([(live, plain(live)) for live in lives]))


def user(text):
    return {"role": "user", "content": text}


def told(session):
    return [message.text for message in session.transcript()]


def test_a_question_that_is_joined_to_the_one_before_is_stored_once(session):
    conversation, first = Conversation(session, "s1"), user("A")
    turn = asks(conversation, "A")
    record(conversation, first)
    cut(conversation, turn)
    turn = asks(conversation, "B")
    first["content"] = "A\n\nB"
    record(conversation, first)
    assert told(session) == ["A", "B"]
    cut(conversation, turn)
    turn = asks(conversation, "C")
    first["content"] = "A\n\nB\n\nC"
    record(conversation, first)
    cut(conversation, turn)
    assert told(session) == ["A", "B", "C"]
    assert [each["content"] for each in session.context()] == ["A\n\nB\n\nC"]


def test_a_list_that_still_has_both_and_the_joined_one_doubles_nothing(session):
    conversation, first, second, third = Conversation(session, "s1"), *map(user, "ABC")
    turn = asks(conversation, "A")
    record(conversation, first)
    cut(conversation, turn)
    turn = asks(conversation, "B")
    record(conversation, first, second)
    first["content"] = "A\n\nB"
    record(conversation, first)
    cut(conversation, turn)
    turn = asks(conversation, "C")
    record(conversation, first, second, third)
    cut(conversation, turn)
    assert told(session) == ["A", "B", "C"]


def test_a_list_that_is_written_before_the_question_is_in_it_keeps_the_question(session):
    conversation, first, second = Conversation(session, "s1"), user("A"), user("B")
    turn = asks(conversation, "A")
    record(conversation, first)
    cut(conversation, turn)
    turn = asks(conversation, "B")
    record(conversation, first)
    record(conversation, first, second)
    turn.say("Yes.")
    cut(conversation, turn)
    assert told(session) == ["A", "B", "Yes."]
