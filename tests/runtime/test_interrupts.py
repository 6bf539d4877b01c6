"""Ctrl-C and SystemExit at every line between the start of a turn and its end (I-5, I-6, FAULTS
A3).

Whatever line it comes at: it is raised and not swallowed, what was delivered is a prefix of what is
stored, the turn has one end, and the same handle starts the next turn at once, though the variables
of the interrupted one still stand.
"""

import asyncio
import contextlib
import gc
import sys
import threading
import weakref

import pytest

import holdfast
from holdfast.runtime.live import totals
from holdfast.runtime.plans.thread_pool import Job, Pool
from holdfast.runtime.turns import turn_owner
from holdfast.runtime.turns.running_turn import RunningTurn
from holdfast.runtime.turns.turn_block import Block
from holdfast.testing import oracle
from interrupting import Interrupt, points
from looking import ends, other_handle
from torn_ticket import TornTicket

STEP, STEP_ON_LOOP = 47, 797
CALL = {"index": 0, "id": "c1", "function": {"name": "look", "arguments": "{}"}}


def chat(words):
    return {"choices": [{"index": 0, "delta": {"content": words}}]}


END = {"choices": [{"index": 0, "delta": {"tool_calls": [CALL]}, "finish_reason": "tool_calls"}]}


class Life:
    """One turn, lived in a session of its own; `shown` has what was delivered of each message."""

    def __init__(self, session):
        self.session, self.shown = session, []

    def tell(self, text):
        self.shown[-1] += text

    def speak(self):
        self.shown.append("")


def whole(life):
    """Streams to their end, a tool, a word."""
    with life.session.turn("Hi") as turn:
        life.speak()
        for text in turn.deliver(iter([chat("Once "), chat("upon "), END]), format="openai.chat"):
            life.tell(text)
        turn.result("c1", "seen")
        life.speak()
        for text in turn.deliver(["a ", "time"]):
            life.tell(text)


def left(life):
    """Streams that are left, one dropped and one held, and a word after."""
    with life.session.turn("Hi") as turn:
        life.speak()
        for text in turn.deliver(iter(["Once ", "never"])):
            life.tell(text)
            break
        life.speak()
        life.tell(turn.say("upon"))
        life.speak()
        held = turn.deliver(iter(["a ", "time"]))
        life.tell(next(held))


async def async_whole(life):
    async with life.session.turn("Hi") as turn:
        life.speak()
        async for text in turn.deliver([chat("Once "), chat("upon "), END], format="openai.chat"):
            life.tell(text)
        await turn.result("c1", "seen")
        life.speak()
        async for text in turn.deliver(["a ", "time"]):
            life.tell(text)


async def async_left(life):
    async with life.session.turn("Hi") as turn:
        life.speak()
        async for text in turn.deliver(["Once ", "never"]):
            life.tell(text)
            break
        life.speak()
        life.tell(await turn.say("upon"))
        held = turn.deliver(["a ", "time"])
        life.speak()
        life.tell(await anext(held))


def judge(store, life, where):
    """What holds after any interrupt, by the same handle and at once."""
    session = life.session
    with session.turn("next", on_busy="refuse") as turn:
        turn.say("well")
    stored = [message.text for message in session.transcript() if message.role == "assistant"]
    assert stored.pop() == "well", where
    shown = [words for words in life.shown if words]
    assert len(stored) >= len(shown), (where, shown, stored)
    for words, text in zip(shown, stored, strict=False):
        assert text.startswith(words), (where, shown, stored)
    assert all(len(each) == 1 for each in ends(store, session.id).values()), where


@pytest.mark.slow
def test_an_interrupt_at_any_line_of_a_turn(path):
    sweep(path, [whole, left], by=[KeyboardInterrupt, SystemExit])


