"""Turns that nobody goes on with in a living process: left behind on a closed event loop, dropped,
cancelled as they start (I-4, I-6). They are ended soon, whatever their leases say, and their ends
say what has happened.
"""

import asyncio
import gc
import sys
import threading

import pytest

import holdfast
from holdfast.testing.oracle import judge
from looking import end_notes, other_handle
from procs import child
from thorough import few_cases, few_on_postgres

pytestmark = few_on_postgres("who ends a deserted turn is decided in `runtime/turns`", every=2)

HOUR_S = 3600


@pytest.fixture
def desert(where):
    """Leaves a task behind in the middle of its turn, as a second Ctrl-C does; everything that was
    left.
    """
    left = []

    def leave_behind(*, is_leaving=False):
        loop = asyncio.new_event_loop()
        entered = loop.create_future()

        async def main():
            store = await holdfast.open_async(where, durability="process")
            session = await store.session("k")
            async with session.turn("hello", lease_s=HOUR_S, reply_to="ann") as turn:
                await turn.say("Half of it.")
                entered.set_result(None)
                if not is_leaving:
                    await asyncio.sleep(HOUR_S)

        left.append(loop.create_task(main()))
        loop.run_until_complete(entered)
        loop.close()

    yield leave_behind
    while left:
        left.pop()._log_destroy_pending = False
    gc.collect()
    for thread in threading.enumerate():  # their stores are closed now, while there is a database
        if thread.name == "holdfast-keeper":
            thread.join(10)


@few_cases(every=2)
@pytest.mark.parametrize("is_leaving", [False, True])
def test_a_turn_on_a_closed_loop_is_free_at_once_for_its_own_process(where, desert, is_leaving):
    desert(is_leaving=is_leaving)
    with other_handle(where) as store:
        session = store.session("k")
        with session.turn("next", on_busy="refuse"):
            pass
        reasons = [note.reason for note in end_notes(store, session.id)]
        assert reasons == ["its event loop was closed", None] or is_leaving
        assert [m.text for m in session.transcript()] == ["hello", "Half of it.", "next"]
        assert judge(store) == []


LOOKING = """
    import holdfast
    with holdfast.open(sys.argv[1]) as store:
        with store.session("k").turn("next"):
            say("free")
"""


@pytest.mark.slow
def test_and_soon_for_others_though_its_lease_runs_on(where, desert):
    desert()
    with child(LOOKING, where) as other:
        other.wait_for("free")
        other.end()
    with other_handle(where) as store:
        assert [note.reason for note in end_notes(store, store.session("k").id)] == [
            "its event loop was closed",
            None,
        ]


@pytest.mark.slow
def test_a_coroutine_that_is_dropped_waits_for_nothing(where, monkeypatch):
    """It is closed wherever Python happens to be, where nothing can be awaited."""
    gc.collect()  # what others have left is not this one's
    told = []
    monkeypatch.setattr(sys, "unraisablehook", lambda what: told.append(what.exc_value))
    loop = asyncio.new_event_loop()

    async def main(entered):
        async with holdfast.open_async(where, durability="process") as store:
            session = await store.session("k")
            async with session.turn("hello", lease_s=HOUR_S) as turn:
                async for text in turn.deliver(["Once ", "upon ", "a time"]):
                    entered.set_result(text)
                    await asyncio.sleep(HOUR_S)

    entered = loop.create_future()
    task = loop.create_task(main(entered))
    assert loop.run_until_complete(entered) == "Once "
    loop.close()
    task._log_destroy_pending = False
    del task
    gc.collect()
    assert told == []
    with other_handle(where) as store:
        session = store.session("k")
        with session.turn("next"):
            pass
        assert sorted(m.text for m in session.transcript()) == ["Once ", "hello", "next"]
        assert judge(store) == []


def test_a_start_that_is_cancelled_says_so_and_gives_its_message_back(where, monkeypatch):
    """Cancelled while its first commit is on its way: the turn was started, and nobody
    ever had it.
    """

    async def main():
        async with holdfast.open_async(where, durability="process") as store:
            session = await store.session("k")
            engine = store._work.engine
            submit = engine.submit

            def cancelling(commit):
                if any(write.start is not None for write in commit):
                    task.cancel()
                return submit(commit)

            monkeypatch.setattr(engine, "submit", cancelling)
            task = asyncio.ensure_future(begin(session))
            await asyncio.gather(task, return_exceptions=True)
            monkeypatch.undo()
            assert task.cancelled()
            [turn] = await session.turns()
            assert (turn.end, turn.reason) == ("interrupted", "its start was interrupted")
            assert [message.text for message in await session.pending()] == ["hello"]
            async with session.turn() as turn:
                await turn.say("Well.")
            assert [message.text async for message in session.transcript()] == ["hello", "Well."]

    async def begin(session):
        async with session.turn("hello"):
            raise AssertionError("it was cancelled before")

    asyncio.run(main())


def test_a_turn_that_is_dropped_says_so(where):
    with holdfast.open(where, durability="process") as store:
        session = store.session("k")
        turn = session.turn("hello", lease_s=HOUR_S)
        turn.say("Half of it.")
        del turn
        with session.turn("next", on_busy="refuse"):
            pass
        assert [note.reason for note in end_notes(store, session.id)] == ["it was dropped", None]
