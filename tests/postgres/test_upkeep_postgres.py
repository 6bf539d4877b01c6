"""What is wrong with a store in PostgreSQL is told, with its place and a remedy, and nothing is
written (I-18).
"""

from collections.abc import Callable, Iterator

import psycopg
import pytest

import holdfast


@pytest.fixture
def place(databases: Callable[..., str]) -> str:
    return databases(schema=True)


@pytest.fixture
def store(place: str) -> Iterator[holdfast.Store]:
    """A store with something of everything in it."""
    with holdfast.open(place) as opened:
        session = opened.session("k")
        for number in range(3):
            with session.turn(
                f"question {number}", event_id=f"event {number}", reply_to="42"
            ) as turn:
                list(turn.deliver(["answer ", f"{number}"]))
                turn.result(turn.call("look", {"n": number}), "seen")
        session.compact("They talked.", keep_turns=1)
        session.append({"role": "user", "content": "A picture: " + "x" * 100_000})
        session.fork().append("elsewhere")
        opened.accept("k", "It waits.", event_id="it waits")
        opened.reset("gone").append("an earlier one")
        opened.reset("gone")
        opened.erase(opened.session("erased").id)
        yield opened


def test_a_healthy_store_has_no_problems(store: holdfast.Store) -> None:
    assert store.check() == []
    with store.session("k").turn("hi") as turn:
        for _ in turn.deliver(["a", "b"]):
            assert store.check() == []


FIRST = "(SELECT id FROM session WHERE key = 'k' AND origin = 0)"
BROKEN = {
    "a gap": (f"DELETE FROM entry WHERE session = {FIRST} AND seq = 5", "I-1"),
    "no beginning": (f"DELETE FROM entry WHERE session = {FIRST} AND seq = 1", "I-1"),
    "an id twice": (f"UPDATE entry SET id = 'aa' WHERE session = {FIRST} AND seq IN (4, 6)", "I-2"),
    "no end": (
        f"UPDATE entry SET kind = 'call' WHERE kind = 'end' AND session = {FIRST} AND turn = 1",
        "I-6",
    ),
    "an end of the running turn": (
        f"UPDATE session SET turn = fence, holder = 'x' WHERE id = {FIRST}",
        "I-6",
    ),
    "another key's session": ("UPDATE binding SET epoch = 99 WHERE key = 'k'", "I-8"),
    "a large part that is gone": ("DELETE FROM blob", "I-14"),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_invariant_is_found_with_its_place(
    store: holdfast.Store, place: str, what: str
) -> None:
    statement, invariant = BROKEN[what]
    with psycopg.connect(place, autocommit=True) as other:
        other.execute(statement)  # type: ignore[arg-type]
        before = other.execute("SELECT count(*), max(xmin::text) FROM entry").fetchall()
        problems = store.check()
        assert other.execute("SELECT count(*), max(xmin::text) FROM entry").fetchall() == before
    assert invariant in {problem.invariant for problem in problems}, problems
    assert all(problem.place and problem.problem and problem.remedy for problem in problems)
