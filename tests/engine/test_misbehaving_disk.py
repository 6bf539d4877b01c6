"""A disk that is full, broken, locked, read-only or of a newer release: a typed error that says
what to do, nothing acknowledged is lost, what was there stays readable, and the same handle works
again when the cause is gone.
"""

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

import holdfast
import procs
from holdfast import Session
from holdfast.engine.sqlite.maintenance.migrate import SCHEMA_VERSION
from holdfast.errors import HoldfastError, SchemaMismatch, StoreUnavailable
from holdfast.testing.faults.disk import LASTING, READING, WRITING, Faults, Trouble
from looking import patient


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.db"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.runtime.open_store.open_engine", patient(0.2))


def told(session: Session) -> list[str]:
    return [message.text for message in session.transcript()]


def attempts(session: Session) -> list[Callable[[], object]]:
    return [
        lambda: session.append("refused"),
        lambda: session.turn("refused"),
        lambda: session.record([{"role": "user", "content": "refused"}]),
        lambda: session.instructions("refused"),
    ]


# Full and broken
# -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def failing(
    trouble: Trouble, verbs: frozenset[str]
) -> Iterator[tuple[Callable[[], None], Callable[[], None]]]:
    """The disk fails between the two calls that are given: the first begins it, the
    second ends it.
    """
    with Faults(trouble=trouble, times=LASTING, verbs=verbs) as faults:

        def begin() -> None:
            faults._at = faults.count + 1

        yield begin, faults.heal


TROUBLES = pytest.mark.parametrize(
    ("trouble", "verbs", "word"),
    [
        ("full", frozenset({"write"}), "full"),
        ("io", WRITING - {"open"}, "disk"),
        ("io", frozenset({"sync"}), "disk"),
    ],
    ids=["no room", "nothing can be written", "nothing can be synced"],
)


@TROUBLES
def test_a_disk_that_takes_no_more_is_said_and_the_handle_goes_on_when_it_does_again(
    path: Path, trouble: Trouble, verbs: frozenset[str], word: str
) -> None:
    """I-3: nothing is reported as done that is not; I-18: what was there stays readable."""
    with failing(trouble, verbs) as (begin, end), holdfast.open(path) as store:
        session = store.session("k")
        session.append("before")
        for _ in range(2):
            begin()
            for attempt in attempts(session):
                with pytest.raises(StoreUnavailable, match=word) as caught:
                    attempt()
                assert str(path) in str(caught.value) and "try again" in caught.value.remedy
            assert told(session) == ["before"], "reading goes on"
            end()
        session.append("after")
        assert told(session) == ["before", "after"]
        assert told(store.session("k")) == ["before", "after"]
    with holdfast.open(path) as again:
        assert told(again.session("k")) == ["before", "after"]


@TROUBLES
def test_what_a_full_disk_did_not_take_was_not_shown_and_its_turn_goes_on_when_there_is_room(
    path: Path, trouble: Trouble, verbs: frozenset[str], word: str
) -> None:
    """I-5: the piece that could not be stored is not handed on."""
    shown = []
    with failing(trouble, verbs) as (begin, end), holdfast.open(path) as store:
        session = store.session("k")
        with session.turn("Hi") as turn:
            pieces = (f"{number} " for number in range(100))
            with pytest.raises(StoreUnavailable, match=word):
                for text in turn.deliver(pieces):
                    shown.append(text)
                    begin()
            end()
            turn.say("There is room again.")
        asked, *answers = told(session)
    assert asked == "Hi" and "There is room again." in answers
    assert any(answer.startswith("".join(shown)) for answer in answers), "what was shown is kept"


def test_a_disk_that_can_not_be_read_is_said_and_the_handle_goes_on_when_it_can(path: Path) -> None:
    with holdfast.open(path) as store:
        store.session("k").append("before" * 10_000)
    with failing("io", READING) as (begin, end), holdfast.open(path) as store:
        session = store.session("k")
        begin()
        with pytest.raises(StoreUnavailable, match="disk"):
            told(session)
        end()
        assert told(session) == ["before" * 10_000]


FILLS = """
    import resource, signal, holdfast
    where = sys.argv[1]
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with holdfast.open(where) as store:
        session = store.session("k")
        for round in range(3):
            _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (300_000 * (round + 1), hard))
            for number in range(1000):
                try:
                    session.append(f"{round}.{number} " + "x" * 3000)
                except holdfast.errors.StoreUnavailable as error:
                    say("refused", error)
                    break
                say("acknowledged", f"{round}.{number}")
            say("readable", len(list(session.transcript())))
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
            session.append(f"{round}.end ")
            say("acknowledged", f"{round}.end")
"""


