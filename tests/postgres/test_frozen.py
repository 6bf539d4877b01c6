"""A client that stands still: whatever it was doing, nobody else waits for it, and it goes on where
it was (I-3).
"""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

import holdfast
import procs
from holdfast.testing.oracle import judge

LIMIT_S = 60.0

FREEZES = """
    import os, signal, time
    import holdfast
    from holdfast.engine.postgres.batch import BatchState

    judge = BatchState.apply

    def freezing(self, commit):
        if any(draft.body.find(b"FREEZE") >= 0 for write in commit for draft in write.drafts):
            BatchState.apply = judge
            say("frozen")
            os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(1)  # another thread may be the one that takes the signal, some moments later
        return judge(self, commit)

    BatchState.apply = freezing
    store = holdfast.open(sys.argv[1])
    store.accept("k", "FREEZE me", event_id="e1")
    say("done")
    hear()
"""


def wait_frozen(pid: int) -> None:
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        with open(f"/proc/{pid}/stat") as file:
            if file.read().rpartition(")")[2].split()[0] == "T":
                return
        time.sleep(0.01)
    raise AssertionError("it does not stand still")


@pytest.mark.slow
def test_a_client_that_is_frozen_between_reading_and_writing_holds_nothing(database: str):
    """It has read the session and judged its commit; others write to the same session as if it was
    not there.
    """
    with holdfast.open(database) as store:
        session = store.session("k")
        with procs.child(FREEZES, database) as frozen:
            frozen.wait_for("frozen")
            wait_frozen(frozen.pid)
            session.append("meanwhile")
            assert locks(database) == 0
            os.kill(frozen.pid, signal.SIGCONT)
            frozen.wait_for("done")
        assert [message.text for message in session.transcript()] == ["meanwhile", "FREEZE me"]
        assert judge(store) == []


def locks(place: str) -> int:
    """How many locks on rows or transactions are held by anybody else."""
    with psycopg.connect(place, autocommit=True) as connection:
        query = """SELECT count(*) FROM pg_locks WHERE pid <> pg_backend_pid() AND (locktype = 'tuple' OR
                   locktype = 'transactionid') AND database IS NOT DISTINCT FROM
                   (SELECT oid FROM pg_database WHERE datname = current_database())"""
        return int(connection.execute(query).fetchall()[0][0])


COMMITS = """
    import itertools, threading
    import holdfast
    store = holdfast.open(sys.argv[1])

    def work(name):
        for number in itertools.count():
            store.accept(f"{name} {number % 7}", f"message {number} " + "x" * 3000, event_id=f"{name} {number}")
            with store.turn(f"{name} {number % 7}", "and now", lease_s=2) as turn:
                turn.say("so " * 2000)
            say("did", name, number)

    for name in "abcd":
        threading.Thread(target=work, args=(name,), daemon=True).start()
    hear()
"""


@pytest.mark.slow
def test_clients_frozen_in_the_middle_of_commits_hold_up_nobody(database: str):
    """SIGSTOP at any moment, eight times; another process goes on with its own sessions and with
    theirs. What the frozen one was told is there when it goes on.
    """
    with holdfast.open(database) as store, procs.child(COMMITS, database) as frozen:
        told: list[str] = []
        own = store.session("mine")
        for round in range(8):
            while len(told) < 6 * (round + 1):
                told.append(frozen.wait_for("did"))
            time.sleep(0.003 * round)  # another moment each time
            os.kill(frozen.pid, signal.SIGSTOP)
            wait_frozen(frozen.pid)
            for number in range(10):
                own.append(f"{round} {number}")
                store.accept(f"{'abcd'[number % 4]} {number % 7}", f"from another {round} {number}")
            os.kill(frozen.pid, signal.SIGCONT)
        frozen.kill()
        assert len(list(own.transcript())) == 80
        for line in told:
            name, number = line.split()
            texts = [
                message.text for message in store.session(f"{name} {int(number) % 7}").transcript()
            ]
            assert sum(text.startswith(f"message {number} ") for text in texts) == 1
        for listed in store.sessions(limit=100):
            store.get(listed.id).stop("its process is gone")
        assert judge(store) == []


@contextmanager
def held(place: str, session: str) -> Iterator[None]:
    """Somebody holds the row of a session."""
    with psycopg.connect(place) as connection:
        connection.execute("SELECT 1 FROM session WHERE id = %s FOR UPDATE", [session])
        yield


@pytest.mark.slow
@pytest.mark.parametrize("known", [True, False])
def test_a_row_that_somebody_holds_does_not_hold_up_its_lane(database: str, known: bool):
    """Commits of that session wait, in their order; all others go on."""
    with holdfast.open(database) as store:
        stuck, others = (
            store.session("stuck"),
            [store.session(f"other {number}") for number in range(8)],
        )
        done: list[str] = []

        def append(text: str) -> None:
            stuck.append(text)
            done.append(text)

        with held(database, stuck.id):
            if not known:
                store._work.engine._batch_writers[0]._state.sessions.clear()  # type: ignore[attr-defined]
            waits = threading.Thread(target=append, args=("first",), daemon=True)
            waits.start()
            for round in range(3):
                for other in others:
                    other.append(f"{round}")
            began = time.monotonic()
            while not store._work.engine._blocked.busy:  # type: ignore[attr-defined]
                others[0].append("more")
                assert time.monotonic() < began + LIMIT_S
            tickets = [
                store._work.engine.submit((write(stuck, f"{number}"),)) for number in range(3)
            ]
            for other in others:
                other.append("still")
            assert done == [] and not any(ticket.done for ticket in tickets)
        waits.join(LIMIT_S)
        for ticket in tickets:
            ticket.result(LIMIT_S)
        assert [message.text for message in stuck.transcript()] == ["first", "0", "1", "2"]
        assert judge(store) == []


def write(session: holdfast.Session, text: str) -> object:
    from holdfast.engine.protocol import Write
    from holdfast.runtime.live.session_log import speak

    session_log = session._log
    return Write(
        session_log.id, drafts=(session_log.message(speak(text, "openai.chat"), turn=None),)
    )