def sweep(path, lives, by):
    with holdfast.open(path, durability="process") as store:
        for doing in lives:
            count = Interrupt()
            with count:
                doing(Life(store.session(f"{doing.__name__} 0")))
            for number, at in enumerate(points(count.lines, step=STEP)):
                life = Life(store.session(f"{doing.__name__} {at}"))
                point = Interrupt(at=at, by=by[number % len(by)])
                raised = None
                try:
                    with point:
                        doing(life)
                except BaseException as error:
                    raised = type(error)
                assert not point.reached or raised is point.by, f"{point.where}: {raised}"
                assert point.reached or raised is None
                judge(store, life, f"{doing.__name__} at {at}, {point.where}")
        assert oracle.judge(store) == []


def test_an_interrupt_as_a_block_is_left_ends_its_turn_though_the_turn_is_still_held(path):
    """Before the first line of what the block calls at its end: nothing of ours has run, and nobody
    drops the turn.
    """

    def at_the_end(frame, event, _):
        if frame.f_code is Block.__call__.__code__:
            sys.settrace(None)
            raise KeyboardInterrupt

    with holdfast.open(path, durability="process") as store:
        life, raised = Life(store.session("k")), None
        try:
            with life.session.turn("Hi") as held:
                life.speak()
                life.tell(held.say("words"))
                sys.settrace(at_the_end)
        except KeyboardInterrupt as error:
            raised = type(error)
        finally:
            sys.settrace(None)
        assert raised is KeyboardInterrupt
        judge(store, life, "as the block is left")
        assert list(ends(store, life.session.id).values()) == [["interrupted"], ["completed"]]
        assert held.stopped


@pytest.mark.slow
def test_an_interrupt_at_any_line_of_a_turn_on_an_event_loop(path):
    with other_handle(path, durability="process") as eye:
        for doing in (async_whole, async_left):
            count = Interrupt()
            async_life(path, doing, "0", count)
            for number, at in enumerate(points(count.lines, step=STEP_ON_LOOP)):
                point = Interrupt(at=at, by=[KeyboardInterrupt, SystemExit][number % 2])
                key, shown, raised = async_life(path, doing, str(at), point)
                where = f"{doing.__name__} at {at}, {point.where}"
                assert not point.reached or raised in (point.by, asyncio.CancelledError), (
                    f"{where}: {raised}"
                )
                life = Life(eye.session(key))
                life.shown = shown
                judge(eye, life, where)
        assert oracle.judge(eye) == []


def async_life(path, doing, name, point):
    """One life on a loop of its own, as `asyncio.run` runs it; its key, what was shown, and what
    came out.
    """
    key, lives, raised = f"{doing.__name__} {name}", [], None

    async def main():
        async with holdfast.open_async(path, durability="process") as store:
            lives.append(Life(await store.session(key)))
            with point:
                await doing(lives[0])

    gc.collect()  # what the life before has left on its closed loop is not this one's
    gc.disable()
    try:
        asyncio.run(main())
    except BaseException as error:
        raised = type(error)
    finally:
        gc.enable()
    return key, lives[0].shown, raised


@pytest.mark.slow
@pytest.mark.parametrize("read_only", [False, True])
def test_an_interrupt_on_the_way_into_the_database_or_out_of_it_shuts_nobody_out(path, read_only):
    """At each line of making a connection and of reading with it; afterwards another thread does
    the same.
    """
    with holdfast.open(path) as store:
        id = store.session("k").id
    at, reached = 0, True
    while reached:
        at += 1
        with holdfast.open(path, read_only=read_only) as store:
            engine = store._work.engine
            with Interrupt(at=at) as point:
                with contextlib.suppress(KeyboardInterrupt):
                    engine.state(id)
            reached = point.reached
            other, found = _elsewhere(lambda: engine.state(id))  # noqa: B023, it is over before the next one
            assert not other.is_alive(), f"an interrupt at {point.where} has left a lock behind"
            assert found[0].id == id


