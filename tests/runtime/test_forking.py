"""Pre-fork servers: a child opens the store again, and neither parent nor child is in the other's
way (FAULTS F8).
"""

import asyncio
import contextlib
import gc
import itertools
import multiprocessing
import os
import pkgutil
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

import hermes_stores
import holdfast
import procs
from holdfast import process_fork
from holdfast.doctor.hermes.subject import HermesSubject
from holdfast.doctor.holdfast import rebuilt
from holdfast.errors import StoreUnavailable
from holdfast.runtime.store import open_store
from looking import patient
from thorough import SWEEP

LIMIT_S = 60.0

PREFORK = """
    import os, threading
    import holdfast
    path = sys.argv[1]
    store = holdfast.open(path, durability="process")
    session = store.session("master")
    over = threading.Event()

    def write():
        n = 0
        while not over.is_set():
            session.append(f"{n}")
            n += 1

    writers = [threading.Thread(target=write) for _ in range(2)]
    readers = [threading.Thread(target=lambda: [session.info() for _ in iter(over.is_set, True)]) for _ in range(2)]
    for thread in writers + readers:
        thread.start()
    children = []
    for worker in range(int(sys.argv[2])):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with holdfast.open(path, durability="process") as own:
                    for n in range(10):
                        with own.turn(f"worker {worker}", f"{n}") as turn:
                            turn.say(f"re {n}")
                code = 0
            except BaseException as error:
                say("failed", repr(error))
            finally:
                os._exit(code)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    over.set()
    for thread in writers + readers:
        thread.join()
    store.close()
    say("codes", *codes)
"""


@pytest.mark.slow
def test_workers_open_the_store_while_their_master_writes_and_reads(path: Path) -> None:
    """None of them is locked out, none hangs, and nothing is lost."""
    with procs.child(PREFORK, path, 12) as master:
        lines = master.end()
    assert lines[-1] == "codes" + " 0" * 12, lines
    with holdfast.open(path) as store:
        for worker in range(12):
            texts = [
                message.text
                for message in store.session(f"worker {worker}", create=False).transcript()
            ]
            assert texts == [text for n in range(10) for text in (f"{n}", f"re {n}")]
        assert store.check() == []


