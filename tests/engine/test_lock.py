"""The fair lock in front of SQLite's own: exclusive, given up in time, free when its holder dies
(FAULTS F8).
"""

import threading
from pathlib import Path

import pytest

import procs
from holdfast.engine.sqlite.file_guard.fair_lock import FairLock
from holdfast.errors import StoreUnavailable

LIMIT_S = 60

HOLDER = """
    from holdfast.engine.sqlite.file_guard.fair_lock import FairLock
    lock = FairLock(sys.argv[1])
    while True:
        word = hear()
        if word == "take":
            say("took", lock.acquire(60))
        elif word == "release":
            lock.release()
            say("released")
        else:
            break
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "agent.db-lock")


def test_only_one_holds_it(path: str) -> None:
    one, two = FairLock(path), FairLock(path)
    assert one.acquire(0.01)
    assert not two.acquire(0.01)
    one.release()
    assert two.acquire(LIMIT_S)
    assert not one.acquire(0.01)
    two.release()
    for lock in (one, two):
        lock.close()


def test_one_who_gave_up_waiting_does_not_get_it_later(path: str) -> None:
    """The kernel's queue has no timeout: the late waiter must let go of what it gets."""
    one, two, three = FairLock(path), FairLock(path), FairLock(path)
    assert one.acquire(0.01)
    for _ in range(5):
        assert not two.acquire(0.01)
    one.release()
    for thread in threading.enumerate():
        if thread.name == "holdfast-lock":
            thread.join(LIMIT_S)  # it has come to the head of the queue by now, and let go
    assert three.acquire(LIMIT_S)
    three.release()
    assert two.acquire(LIMIT_S)
    two.release()
    for lock in (one, two, three):
        lock.close()


def test_waiters_get_it_as_soon_as_it_is_free(path: str) -> None:
    lock = FairLock(path)
    waiter = FairLock(path)
    assert lock.acquire(LIMIT_S)
    got: list[bool] = []
    thread = threading.Thread(target=lambda: got.append(waiter.acquire(LIMIT_S)))
    thread.start()
    lock.release()
    thread.join(LIMIT_S)
    assert got == [True]
    waiter.release()


def test_it_is_free_when_its_holder_was_killed(path: str) -> None:
    lock = FairLock(path)
    with procs.child(HOLDER, path) as other:
        other.tell("take")
        assert other.wait_for("took") == "True"
        assert not lock.acquire(0.01)
        other.kill()
        assert lock.acquire(LIMIT_S)
    lock.release()


def test_processes_take_turns(path: str) -> None:
    lock = FairLock(path)
    with procs.child(HOLDER, path) as other:
        for _ in range(5):
            assert lock.acquire(LIMIT_S)
            other.tell("take")
            lock.release()
            assert other.wait_for("took") == "True"
            assert not lock.acquire(0.01)
            other.tell("release")
            other.wait_for("released")
    assert lock.acquire(LIMIT_S)


def test_threads_that_work_under_it_never_meet(path: str) -> None:
    inside: list[str] = []
    met: list[str] = []

    def work(name: str) -> None:
        lock = FairLock(path)
        for _ in range(20):
            assert lock.acquire(LIMIT_S)
            inside.append(name)
            met.extend(inside[1:])
            inside.remove(name)
            lock.release()
        lock.close()

    threads = [threading.Thread(target=work, args=(str(n),)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    assert met == []


def test_a_lock_whose_folder_is_gone_closes_its_file_once(tmp_path: Path) -> None:
    """Closed twice, its number is that of another file by then: of another store, maybe."""
    folder = tmp_path / "gone"
    folder.mkdir()
    lock = FairLock(str(folder / "agent.db-lock"))
    (folder / "agent.db-lock").unlink()
    folder.rmdir()
    with pytest.raises(StoreUnavailable):
        lock.acquire(0.01)
    other = FairLock(str(tmp_path / "other-lock"))
    lock.close()
    assert other.acquire(LIMIT_S)
    other.release()
    other.close()
    folder.mkdir()
    assert lock.acquire(LIMIT_S)
    lock.release()
    lock.close()