def test_nothing_of_ours_runs_where_a_store_is_dropped(path):
    """Python swallows what is raised there, Ctrl-C included. Another thread closes it."""
    store = holdfast.open(path)
    engine = store._work.engine._engine
    gc.collect()  # what others have left
    with Interrupt() as point:
        del store
        gc.collect()
    assert point.lines == 0
    other, _ = _elsewhere(engine._writer._thread.join)
    assert not other.is_alive()


def test_nothing_runs_where_a_turn_is_dropped_and_those_that_are_gone_are_forgotten():
    first = turn_owner.Hold("s", 0)
    with Interrupt(weakref) as point:
        del first
    assert point.lines == 0
    kept = turn_owner.Hold("s", 1)
    for number in range(2, 1000):
        turn_owner.Hold("s", number)
    assert turn_owner.is_held_here("s", 1) and kept
    assert sum(name[0] == "s" for name in turn_owner._held) < 600


def test_an_interrupt_while_work_is_handed_to_a_thread_keeps_no_other_work_from_being_done():
    """At each line, those of `threading` included: the reads of all stores wait for these
    threads.
    """
    at, reached = 0, True
    while reached:
        at += 1
        pool = Pool(1, "holdfast-test")
        with Interrupt(threading, at=at) as point:
            # `threading` may make that of it
            with contextlib.suppress(KeyboardInterrupt, RuntimeError):
                pool.submit(Job(str))
        reached = point.reached
        for _ in range(2):  # once with a thread that waits for work, at the latest
            next_one = Job(lambda: "done")
            pool.submit(next_one)
            assert next_one.result(10) == ("done",), f"not after an interrupt at {point.where}"
        pool._jobs.put(None)


def _elsewhere(work):
    """What another thread gets, if it gets anything."""
    found = []
    other = threading.Thread(target=lambda: found.append(work()), daemon=True)
    other.start()
    other.join(10)
    return other, found


def test_a_turn_whose_start_was_interrupted_is_let_go_of_though_the_error_is_kept(path):
    """The error's frames hold the turn: it is not enough that nobody else does."""
    with holdfast.open(path) as store:
        session = store.session("k")
        engine = session._log.engine
        submit = engine.submit

        def torn(commit):
            engine.submit = submit
            return TornTicket(submit(commit))

        engine.submit = torn
        with pytest.raises(KeyboardInterrupt) as kept:
            session.turn("Hi")
        with session.turn("Again", on_busy="refuse") as turn:
            turn.say("here")
        assert list(ends(store, session.id).values()) == [["interrupted"], ["completed"]]
        assert kept.value is not None


def test_totals_that_were_interrupted_are_not_half_counted(path, monkeypatch):
    with holdfast.open(path) as store:
        session = store.session("k")
        session.append("one")
        assert session.info().messages == 1
        for text in ("two", "three", "four"):
            session.append(text)
        read = totals.note_of
        seen = []

        def interrupted(kind, note):
            seen.append(note)
            if len(seen) == 2:
                raise KeyboardInterrupt
            return read(kind, note)

        with monkeypatch.context() as patch:
            patch.setattr(totals, "note_of", interrupted)
            with pytest.raises(KeyboardInterrupt):
                session.info()
        assert session.info().messages == 4


def test_the_keeper_may_look_at_a_turn_in_every_moment_of_its_start(path, monkeypatch):
    """Its thread looks at all turns of its store, also at those that begin just now."""
    looks = []

    def watched(turn, name, value):
        object.__setattr__(turn, name, value)
        if name in ("hold", "id", "number") and hasattr(turn, "_asked_on"):
            looks.append((name, turn.is_deserted))

    with holdfast.open(path) as store:
        session = store.session("k")
        monkeypatch.setattr(RunningTurn, "__setattr__", watched)
        with session.turn("Hi") as turn:
            turn.say("here")
    assert {name for name, _ in looks} == {"hold", "id", "number"}
    assert not any(deserted for _, deserted in looks)
