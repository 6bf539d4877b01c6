"""Leases mean the same everywhere: on another machine, after a restart, with clocks that are set
(I-6, I-26).
"""

import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import apsw
import psycopg
import pytest

import holdfast
import namespaces
import procs
from holdfast import Store
from holdfast.engine.protocol import OutboxClaim, Waiting, Write, Written
from holdfast.engine.sqlite.lease_clock import Clock, Kept
from holdfast.errors import AlreadyAccepted, SessionBusy
from holdfast.runtime.clock import RealWorld
from holdfast.runtime.live.leases import WAITER_S, Leases
from looking import HandWorld, ends, other_handle, waiters

LIMIT_S = 60.0
DAY_S = 86_400.0


def test_a_lease_that_is_renewed_counts_from_its_renewal() -> None:
    """Whatever a clock elsewhere says: as long as the mark of a lease changes, somebody
    renews it.
    """
    now = [0.0]
    leases = Leases(lambda: now[0])

    def is_free(mark: float) -> bool:
        return leases.is_free(
            "s", Waiting(b"m", "of another machine", 1, lease_s=30.0, left_s=9999.0, mark=mark)
        )

    assert not is_free(1.0)
    now[0] = 29.0
    assert not is_free(1.0)
    now[0] = 31.0
    assert not is_free(2.0), "it was renewed meanwhile"
    now[0] = 60.0
    assert not is_free(2.0)
    now[0] = 61.5
    assert is_free(2.0)


def test_on_another_machine_a_lease_runs_no_longer_than_it_was_given_for() -> None:
    """Whatever its clock and its calendar said when it was given."""
    kept = Kept(until=9e9, clock="there", length_s=30.0, calendar_s=9e9)
    assert kept.left_s(Clock("here", 5.0, 1_000)) == 30.0
    assert kept.left_s(Clock("there", 9e9 - 7.0, 1_000)) == 7.0


class Machine(HandWorld):
    """Another machine: its clock counts from another moment, and its calendar may be wrong."""

    def __init__(self, name: str, *, up_s: float = 0.0, late_s: float = 0.0) -> None:
        super().__init__()
        self.name, self.up_s, self.late_s = name, up_s, late_s

    def now(self) -> int:
        return super().now() - int(self.late_s * 1000)

    def tick(self) -> float:
        return super().tick() + self.up_s

    def clock(self) -> str:
        return self.name


LEFT = """
    import os
    import holdfast
    with holdfast.open(sys.argv[1]) as store:
        turn = store.turn("k", "hello", lease_s=float(sys.argv[2]))
        turn.say("half of it")
        say("left")
        os._exit(0)
"""


@pytest.fixture(params=["a file", "PostgreSQL"])
def where(request: pytest.FixtureRequest, path: Path) -> str:
    return (
        str(path)
        if request.param == "a file"
        else request.getfixturevalue("databases")(schema=True)
    )


def left_elsewhere(where: str, tmp_path: Path, lease_s: float = 30) -> None:
    """A turn is left by a process of another machine, which was killed: nobody here can
    prove that.
    """
    with procs.child(LEFT, where, lease_s, within=namespaces.other_boot(tmp_path)) as one:
        one.wait_for("left")
        one.end()


def test_a_store_that_is_moved_blocks_no_session_for_longer_than_the_lease(path: Path) -> None:
    """The time since boot of one machine means nothing on another, and its calendar may be wrong,
    too.
    """
    with holdfast.open(path, world=Machine("old", up_s=30 * DAY_S)) as store:
        held = store.turn("k", "hello", lease_s=30)
        shutil.copy(path, path.with_name("moved.db"))
        shutil.copy(f"{path}-wal", path.with_name("moved.db-wal"))
        assert held.id
    here = Machine("new", late_s=10 * DAY_S)
    with holdfast.open(path.with_name("moved.db"), world=here) as store:
        _forget_the_holder(path.with_name("moved.db"))
        session = store.session("k")
        with pytest.raises(SessionBusy):
            session.turn("mine", on_busy="refuse")
        here.ahead_s += 31
        with session.turn("mine", on_busy="refuse"):
            pass
        assert list(ends(store, session.id).values()) == [["abandoned"], ["completed"]]


def test_a_backup_of_yesterday_is_free_at_once_for_a_process_that_looks_only_once(
    path: Path,
) -> None:
    with holdfast.open(path, world=Machine("old", up_s=30 * DAY_S)) as store:
        held = store.turn("k", "hello", lease_s=30)
        store.backup(path.with_name("backup.db"))
        assert held.id
    _forget_the_holder(path.with_name("backup.db"))
    later = Machine("new")
    later.ahead_s = DAY_S
    with holdfast.open(path.with_name("backup.db"), world=later) as store:
        with store.session("k").turn("mine", on_busy="refuse"):
            pass


