"""Ctrl-C in the moment in which a lock was taken, or while a turn is being settled: nobody waits
for ever afterwards, and no turn is left that nobody has (I-6, FAULTS A3).

A signal handler runs after a call of C code returns: at the k-th return of one that takes a lock,
the interrupt is raised there.
"""

import contextlib
import gc
import os
import sys
import threading
import time

import pytest

import holdfast
from holdfast.errors import StoreUnavailable
from holdfast.runtime import open_store
from holdfast.runtime.open_store import OpenStore
from looking import ends
from thorough import SWEEP, few_cases
from torn_ticket import TornTicket

LIMIT_S = 20.0


class AfterTaking:
    """Raises Ctrl-C after the k-th C call that may have taken a lock."""

    def __init__(self, at):
        self._left, self.reached = at, False

    def __enter__(self):
        sys.setprofile(self._called)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)

    def _called(self, _frame, event, called):
        if event == "c_return" and called.__name__ in ("__enter__", "acquire", "get"):
            self._left -= 1
            if self._left == 0:
                self.reached = True
                sys.setprofile(None)
                raise KeyboardInterrupt


class AtStep(AfterTaking):
    """Raises Ctrl-C at the k-th step of this thread: as something is called, or comes back."""

    def _called(self, _frame, event, _about):
        self._left -= event in ("call", "return", "c_return")
        if self._left == 0:
            self.reached = True
            sys.setprofile(None)
            raise KeyboardInterrupt


def elsewhere(work):
    """What another thread gets, if it gets anything in time."""
    found = []
    other = threading.Thread(target=lambda: found.append(work()), daemon=True)
    other.start()
    other.join(LIMIT_S)
    assert not other.is_alive(), "an interrupt has left a lock behind"
    return found[0]


@pytest.mark.slow
@few_cases(every=2)
@pytest.mark.parametrize("act", ["info", "search", "wait"])
def test_an_interrupt_after_a_lock_was_taken_shuts_nobody_out(where, act):
    """Again and again in one store: what each of them loses adds up."""
    with holdfast.open(where) as store:
        session = store.session("k")
        session.append("word")
        acts = {
            "info": session.info,
            "search": lambda: store.search("word"),
            "wait": lambda: session._log.engine.watch(session.id, print)(),
        }
        for _ in range(3):
            at, reached = 0, True
            while reached and at < 40:
                at += 1
                with contextlib.suppress(KeyboardInterrupt), AfterTaking(at) as point:
                    acts[act]()
                reached = point.reached
                elsewhere(acts[act])
        assert elsewhere(lambda: len(store.search("word"))) == 1


def test_a_turn_that_somebody_waits_for_does_not_start_while_the_store_is_closed(
    where, monkeypatch
):
    store = holdfast.open(where)
    session = store.session("k")
    running = session.turn("first")
    told = []

    def wait():
        try:
            told.append(session.turn("second"))
        except StoreUnavailable as error:
            told.append(error)

    waiter = threading.Thread(target=wait)
    end_turns = OpenStore.end_turns

    def and_wait(self, reason, deadline=None):
        """The turn that is waited for has ended, and the store is not closed yet."""
        end_turns(self, reason, deadline)
        monkeypatch.undo()
        waiter.join(1)

    waiter.start()
    while not session.info().pending:
        pass
    monkeypatch.setattr(OpenStore, "end_turns", and_wait)
    store.close()
    waiter.join(LIMIT_S)
    assert running.stopped and len(told) == 1
    with holdfast.open(where) as store:
        session = store.session("k")
        assert session.info().running is None
        with session.turn("next", on_busy="refuse") as turn:
            turn.say("well")


@pytest.mark.parametrize("again", [False, True])
def test_a_turn_whose_start_and_whose_settling_were_interrupted_is_ended_at_once(where, again):
    """The second Ctrl-C comes when the first has its turn seized; the third as the seizure is let
    go of.
    """
    with holdfast.open(where) as store:
        session = store.session("k")
        engine = session._log.engine
        submit, me = engine.submit, threading.current_thread()

        def torn(commit):
            [write] = commit
            if threading.current_thread() is not me:
                return submit(commit)
            if write.start is not None or write.seize:
                return TornTicket(submit(commit))
            if again and write.renew_s == 0:
                raise KeyboardInterrupt
            return submit(commit)

        engine.submit = torn
        with pytest.raises(KeyboardInterrupt) as kept:
            session.turn("Hi")
        engine.submit = submit
        with session.turn("Again", on_busy="refuse") as turn:
            turn.say("here")
        assert [end for [end] in ends(store, session.id).values()][1:] == ["completed"]
        assert kept.value is not None


def left_behind(before, files):
    """Threads and files that were not there before, once all that ends has ended."""
    until = time.monotonic() + LIMIT_S
    while True:
        gc.collect()
        threads = {each.name for each in threading.enumerate()} - before
        more = len(os.listdir("/dev/fd")) - files
        if (not threads and more <= 0) or time.monotonic() > until:
            return threads, max(0, more)


# Python swallows what is raised while it takes a dropped store off a weak set.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_open_that_is_interrupted_anywhere_leaves_no_thread_and_no_file(tmp_path):
    path = tmp_path / "agent.db"
    holdfast.open(path).close()  # what is loaded then is loaded, and the closer is there
    before = {each.name for each in threading.enumerate()}
    files = len(os.listdir("/dev/fd"))
    at, reached = 0, True
    while reached:
        at += 1 + at // (50 if SWEEP else 12)
        point = AtStep(at)
        with contextlib.suppress(KeyboardInterrupt), point:
            holdfast.open(path)
        reached = point.reached
        assert left_behind(before, files) == (set(), 0), f"at step {at}"
    assert at > 20
    with holdfast.open(path) as store:
        store.session("k").append("It is nobody's but ours.")
        assert store.check() == []


def test_an_interrupted_open_is_over_for_its_caller_at_once_and_closed_when_it_is_done(
    tmp_path, monkeypatch
):
    """What waits is another thread, and what it opens is closed again."""
    path = tmp_path / "agent.db"
    holdfast.open(path).close()
    before = {each.name for each in threading.enumerate()}
    files = len(os.listdir("/dev/fd"))
    go_on = threading.Event()

    def slow(*given, **named):
        assert go_on.wait(LIMIT_S)
        return open_engine(*given, **named)

    open_engine = open_store.open_engine
    monkeypatch.setattr(open_store, "open_engine", slow)
    with pytest.raises(KeyboardInterrupt), AfterTaking(1):
        holdfast.open(path)
    go_on.set()
    assert left_behind(before, files) == (set(), 0)
