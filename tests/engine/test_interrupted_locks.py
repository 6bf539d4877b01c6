"""Ctrl-C in the moment in which a file lock was taken: no other process is shut out by it."""

import contextlib
import errno
import fcntl
import os
import sys
import threading
import time
from pathlib import Path
from threading import Event

import pytest

import holdfast
from holdfast.engine.sqlite.file_guard import fair_lock
from holdfast.engine.sqlite.file_guard.fair_lock import FairLock

LIMIT_S = 20.0


class AfterCalling:
    """Raises Ctrl-C after the k-th return of a C function of this name on this thread."""

    def __init__(self, name: str, at: int) -> None:
        self._name, self._left, self.reached = name, at, False

    def __enter__(self) -> "AfterCalling":
        sys.setprofile(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _called(self, _frame: object, event: str, called: object) -> None:
        if event == "c_return" and getattr(called, "__name__", "") == self._name:
            self._left -= 1
            if self._left == 0:
                self.reached = True
                sys.setprofile(None)
                raise KeyboardInterrupt


def is_free(path: str) -> bool:
    """Whether another process could have the lock now."""
    file = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(file)
    return True


def is_waiting() -> bool:
    """Whether a thread is in the kernel's queue."""
    return any(each.name == "holdfast-lock" for each in threading.enumerate())


def test_an_interrupted_search_leaves_the_lock_of_its_index_free(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with holdfast.open(path) as store:
        session = store.session("k")
        at, reached = 0, True
        while reached:
            at += 1
            session.append(f"word {at}")
            with contextlib.suppress(KeyboardInterrupt), AfterCalling("flock", at) as point:
                store.search("word")
            reached = point.reached
            [lock] = tmp_path.glob("*search*-lock")
            assert is_free(str(lock)), f"after flock {at}"
        assert at > 1
        assert len(store.search("word")) == at


@pytest.mark.parametrize("name", ["acquire", "wait", "get", "start_new_thread"])
def test_a_wait_for_a_lock_that_is_interrupted_does_not_take_it_later(
    tmp_path: Path, name: str
) -> None:
    path = str(tmp_path / "lock")
    waiting = FairLock(path)
    held = os.open(path, os.O_RDWR)
    fcntl.flock(held, fcntl.LOCK_EX)
    with contextlib.suppress(KeyboardInterrupt), AfterCalling(name, 1):
        waiting.acquire(0.05)
    os.close(held)
    # What it left in the kernel's queue has its turn, and lets go.
    until = time.monotonic() + LIMIT_S
    while not is_free(path) or is_waiting():
        assert time.monotonic() < until
    assert waiting.acquire(5)
    waiting.release()
    waiting.close()


class Stopping:
    """Stops a thread in the kernel's queue at a step that it makes with its file, before or after
    it, until the block is left or `go_on` is set.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, lets_go: bool) -> None:
        self.came, self.go_on = Event(), Event()
        flock, close = fcntl.flock, os.close

        def stopping_flock(file: int, asked: int) -> None:
            if lets_go and asked == fcntl.LOCK_UN:
                self._stop()
            flock(file, asked)
            if not lets_go and asked == fcntl.LOCK_EX:
                self._stop()

        def stopping_close(file: int) -> None:
            if lets_go:
                self._stop()
            close(file)

        monkeypatch.setattr(fcntl, "flock", stopping_flock)
        monkeypatch.setattr(os, "close", stopping_close)

    def _stop(self) -> None:
        if threading.current_thread().name == "holdfast-lock":
            self.came.set()
            assert self.go_on.wait(LIMIT_S)

    def __enter__(self) -> "Stopping":
        return self

    def __exit__(self, *_: object) -> None:
        self.go_on.set()
        until = time.monotonic() + LIMIT_S
        while is_waiting():
            assert time.monotonic() < until


def test_a_lock_that_is_closed_as_a_late_waiter_comes_harms_no_other_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither does the waiter end with an error, nor is a file that got a number of the lock's
    locked or unlocked.
    """
    path, failed = str(tmp_path / "lock"), list[object]()
    monkeypatch.setattr(threading, "excepthook", failed.append)
    waiting = FairLock(path)
    held = os.open(path, os.O_RDWR)
    fcntl.flock(held, fcntl.LOCK_EX)
    with Stopping(monkeypatch, lets_go=False) as waiter:
        assert not waiting.acquire(0.01)
        os.close(held)
        assert waiter.came.wait(LIMIT_S)
        waiting.close()
        others = []
        for number in range(8):  # one of them gets the number that is free now
            others.append(os.open(tmp_path / f"other-{number}", os.O_RDWR | os.O_CREAT))
            fcntl.flock(others[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert failed == []
    for number, other in enumerate(others):
        assert not is_free(str(tmp_path / f"other-{number}"))
        os.close(other)
    assert is_free(path)


def test_a_late_waiter_takes_nothing_from_its_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has come, and lets go as the owner takes the lock again: the owner has it."""
    path = str(tmp_path / "lock")
    waiting = FairLock(path)
    held = os.open(path, os.O_RDWR)
    fcntl.flock(held, fcntl.LOCK_EX)
    lock = FairLock(path)
    with Stopping(monkeypatch, lets_go=True) as waiter:
        assert not waiting.acquire(0.01)
        os.close(held)
        assert waiter.came.wait(LIMIT_S)
        got = waiting.acquire(0.01)
    assert got or waiting.acquire(LIMIT_S)
    assert not lock.acquire(0.01), "another would have it as well"
    waiting.release()
    lock.close()
    waiting.close()


@pytest.mark.parametrize("name", ["start_new_thread", "wait", "get", "acquire", "release"])
def test_an_interrupted_wait_leaves_no_thread_and_no_file(tmp_path: Path, name: str) -> None:
    """Wherever in it Ctrl-C comes."""
    path = str(tmp_path / "lock")
    before = len(os.listdir("/dev/fd"))
    for at in range(1, 8):
        waiting = FairLock(path)
        held = os.open(path, os.O_RDWR)
        fcntl.flock(held, fcntl.LOCK_EX)
        with contextlib.suppress(KeyboardInterrupt), AfterCalling(name, at):
            waiting.acquire(0.01)
        waiting.close()
        os.close(held)
        until = time.monotonic() + LIMIT_S
        while is_waiting() or not is_free(path):
            assert time.monotonic() < until
    del waiting
    until = time.monotonic() + LIMIT_S
    while len(os.listdir("/dev/fd")) > before:
        assert time.monotonic() < until


def test_one_who_can_open_no_file_to_wait_with_has_the_lock_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "lock")
    waiting, other = FairLock(path), FairLock(path)
    assert other.acquire(LIMIT_S)

    def none_left(_path: str) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(fair_lock, "_LockFile", none_left)
    assert not waiting.acquire(0.02)
    let_go = threading.Timer(0.05, other.release)
    let_go.start()
    assert waiting.acquire(LIMIT_S)
    let_go.join()
    waiting.release()
    for lock in (waiting, other):
        lock.close()