def test_a_reply_that_was_claimed_on_another_machine_is_owed_on_this_one(path: Path) -> None:
    """I-23: the time until which a sender had it means nothing here."""
    with holdfast.open(path, world=Machine("old", up_s=30 * DAY_S)) as store:
        with store.turn("k", "hello", reply_to="somebody") as turn:
            turn.say("hi")
        old = store._work.engine
        [debt] = old.outbox("default", free=True)
        claimed = Write(
            debt.session, claim=OutboxClaim(debt.id, b"a sender's token", 60.0), ended_too=True
        )
        assert isinstance(old.commit([(claimed,)])[0], Written)
        assert old.outbox("default", free=True) == []
    with holdfast.open(path, world=Machine("new")) as store:
        new = store._work.engine
        assert new.outbox("default", free=True) == [debt]
        assert isinstance(new.commit([(claimed,)])[0], Written)
        assert new.outbox("default", free=True) == []


@pytest.mark.slow
def test_a_living_turn_of_another_time_namespace_is_left_alone_and_a_dead_one_is_not(
    path: Path,
) -> None:
    """Containers may have a time since boot of their own: it is another clock, though the kernel is
    the same.
    """
    elsewhere = [
        *namespaces.UNSHARE,
        "--time",
        f"--boottime={int(30 * DAY_S)}",
        "--pid",
        "--mount-proc",
    ]
    script = LEFT.replace("os._exit(0)", "hear()")
    hand = HandWorld()
    with (
        holdfast.open(path, world=hand) as store,
        procs.child(script, path, 6, within=elsewhere) as other,
    ):
        other.wait_for("left")
        session = store.session("k")
        for _ in range(3):  # its keeper renews every two seconds
            hand.ahead_s += 3
            with pytest.raises(SessionBusy):
                session.turn("mine", on_busy="refuse")
            _until_renewed(path)
        other.kill()
        with pytest.raises(SessionBusy):
            session.turn("mine", on_busy="refuse")
        hand.ahead_s += 40
        with session.turn("mine", on_busy="refuse"):
            pass


def test_a_calendar_that_is_set_ahead_takes_no_turn_from_the_living(
    path: Path, tmp_path: Path
) -> None:
    """On one machine the calendar decides nothing."""
    ahead = Machine(RealWorld().clock(), late_s=-DAY_S)
    with holdfast.open(path) as store, holdfast.open(path, world=ahead) as other:
        with store.turn("k", "hello") as turn:
            with pytest.raises(SessionBusy):
                other.session("k").turn("mine", on_busy="refuse")
            turn.say("whole")


@pytest.mark.slow
def test_a_server_whose_time_is_wrong_blocks_no_session_for_longer_than_the_lease(
    databases, tmp_path: Path
) -> None:
    """A server that takes over may have another time than the one that gave the lease."""
    where = databases(schema=True)
    hand = HandWorld()
    with holdfast.open(where, world=hand) as store:
        left_elsewhere(where, tmp_path)
        with psycopg.connect(where, autocommit=True) as connection:
            connection.execute(f"UPDATE session SET lease_until = lease_until + {30 * DAY_S}")
        session = store.session("k")
        with pytest.raises(SessionBusy):
            session.turn("mine", on_busy="refuse")
        hand.ahead_s += 31
        with session.turn("mine", on_busy="refuse"):
            pass


@pytest.mark.slow
def test_a_turn_that_was_left_on_another_machine_is_free_when_its_lease_is_over(
    where: str, tmp_path: Path
) -> None:
    """As before: whoever waits gets the next turn."""
    with holdfast.open(where) as store:
        left_elsewhere(where, tmp_path, lease_s=1)
        session = store.session("k")
        with session.turn("mine"):
            pass
        assert list(ends(store, session.id).values()) == [["abandoned"], ["completed"]]
        assert [message.text for message in session.transcript()] == ["hello", "half of it", "mine"]


# Waiters
# -------------------------------------------------------------------------------------------------------------

WAITS = """
    import holdfast
    with holdfast.open(sys.argv[1]) as store:
        session = store.session("k")
        say("ready")
        with session.turn("from elsewhere", event_id="e1") as turn:
            turn.say("answered")
            say("answered")
"""