def in_child(work: Callable[[], object]) -> str:
    """What this comes to in a child that was forked; it is killed if it hangs."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            told = str(work())
        except BaseException as error:
            told = repr(error)
        os.write(writer, told.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        # it may hang before the first line of ours
        if not select.select([pipe], [], [], LIMIT_S)[0]:
            os.kill(child, signal.SIGKILL)
        told = pipe.read()
    os.waitpid(child, 0)
    return told


def test_a_fork_waits_for_whoever_is_inside_sqlite(path: Path) -> None:
    """The writer is in the middle of a commit when the fork begins: a child would get its locks,
    and nobody who lets go of them.
    """
    places = ["outside"]
    inside, over = threading.Event(), threading.Event()

    def commit() -> bool:
        places.append("inside")
        inside.set()
        while not process_fork._is_beginning and not over.is_set():  # until a fork has begun
            time.sleep(0.001)
        time.sleep(0.2)
        places.append("outside again")
        return False

    with open_store(path) as store:
        session = store.session("k")
        session.append("before")
        store._work.engine._connection.set_commit_hook(commit)
        appending = threading.Thread(target=session.append, args=("meanwhile",))
        appending.start()
        assert inside.wait(LIMIT_S)
        told = in_child(lambda: places[-1])
        over.set()
        appending.join(LIMIT_S)
        store._work.engine._connection.set_commit_hook(None)
        assert told == "outside again"
        assert [message.text for message in session.transcript()] == ["before", "meanwhile"]


def _open(path: Path) -> None:
    open_store(path).close()


def _look(path: Path) -> None:
    open_store(path, read_only=True).close()


def _use(path: Path) -> None:
    with open_store(path) as store:
        store.sessions()


def _copy(path: Path) -> None:
    with open_store(path) as store:
        store.backup(f"{path}-copy")
    os.unlink(f"{path}-copy")


def _check(path: Path) -> None:
    with open_store(path) as store:
        store.check()


def _examine(path: Path) -> None:
    """A store of another program, which is read in the middle of its tables."""
    subject = HermesSubject(_hermes(path))
    try:
        subject.healed(lambda rule: True).write(f"{path}-healed")
    finally:
        subject.close()
    os.unlink(f"{path}-healed")


def _rebuild(path: Path) -> None:
    """Of a file that nobody else uses, as the doctor does it."""
    still = f"{path}-still"
    if not os.path.exists(still):
        _open(Path(still))
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{path}-rebuilt")
    rebuilt.rebuild(still, f"{path}-rebuilt")


def _hermes(path: Path) -> Path:
    place = path.parent / "state.db"
    if not place.exists():
        book = hermes_stores.Book(place)
        book.session("s")
        book.turn("s", "One?", "Two.")
        book.close()
    return place


def _read_and_end(path: Path) -> None:
    with open_store(path) as store:
        reading = threading.Thread(target=store.sessions)
        reading.start()
        reading.join()


ENGINE = "holdfast.engine.sqlite"
FORKING = "holdfast.stepping_connection"


@pytest.mark.parametrize(
    ("at", "call", "work"),
    [
        (f"{ENGINE}.connection._check_or_create", 1, _open),
        (f"{ENGINE}.connection.set_lasting", 1, _open),
        # the writer's, then the reader's
        (f"{ENGINE}.file_guard.file_identity.FileIdentity.leave", 1, _use),
        (f"{ENGINE}.file_guard.file_identity.FileIdentity.leave", 2, _use),
        (f"{ENGINE}.read_only.connect", 1, _look),
        (f"{ENGINE}.read_only.connect", 2, _look),
        (f"{FORKING}.note_opened", 1, _examine),
        (f"{FORKING}.note_opened", 2, _examine),
        ("holdfast.importers.guarded_sqlite.Guarded._close_doors", 1, _examine),
        (f"{FORKING}.note_opened", 2, _rebuild),
    ],
)
def test_a_fork_waits_for_whoever_opens_or_closes_a_store(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    at: str,
    call: int,
    work: Callable[[Path], None],
) -> None:
    """SQLite has locks for the whole process, and a child would get them as they are."""
    _open(path)
    places = ["outside"]
    inside, over = threading.Event(), threading.Event()
    owner, _, name = at.rpartition(".")
    original = pkgutil.resolve_name(at)
    calls = itertools.count(1)

    def slow(*given: Any, **options: Any) -> Any:
        if next(calls) == call:
            places.append("inside")
            inside.set()
            while not process_fork._is_beginning and not over.is_set():  # until a fork has begun
                time.sleep(0.001)
            time.sleep(0.2)
            places.append("outside again")
        return original(*given, **options)

    monkeypatch.setattr(pkgutil.resolve_name(owner), name, slow)
    working = threading.Thread(target=work, args=(path,))
    working.start()
    assert inside.wait(LIMIT_S)
    told = in_child(lambda: places[-1])
    over.set()
    working.join(LIMIT_S)
    assert told == "outside again"


FORKS = 40 if SWEEP else 10


@pytest.mark.slow
@pytest.mark.parametrize(
    "work", [_open, _look, _use, _copy, _check, _examine, _rebuild, _read_and_end]
)
def test_forks_return_beside_a_thread_that_works_on_stores(
    path: Path, work: Callable[[Path], None]
) -> None:
    """And what the child opens works."""

    def live() -> int:
        with open_store(path, durability="process") as own:
            own.session("k").append("x")
            return 1

    _open(path)
    with beside(lambda: work(path)), open_store(path) as store:
        store.session("k")
        assert [in_child(live) for _ in range(FORKS)] == ["1"] * FORKS


def test_a_fork_keeps_no_gate_while_it_waits_for_another() -> None:
    """Whoever is inside SQLite may wait there for a transaction of others who are between two steps
    of it: these must be able to go on.
    """
    stepping = 8
    begun, done = threading.Event(), threading.Barrier(stepping + 1)
    ready = threading.Barrier(stepping + 2)

    def step() -> None:
        with process_fork.inside():
            pass
        ready.wait(LIMIT_S)
        begun.wait(LIMIT_S)
        for _ in range(20):
            with process_fork.inside():
                pass
        done.wait(LIMIT_S)

    def wait_inside() -> None:
        with process_fork.inside():
            ready.wait(LIMIT_S)
            while not process_fork._is_beginning:
                time.sleep(0.001)
            time.sleep(0.1)  # the fork has all the gates that it can have
            begun.set()
            done.wait(LIMIT_S)

    threads = [threading.Thread(target=step) for _ in range(stepping)]
    threads.append(threading.Thread(target=wait_inside))
    for thread in threads:
        thread.start()
    ready.wait(LIMIT_S)
    told = in_child(lambda: process_fork._is_torn)
    for thread in threads:
        thread.join(LIMIT_S)
    assert told == "False"


def test_forks_return_beside_a_thread_that_uses_sqlite_without_us(path: Path) -> None:
    """A fork can't wait for it: in the child nothing of SQLite is called."""

    def work() -> None:
        apsw.Connection(f"{path}-own").execute("CREATE TABLE IF NOT EXISTS a (b)").fetchall()

    with open_store(path) as store, beside(work):
        store.session("k")
        assert [in_child(lambda: 1) for _ in range(3 * FORKS)] == ["1"] * 3 * FORKS


