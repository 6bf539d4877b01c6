"""Never an acknowledgement before its sync (I-3): the order in which the writer writes, syncs and
answers.

A VFS stands between SQLite and the disk and takes notes: every write to the write-ahead log, every
sync of it, and, from the tickets, every answer. While an answer is given, nothing that was written
to the log may be waiting for a sync. FAULTS G5.
"""

import threading

import apsw
import pytest

import holdfast
from holdfast.domain.entry import Draft
from holdfast.engine import writer
from holdfast.engine.open import open_engine
from holdfast.engine.protocol import Opening, Start, Write, Written
from holdfast.engine.sqlite.file_guard.fair_lock import FairLock


class Notes:
    """What happened, in order: ("write", thread), ("sync", thread), ("answer", outcome), ("shown",
    text).
    """

    def __init__(self):
        self.events = []
        self.lock = threading.Lock()

    def add(self, *event):
        with self.lock:
            self.events.append(event)

    def early(self):
        """Answers and texts that came while bytes of the log waited for their sync, of the same
        writer.
        """
        unsynced, found = set(), []
        for kind, value in self.events:
            if kind == "write":
                unsynced.add(value)
            elif kind == "sync":
                unsynced.discard(value)
            elif unsynced:
                found.append((kind, value))
        return found

    def count(self, kind):
        return sum(event[0] == kind for event in self.events)


def noting_vfs(name, usual, notes):
    """A VFS like the usual one that takes notes of the write-ahead logs."""

    class File(apsw.VFSFile):
        def __init__(self, filename, flags):
            super().__init__(usual, filename, flags)
            self._is_log = bool(flags[0] & apsw.SQLITE_OPEN_WAL)

        def xWrite(self, data, offset):
            super().xWrite(data, offset)
            if self._is_log:
                notes.add("write", threading.get_ident())

        def xSync(self, flags):
            super().xSync(flags)
            if self._is_log:
                notes.add("sync", threading.get_ident())

    class Vfs(apsw.VFS):
        def __init__(self):
            super().__init__(name, usual, makedefault=True)

        def xOpen(self, filename, flags):
            return File(filename, flags)

    return Vfs()


@pytest.fixture
def notes(monkeypatch):
    taken = Notes()
    usual = apsw.vfs_names()[0]
    vfs = noting_vfs("noting", usual, taken)
    answer = writer.WriterTicket.answer

    def noted(ticket, outcome):
        if isinstance(outcome, Written):
            taken.add("answer", outcome)
        answer(ticket, outcome)

    monkeypatch.setattr(writer.WriterTicket, "answer", noted)
    yield taken
    apsw.set_default_vfs(usual)
    vfs.unregister()


def work(session, number):
    """A turn of everything that writes."""
    with session.turn(f"q{number}") as turn:
        yield from turn.deliver(f"{number}.{piece} " for piece in range(20))
        turn.result(turn.call("look", {}), "seen")
        yield turn.say("Done.")


def test_nothing_is_acknowledged_or_shown_before_its_sync(notes, tmp_path):
    """I-3, I-5: one writer, turns with streams and tools; every answer finds the log synced."""
    with holdfast.open(tmp_path / "agent.db", durability="power") as store:
        session = store.session("k")
        for number in range(5):
            for text in work(session, number):
                notes.add("shown", text)
    assert notes.early() == []
    assert notes.count("answer") > 50 and notes.count("shown") > 20
    assert notes.count("write") >= notes.count("sync") > 50, "the trace is of a real log"


