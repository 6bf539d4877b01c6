"""The kill loop: hundreds of real processes are killed at any point, and the store holds what it promised.

The loop and its oracle are part of the kit (`holdfast.testing.killing`); fault classes A1, A3, E1, E4, G5, I8.
"""

import pytest

import holdfast
from holdfast.testing.killing import Witness, kill_loop


def test_processes_killed_at_any_point_lose_nothing_double_nothing_and_break_no_context(tmp_path):
    """I-1, I-2, I-4, I-5, I-6, I-9, I-10, I-22: delivered is a prefix of stored after each of 100 kills."""
    report = kill_loop(tmp_path / "agent.db", kills=100, seed=2)
    assert report.broken == []
    assert report.kills == 100 and report.turns > 100 and report.texts > 1000
    assert report.ends["abandoned"] > 60 and report.ends["completed"] > 40
    assert report.struck.keys() >= {"turn", "text", "call", "result"}, "the kills met every act"


def test_processes_killed_at_the_start_of_their_turns_give_their_messages_back(tmp_path):
    """I-4, FAULTS A2, A8: within the first acts, where a turn has not used its message yet."""
    report = kill_loop(tmp_path / "agent.db", kills=60, seed=3, acts_max=2)
    assert report.broken == []
    assert report.kills == 60 and report.ends["abandoned"] > 0


def test_processes_killed_at_any_point_leave_a_store_in_postgres_whole(databases):
    """The same laws: the server lives on, and finds out sooner or later that a client is gone."""
    report = kill_loop(databases(schema=True), kills=24, seed=4)
    assert report.broken == []
    assert report.kills == 24 and report.turns > 15 and report.texts > 150
    assert report.ends["abandoned"] > 8


@pytest.fixture
def session(tmp_path):
    with holdfast.open(tmp_path / "agent.db") as store:
        session = store.session("k")
        with session.turn("question 1") as turn:
            list(turn.deliver(["<1 a0>", "<1 a1>"]))
            turn.result(turn.call("look", "{}", call_id="call_0"), "result 1")
        session.turn_id = turn.id
        yield session


def test_the_witness_is_content_with_what_is_so(session):
    witness = Witness()
    witness.hear(
        [
            ["turn", session.turn_id, "question 1"],
            ["text", session.turn_id, "<1 a0>"],
            ["call", session.turn_id, "call_0"],
            ["result", session.turn_id, "call_0", "result 1"],
            ["end", session.turn_id],
        ]
    )
    assert list(witness.judge(session)) == []


@pytest.mark.parametrize(
    "act, law",
    [
        (["turn", "question 2"], "I-4"),
        (["text", "<1 a1>"], "I-5"),
        (["text", "<1 a0><1 a1><1 a2>"], "I-5"),
        (["call", "call_1"], "I-22"),
        (["result", "call_0", "result 2"], "I-10"),
    ],
)
def test_the_witness_tells_what_is_not_so(session, act, law):
    """An oracle that can't fail proves nothing."""
    witness = Witness()
    witness.hear([[act[0], session.turn_id, *act[1:]]])
    [sentence] = witness.judge(session)
    assert law in sentence


def test_the_witness_tells_a_doubled_word_and_a_wrong_end(session):
    with session.turn("question 1") as turn:
        list(turn.deliver(["<1 a1>"]))
        turn.interrupt()
    witness = Witness()
    witness.hear([["turn", session.turn_id, "question 1"], ["end", turn.id]])
    told = " ".join(witness.judge(session))
    assert "said twice" in told and "2 times" in told and "ended as ['interrupted']" in told