@pytest.mark.slow
def test_a_message_whose_waiter_died_on_another_machine_is_taken_by_a_later_turn(
    where: str, tmp_path: Path
) -> None:
    """I-4: it was accepted, and its redelivery is told so: nobody else would ever answer it."""
    hand = HandWorld()
    with holdfast.open(where, world=hand) as store:
        session = store.session("k")
        running = session.turn("first")
        with procs.child(WAITS, where, within=namespaces.other_boot(tmp_path)) as other:
            other.wait_for("ready")
            _until_waiting(store, session.id)
            other.kill()
        assert running.inbox() == [], "its waiter may still live"
        running.__exit__(None, None, None)
        with session.turn("second") as turn:
            assert [message.text for message in session.pending()] == ["from elsewhere"]
        with pytest.raises(AlreadyAccepted):
            session.turn("again", event_id="e1")
        _pass(where, hand, WAITER_S + 1)
        with session.turn("third") as turn:
            turn.say("answered both")
        assert session.pending() == []
        taken = [message.text for message in session.transcript() if message.turn == turn.id]
        assert taken == ["from elsewhere", "third", "answered both"]


@pytest.mark.slow
def test_a_waiter_that_lives_keeps_its_message_for_as_long_as_it_waits(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It renews its lease; and what a turn has taken meanwhile never comes back."""
    monkeypatch.setattr("holdfast.runtime.turns.start_turn.WAITER_S", 0.3)
    with holdfast.open(where) as store, other_handle(where) as other:
        session = store.session("k")
        running = session.turn("first")
        got: list[object] = []
        thread = threading.Thread(target=lambda: got.append(other.session("k").turn("mine")))
        thread.start()
        marks = set()
        engine = store._work.engine
        for _ in _patiently():
            marks |= {waiting.mark for waiting in engine.inbox(session.id)}
            if len(marks) > 3:
                break
        assert running.inbox() == []
        running.__exit__(None, None, None)
        thread.join(LIMIT_S)
        [turn] = got
        with turn:  # type: ignore[attr-defined]
            pass
        assert session.pending() == []
        assert [message.text for message in session.transcript()] == ["first", "mine"]


@pytest.mark.slow
def test_a_waiter_that_slept_through_its_lease_is_told_who_has_its_message(
    where: str, path: Path
) -> None:
    """It starts no second turn for it (I-2)."""
    hand = HandWorld()
    with holdfast.open(where, world=hand) as store:
        session = store.session("k")
        running = session.turn("first")
        script = WAITS.replace("with session", "try:\n            turn = session").replace(
            'as turn:\n            turn.say("answered")\n            say("answered")',
            '\n        except holdfast.errors.AlreadyAccepted as error:\n            say("told", '
            "error.turn_id)",
        )
        with procs.child(script, where) as other:
            other.wait_for("ready")
            _until_waiting(store, session.id)
            other.freeze_between_commits(path) if where == str(path) else other.freeze()
            _pass(where, hand, WAITER_S + 1)
            assert [message.text for message in running.inbox()] == ["from elsewhere"]
            other.thaw()
            running.__exit__(None, None, None)
            assert other.wait_for("told") == running.id


def test_messages_of_the_version_before_wait_for_their_waiters_no_longer_than_a_lease(
    path: Path,
) -> None:
    """Their waiters have no leases."""
    hand = HandWorld()
    with holdfast.open(path, world=hand) as store:
        store.accept("k", "old")
        raw = apsw.Connection(str(path))
        raw.execute("UPDATE inbox SET waiter = 'another/machine/1/1'")
        raw.close()
        session = store.session("k")
        with session.turn("one"):
            assert len(session.pending()) == 1
        hand.ahead_s += WAITER_S + 1
        with session.turn("two"):
            assert session.pending() == []


def _forget_the_holder(path: Path) -> None:
    """The processes of the other machine can't be judged from here; those of the test could."""
    raw = apsw.Connection(str(path))
    raw.execute("UPDATE session SET holder = 'another/machine/1/1'")
    raw.close()


def _pass(where: str, hand: HandWorld, seconds: float) -> None:
    """So much time passes, for whichever clock decides."""
    hand.ahead_s += seconds
    if "postgres" in where or "host=" in where:
        with psycopg.connect(where, autocommit=True) as connection:
            connection.execute(f"UPDATE inbox SET lease_until = lease_until - {seconds}")


def _until_renewed(path: Path) -> None:
    raw = apsw.Connection(str(path))
    first = raw.execute("SELECT lease_until FROM session").get
    for _ in _patiently():
        if raw.execute("SELECT lease_until FROM session").get != first:
            break
    raw.close()


def _until_waiting(store: Store, session_id: str) -> None:
    for _ in _patiently():
        if [waiter for waiter in waiters(store, session_id) if waiter is not None]:
            return


def _patiently() -> Iterator[None]:
    """Again and again, for as long as anything may take."""
    over = threading.Event()
    for _ in range(int(LIMIT_S * 50)):
        yield
        over.wait(0.02)
    raise AssertionError(f"it did not come about in {LIMIT_S:g} s (process {os.getpid()})")