def test_nothing_is_acknowledged_before_its_sync_when_many_write_at_once(notes, tmp_path):
    """I-3: group commit; one sync answers many, and never one too many."""
    with holdfast.open(tmp_path / "agent.db", durability="power") as store:
        gate = threading.Barrier(12)

        def run(key):
            session = store.session(key)
            gate.wait()
            for number in range(4):
                for _ in work(session, number):
                    pass

        threads = [threading.Thread(target=run, args=(f"k{number}",)) for number in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert notes.early() == []
    assert notes.count("answer") > 12 * 4 * 5
    assert notes.count("sync") < notes.count("answer"), "many answers shared a sync"


def test_a_long_log_that_is_checkpointed_on_the_way_keeps_the_order(notes, tmp_path):
    """I-3: housekeeping runs after the answers, and the log that starts anew is synced like the
    first.
    """
    with holdfast.open(tmp_path / "agent.db", durability="power") as store:
        session = store.session("k")
        for number in range(60):
            session.append({"role": "user", "content": f"{number}" * 40_000})
    assert notes.early() == []
    assert notes.count("answer") >= 60


def test_the_notes_tell_a_store_that_does_not_sync(notes, tmp_path):
    """With durability "process" there is no sync to wait for: the trace shows it, so the trace can
    be believed.
    """
    with holdfast.open(tmp_path / "agent.db", durability="process") as store:
        store.session("k").append("Hi")
    assert notes.early() != []


# Which commits a sync is for
# -----------------------------------------------------------------------------------------


class Store:
    """An engine with a session in it, whose writer can be made to take several commits as one
    batch.
    """

    def __init__(self, path, durability):
        self.path, self.count = str(path), 0
        self.engine = open_engine(self.path, durability=durability, tick=lambda: 0.0)
        opened = Write("s", (self.draft(),), open=Opening("t", "k", 1), start=Start("holder", 30.0))
        assert self.engine.commit([(opened,)])

    def draft(self):
        self.count += 1
        return Draft(
            "message",
            None,
            self.count.to_bytes(16, "big"),
            1,
            b"",
            b'{"role":"user","content":"x"}',
        )

    def lasting(self):
        return (Write("s", (self.draft(),)),)

    def fleeting(self):
        return (Write("s", renew_s=30.0, fleeting=True),)

    def batch(self, *commits):
        """Does these in one transaction: the writer is held back with an empty one until all of
        them wait.
        """
        lock = FairLock(self.path + "-lock")
        assert lock.acquire(60)
        tickets = [self.engine.submit(commit) for commit in ((), *commits)]
        lock.release()
        lock.close()
        return [ticket.result(60) for ticket in tickets[1:]]


@pytest.fixture
def opened(notes, tmp_path):
    """Opens a store and forgets what opening it noted."""
    stores = []

    def open_one(durability="power"):
        stores.append(Store(tmp_path / "agent.db", durability))
        notes.events.clear()
        return stores[-1]

    yield open_one
    for store in stores:
        store.engine.close()


def test_a_batch_of_lasting_and_fleeting_commits_syncs_once(notes, opened):
    store = opened()
    outcomes = store.batch(store.fleeting(), store.lasting(), store.fleeting(), store.lasting())
    assert all(isinstance(outcome, Written) for outcome in outcomes)
    assert notes.count("answer") == 5 and notes.count("sync") == 1
    assert notes.early() == []


def test_fleeting_commits_alone_cost_no_sync(notes, opened):
    store = opened()
    for _ in range(3):
        store.batch(store.fleeting(), store.fleeting())
    assert notes.count("write") > 0 and notes.count("sync") == 0


def test_a_lasting_commit_makes_what_was_fleeting_before_it_last_too(notes, opened):
    """The log is synced as one: nothing written to it before is left behind."""
    store = opened()
    store.batch(store.fleeting())
    assert notes.count("sync") == 0
    store.batch(store.lasting())
    assert notes.count("sync") == 1
    assert [kind for kind, _ in notes.events if kind != "answer"][-1] == "sync", (
        "nothing was written after it"
    )
    store.batch(store.fleeting())
    store.batch(store.lasting())
    assert notes.count("sync") == 2


def test_a_store_that_need_not_survive_a_power_cut_never_syncs_for_a_commit(notes, opened):
    store = opened("process")
    store.batch(store.lasting(), store.fleeting())
    store.batch(store.lasting())
    assert notes.count("answer") == 5 and notes.count("sync") == 0


def test_a_lease_that_is_renewed_costs_no_sync(notes, tmp_path):
    """The keeper renews all the time; after a power cut nobody holds the lease any more."""
    with holdfast.open(tmp_path / "agent.db", durability="power") as store:
        turn = store.session("k").turn("Hi")
        notes.events.clear()
        turn._work.renew()
        store._work.engine.commit([()])  # what was submitted before it has been answered
        assert notes.count("answer") == 2
        assert notes.count("write") > 0 and notes.count("sync") == 0
        notes.events.clear()
        turn.interrupt()
        assert notes.count("sync") >= 1 and notes.early() == [], "what must last is synced again"