MAKES = """
    import resource, signal, holdfast
    where = sys.argv[1]
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    for room in range(0, 200_000, 4096):
        path = f"{where}-{room}"
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, usual[1]))
        try:
            store = holdfast.open(path)
            found = "made"
        except holdfast.errors.HoldfastError as error:
            found = f"{type(error).__name__} {error}"
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
        if found == "made":
            store.close()
        with holdfast.open(path) as store:
            store.session("k").append("There is room.")
            say(room, len(store.check()), found)
        if found == "made":
            break
"""


def test_a_store_that_there_is_no_room_to_make_says_so_and_is_made_when_there_is(
    path: Path,
) -> None:
    """What SQLite can't write takes its transaction back: that it is gone by then is not told as
    damage. Room for the database and not for the index of its log is no room.
    """
    lines = [line.split(maxsplit=2) for line in procs.run(MAKES, path)]
    assert {problems for _, problems, _ in lines} == {"0"}
    *refused, (_, _, last) = lines
    assert last == "made" and len(refused) > 8
    assert {found.split()[0] for _, _, found in refused} == {"StoreUnavailable"}, refused
    [told] = [found for room, _, found in refused if room == "16384"]
    assert "no room" in told and "try again" in told


def test_a_file_that_may_grow_no_more_loses_nothing_and_grows_again_when_it_may(path: Path) -> None:
    """The limit is the kernel's: every write beyond it is really refused."""
    lines = procs.run(FILLS, path)
    acknowledged = [line.split()[1] for line in lines if line.startswith("acknowledged")]
    assert sum(line.startswith("refused") for line in lines) == 3
    assert [name for name in acknowledged if name.endswith("end")] == ["0.end", "1.end", "2.end"]
    with holdfast.open(path) as store:
        assert [text.split()[0] for text in told(store.session("k"))] == acknowledged
        assert store.check() == []


# Held by somebody else
# -----------------------------------------------------------------------------------------------

KEEPS_FOR_ITSELF = """
    import sqlite3
    connection = sqlite3.connect(sys.argv[1], isolation_level=None)
    connection.execute("PRAGMA locking_mode=EXCLUSIVE")
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("UPDATE store SET value = value")
    connection.execute("COMMIT")
    say("held")
    hear()
"""


def test_a_store_that_another_program_keeps_for_itself_is_refused_until_it_lets_go(
    path: Path, impatient: None
) -> None:
    """F8: a `sqlite3` with its lock on everything, reading included."""
    with holdfast.open(path) as store:
        store.session("k").append("before")
    with procs.child(KEEPS_FOR_ITSELF, path) as other:
        other.wait_for("held")
        with pytest.raises(StoreUnavailable, match="another program") as caught:
            holdfast.open(path)
        assert str(path) in str(caught.value) and "finish" in caught.value.remedy
        other.tell()
        other.end()
    with holdfast.open(path) as store:
        store.session("k").append("after")
        assert told(store.session("k")) == ["before", "after"]


# Read-only
# -----------------------------------------------------------------------------------------------------------

AS_SOMEBODY = """
    import atexit, os, shutil, stat, tempfile, holdfast
    folder = tempfile.mkdtemp()
    with holdfast.open(folder + "/first.db") as store:
        store.session("k").append("loads all that is loaded late, while it may be read")
    if os.geteuid() == 0:  # who may do anything: be somebody who may not
        shutil.rmtree(folder)
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    path = folder + "/agent.db"

    def attempt(work):
        try:
            work()
            say("done")
        except holdfast.errors.StoreUnavailable as error:
            say("refused", error)

    def append():
        with holdfast.open(path) as store:
            store.session("k").append("again")

    with holdfast.open(path) as store:
        store.session("k").append("before")
"""

READ_ONLY_FILE = """
    os.chmod(path, 0o400)
    before = open(path, "rb").read()
    attempt(append)
    say("unchanged", open(path, "rb").read() == before)
    os.chmod(path, 0o600)
    attempt(append)
"""

READ_ONLY_FOLDER = """
    os.unlink(path + "-lock")
    os.chmod(folder, 0o500)
    before = open(path, "rb").read()
    attempt(append)
    say("unchanged", open(path, "rb").read() == before)
    os.chmod(folder, 0o700)
    attempt(append)
"""

READ_ONLY_FOR_A_LOG = """
    os.chmod(folder, 0o500)
    attempt(append)
    os.chmod(folder, 0o700)
    attempt(append)
"""

