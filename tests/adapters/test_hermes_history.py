"""What Hermes has stored before Holdfast was there goes on in the sessions that its turns ask for."""

import sys
from types import ModuleType

import pytest

import holdfast
from hermes_stores import healthy
from holdfast.adapters.hermes.history import bring_history
from holdfast.adapters.hermes.spoken.conversation import Conversation
from holdfast.adapters.hermes.spoken.live_list import plain as words_of


@pytest.fixture
def home(tmp_path):
    healthy(tmp_path / "state.db")
    return tmp_path


def opened(home):
    return holdfast.open(home / "holdfast.db")


def told(session):
    return [message.text for message in session.transcript()]


def test_every_session_is_brought_under_the_key_of_its_turns_and_is_open(home):
    came = bring_history(home)
    assert came.new == came.sessions > 5 and came.messages > 30
    with opened(home) as store:
        session = store.session("hermes:plain", create=False)
        assert told(session)[:2] == ["Which berth is free tonight?", "Berth 4 is free until noon."]
        states = [listed.state for listed in store.sessions(limit=100)]
        assert set(states) == {"open"}


def test_brought_again_nothing_comes_twice_and_what_has_gone_on_is_left_alone(home):
    bring_history(home)
    with opened(home) as store, store.session("hermes:plain").turn("One more.") as turn:
        turn.say("Yes.")
    again = bring_history(home)
    assert (again.new, again.messages) == (0, 0)
    with opened(home) as store:
        assert told(store.session("hermes:plain"))[-2:] == ["One more.", "Yes."]


def test_a_list_that_hermes_has_loaded_is_known_and_nothing_of_it_doubled(home):
    bring_history(home)
    with opened(home) as store:
        session = store.session("hermes:plain")
        before = told(session)
        conversation = Conversation(session, "plain")
        loaded = [
            {"role": message.role, "content": message.text} for message in session.transcript()
        ]
        turn = session.turn("And now?")
        conversation.begin(turn, [{"role": "user", "content": "And now?"}])
        lives = [*loaded, {"role": "user", "content": "And now?"}]
        conversation.record([(live, words_of(live)) for live in lives])
        turn.say("Now, too.")
        conversation.finish(cut=False)
        turn.interrupt("enough")
        assert told(session) == [*before, "And now?", "Now, too."]


def test_a_home_without_a_history_is_nothing_to_bring(tmp_path):
    assert bring_history(tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_it_is_not_done_in_a_process_of_hermes(home, monkeypatch):
    monkeypatch.setitem(sys.modules, "hermes_state", ModuleType("hermes_state"))
    with pytest.raises(AssertionError, match="process of Hermes"):
        bring_history(home)
