"""Ending a session: what runs is stopped and the session closed in one, whenever others look (I-6,
I-8).
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Session, Store
from holdfast.errors import AlreadyAccepted, HoldfastError, SessionBusy, SessionEnded
from holdfast.runtime.changes import end_session
from holdfast.runtime.plans.plan import Read
from holdfast.testing.oracle import judge
from looking import ends, told


@pytest.fixture
def other(path: Path) -> Iterator[Store]:
    """Another handle on the same store."""
    with holdfast.open(path, durability="process") as opened:
        yield opened


def moments(plan: Any) -> Iterator[None]:
    """Drives a plan, and stops after each thing it waited for."""
    request = next(plan)
    while True:
        answer = request.work() if isinstance(request, Read) else request.result()
        yield
        try:
            request = plan.send(answer)
        except StopIteration:
            return


def test_nobody_gets_a_turn_between_the_stop_and_the_end(session: Session, other: Store) -> None:
    """I-8: from the moment the running turn is stopped there is no turn any more, whenever one is
    asked for.
    """
    running = session.turn("one")
    running.say("Well,")
    rival, met = other.session("k"), []
    for _ in moments(end_session.end(session._log, "enough")):
        with pytest.raises(HoldfastError) as refused:
            rival.turn("two", on_busy="refuse")
        met.append(type(refused.value))
    assert met[0] is SessionBusy and met[-1] is SessionEnded
    assert met == sorted(met, key=lambda kind: kind is SessionEnded), "what has ended stays so"
    assert list(ends(other, session.id).values()) == [["interrupted"]]
    assert told(rival) == [("user", "one", "complete"), ("assistant", "Well,", "complete")]


def test_a_turn_that_starts_while_a_session_is_being_ended_is_ended_with_it(
    session: Session, other: Store
) -> None:
    """I-6, I-8: whoever was quicker has one end, and the session is over when `end` returns."""
    rival = other.session("k")
    for moment, _ in enumerate(moments(end_session.end(session._log, "enough"))):
        if moment == 0:
            quick = rival.turn("quick", on_busy="refuse")
    assert quick.stopped
    assert list(ends(other, session.id).values()) == [["interrupted"]]
    assert rival.info().state == "ended"


def test_ending_twice_changes_nothing(session: Session) -> None:
    session.turn("one")
    session.end("enough")
    before = list(session.entries())
    session.end("again")
    assert list(session.entries()) == before
    assert [entry.kind for entry in before].count("closed") == 1


def test_what_still_waits_when_a_session_ends_goes_on_in_the_keys_next_one(
    store: Store, session: Session
) -> None:
    """I-4: it was accepted for the key, and no turn has taken it. It is one message, and waits in
    one place.
    """
    first = store.accept("k", "one", event_id="evt-1")
    store.accept("k", "two")
    session.end("enough")
    assert [message.text for message in session.pending()] == ["one", "two"]
    with store.turn("k", "three") as turn:
        assert [message.text for message in store.session("k").transcript()] == [
            "one",
            "two",
            "three",
        ]
        turn.say("To all three.")
    assert session.pending() == [] == store.session("k").pending()
    assert session.info().state == "ended"
    assert store.accept("k", "one", event_id="evt-1").message_id == first.message_id
    with pytest.raises(SessionEnded, match="enough"):
        session.append("four")
    assert judge(store) == []


def test_whoever_waits_with_a_message_when_the_session_ends_gets_a_turn_that_has_it(
    store: Store, other: Store
) -> None:
    """I-4, I-8."""
    running = store.turn("k", "one")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(other.turn, "k", "two")
        next(event for event in store.session("k").follow() if event.text == "two")
        store.session("k").end("enough")
        with waiting.result(60) as turn:
            assert running.stopped
            assert turn.context() == [{"role": "user", "content": "two"}]
            turn.say("Yes?")
    assert store.session("k").epoch == 2
    assert judge(store) == []


def test_whoever_waits_with_a_message_that_is_erased_gets_no_turn_without_it(
    store: Store, other: Store
) -> None:
    """I-4, I-21: there is nothing left to answer."""
    running = store.turn("k", "one")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(other.turn, "k", "two")
        next(event for event in store.session("k").follow() if event.text == "two")
        store.erase(running.id.partition(":")[0])
        with pytest.raises(AlreadyAccepted):
            waiting.result(60)
    assert judge(store) == []