NO_FOLDER = """
    path = folder + "/nowhere/agent.db"
    attempt(append)
    os.mkdir(folder + "/nowhere")
    attempt(append)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "then",
    [READ_ONLY_FILE, READ_ONLY_FOLDER, READ_ONLY_FOR_A_LOG, NO_FOLDER],
    ids=["a read-only file", "a read-only folder", "a folder that takes no log", "no folder"],
)
def test_what_may_not_be_written_is_said_and_works_when_it_may(then: str) -> None:
    """A11: refused, never kept in memory only."""
    first, *between, last = procs.run(AS_SOMEBODY + then)
    assert first.startswith("refused") and "Check" in first and "agent.db" in first
    assert between in ([], ["unchanged True"])
    assert last == "done"


# Of a newer release
# --------------------------------------------------------------------------------------------------

MIGRATES = """
    import sqlite3
    connection = sqlite3.connect(sys.argv[1], isolation_level=None)
    connection.execute("PRAGMA wal_autocheckpoint=0")
    while word := hear():
        connection.execute(f"PRAGMA user_version={word}")
        say("now", word)
"""


def bytes_of(path: Path) -> dict[str, bytes]:
    """All files of a store that nobody has open, but for what is made anew each time."""
    return {
        each.name: each.read_bytes()
        for each in path.parent.iterdir()
        if not each.name.endswith(("-shm", "-lock"))
    }


@pytest.mark.parametrize("in_log", [False, True], ids=["in the file", "in the log only"])
def test_a_store_of_a_newer_release_is_refused_and_not_touched(path: Path, in_log: bool) -> None:
    """H3: not a byte of it."""
    with holdfast.open(path) as store:
        store.session("k").append("before")
    with procs.child(MIGRATES, path) as newer:
        newer.tell(str(SCHEMA_VERSION + 1))
        newer.wait_for("now")
        newer.kill() if in_log else newer.tell("")
        if not in_log:
            newer.end()
    before = bytes_of(path)
    assert (f"{path.name}-wal" in before) == in_log
    for _ in range(2):
        with pytest.raises(SchemaMismatch) as caught:
            holdfast.open(path)
        assert (caught.value.found, caught.value.known) == (SCHEMA_VERSION + 1, SCHEMA_VERSION)
        assert {name: body for name, body in bytes_of(path).items() if name in before} == before


def test_a_store_that_a_newer_release_migrates_while_it_is_open_is_let_alone_from_then_on(
    path: Path,
) -> None:
    """H3: by those who write and by those who read."""
    with holdfast.open(path) as store, procs.child(MIGRATES, path) as newer:
        session = store.session("k")
        session.append("before")
        newer.tell(str(SCHEMA_VERSION + 1))
        newer.wait_for("now")
        for attempt in (
            lambda: told(session),
            lambda: session.append("refused"),
            lambda: session.turn("refused"),
        ):
            with pytest.raises(SchemaMismatch):
                attempt()
        newer.tell(str(SCHEMA_VERSION))
        newer.wait_for("now")
        session.append("after")
        assert told(session) == ["before", "after"]


def test_a_database_of_another_program_is_refused_and_not_touched(path: Path) -> None:
    path.touch(0o600)
    connection = apsw.Connection(str(path))
    connection.execute(
        "PRAGMA journal_mode=WAL; CREATE TABLE t (a); INSERT INTO t VALUES ('theirs')"
    ).fetchall()
    connection.close()
    before = bytes_of(path)
    with pytest.raises(StoreUnavailable, match="another program"):
        holdfast.open(path)
    assert bytes_of(path) == before
    assert sorted(
        each.name for each in path.parent.iterdir() if not each.name.endswith("-lock")
    ) == ["agent.db"]


def test_a_store_in_another_journal_mode_is_brought_back_to_its_log(path: Path) -> None:
    """A copy that another program made need not have kept it; readers would wait for writers."""
    with holdfast.open(path) as store:
        store.session("k").append("before")
    connection = apsw.Connection(str(path))
    assert connection.execute("PRAGMA journal_mode=DELETE").get == "delete"
    connection.close()
    with holdfast.open(path) as store:
        assert os.path.exists(f"{path}-wal")
        store.session("k").append("after")
        assert told(store.session("k")) == ["before", "after"]


def test_a_refused_store_can_be_opened_when_the_cause_is_gone(path: Path, tmp_path: Path) -> None:
    """Whatever was in the way, nothing of the failed opening stays behind."""
    good = tmp_path / "good.db"
    with holdfast.open(good) as store:
        store.session("k").append("before")
    for bad in (b"not a database" * 1000, b"SQLite format 3\0" + bytes(200), b"xy"):
        path.touch(0o600)
        path.write_bytes(bad)
        with pytest.raises(HoldfastError):
            holdfast.open(path)
        assert path.read_bytes() == bad
        shutil.copy(good, path)
        with holdfast.open(path) as store:
            assert told(store.session("k")) == ["before"]
        path.unlink()
