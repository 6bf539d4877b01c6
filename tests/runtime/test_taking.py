"""`Session.turn(take=…)`: a turn that takes just these messages of the inbox, and leaves the rest."""

import asyncio
import gc
import threading

import pytest

import holdfast
from holdfast.errors import BadArgument, NotFound, TurnInterrupted
from holdfast.testing.oracle import judge
from looking import other_handle
from thorough import few_on_postgres

pytestmark = few_on_postgres("which message a turn takes is decided in `runtime/turns`")

LIMIT_S = 60.0


@pytest.fixture
def store(where):
    with holdfast.open(where) as opened:
        yield opened


def waiting(session):
    return [message.text for message in session.pending()]


def asked(turn):
    return [message["content"] for message in turn.context() if message["role"] == "user"]


def test_just_those_that_are_named_are_taken(store):
    one, two, three = (store.accept("k", text) for text in ("one", "two", "three"))
    session = store.session("k")
    with session.turn(take=[three.message_id, one.message_id]) as turn:
        assert asked(turn) == ["one\n\nthree"]
        turn.say("both")
    assert waiting(session) == ["two"]
    with session.turn() as turn:
        assert "two" in asked(turn)
        turn.say("and that")
    assert judge(store) == []


def test_messages_and_receipts_can_be_named_as_they_are(store):
    first = store.accept("k", "first")
    store.accept("k", "second")
    store.accept("k", "third")
    session = store.session("k")
    [second] = [message for message in session.pending() if message.text == "second"]
    with session.turn(take=[first, second]) as turn:
        assert asked(turn) == ["first\n\nsecond"]
        turn.say("yes")
    assert waiting(session) == ["third"]


def test_a_turn_may_take_nothing_and_bring_its_own(store):
    store.accept("k", "waits")
    session = store.session("k")
    with session.turn("mine", take=[]) as turn:
        assert asked(turn) == ["mine"]
        turn.say("yours")
    assert waiting(session) == ["waits"]
    named = session.pending()
    with session.turn("and mine", take=named) as turn:
        assert asked(turn)[-1:] == ["waits\n\nand mine"]


def test_what_does_not_wait_is_not_found_and_nothing_is_started(store):
    receipt = store.accept("k", "gone")
    session = store.session("k")
    with session.turn() as turn:
        turn.say("taken")
    before = list(session.entries())
    with pytest.raises(NotFound):
        session.turn("with it", take=[receipt])
    with pytest.raises(NotFound):
        session.turn(take=["0" * 32])
    assert list(session.entries()) == before
    assert session.info().turns == 1


def test_of_two_that_name_one_message_one_has_it(store, where):
    receipt = store.accept("k", "once")
    outcomes = []
    gate = threading.Barrier(4)

    def taking():
        with other_handle(where) as other:
            session = other.session("k")
            gate.wait(LIMIT_S)
            try:
                with session.turn(take=[receipt]) as turn:
                    turn.say("mine")
                outcomes.append("taken")
            except NotFound:
                outcomes.append("not there")

    threads = [threading.Thread(target=taking) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    assert sorted(outcomes) == ["not there"] * 3 + ["taken"]
    assert [m.text for m in store.session("k").transcript()] == ["once", "mine"]


@pytest.mark.parametrize("wrong", ["abc", b"abc", 7, [7], [None], [""], [[]], {"a": 1}, object()])
def test_what_names_no_messages_is_refused(store, wrong):
    session = store.session("k")
    with pytest.raises(BadArgument):
        session.turn("x", take=wrong)
    assert list(session.transcript()) == []


def test_taking_on_an_event_loop(where):
    async def scene():
        async with holdfast.open_async(where) as store:
            one = await store.accept("k", "one")
            await store.accept("k", "two")
            session = await store.session("k")
            async with session.turn(take=[one]) as turn:
                await turn.say("here")
            return [message.text for message in await session.pending()]

    assert asyncio.run(scene()) == ["two"]


def test_only_a_turn_that_was_abandoned_gives_back_what_it_took(where):
    """The others have it: the next turns see it in their context."""
    with holdfast.open(where) as store:
        session = store.session("k")
        for cut in (ValueError, KeyboardInterrupt):
            store.accept("k", cut.__name__)
            with pytest.raises(cut), session.turn():
                raise cut
        store.accept("k", "interrupted")
        with session.turn() as turn:
            turn.interrupt("enough")
        store.accept("k", "stopped")
        with pytest.raises(TurnInterrupted), session.turn():
            session.stop()
        assert waiting(session) == []
        store.accept("k", "dropped")
        turn = session.turn()
        del turn
        gc.collect()
        assert waiting(session) == ["dropped"]
        with session.turn() as turn:
            texts = "\n\n".join(asked(turn))
            assert texts == "ValueError\n\nKeyboardInterrupt\n\ninterrupted\n\nstopped\n\ndropped"
