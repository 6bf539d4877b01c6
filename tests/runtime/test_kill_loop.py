"""The kill loop: hundreds of real processes are killed at any point, and the store holds what it
promised.

The loop and its oracle are part of the kit (`holdfast.testing.faults.kill_loop`); fault classes A1,
A3, E1, E4, G5, I8.
"""

import pytest

import holdfast
from holdfast.testing.faults.kill_loop import KEY, judge_chapter, kill_loop
from holdfast.testing.oracle import Acknowledged


@pytest.mark.slow
def test_processes_killed_at_any_point_lose_nothing_double_nothing_and_break_no_context(tmp_path):
    """I-1, I-2, I-4, I-5, I-6, I-9, I-10, I-22: delivered is a prefix of stored after each of 100
    kills.
    """
    report = kill_loop(tmp_path / "agent.db", kills=100, seed=2)
    assert report.broken == []
    assert report.kills == 100 and report.turns > 100 and report.texts > 1000
    assert report.ends["abandoned"] > 60 and report.ends["completed"] > 40
    assert report.struck.keys() >= {"shown", "called", "answered"}, "the kills met every act"
    assert report.struck.keys() & {"began", "said"}, "the start of a turn, too, which is two acts"


@pytest.mark.slow
def test_processes_killed_at_the_start_of_their_turns_give_their_messages_back(tmp_path):
    """I-4, FAULTS A2, A8: within the first acts, where a turn has not used its message yet."""
    report = kill_loop(tmp_path / "agent.db", kills=60, seed=3, acts_max=2)
    assert report.broken == []
    assert report.kills == 60 and report.ends["abandoned"] > 0


@pytest.mark.slow
def test_processes_killed_at_any_point_leave_a_store_in_postgres_whole(databases):
    """The same laws: the server lives on, and finds out sooner or later that a client is gone."""
    report = kill_loop(databases(schema=True), kills=24, seed=4)
    assert report.broken == []
    assert report.kills == 24 and report.turns > 15 and report.texts > 150
    assert report.ends["abandoned"] > 8


# An oracle that can't fail proves nothing; tests/runtime/test_oracle.py has the rest.
# ---------------------------------


@pytest.fixture
def store(tmp_path):
    with holdfast.open(tmp_path / "agent.db") as store:
        with store.turn(KEY, "question 1") as turn:
            list(turn.deliver(["<1 a0>", "<1 a1>"]))
        yield store


def test_the_judge_is_content_with_what_is_so(store):
    [session] = store.sessions()
    turn = f"{session.id}:1"
    acts = [["began", turn], ["shown", turn, None, "<1 a0>"], ["ended", turn, "completed"]]
    assert judge_chapter(store, Acknowledged(acts)) == []


def test_a_word_that_is_stored_twice_is_reported(store):
    with store.turn(KEY, "question 2") as turn:
        list(turn.deliver(["<1 a1>"]))
    [sentence] = judge_chapter(store, Acknowledged())
    assert "said twice" in sentence and "I-2" in sentence


def test_a_turn_without_an_end_is_reported(store):
    """Nobody is alive when a chapter is judged, so no turn may run."""
    with store.turn(KEY, "question 2") as turn:
        [sentence] = judge_chapter(store, Acknowledged())
        assert turn.id in sentence and "I-6" in sentence
