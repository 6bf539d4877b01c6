"""Files moved, replaced or deleted under an open store: said at once, nothing acknowledged is lost,
and the same handle goes on when the cause is gone (FAULTS G7, G8).
"""

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
import procs
from holdfast import Session, Store
from holdfast.engine.sqlite.file_guard.file_identity import FileIdentity, refuse_beside_strayed
from holdfast.errors import StoreUnavailable
from thorough import few_cases


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with holdfast.open(path) as opened:
        yield opened


@pytest.fixture
def session(store: Store) -> Session:
    session = store.session("k")
    session.append("before")
    return session


def told(session: Session) -> list[str]:
    return [message.text for message in session.transcript()]


READS = """
    import holdfast
    with holdfast.open(sys.argv[1]) as store:
        for message in store.session("k").transcript():
            say(message.text)
"""

WRITES = """
    import holdfast
    with holdfast.open(sys.argv[1]) as store:
        store.session("k").append(sys.argv[2])
"""

KEEPS = """
    import holdfast
    with holdfast.open(sys.argv[1]) as store:
        session = store.session("k")
        say("open")
        while word := hear():
            try:
                session.append(word)
                say("seen", *[message.text for message in session.transcript()])
            except holdfast.errors.StoreUnavailable as error:
                say("refused", error)
"""


def refuses(session: Session, path: Path) -> str:
    """Neither writes nor reads; the sentence says so and names the file."""
    sentences = []
    for attempt in (
        lambda: session.append("refused"),
        lambda: told(session),
        lambda: session.turn("refused"),
    ):
        with pytest.raises(StoreUnavailable) as caught:
            attempt()
        assert str(path) in str(caught.value)
        sentences.append(str(caught.value))
    return sentences[0]


def refuses_to_write(session: Session, path: Path) -> str:
    with pytest.raises(StoreUnavailable) as caught:
        session.append("refused")
    assert str(path) in str(caught.value)
    return str(caught.value)


# The database
# --------------------------------------------------------------------------------------------------------


def test_a_file_that_was_moved_away_is_missed_and_when_it_is_back_the_handle_goes_on(
    path: Path, session: Session
):
    away = path.with_name("away.db")
    path.rename(away)
    assert "moved or deleted" in refuses(session, path)
    away.rename(path)
    session.append("after")
    assert told(session) == ["before", "after"]
    assert procs.run(READS, path) == ["before", "after"]


def test_a_file_that_was_deleted_is_missed(path: Path, session: Session) -> None:
    path.unlink()
    assert "moved or deleted" in refuses(session, path)


def test_a_folder_that_was_moved_away_is_missed_and_when_it_is_back_the_handle_goes_on(
    tmp_path: Path,
) -> None:
    folder, away = tmp_path / "data", tmp_path / "away"
    folder.mkdir()
    with holdfast.open(folder / "agent.db") as store:
        session = store.session("k")
        session.append("before")
        folder.rename(away)
        refuses(session, folder / "agent.db")
        away.rename(folder)
        session.append("after")
        assert told(session) == ["before", "after"]


@pytest.mark.slow
def test_a_file_that_was_put_in_its_place_is_not_taken_for_it(path: Path, session: Session) -> None:
    """G8: nothing is written to the other file, and nothing into the void."""
    with holdfast.open(path.with_name("other.db")) as other:
        other.session("k").append("of another store")
    kept = path.with_name("kept.db")
    path.rename(kept)
    path.with_name("other.db").rename(path)
    assert "another file" in refuses(session, path)
    path.rename(path.with_name("other.db"))
    kept.rename(path)
    session.append("after")
    assert procs.run(READS, path) == ["before", "after"]
    assert procs.run(READS, path.with_name("other.db")) == ["of another store"]


def test_a_copy_put_in_its_place_is_not_taken_for_it_either(path: Path, session: Session) -> None:
    """G8: a restored backup is the same store to people, and another file to whoever has the old
    one open.
    """
    session.turn("to be checkpointed").interrupt()
    shutil.copy(path, path.with_name("copy.db"))
    path.with_name("copy.db").rename(path)
    assert "another file" in refuses(session, path)


@pytest.mark.slow
def test_a_moved_file_is_whole_after_its_store_was_closed(tmp_path: Path, path: Path) -> None:
    """What lay in the log is brought into the database, wherever that is now."""
    store = holdfast.open(path)
    store.session("k").append("before")
    path.rename(tmp_path / "elsewhere.db")
    store.close()
    assert procs.run(READS, tmp_path / "elsewhere.db") == ["before"]


# Its log
# -------------------------------------------------------------------------------------------------------------

GONE = pytest.mark.parametrize(
    "gone", [["-wal"], ["-shm"], ["-wal", "-shm"], ["-wal", "-shm", "-lock"]], ids=" ".join
)


def delete(path: Path, suffixes: list[str]) -> None:
    for suffix in suffixes:
        os.unlink(f"{path}{suffix}")


@pytest.mark.slow
@few_cases(every=2)
@GONE
def test_a_log_deleted_under_an_open_store_is_missed_and_costs_nothing(
    path: Path, gone: list[str]
) -> None:
    """G7: what was acknowledged is brought into the database; the store goes on when it is opened
    again.
    """
    with holdfast.open(path) as store:
        session = store.session("k")
        session.append("in the log only")
        delete(path, gone)
        assert "open it again" in refuses_to_write(session, path)
        assert procs.run(READS, path) == ["in the log only"], "from then on others see it too"
    with holdfast.open(path) as store:
        store.session("k").append("after")
        assert told(store.session("k")) == ["in the log only", "after"]
    assert procs.run(READS, path) == ["in the log only", "after"]


