"""The way out of a store that does not answer: Ctrl-C is what the caller gets, and it does not take
long, though somebody holds the session for good.
"""

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

import holdfast
from holdfast.errors import StoreUnavailable
from holdfast.runtime.plans import deadline
from holdfast.runtime.plans.deadline import deadline_for
from holdfast.runtime.plans.plan import Plan, run, wait_for
from holdfast.runtime.plans.plan_asyncio import arun
from locked_stores import held
from procs import child
from thorough import few_cases

CHILD = """
import asyncio, os, signal, sys, threading, time
import holdfast
from holdfast.engine.postgres import batch_writer
from holdfast.engine.postgres.engine import PostgresEngine
from holdfast.runtime import open_store
from holdfast.runtime.plans import deadline

where, mode, tries_s, deadline_s, shots = sys.argv[1:]
# How long the engines try by themselves.
PostgresEngine.__init__.__kwdefaults__["retry_s"] = float(tries_s)
batch_writer.LIMITS["lock"] = "200ms"
open_store.open_engine.__kwdefaults__["lock_s"] = float(tries_s)
deadline.LEAVE_S, deadline.EXIT_S = float(deadline_s), 0.3
signal.signal(signal.SIGINT, signal.default_int_handler)
main = threading.main_thread().ident

def waits():
    frame = sys._current_frames()[main]
    while frame is not None:
        if frame.f_code.co_name in ("result", "nap", "_landed", "_run_once"):
            return True
        frame = frame.f_back
    return False

def nap():
    time.sleep(1000)

def shoot():
    # Each as soon as it waits for the store; what it waits for after the last is all that is left.
    for _ in range(int(shots)):
        while not waits():
            time.sleep(0.01)
        if mode == "thread":  # nobody breaks off what the main thread waits for
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        else:
            os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)

def locked():
    say("ready")
    hear()
    threading.Thread(target=shoot, daemon=True).start()

def do(store):
    if mode in ("accept", "thread"):
        locked()
        store.accept("k", "hello")
    elif mode == "append":
        session = store.session("k")
        locked()
        session.append("hello")
    elif mode == "store":
        with store:
            turn = store.turn("k", "hello")
            locked()
            nap()
    elif mode == "turn":
        locked()
        store.turn("k", "hello")
    else:
        with store.turn("k", "hello") as turn:
            stream = turn.stream()
            stream.push("shown ")
            locked()
            if mode == "push":
                stream.push("locked ")
            elif mode == "call":
                turn.call("pay", {})
            else:
                nap()

async def ado():
    async with holdfast.open_async(where) as store:
        async with store.turn("k", "hello") as turn:
            stream = turn.stream()
            await stream.push("shown ")
            say("ready")
            hear()
            pushing = asyncio.create_task(stream.push("locked "))
            await asyncio.sleep(0.1)
            pushing.cancel()
            await pushing

try:
    if mode == "asyncio":
        asyncio.run(ado())
    else:
        do(holdfast.open(where))
    say("left nothing")
except BaseException as error:
    say("left", type(error).__name__)
"""


def left_by(where: str, mode: str, *, tries_s: float, deadline_s: float, shots: int = 1) -> str:
    """What a program is left with that is interrupted while the store does not answer; returns when
    its process is gone.
    """
    with holdfast.open(where) as store:
        store.session("k")
    with child(CHILD, where, mode, tries_s, deadline_s, shots) as other:
        other.wait_for("ready")
        with held(where):
            other.tell("go")
            told = other.wait_for("left")
            other.end()
    return told


@pytest.mark.slow
@few_cases(every=4)
@pytest.mark.parametrize("mode", ["accept", "append", "turn", "push", "call"])
def test_ctrl_c_is_raised_though_what_it_interrupted_fails(where: str, mode: str) -> None:
    assert left_by(where, mode, tries_s=0.2, deadline_s=50) == "KeyboardInterrupt"


