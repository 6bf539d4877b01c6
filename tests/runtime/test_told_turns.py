"""Who has lost a turn is told so, and never takes it for completed (I-7, I-23).

A turn that is seized or stopped is found to be over by whatever looks first: by what its owner does
next, or by the keeper, which renews its lease meanwhile and tells nobody. Either way the owner
hears of it, when the block is left at the latest: a block that is left without an error has ended
its turn as completed, and its reply is owed.
"""

import asyncio
from threading import Event
from time import monotonic

import pytest

import holdfast
from holdfast.errors import HoldfastError, TurnInterrupted
from looking import end_notes, ends, other_handle
from procs import child
from thorough import few_on_postgres

pytestmark = few_on_postgres("who is told of a lost turn is decided in `runtime/turns`", every=3)

LIMIT_S = 30


@pytest.fixture
def store(where):
    with holdfast.open(where, durability="process") as opened:
        yield opened


def let_the_keeper_notice(turn):
    """What the keeper does every third of a lease."""
    assert turn._work.renew()
    until = monotonic() + LIMIT_S
    while not turn._work.ended:
        assert monotonic() < until, "its renewal was not refused"
        Event().wait(0.001)


def test_a_block_whose_turn_was_stopped_is_not_left_as_if_it_was_completed(store, where):
    session = store.session("k")
    with pytest.raises(TurnInterrupted) as told:
        with session.turn("hello", reply_to="ann") as turn:
            turn.say("All of it.")
            with other_handle(where) as other:
                other.session("k").stop("enough")
            let_the_keeper_notice(turn)
    assert (told.value.turn_id, told.value.reason) == (turn.id, "stopped: enough")
    assert ends(store, session.id) == {1: ["interrupted"]}
    assert store.outbox() == []


def test_on_an_event_loop_alike(where):
    async def main():
        async with holdfast.open_async(where, durability="process") as store:
            session = await store.session("k")
            with pytest.raises(TurnInterrupted):
                async with session.turn("hello", reply_to="ann") as turn:
                    await turn.say("All of it.")
                    with other_handle(where) as other:
                        other.session("k").stop()
                    let_the_keeper_notice(turn)
            assert await store.outbox() == []

    asyncio.run(main())


@pytest.mark.parametrize("end", ["interrupt", "fail"])
def test_an_end_that_is_asked_for_is_refused_alike(store, end):
    session = store.session("k")
    with session.turn("hello") as turn:
        session.stop("enough")
        let_the_keeper_notice(turn)
        with pytest.raises(TurnInterrupted):
            getattr(turn, end)("bad")
    assert [note.reason for note in end_notes(store, session.id)] == ["stopped: enough"]


def test_an_error_that_leaves_the_block_is_raised_with_a_word_about_the_turn(store):
    session = store.session("k")
    with pytest.raises(ZeroDivisionError) as raised:
        with session.turn("hello") as turn:
            session.stop("enough")
            let_the_keeper_notice(turn)
            raise ZeroDivisionError
    assert ["enough" in note for note in raised.value.__notes__] == [True]


def test_who_was_told_is_not_told_again(store):
    session = store.session("k")
    with session.turn("hello") as turn:
        session.stop()
        with pytest.raises(TurnInterrupted):
            turn.say("Too late.")
    with session.turn("hello") as turn:
        session.stop()
        let_the_keeper_notice(turn)
        assert turn.stopped
    with session.turn("hello") as turn:
        turn.interrupt("done with it")


def test_a_stream_that_is_left_tells_nobody_and_the_block_does(store):
    """Leaving a stream raises nothing of its own; its message is late then, and the turn over."""
    session = store.session("k")
    with pytest.raises(TurnInterrupted):
        with session.turn("hello") as turn:
            spoken = turn.deliver(iter(["Once ", "upon ", "a time"]))
            assert next(spoken) == "Once "
            session.stop()
            spoken.close()
    assert [m.text for m in session.transcript() if m.role == "assistant"] == ["Once "]


def test_a_store_that_is_closed_under_a_turn_is_told_when_its_block_is_left(where):
    with pytest.raises(HoldfastError):
        with holdfast.open(where, durability="process") as store:
            with store.turn("k", "hello", reply_to="ann") as turn:
                turn.say("All of it.")
                store.close()
    with other_handle(where) as other:
        assert [note.reason for note in end_notes(other, other.session("k").id)] == [
            "the store was closed"
        ]


FROZEN = """
    import holdfast, holdfast.errors, time
    with holdfast.open(sys.argv[1]) as store:
        try:
            with store.turn("k", "hello", reply_to="ann", lease_s=1) as turn:
                turn.say("All of it.")
                say("said")
                hear()
                until = time.monotonic() + 30
                while not turn._work.ended and time.monotonic() < until:  # the keeper looks, and its owner does not
                    time.sleep(0.01)
            say("completed")
        except holdfast.errors.TurnInterrupted as error:
            say("told", error.reason)
"""


@pytest.mark.slow
def test_a_process_that_stood_still_for_longer_than_its_lease_is_told(where, store):
    with child(FROZEN, where) as frozen:
        frozen.wait_for("said")
        if "postgresql" in where:
            frozen.freeze()
        else:
            frozen.freeze_between_commits(where)
        frozen.tell()
        # waits until the lease of the other has run out
        with store.session("k").turn("next") as turn:
            turn.say("Well.")
        frozen.thaw()
        assert frozen.end() == ["told its lease ran out"]
    assert ends(store, store.session("k").id) == {1: ["abandoned"], 3: ["completed"]}
    assert store.outbox() == []