@pytest.mark.slow
@few_cases(every=2)
@GONE
def test_a_log_deleted_under_a_store_that_is_then_closed_costs_nothing(
    path: Path, gone: list[str]
) -> None:
    with holdfast.open(path) as store:
        store.session("k").append("in the log only")
        delete(path, gone)
    assert procs.run(READS, path) == ["in the log only"]


def test_a_reader_sees_that_the_log_was_deleted_before_the_next_write(
    path: Path, session: Session
) -> None:
    """It would go on seeing what the log held, and never what others write."""
    delete(path, ["-wal", "-shm"])
    with pytest.raises(StoreUnavailable, match="log"):
        told(session)


@pytest.mark.slow
@few_cases(every=3)
@GONE
def test_several_processes_go_on_after_the_log_was_deleted(path: Path, gone: list[str]) -> None:
    with procs.child(KEEPS, path) as other, holdfast.open(path) as store:
        other.wait_for("open")
        other.tell("theirs")
        assert other.wait_for("seen") == "theirs"
        session = store.session("k")
        session.append("ours")
        delete(path, gone)
        refuses_to_write(session, path)
        other.tell("not-theirs")
        assert other.wait_for("refused")
    expected = ["theirs", "ours"]
    with procs.child(KEEPS, path) as other, holdfast.open(path) as store:
        other.wait_for("open")
        for number in range(3):
            other.tell(f"theirs-{number}")
            expected.append(f"theirs-{number}")
            assert other.wait_for("seen") == " ".join(expected)
            store.session("k").append(f"ours-{number}")
            expected.append(f"ours-{number}")
    assert procs.run(READS, path) == expected


def test_a_store_is_not_opened_again_beside_a_handle_on_a_deleted_log(
    path: Path, session: Session
) -> None:
    """SQLite would let the two share what nobody else sees."""
    delete(path, ["-wal", "-shm"])
    with pytest.raises(StoreUnavailable, match="Close that handle"):
        holdfast.open(path)


@pytest.mark.slow
def test_a_store_may_be_opened_while_a_dropped_one_is_being_closed(path: Path) -> None:
    """The last connection that is closed deletes the log: nobody else has. Not so where it was
    deleted before.
    """
    with holdfast.open(path) as store:
        store.session("k").append("before")
        closing, strayed = (FileIdentity(str(path), time.monotonic) for _ in range(2))
        closing.begin_to_leave()
        strayed.forget()
        log = path.with_name(f"{path.name}-wal")
        log.rename(log.with_suffix(".aside"))
        closing._path = strayed._path = f"{path}!"
        refuse_beside_strayed(f"{path}!")
        strayed.begin_to_leave()
        assert strayed.has_strayed and not closing.has_strayed
        closing.forget()
        log.with_suffix(".aside").rename(log)


def test_a_log_that_somebody_began_anew_is_not_joined_with_the_one_in_hand(path: Path) -> None:
    """Two logs of one database exclude each other: neither writing on nor closing may
    touch it now.
    """
    with holdfast.open(path) as store:
        session = store.session("k")
        session.append("lost with its log")
        delete(path, ["-wal", "-shm"])
        with procs.child(KEEPS, path) as another:
            another.wait_for("open")
            for number in range(50):
                another.tell(f"theirs-{number}")
                another.wait_for("seen")
            sentence = refuses_to_write(session, path)
            assert f"{path}-wal" in sentence and "may be missing" in sentence
            another.kill()
        procs.run(WRITES, path, "theirs at the end")
    said = procs.run(READS, path)
    assert said == [*(f"theirs-{number}" for number in range(50)), "theirs at the end"], (
        "theirs is unharmed"
    )


def test_a_log_that_was_moved_away_and_back_is_the_same_log(path: Path, session: Session) -> None:
    for suffix in ("-wal", "-shm"):
        os.rename(f"{path}{suffix}", f"{path}{suffix}.away")
    for suffix in ("-wal", "-shm"):
        os.rename(f"{path}{suffix}.away", f"{path}{suffix}")
    session.append("after")
    assert procs.run(READS, path) == ["before", "after"]


# Handles side by side
# ------------------------------------------------------------------------------------------------


TAKES_THE_LOG_AWAY = """
    import sqlite3
    connection = sqlite3.connect(sys.argv[1], timeout=0)
    try:
        say("now", connection.execute("PRAGMA journal_mode=DELETE").fetchone()[0])
    except sqlite3.OperationalError as error:
        say("refused", error)
"""


def test_opening_a_store_twice_in_one_process_keeps_the_locks_of_the_first(
    path: Path, session: Session
) -> None:
    """On POSIX, closing a file lets go of every lock that the process has on it: another program
    could then take away the log that is in use here.
    """
    with holdfast.open(path):
        pass
    assert procs.run(TAKES_THE_LOG_AWAY, path) == ["refused database is locked"]
    session.append("ours")
    assert procs.run(READS, path) == ["before", "ours"]


def test_a_store_opened_by_another_name_is_the_same_store(path: Path, session: Session) -> None:
    """Through a link: one lock, one log."""
    link = path.with_name("link.db")
    link.symlink_to(path)
    with holdfast.open(link) as other:
        other.session("k").append("through the link")
    session.append("after")
    assert told(session) == ["before", "through the link", "after"]
    assert not os.path.exists(f"{link}-lock")