@pytest.mark.slow
@few_cases(every=4)
@pytest.mark.parametrize("mode", ["thread", "accept", "turn", "push", "body", "store"])
def test_a_program_ends_though_the_store_never_answers(where: str, mode: str) -> None:
    """The store itself would try for ever."""
    assert left_by(where, mode, tries_s=100_000, deadline_s=0.3) == "KeyboardInterrupt"
    with holdfast.open(where) as store:
        session = store.session("k")
        with session.turn("Now.") as turn:
            turn.say("Yes.")
        ends = [each.end for each in session.turns()]
        assert ends[-1] == "completed" and None not in ends
        if mode in ("push", "body"):
            assert "shown" in "".join(message.text for message in session.transcript())


@pytest.mark.slow
def test_a_task_ends_though_the_store_never_answers(where: str) -> None:
    told = left_by(where, "asyncio", tries_s=100_000, deadline_s=0.3)
    assert told == "CancelledError"


@pytest.mark.slow
def test_a_second_ctrl_c_waits_for_nothing_more(where: str) -> None:
    """With a deadline that has no end: the second one leaves the turn's end to the keeper."""
    told = left_by(where, "body", tries_s=100_000, deadline_s=100_000, shots=2)
    assert told == "KeyboardInterrupt"


class Stuck:
    """A commit that is never answered, or fails after its caller was interrupted."""

    def __init__(self, *answers: BaseException) -> None:
        self._answers = list(answers)
        self.waited: list[float | None] = []
        self.done = False

    def result(self, timeout: float | None = None) -> Any:
        self.waited.append(timeout)
        if self._answers:
            raise self._answers.pop(0)
        self.done = True
        raise StoreUnavailable(where="here", problem="it is locked", remedy="wait")


def work(ticket: Any, after: Callable[[], Any] | None = None) -> Plan[None]:
    try:
        yield from wait_for(ticket)
    finally:
        if after is not None:
            yield from wait_for(after())


@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit, OSError])
def test_an_interrupt_comes_out_whatever_became_of_the_commit(raised: type[BaseException]) -> None:
    cut = raised("now")
    ticket = Stuck(cut)
    with pytest.raises(raised) as told:
        run(work(ticket))
    assert told.value is cut
    assert len(ticket.waited) == 2, "it was seen through"


def test_an_interrupt_comes_out_whatever_became_of_the_cleaning_up() -> None:
    cut = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt) as told:
        run(work(Stuck(cut), after=Stuck))
    assert told.value is cut


def test_one_deadline_is_for_the_whole_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the commit that was interrupted, of what its plan waits for then, and of the block that is
    left next.
    """
    clock = iter(range(1000))
    monkeypatch.setattr(deadline, "real_tick", lambda: float(next(clock)))
    monkeypatch.setattr(deadline, "LEAVE_S", 100.0)
    cut = KeyboardInterrupt()
    first, second = Stuck(cut, TimeoutError()), Stuck()
    with pytest.raises(KeyboardInterrupt) as told:
        run(work(first, after=lambda: second))
    left = deadline_for(told.value, "here")
    assert left is not None
    waited = [*first.waited, *second.waited, left.left_s]
    assert waited[0] is None, "before the interrupt the store decides how long"
    rest = [seconds for seconds in waited[1:] if seconds is not None]
    assert len(rest) == 3 and rest == sorted(rest, reverse=True)
    assert 0 < rest[-1] < 100


def test_who_is_not_leaving_is_in_no_hurry() -> None:
    assert deadline_for(None, "here") is None
    assert deadline_for(ValueError("the caller's own"), "here") is None
    trouble = StoreUnavailable(where="here", problem="it is locked", remedy="wait")
    for error in (KeyboardInterrupt(), trouble):
        left = deadline_for(error, "here")
        assert left is not None and left.left_s is not None


def test_asyncio_raises_the_interrupt_of_the_cleaning_up_s_first() -> None:
    cut = KeyboardInterrupt()

    class Landed(Stuck):
        done = True

        def then(self, callback: Any) -> None:
            callback(self)()

    async def scene() -> None:
        await arun(work(Landed(cut), after=Landed))

    import asyncio

    with pytest.raises(KeyboardInterrupt) as told, closing(asyncio.new_event_loop()) as loop:
        loop.run_until_complete(scene())
    assert told.value is cut
