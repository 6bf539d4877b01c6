"""What another process commits to a file is found by one thread for all who watch (I-15), at a cost
that does not grow with them, and not told again where this process has committed it itself.
"""

import contextlib
import os
import queue
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

import procs
from holdfast.engine.protocol import Chunk, ChunkWrite, Commit, NewRows, Start, Write, Written
from holdfast.engine.sqlite.background import poller
from holdfast.engine.sqlite.background.own_rows import OwnRows, RowSpans
from holdfast.engine.sqlite.engine import SqliteEngine
from holdfast.engine.sqlite.queries import QUERIES
from holdfast.engine.sqlite.read_only import ReadOnlySqliteEngine
from holdfast.errors import HoldfastError, StoreUnavailable
from holdfast.testing.conformance.builders import did, drafts, mint, opened
from holdfast.testing.reference import Ticks
from questions import Questions, pollers, until_no_poller

LIMIT_S = 60.0
MANY = range(0x10000000, 0x20000000)
SPANS = "SCAN span VIRTUAL TABLE INDEX 1:"

Open = Callable[[], SqliteEngine]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.db"


@pytest.fixture
def opening(path: Path) -> Iterator[Open]:
    with contextlib.ExitStack() as stack:

        def make() -> SqliteEngine:
            engine = SqliteEngine(str(path), durability="process", tick=Ticks())
            stack.callback(engine.close)
            return engine

        yield make


def say(engine: SqliteEngine, session: str, turn: int, index: int = 0) -> None:
    chunk = Chunk(mint(), index, b"word")
    did(engine, ChunkWrite(session, fence=turn, chunk=chunk))


def start(engine: SqliteEngine, session: str) -> int:
    write = Write(session, drafts=drafts(), start=Start("somebody", 1000.0), idle=True)
    return did(engine, write).turn


class Heard:
    """What the watcher of a session is told."""

    def __init__(self, engine: Any, session: str) -> None:
        self._told: queue.SimpleQueue[NewRows] = queue.SimpleQueue()
        self.stop = engine.watch_rows(session, self._told.put)

    def next(self) -> NewRows:
        return self._told.get(timeout=LIMIT_S)

    def all(self) -> list[NewRows]:
        """All that was told so far."""
        found = []
        with contextlib.suppress(queue.Empty):
            while True:
                found.append(self._told.get_nowait())
        return found


# Who is told.


