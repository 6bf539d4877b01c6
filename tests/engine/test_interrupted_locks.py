"""Ctrl-C in the moment in which a file lock was taken: no other process is shut out by it."""

import contextlib
import fcntl
import os
import sys
import threading
import time
from pathlib import Path

import pytest

import holdfast
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


@pytest.mark.parametrize("name", ["acquire", "wait", "get"])
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
    while any(each.name == "holdfast-lock" for each in threading.enumerate()):
        assert time.monotonic() < until
    assert is_free(path)
    assert waiting.acquire(5)
    waiting.release()
    waiting.close()