@contextlib.contextmanager
def beside(work: Callable[[], object]) -> Iterator[None]:
    """A thread does this all the time."""
    over = threading.Event()

    def go_on() -> None:
        while not over.is_set():
            work()

    working = threading.Thread(target=go_on)
    work()  # what it makes is there
    working.start()
    try:
        yield
    finally:
        over.set()
        working.join(LIMIT_S)


def test_a_child_closes_what_it_got_before_it_opens_a_store(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[apsw.Connection] = []
    original = process_fork.forsake

    def forsake(connection: apsw.Connection) -> None:
        with contextlib.suppress(apsw.ConnectionClosedError):
            if connection.filename == str(path):
                closed.append(connection)
        original(connection)

    monkeypatch.setattr(process_fork, "forsake", forsake)
    with open_store(path) as store:
        store.session("k").append("x")
        # of another thread: Python forgets those of a child as soon as it is there
        looked, over = threading.Event(), threading.Event()
        looking = threading.Thread(
            target=lambda: (store.sessions(), looked.set(), over.wait(LIMIT_S))
        )
        looking.start()
        assert looked.wait(LIMIT_S)

        def live() -> str:
            before = len(closed)
            with open_store(path):
                return f"{before} {len(closed)}"

        def grandchild() -> str:
            return in_child(live)

        # the writer's and those of two threads
        assert (in_child(live), in_child(grandchild)) == ("0 3", "0 3")
        over.set()
        looking.join()


def test_a_child_that_was_forked_in_the_middle_of_work_is_told_so(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its parent's thread does not come out of SQLite in time."""
    monkeypatch.setattr(process_fork, "QUIET_S", 0.05)
    inside, over = threading.Event(), threading.Event()

    def commit() -> bool:
        inside.set()
        over.wait(LIMIT_S)
        return False

    with open_store(path) as store:
        session = store.session("k")
        store._work.engine._connection.set_commit_hook(commit)
        appending = threading.Thread(target=session.append, args=("meanwhile",))
        appending.start()
        assert inside.wait(LIMIT_S)
        for read_only in (False, True):
            told = in_child(lambda read_only=read_only: open_store(path, read_only=read_only))
            assert "forked while another thread was at work in SQLite" in told
        over.set()
        appending.join(LIMIT_S)
        store._work.engine._connection.set_commit_hook(None)
        assert [message.text for message in session.transcript()] == ["meanwhile"]


def test_threads_that_are_over_leave_no_connection_behind(path: Path) -> None:
    with open_store(path) as store:
        store.session("k").append("x")
        counts = []
        for _ in range(5):
            reading = threading.Thread(target=store.sessions)
            reading.start()
            reading.join()
            counts.append(_open_files())
        # the last one's is closed when the next one needs one
        assert counts == counts[:1] * 5


def test_asyncio_that_was_used_before_a_fork_works_in_the_child(path: Path) -> None:
    async def live(name: str) -> str:
        async with holdfast.open_async(path) as store:
            session = await store.session(name)
            async with session.turn("hello") as turn:
                await turn.say("hi")
            return " ".join([message.text async for message in session.transcript()])

    assert asyncio.run(live("parent")) == "hello hi"
    assert in_child(lambda: asyncio.run(live("child"))) == "hello hi"


def test_multiprocessing_by_fork_works_with_a_store_open_in_the_parent(path: Path) -> None:
    other = path.with_name("other.db")
    with holdfast.open(path, durability="process") as store, beside(lambda: _use(other)):
        store.session("k").append("parent")
        context = multiprocessing.get_context("fork")
        with context.Pool(3) as pool:
            assert sorted(pool.map(_append, [(str(path), n) for n in range(9)])) == list(range(9))
        said = [message.text for message in store.session("k").transcript()]
    assert sorted(said) == sorted(["parent", *(f"child {n}" for n in range(9))])


def _append(given: tuple[str, int]) -> int:
    path, number = given
    with holdfast.open(path, durability="process") as store:
        store.session("k").append(f"child {number}")
    return number


def test_a_child_keeps_nobody_out_after_its_parent_was_killed_with_the_lock(path: Path) -> None:
    """The lock of the lock file belongs to all who have it open."""
    script = """
        import os, signal
        import holdfast
        store = holdfast.open(sys.argv[1])
        store.session("k").append("before")
        store._work.engine._lock.acquire(1)
        if os.fork() == 0:
            say("child", os.getpid())
            signal.pause()
        signal.pause()
    """
    with procs.child(script, path) as parent:
        child = int(parent.wait_for("child"))
        parent.kill()
        try:
            with holdfast.open(path) as store:
                store.session("k").append("after")
                assert len(list(store.session("k").transcript())) == 2
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_masters_close_leaves_its_workers_their_log(path: Path) -> None:
    """SQLite deletes the log at the last close: a child's connection must count."""
    store = holdfast.open(path)
    store.session("k").append("master")
    ready, go, done = (os.pipe() for _ in range(3))
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        with holdfast.open(path) as own:
            own.session("k").append("one")
            os.write(ready[1], b"x")
            os.read(go[0], 1)
            own.session("k").append("two")
            os.write(done[1], str(len(list(own.session("k").transcript()))).encode())
        os._exit(0)
    os.read(ready[0], 1)
    store.close()
    assert Path(f"{path}-wal").exists(), "a worker has it open"
    os.write(go[1], b"x")
    assert os.read(done[0], 10) == b"3"
    os.waitpid(child, 0)
    for end in (*ready, *go, *done):
        os.close(end)
    with holdfast.open(path) as again:
        assert [message.text for message in again.session("k").transcript()] == [
            "master",
            "one",
            "two",
        ]


def test_an_inherited_store_says_what_to_do_and_closes_without_a_word(path: Path) -> None:
    with open_store(path) as store:
        session = store.session("k")
        session.append("x")

        def use() -> str:
            told = []
            for work in (lambda: session.append("y"), session.context, lambda: store.search("x")):
                try:
                    work()
                except StoreUnavailable as error:
                    told.append("forked" if "fork" in str(error) else str(error))
            store.close()
            return " ".join(told)

        assert in_child(use) == "forked forked forked"
        session.append("the parent goes on")
        assert len(list(session.transcript())) == 2


def test_a_child_keeps_no_connection_to_postgres_open_for_its_parent(
    databases: Callable[..., str],
) -> None:
    where = databases(schema=True)
    with holdfast.open(where) as store:
        store.session("k").append("parent")

        def sockets() -> int:
            links = [
                os.readlink(f"/proc/self/fd/{fd}")
                for fd in os.listdir("/proc/self/fd")
                if _is_link(fd)
            ]
            return len([link for link in links if link.startswith("socket:")])

        before = sockets()
        assert int(in_child(sockets)) < before

        def live() -> str:
            with holdfast.open(where) as own:
                own.session("k").append("child")
                return str(len(list(own.session("k").transcript())))

        assert in_child(live) == "2"
        store.session("k").append("parent again")
        assert len(list(store.session("k").transcript())) == 3


def _is_link(fd: str) -> bool:
    return os.path.islink(f"/proc/self/fd/{fd}")


# Dropped, and kept out
# -----------------------------------------------------------------------------------------------


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def _threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("holdfast")]


def _comes_to(wanted: Callable[[], bool]) -> bool:
    end = time.monotonic() + LIMIT_S
    while not wanted() and time.monotonic() < end:
        gc.collect()
        time.sleep(0.02)
    return wanted()


@pytest.mark.slow
def test_a_store_that_is_dropped_lets_go_of_its_files_and_threads(path: Path) -> None:
    open_store(path).close()  # one thread closes what is dropped, and stays
    files, threads = _open_files(), len(_threads())
    for _ in range(5):
        store = open_store(path)
        session = store.session("k")
        with session.turn("hello") as turn:
            turn.say("hi")
        assert len(list(session.transcript())) >= 2
        del store, session, turn
    assert _comes_to(lambda: (_open_files(), len(_threads())) == (files, threads)), (
        _open_files(),
        files,
        _threads(),
    )
    with open_store(path) as again:
        assert len(list(again.session("k").transcript())) == 10


def test_a_session_keeps_its_store_open_after_the_store_was_dropped(path: Path) -> None:
    session = open_store(path).session("k")
    gc.collect()
    session.append("works")
    assert [message.text for message in session.transcript()] == ["works"]


@pytest.mark.slow
def test_refused_writes_leave_no_threads_behind(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.runtime.open_store.open_engine", patient(0.05))
    script = """
        import fcntl, os
        file = os.open(sys.argv[1] + "-lock", os.O_RDWR)
        fcntl.flock(file, fcntl.LOCK_EX)
        say("held")
        hear()
    """
    with open_store(path) as store:
        session = store.session("k")
        with procs.child(script, path) as other:
            other.wait_for("held")
            for _ in range(10):
                with pytest.raises(StoreUnavailable):
                    session.append("refused")
            files = _open_files()
            assert _threads().count("holdfast-lock") == 1
            with pytest.raises(StoreUnavailable):
                session.append("refused")
            # What an earlier test left to be closed may be closed by now; a thread of its store may
            # have a file open for a moment.
            assert _comes_to(lambda: _open_files() <= files)
            other.kill()
        session.append("free")
        assert [message.text for message in session.transcript()] == ["free"]
        assert _comes_to(lambda: "holdfast-lock" not in _threads())


def test_a_lock_file_that_is_a_link_is_not_followed(path: Path) -> None:
    victim = path.with_name("victim")
    victim.write_text("precious")
    os.symlink(victim, f"{path}-lock")
    with pytest.raises(StoreUnavailable, match="symbolic link"):
        open_store(path)
    assert victim.read_text() == "precious"


def test_what_a_child_opens_is_locked_as_its_own(path: Path) -> None:
    """SQLite in the child must not believe that it holds its parent's locks."""
    with open_store(path) as store:
        store.session("k").append("x")

        def works() -> str:
            with open_store(path) as own:
                own.session("k").append("y")
                other = apsw.Connection(str(path))
                return str(other.execute("PRAGMA quick_check").get)

        assert in_child(works) == "ok"


def test_a_fork_waits_for_what_a_connection_does_that_was_being_made_when_it_began() -> None:
    """Its lock is nobody's before it is made; whoever counts the locks first would fork while it is
    inside SQLite.
    """

    class Readers:
        def __init__(self) -> None:
            self.made: list[process_fork.Gate] = []

        def gates(self) -> list[process_fork.Gate]:
            return list(self.made)

    readers, is_making = Readers(), threading.Event()

    def make() -> None:
        with process_fork.making.lock():
            is_making.set()
            while not process_fork._is_beginning:
                time.sleep(0.001)
            readers.made.append(process_fork.Gate())

    process_fork.concern(readers)  # type: ignore[arg-type]
    maker = threading.Thread(target=make)
    maker.start()
    try:
        assert is_making.wait(LIMIT_S)
        process_fork._before()
        try:
            assert readers.made and readers.made[0] in process_fork._held
        finally:
            process_fork._after()
    finally:
        process_fork.unconcern(readers)  # type: ignore[arg-type]
        maker.join()