def test_all_who_watch_are_told_by_one_thread_and_only_they(
    opening: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere, here = opening(), opening()
    *moving, still = [opened(elsewhere, number) for number in MANY[:40]]
    questions = Questions(monkeypatch)
    heard = {session: [Heard(here, session) for _ in range(5)] for session in moving}
    unmoved = Heard(here, still)
    questions.after_looks(3)  # what was so in the beginning is told
    assert len(pollers()) == 1
    for each in [unmoved, *(each for all in heard.values() for each in all)]:
        each.all()
    for session in moving:
        did(elsewhere, Write(session, drafts=drafts()))
    for all in heard.values():
        for each in all:
            assert each.next() is None
    questions.after_looks(2)
    assert unmoved.all() == []


def test_chunks_of_another_process_are_told(opening: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere, here = opening(), opening()
    session = opened(elsewhere, 1)
    turn = start(elsewhere, session)
    questions = Questions(monkeypatch)
    heard = Heard(here, session)
    questions.after_looks(3)
    heard.all()
    for index in range(3):
        say(elsewhere, session, turn, index)
        assert heard.next() is None


def test_an_idle_watcher_asks_nothing_and_the_poller_one_thing(
    opening: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere, here = opening(), opening()
    sessions = [opened(elsewhere, number) for number in MANY[:50]]
    questions = Questions(monkeypatch)
    watched = [Heard(here, session) for session in sessions]
    questions.after_looks(3)
    for each in watched:
        each.all()
    questions.of_pollers()
    questions.after_looks(30)
    assert set(questions.of_pollers()) == {"last_rows"} and questions.of_others() == []
    assert [each.all() for each in watched] == [[]] * 50


def test_a_session_that_nobody_watches_wakes_nobody_and_one_that_comes_is_told(
    opening: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere, here = opening(), opening()
    one, two = opened(elsewhere, 1), opened(elsewhere, 2)
    questions = Questions(monkeypatch)
    first = Heard(here, one)
    questions.after_looks(3)
    first.all()
    did(elsewhere, Write(two, drafts=drafts()))
    questions.after_looks(2)
    second = Heard(here, two)
    did(elsewhere, Write(two, drafts=drafts()))
    assert second.next() is None
    assert first.all() == []


def test_what_is_committed_while_the_poller_begins_is_told(
    opening: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watcher may have read before the poller first looked."""
    elsewhere, here = opening(), opening()
    session = opened(elsewhere, 1)
    begins = threading.Event()
    read = type(here._readers).read

    def late(readers: Any, name: str, values: Any) -> Any:
        if name == "last_rows":
            assert begins.wait(LIMIT_S)
        return read(readers, name, values)

    monkeypatch.setattr(type(here._readers), "read", late)
    heard = Heard(here, session)
    did(elsewhere, Write(session, drafts=drafts()))
    begins.set()
    assert heard.next() is None


def test_a_burst_is_looked_through_a_piece_at_a_time(
    opening: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read transaction that lasts would keep the log from being brought in."""
    elsewhere, here = opening(), opening()
    first, *others, last = [opened(elsewhere, number) for number in MANY[:20]]
    questions = Questions(monkeypatch)
    heard = [Heard(here, session) for session in (first, last)]
    questions.after_looks(3)
    for each in heard:
        each.all()
    monkeypatch.setattr(poller, "ROWS_AT_ONCE", 7)
    writes: Commit = tuple(Write(id, drafts=drafts(5)) for id in (first, *others, last))
    assert isinstance(elsewhere.commit([writes])[0], Written)
    for each in heard:
        assert each.next() is None


# What this process has committed.


def test_what_this_process_commits_is_told_once_and_as_rows(
    opening: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = opening()
    session = opened(here, 1)
    questions = Questions(monkeypatch)
    turn = start(here, session)
    heard = Heard(here, session)
    questions.after_looks(3)
    heard.all()
    for index in range(100):
        say(here, session, turn, index)
    questions.after_looks(3)
    told = heard.all()
    assert None not in told
    assert sum(len(rows or ()) for rows in told) == 100
    for _ in range(20):
        did(here, Write(session, drafts=drafts()))
    questions.after_looks(3)
    assert heard.all() == [None] * 20


def test_rows_of_two_processes_in_turns_are_told_apart(
    opening: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere, here = opening(), opening()
    mine, theirs = opened(here, 1), opened(here, 2)
    questions = Questions(monkeypatch)
    own, other = start(here, mine), start(elsewhere, theirs)
    heard, overheard = Heard(here, mine), Heard(here, theirs)
    questions.after_looks(3)
    for each in (heard, overheard):
        each.all()
    for index in range(60):
        say(here, mine, own, index)
        if index % 3 == 0:
            say(elsewhere, theirs, other, index)
        if index % 20 == 0:
            did(elsewhere, Write(theirs, drafts=drafts()))
    questions.after_looks(3)
    assert None not in heard.all()
    told = overheard.all()
    assert told and set(told) == {None}


def test_after_a_commit_that_failed_all_look_for_themselves(
    opening: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The numbers of its rows are another's by now, maybe."""
    here = opening()
    session, other = opened(here, 1), opened(here, 2)
    questions = Questions(monkeypatch)
    heard = Heard(here, other)
    questions.after_looks(3)
    heard.all()
    monkeypatch.setattr(here._applier, "finish", lambda: 1 // 0)
    with contextlib.suppress(Exception):
        here.commit([(Write(session, drafts=drafts()),)])
    assert heard.next() is None


@given(st.lists(st.booleans(), max_size=40), st.data())
def test_spans_that_are_ours_leave_exactly_those_of_others(
    rows: list[bool], data: st.DataObject
) -> None:
    """Rows are numbered from 1 on; True are our own, added in batches."""
    own = RowSpans()
    first = 1
    while first <= len(rows):
        last = first
        while last < len(rows) and rows[last] == rows[first - 1] and data.draw(st.booleans()):
            last += 1
        if rows[first - 1]:
            own.add(first, last)
        first = last + 1
    seen = data.draw(st.integers(0, len(rows)))
    others = own.others(seen, len(rows))
    found = [number for low, high in others for number in range(low, high + 1)]
    assert found == [n for n in range(seen + 1, len(rows) + 1) if not rows[n - 1]]
    assert all(low <= high for low, high in others)


def test_spans_that_were_seen_are_not_kept() -> None:
    own = OwnRows()
    for number in range(1, 2000, 2):
        own.add(entries=(number, number), chunks=(number, number))
        own.seen(number, number)
    assert len(own.entries) <= 2 and len(own.chunks) <= 2
    for number in range(3000, 9000):
        own.add(entries=(number, number), chunks=None)
    assert len(own.entries) <= 3, "rows that follow each other are one span"
    for number in range(10_000, 20_000, 2):
        own.add(entries=None, chunks=(number, number))
    assert len(own.chunks) <= 1000, "nobody looks, and it grows"


# Its thread.


def test_the_poller_ends_with_the_last_watcher_and_begins_again(opening: Open) -> None:
    elsewhere, here = opening(), opening()
    session = opened(elsewhere, 1)
    until_no_poller()
    for _ in range(3):
        heard = Heard(here, session)
        assert heard.next() is None  # that it begins
        assert len(pollers()) == 1
        did(elsewhere, Write(session, drafts=drafts()))
        assert heard.next() is None
        heard.stop()
        until_no_poller()


def test_many_begin_and_stop_at_once_and_somebody_always_looks(opening: Open) -> None:
    elsewhere, here = opening(), opening()
    sessions = [opened(elsewhere, number) for number in MANY[:8]]
    problems: list[object] = []

    def come_and_go(session: str) -> None:
        try:
            for _ in range(20):
                heard = Heard(here, session)
                heard.next()
                heard.stop()
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=come_and_go, args=(id,)) for id in sessions]
    talking = threading.Event()

    def talk() -> None:
        while not talking.is_set():
            for session in sessions:
                did(elsewhere, Write(session, drafts=drafts()))

    talker = threading.Thread(target=talk)
    for thread in [talker, *threads]:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    talking.set()
    talker.join(LIMIT_S)
    assert problems == []
    until_no_poller()


def open_files(path: Path) -> list[str]:
    found = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            name = os.readlink(f"/proc/self/fd/{number}")
            if str(path) in name:
                found.append(name)
    return found


def test_a_store_that_is_closed_leaves_no_poller_and_no_file(path: Path) -> None:
    for read_only in (False, True):
        for begun in (False, True):
            writer = SqliteEngine(str(path), durability="process", tick=Ticks())
            session = MANY[2 * read_only + begun]
            id = opened(writer, session)
            engine: Any = writer
            if read_only:
                engine = ReadOnlySqliteEngine(str(path), tick=Ticks())
            heard = Heard(engine, id)
            if begun:
                assert heard.next() is None
            engine.close()
            writer.close()
            assert pollers() == [] and open_files(path) == []
            Heard(engine, id)
            assert pollers() == [], "nobody looks for a store that is closed"


def test_a_callback_may_close_the_store(opening: Open) -> None:
    here = opening()
    session = opened(here, 1)
    closed = threading.Event()

    def close() -> None:
        here.close()
        closed.set()

    here.watch(session, close)
    assert closed.wait(LIMIT_S)
    until_no_poller()


def test_a_checkpoint_is_not_hindered(
    path: Path, opening: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere, here = opening(), opening()
    session = opened(elsewhere, 1)
    questions = Questions(monkeypatch)
    Heard(here, session)
    for _ in range(5):
        did(elsewhere, Write(session, drafts=drafts(50)))
        questions.after_looks(3)
        for _ in range(100):  # one look may be under way
            with contextlib.closing(apsw.Connection(str(path))) as other:
                busy, *_ = other.execute("PRAGMA wal_checkpoint(TRUNCATE)").get
            if not busy:
                break
        assert not busy


FORKING = """
    import os, threading
    from holdfast.engine.protocol import Write
    from holdfast.engine.sqlite.engine import SqliteEngine
    from holdfast.testing.conformance.builders import did, drafts, opened
    from holdfast.testing.reference import Ticks

    def made():
        return SqliteEngine(sys.argv[1], durability="process", tick=Ticks())

    def told_of(session, here, elsewhere):
        told = threading.Event()
        stop = here.watch(session, told.set)
        assert told.wait(60)  # that it begins
        told.clear()
        did(elsewhere, Write(session, drafts=drafts()))
        assert told.wait(60)
        return stop

    here, elsewhere = made(), made()
    session = opened(elsewhere, 1)
    told_of(session, here, elsewhere)
    for _ in range(20):
        child = os.fork()
        if not child:
            # what it got from its parent tells nothing and begins nothing
            here.watch(session, lambda: None)()
            assert threading.active_count() == 1
            told_of(session, made(), made())
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    told = threading.Event()
    here.watch(session, told.set)
    did(elsewhere, Write(session, drafts=drafts()))
    assert told.wait(60)
    elsewhere.close(); here.close()
    say("done")
"""


@pytest.mark.slow
def test_a_fork_tears_nothing_apart(path: Path) -> None:
    with procs.child(FORKING, path) as other:
        other.wait_for("done")


# Trouble.


def test_files_that_stray_are_told_to_all_and_when_they_are_back_it_goes_on(
    tmp_path: Path, path: Path, opening: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere, here = opening(), opening()
    session = opened(elsewhere, 1)
    questions = Questions(monkeypatch)
    heard = Heard(here, session)
    questions.after_looks(3)
    heard.all()
    os.rename(path, tmp_path / "away")
    assert heard.next() is None
    with pytest.raises(StoreUnavailable):
        here.state(session)
    os.rename(tmp_path / "away", path)
    questions.after_looks(3)
    heard.all()
    did(elsewhere, Write(session, drafts=drafts()))
    assert heard.next() is None


@pytest.mark.parametrize("end", ["", "-wal", "-shm"])
def test_a_store_whose_files_are_gone_can_be_closed(path: Path, opening: Open, end: str) -> None:
    here = opening()
    session = opened(here, 1)
    heard = Heard(here, session)
    assert heard.next() is None
    os.unlink(str(path) + end)
    if end != "-shm":  # whoever reads goes on by the index that it has
        assert heard.next() is None
    here.close()
    assert pollers() == []


def test_another_file_in_its_place_is_not_read(tmp_path: Path, path: Path, opening: Open) -> None:
    here = opening()
    session = opened(here, 1)
    heard = Heard(here, session)
    assert heard.next() is None
    shutil.copy(path, tmp_path / "copy")
    os.replace(tmp_path / "copy", path)
    assert heard.next() is None
    with pytest.raises(HoldfastError):
        here.state(session)


def test_a_log_that_was_taken_back_to_an_earlier_day_is_told_to_all(
    path: Path, opening: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody has restored a copy into the same file, by SQLite's own means."""
    here = opening()
    session = opened(here, 1)
    questions = Questions(monkeypatch)
    heard = Heard(here, session)
    questions.after_looks(3)
    heard.all()
    with contextlib.closing(apsw.Connection(str(path))) as other:
        other.execute("DELETE FROM entry")
    assert heard.next() is None


# What it asks.


@pytest.mark.parametrize("name", ["last_rows", "written_sessions", "spoken_sessions"])
def test_what_the_poller_asks_does_not_grow_with_what_is_there(
    path: Path, opening: Open, name: str
) -> None:
    opened(opening(), 1)
    values = {} if name == "last_rows" else {"spans": "[[1, 2]]"}
    with contextlib.closing(apsw.Connection(str(path))) as connection:
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {QUERIES[name]}", values)]
    for step in plan:
        assert "SCAN" not in step or step in ("SCAN CONSTANT ROW", SPANS), plan


def test_its_cost_is_that_of_what_is_new(path: Path, opening: Open) -> None:
    """In steps of SQLite's machine: with a hundred times the sessions and entries, the same."""
    here = opening()
    costs = []
    for few in (MANY[:8], MANY[8:800]):
        for number in few:
            did(here, Write(opened(here, number), drafts=drafts(10)))
        with contextlib.closing(apsw.Connection(str(path))) as connection:
            last = connection.execute("SELECT max(n) FROM entry").get
            for name, values in (
                ("last_rows", {}),
                ("written_sessions", {"spans": f"[[{last - 9}, {last}]]"}),
                ("spoken_sessions", {"spans": "[[1, 10]]"}),
            ):
                steps = 0

                def count() -> bool:
                    nonlocal steps
                    steps += 1
                    return False

                connection.set_progress_handler(count, 1)
                connection.execute(QUERIES[name], values).fetchall()
                connection.set_progress_handler(None)
                costs.append(steps)
    assert costs[:3] == pytest.approx(costs[3:], rel=0.2)
