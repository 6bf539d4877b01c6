"""A store for another tenant that was closed: nothing of it goes on, and all others do (I-19)."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast.errors import StoreUnavailable, TurnInterrupted
from holdfast.runtime.live.lease_keeper import LeaseKeeper


def refused(*calls: Callable[[], Any]) -> None:
    for call in calls:
        with pytest.raises(StoreUnavailable, match="it was closed"):
            call()


def test_what_was_had_from_a_closed_store_is_refused(where: str) -> None:
    with holdfast.open(where) as root:
        other = root.for_tenant("other")
        session = other.session("k")
        other.accept("k", "Hello.", reply_to="bob")
        with session.turn() as turn:
            turn.say("Hi.")
        [owed] = other.outbox()
        other.close()
        refused(
            lambda: session.turn("After."),
            lambda: session.append("After."),
            lambda: session.fork(),
            lambda: session.end("over"),
            lambda: list(session.transcript()),
            lambda: other.turn("k", "After."),
            lambda: other.accept("k", "After."),
            lambda: owed.sent(),
            lambda: other.for_tenant("third").session("k"),
        )
        other.close()
        again = root.for_tenant("other").session("k", create=False)
        assert [message.text for message in again.transcript()] == ["Hello.", "Hi."]
        with root.session("k").turn("And here.") as turn:
            turn.say("As ever.")


def test_closing_it_ends_its_own_turns_and_starts_no_other(where: str) -> None:
    """Also for one who waits for such a turn in another thread: it is told, and does not start."""
    told: list[BaseException] = []
    with holdfast.open(where) as root:
        other, third = root.for_tenant("other"), root.for_tenant("third")
        session, waiting = other.session("k"), threading.Event()
        kept = third.session("k").turn("Mine.")
        running = session.turn("First.")

        def wait() -> None:
            waiting.set()
            try:
                other.session("k").turn("Second.")
            except BaseException as error:
                told.append(error)

        waiter = threading.Thread(target=wait)
        waiter.start()
        waiting.wait()
        while not root.for_tenant("other").session("k").pending():
            pass
        other.close()
        waiter.join()
        assert [type(error) for error in told] == [StoreUnavailable]
        with pytest.raises((TurnInterrupted, StoreUnavailable)):
            running.say("Too late.")
        again = root.for_tenant("other").session("k", create=False)
        assert [turn.end for turn in again.turns()] == ["interrupted"]
        assert [message.text for message in again.pending()] == ["Second."]
        kept.say("It goes on.")
        assert not kept.stopped


def test_a_turn_that_starts_while_its_store_is_closed_is_refused(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the moment in which running turns are ended and the one in which nothing can be written."""
    told: list[str] = []
    with holdfast.open(where) as root:
        other, third = root.for_tenant("other"), root.for_tenant("third")
        session = other.session("k")
        end_those_that_start = LeaseKeeper.let_go_of_starting

        def and_then(keeper: LeaseKeeper, *given: Any) -> None:
            end_those_that_start(keeper, *given)
            with pytest.raises(StoreUnavailable, match="it was closed"):
                session.turn("Late.")
            with third.session("k").turn("Elsewhere."):
                told.append("it goes on elsewhere")

        with monkeypatch.context() as patched:
            patched.setattr(LeaseKeeper, "let_go_of_starting", and_then)
            other.close()
        assert told == ["it goes on elsewhere"]
        assert root.for_tenant("other").session("k", create=False).turns() == []
