"""Two SQLite libraries in one process: the second must not open what the first has open."""

import sqlite3
import threading
import warnings
from contextlib import closing

import apsw
import pytest

import holdfast
from holdfast.engine.sqlite.file_guard import other_sqlite
from holdfast.engine.sqlite.file_guard.handled_files import handling
from holdfast.errors import BadArgument
from procs import child

HOLDS = """
    import apsw, os, sqlite3
    path = sys.argv[1]
    first = apsw.Connection(path)
    first.execute("PRAGMA journal_mode=WAL")
    first.execute("CREATE TABLE t (x); BEGIN IMMEDIATE; INSERT INTO t VALUES (1)")
    say("held")
    hear()
    other = sqlite3.connect(path)
    other.execute("SELECT count(*) FROM sqlite_master").fetchall()
    other.close()
    say("closed")
    hear()
"""
WANTS = """
    import apsw
    connection = apsw.Connection(sys.argv[1])
    try:
        connection.execute("BEGIN IMMEDIATE")
        say("got it")
    except apsw.BusyError:
        say("busy")
"""


def lock_is(path):
    with child(WANTS, path) as other:
        return other.line()


def test_without_a_guard_a_second_library_lets_go_of_the_locks_of_the_first(tmp_path):
    path = tmp_path / "any.db"
    with child(HOLDS, path) as holder:
        holder.wait_for("held")
        assert lock_is(path) == "busy"
        holder.tell("go on")
        holder.wait_for("closed")
        # The first library still takes itself for the owner of the lock.
        assert lock_is(path) == "got it"


@pytest.mark.parametrize("name", ["{}", "file:{}?mode=ro", "file://{}"])
def test_the_file_of_an_open_store_is_refused_to_another_library(tmp_path, name):
    path = tmp_path / "agent.db"
    database = name.format(path)
    with holdfast.open(path) as store:
        store.session("k").append("hello")
        with pytest.raises(BadArgument, match="release the store's locks"):
            sqlite3.connect(database, uri=database.startswith("file:"))
        with closing(sqlite3.connect(tmp_path / "another.db")) as another:
            another.execute("CREATE TABLE t (x)")
        assert store.check() == []
    # Once it is closed, anybody may.
    with closing(sqlite3.connect(path)) as looking:
        assert looking.execute("SELECT count(*) FROM entry").fetchone()[0] > 0


def test_a_link_to_the_file_is_the_file(tmp_path):
    path, link = tmp_path / "agent.db", tmp_path / "link.db"
    with holdfast.open(path):
        link.symlink_to(path)
        with pytest.raises(BadArgument):
            sqlite3.connect(link)


def test_a_file_that_is_open_already_is_told_of(tmp_path):
    path = tmp_path / "agent.db"
    holdfast.open(path).close()
    with closing(sqlite3.connect(path)) as earlier:
        earlier.execute("SELECT count(*) FROM entry").fetchall()
        with pytest.warns(RuntimeWarning, match="open in this process already"):
            holdfast.open(path).close()


def test_stores_of_ours_beside_each_other_are_nothing_to_tell_of(tmp_path):
    path = tmp_path / "agent.db"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with holdfast.open(path) as one, holdfast.open(path) as two:
            one.session("k").append("hello")
            assert [m.text for m in two.session("k").transcript()] == ["hello"]
        with holdfast.open(path, read_only=True), holdfast.open(path) as again:
            assert len(list(again.session("k").transcript())) == 1


def test_a_store_that_another_thread_is_just_opening_is_nothing_to_tell_of(tmp_path, monkeypatch):
    """Its file is open then, and no connection has it yet."""
    path = tmp_path / "agent.db"
    holdfast.open(path).close()
    came, go_on = threading.Event(), threading.Event()

    class Stopping(apsw.VFSFile):
        def xFileSize(self):
            if threading.current_thread() is opener:
                came.set()
                assert go_on.wait(60)
            return super().xFileSize()

    monkeypatch.setattr(apsw, "VFSFile", Stopping)
    opener = threading.Thread(target=lambda: holdfast.open(path, read_only=True).close())
    opener.start()
    try:
        assert came.wait(60)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            holdfast.open(path).close()
    finally:
        go_on.set()
        opener.join()


def test_what_was_opened_and_closed_during_the_look_is_nothing_to_tell_of(tmp_path, monkeypatch):
    path = str(tmp_path / "agent.db")

    def seen(of_ours):
        if of_ours:
            with handling(path):
                pass
        return True

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        monkeypatch.setattr(other_sqlite, "_is_listed", lambda _: seen(of_ours=True))
        other_sqlite.warn_of_earlier(path)
        monkeypatch.setattr(other_sqlite, "_is_listed", lambda _: seen(of_ours=False))
        with pytest.raises(RuntimeWarning, match="open in this process already"):
            other_sqlite.warn_of_earlier(path)
