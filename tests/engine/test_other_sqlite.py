"""Two SQLite libraries in one process: the second must not open what the first has open."""

import sqlite3
import warnings
from contextlib import closing

import pytest

import holdfast
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
