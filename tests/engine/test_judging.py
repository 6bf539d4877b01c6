"""Judging: which guard speaks first, where several would. That each speaks is a law of every
engine.
"""

import pytest

from holdfast.engine.guards import judge, judge_opening, judge_taken
from holdfast.engine.protocol import Accepted, Opening, Refusal, SessionState, Write
from holdfast.engine.session_row import CLOSED, ERASED

ACCEPTED = Accepted("s", 3, b"m")
RUNNING = dict(head=7, fence=4, turn=4, ended=0)


def standing(**changed: int | None) -> SessionState:
    usual = dict(id="s", tenant="t", key=None, epoch=1, holder=None, lease_left_s=None, journal=0)
    return SessionState(**usual, opened_at=0, active_at=0, last_at=0, **{**RUNNING, **changed})  # type: ignore[arg-type]


ALL_WRONG = Write("s", fence=3, idle=True, head=6, takes=(b"a",), pays=b"b")
MENDED: list[tuple[Write, SessionState, Refusal | None]] = [
    (ALL_WRONG, standing(ended=CLOSED), "ended"),
    (ALL_WRONG, standing(), "superseded"),
    (Write("s", fence=4, idle=True, head=6, takes=(b"a",), pays=b"b"), standing(), "busy"),
    (Write("s", fence=4, head=6, takes=(b"a",), pays=b"b"), standing(), "moved"),
    (Write("s", fence=4, head=7, takes=(b"a",), pays=b"b"), standing(), "taken"),
    (Write("s", fence=4, head=7, pays=b"b"), standing(), "taken"),
    (Write("s", fence=4, head=7), standing(), None),
    (Write("s", ended_too=True), standing(turn=None, ended=CLOSED), None),
    (Write("s", ended_too=True), standing(turn=None, ended=ERASED), "ended"),
    (Write("s", ended_too=True, erase=()), standing(turn=None, ended=ERASED), None),
]


@pytest.mark.parametrize(("write", "known", "why"), MENDED)
def test_the_first_guard_that_stands_in_the_way_is_told(
    write: Write, known: SessionState, why: str | None
) -> None:
    judged = judge(write, known) or judge_taken(write)
    assert (judged and judged[0]) == why


def test_an_event_that_was_accepted_is_told_whatever_became_of_its_session() -> None:
    for known in (standing(), standing(ended=CLOSED), standing(ended=ERASED)):
        assert judge(ALL_WRONG, known, ACCEPTED) == ("accepted", ACCEPTED)
    assert judge(ALL_WRONG, None, ACCEPTED) == ("missing", None)
    opening = Opening("t", "k", 1)
    assert judge_opening(ALL_WRONG, opening, exists=True, current=("x", 1), accepted=ACCEPTED) == (
        "accepted",
        ACCEPTED,
    )


def test_what_is_taken_and_paid_must_all_be_there() -> None:
    write = Write("s", takes=(b"a", b"b"), pays=b"c")
    assert judge_taken(write, {b"a": 1}, True) == ("taken", None)
    assert judge_taken(write, {b"a": 1, b"b": 2}, False) == ("taken", None)
    assert judge_taken(write, {b"a": 1, b"b": 2}, True) is None


def test_a_key_is_bound_to_the_session_of_its_next_epoch_alone() -> None:
    def judged(epoch: int, current: tuple[str, int] | None) -> object:
        return judge_opening(
            Write("s"), Opening("t", "k", epoch), exists=False, current=current, accepted=None
        )

    assert judged(1, None) is None and judged(3, ("old", 2)) is None
    assert judged(2, None) == ("bound", None)
    assert judged(1, ("old", 1)) == ("bound", "old") and judged(3, ("old", 1)) == ("bound", "old")


def test_a_session_that_is_there_is_not_opened_once_more() -> None:
    opening = Opening("t", None, 1)
    write = Write("s", open=opening)
    asked = {"current": None, "accepted": None}
    assert judge_opening(write, opening, exists=True, **asked) == ("bound", "s")
    assert judge_opening(write, opening, exists=False, **asked) is None
