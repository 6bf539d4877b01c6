"""Reading never needs writing (I-18): stores that are opened to be read only, and disks that are
full.
"""

import asyncio
import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw
import psycopg
import pytest

import holdfast
import namespaces
import procs
from holdfast import Store
from holdfast.engine.sqlite import read_only
from holdfast.errors import ReadOnlyStore, StoreUnavailable
from holdfast.testing.faults.disk import LASTING, WRITING, Faults
from thorough import few_cases

if TYPE_CHECKING:
    from clusters import Cluster

LIVES = """
    import os
    import holdfast
    store = holdfast.open(sys.argv[1])
    with store.turn("k", "a question about whales") as turn:
        turn.say("an answer")
    say("written")
    hear()
    os._exit(0)
"""


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in sorted(folder.iterdir())
    }


def fill(path: Path) -> None:
    with holdfast.open(path) as store, store.turn("k", "a question about whales") as turn:
        turn.say("an answer")


def leave(path: Path) -> None:
    """As a killed process leaves it."""
    with procs.child(LIVES, path) as one:
        one.wait_for("written")
        one.tell()
        one.end()


def copied(path: Path) -> None:
    """As a copy of a killed one is: its log lies beside it, and no index."""
    leave(path)
    os.unlink(f"{path}-shm")


@pytest.mark.parametrize("call", [1, 2])
def test_a_store_that_is_closed_as_one_begins_to_look_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    """Its log and its index were there, and are gone when they are opened: the first time when it
    is asked whose store it is, the second time when it is first read.
    """
    path = tmp_path / "agent.db"
    fill(path)
    others = holdfast.open(path)
    original, calls = read_only.connect, itertools.count(1)

    def connect(*given: Any) -> apsw.Connection:
        connection = original(*given)
        if next(calls) == call:
            others.close()
        return connection

    monkeypatch.setattr(read_only, "connect", connect)
    with holdfast.open(path, read_only=True) as store:
        assert [listed.key for listed in store.sessions()] == ["k"]


READS: dict[str, Callable[[Store], object]] = {
    "sessions": lambda store: [listed.key for listed in store.sessions()] == ["k"],
    "transcript": lambda store: len(list(store.session("k").transcript())) == 2,
    "context": lambda store: len(store.session("k").context()) == 2,
    "search": lambda store: len(store.search("whales")) == 1,
    "get": lambda store: store.get(store.session("k").id).info().head > 0,
    "turns": lambda store: len(store.session("k").turns()) == 1,
    "pending": lambda store: store.session("k").pending() == [],
    "outbox": lambda store: store.outbox() == [],
    "info": lambda store: store.info().sessions == 1,
    "check": lambda store: (
        [problem for problem in store.check() if problem.rule != "open-to-others"] == []
    ),
    "entries": lambda store: len(list(store.session("k").entries())) == 5,
}


def read_all(store: Store) -> None:
    for name, read in READS.items():
        assert read(store), name


@pytest.mark.slow
@pytest.mark.parametrize("make", [fill, leave, copied], ids=["closed", "killed", "copied"])
def test_nothing_is_made_locked_or_changed(make: Callable[[Path], None], tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    make(folder / "agent.db")
    before = contents(folder)
    with holdfast.open(folder / "agent.db", read_only=True) as store:
        assert contents(folder) == before
        read_all(store)
        assert contents(folder) == before
    assert contents(folder) == before


READS_ALL = """
    from pathlib import Path
    import holdfast
    from runtime.test_read_only import read_all
    with holdfast.open(sys.argv[1], read_only=True) as store:
        read_all(store)
    say("read")
"""


@pytest.mark.slow
@few_cases(every=2)
@pytest.mark.parametrize("make", [fill, leave, copied], ids=["closed", "killed", "copied"])
def test_a_store_on_a_read_only_disk_is_read(make: Callable[[Path], None], tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    make(folder / "agent.db")
    setup = f"mount --bind {folder} {folder}; mount -o remount,bind,ro {folder}"
    within = [*namespaces.UNSHARE, "sh", "-ec", f'{setup}\nexec "$@"', "sh"]
    assert procs.run(READS_ALL, folder / "agent.db", within=within) == ["read"]


@pytest.mark.slow
@few_cases(every=2)
@pytest.mark.parametrize("make", [fill, leave, copied], ids=["closed", "killed", "copied"])
def test_a_store_in_a_folder_that_may_not_be_written_is_read(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    """By another user, who may read the files and no more."""
    with OpenToAll(tmp_path) as folder:
        make(folder / "agent.db")
        for file in folder.iterdir():
            file.chmod(0o444)
        folder.chmod(0o555)
        assert procs.run(READS_ALL, folder / "agent.db", within=namespaces.OTHER_USER) == ["read"]
        told = subprocess.run(
            [
                *namespaces.OTHER_USER,
                sys.executable,
                "-m",
                "holdfast.cli.main",
                "sessions",
                "list",
                "--store",
                str(folder / "agent.db"),
            ],
            capture_output=True,
            text=True,
            cwd=procs.ROOT,
            env={**os.environ, "PYTHONPATH": str(procs.ROOT / "src")},
            check=False,
        )
        assert told.returncode == 0 and " k " in f" {told.stdout} ", told.stderr


class OpenToAll:
    """A folder that other users can reach, as those of the tests can't be."""

    def __init__(self, tmp_path: Path) -> None:
        self.folder = Path(f"/tmp/{tmp_path.parent.name}-{tmp_path.name}-{os.getpid()}")

    def __enter__(self) -> Path:
        self.folder.mkdir(mode=0o755)
        return self.folder

    def __exit__(self, *_: object) -> None:
        self.folder.chmod(0o755)
        shutil.rmtree(self.folder)


def test_who_looks_at_a_store_and_then_writes_it_is_told_to_open_it_for_writing_first(
    tmp_path: Path,
) -> None:
    path = tmp_path / "agent.db"
    leave(path)
    with holdfast.open(path, read_only=True) as reader:
        read_all(reader)
        with pytest.raises(StoreUnavailable, match="`read_only=True` opens it for writing before"):
            holdfast.open(path)
    with holdfast.open(path) as writer, holdfast.open(path, read_only=True) as reader:
        writer.session("k").append("Still here.")
        assert [*reader.session("k").transcript()][-1].text == "Still here."


def test_what_others_write_is_seen(path: Path) -> None:
    """However the store was when it was opened: closed, then open, then closed again."""
    fill(path)
    with holdfast.open(path, read_only=True) as reader:
        texts = lambda: [message.text for message in reader.session("k").transcript()]  # noqa: E731
        assert texts() == ["a question about whales", "an answer"]
        with holdfast.open(path) as writer:
            for number in range(50):
                writer.session("k").append(f"{number}")
                assert texts()[-1] == f"{number}"
        assert texts()[-1] == "49"
        with holdfast.open(path) as writer:
            writer.session("k").append("again")
        assert texts()[-1] == "again"
        assert len(reader.search("again")) == 1


WRITES: dict[str, Callable[[Store], object]] = {
    "a new session": lambda store: store.session("another"),
    "turn": lambda store: store.turn("k", "x"),
    "accept": lambda store: store.accept("k", "x"),
    "reset": lambda store: store.reset("k"),
    "append": lambda store: store.session("k").append("x"),
    "record": lambda store: store.session("k").record([{"role": "user", "content": "new"}]),
    "instructions": lambda store: store.session("k").instructions("x"),
    "label": lambda store: store.session("k").label(
        next(iter(store.session("k").transcript())).id, a=1
    ),
    "rewind": lambda store: store.session("k").rewind(
        next(iter(store.session("k").transcript())).id
    ),
    "fork": lambda store: store.session("k").fork(),
    "end": lambda store: store.session("k").end("x"),
    "erase": lambda store: store.erase(store.session("k").id),
}


@pytest.fixture(params=["a file", "PostgreSQL"])
def where(request: pytest.FixtureRequest, path: Path) -> str:
    place = (
        str(path)
        if request.param == "a file"
        else request.getfixturevalue("databases")(schema=True)
    )
    with holdfast.open(place) as store, store.turn("k", "a question about whales") as turn:
        turn.say("an answer")
    with holdfast.open(place) as store:
        assert store.search("whales")
    return place


@pytest.fixture
def reader(where: str) -> Iterator[Store]:
    with holdfast.open(where, read_only=True) as store:
        yield store


def test_all_can_be_read(reader: Store) -> None:
    read_all(reader)


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITES)
def test_whatever_would_write_says_that_it_may_not(reader: Store, name: str) -> None:
    head = reader.session("k").info().head
    with pytest.raises(ReadOnlyStore) as caught:
        WRITES[name](reader)
    assert caught.value.code == "read_only_store" and "read_only" in str(caught.value)
    assert reader.session("k").info().head == head


def test_asyncio_does_the_same(where: str) -> None:
    async def live() -> list[str]:
        async with holdfast.open_async(where, read_only=True) as store:
            session = await store.session("k")
            with pytest.raises(ReadOnlyStore):
                await session.append("x")
            with pytest.raises(ReadOnlyStore):
                async with session.turn("x"):
                    pass
            return [message.text async for message in session.transcript()]

    assert asyncio.run(live()) == ["a question about whales", "an answer"]


def test_a_turn_that_was_left_is_read_as_it_stands_and_nothing_is_settled(path: Path) -> None:
    script = LIVES.replace(
        '    say("written")', '    turn = store.turn("k", "left")\n    say("written")'
    )
    with procs.child(script, path) as one:
        one.wait_for("written")
        one.tell()
        one.end()
    with holdfast.open(path, read_only=True) as store:
        session = store.session("k")
        assert session.info().state == "running"
        assert [message.text for message in session.transcript()][-1] == "left"
    with holdfast.open(path) as store:
        assert store.session("k").info().state == "open"


def test_a_database_that_can_only_be_read_is_read(databases: Callable[..., str]) -> None:
    """By a role that may only select, as a hot standby's are; and the server itself refuses
    whatever would write.
    """
    where = databases()
    with holdfast.open(where) as store:
        store.session("k").append("hello")
    with psycopg.connect(where, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    with holdfast.open(where, read_only=True) as store:
        assert [message.text for message in store.session("k").transcript()] == ["hello"]
        with pytest.raises(ReadOnlyStore):
            store.session("k").append("x")


@pytest.mark.parametrize("read_only", [True])
def test_what_is_not_there_is_not_made(
    tmp_path: Path, databases: Callable[..., str], read_only: bool
) -> None:
    for place in (tmp_path / "nothing.db", databases(schema=True)):
        with pytest.raises(StoreUnavailable):
            holdfast.open(place, read_only=read_only)
    assert list(tmp_path.iterdir()) == []


# A disk that is full
# -----------------------------------------------------------------------------------------------


def test_a_full_disk_can_be_read_though_a_turn_could_not_be_ended(tmp_path: Path) -> None:
    """I-18: what can't be settled now is settled when it can be."""
    with Faults(trouble="full", times=LASTING, verbs=WRITING) as faults:
        with holdfast.open(tmp_path / "agent.db") as store:
            session = store.session("k")
            with pytest.raises(StoreUnavailable):
                with session.turn("one") as turn:
                    turn.say("all of it")
                    faults.fail_at(faults.count + 1)
            assert [message.text for message in session.transcript()] == ["one", "all of it"]
            assert len(session.context(prefill=True)) == 2
            assert session.info().state == "running"
            assert session.pending() == [] and session.calls() == [] and len(session.turns()) == 1
            assert [listed.key for listed in store.sessions()] == ["k"]
            faults.heal()
            assert session.info().state == "open"


def test_a_full_disk_can_be_read_though_the_turn_of_a_dead_process_can_not_be_settled(
    tmp_path: Path,
) -> None:
    """I-18: its words are there to be read, and its turn is ended when there is room for that."""
    with procs.child(DIES, tmp_path / "agent.db") as other:
        assert other.lines() == ["all of it"]
    with (
        Faults(trouble="full", times=LASTING, verbs=WRITING) as faults,
        holdfast.open(tmp_path / "agent.db") as store,
    ):
        session = store.session("k", create=False)
        faults.fail_at(faults.count + 1)
        assert [message.text for message in session.transcript()] == ["one", "all of it"]
        assert len(session.context(prefill=True)) == 2
        assert session.info().state == "running"
        faults.heal()
        assert session.info().state == "open"


DIES = """
    import os
    import holdfast
    turn = holdfast.open(sys.argv[1]).session("k").turn("one")
    say(turn.say("all of it"))
    os._exit(9)
"""


def test_a_hot_standby_is_read(cluster: "Cluster", replicated: str) -> None:
    """I-18: a server that can't be written at all."""
    from servers import waiting_until

    with holdfast.open(replicated) as store, store.turn("k", "a question about whales") as turn:
        turn.say("an answer")
    with holdfast.open(replicated) as store:
        assert len(store.search("whales")) == 1
    standby = cluster.standbys[0]
    parts = psycopg.conninfo.conninfo_to_dict(replicated)
    where = standby.dsn(str(parts["dbname"]))
    for _ in waiting_until("the standby has it all"):
        try:
            with holdfast.open(where, read_only=True) as store:
                if store.session("k").info().state == "open" and store.search("whales"):
                    break
        except holdfast.errors.HoldfastError:
            continue
    with holdfast.open(where, read_only=True) as store:
        read_all(store)
        with pytest.raises(ReadOnlyStore):
            store.session("k").append("x")


@pytest.mark.parametrize("end", ["-wal", "-shm"])
@pytest.mark.parametrize("kind", ["loop", "pipe", "folder"])
def test_a_file_beside_it_that_is_none_is_told(tmp_path: Path, end: str, kind: str) -> None:
    """It is not waited for, either: opening a pipe waits for somebody who writes to it."""
    path = tmp_path / "agent.db"
    fill(path)
    beside = tmp_path / f"agent.db{end}"
    beside.unlink(missing_ok=True)
    if kind == "loop":
        beside.symlink_to(beside)
    elif kind == "pipe":
        os.mkfifo(beside)
    else:
        beside.mkdir()
    if (kind, end) == ("loop", "-shm"):
        # Nobody has the store open by a link that leads nowhere.
        holdfast.open(path, read_only=True).close()
        return
    with pytest.raises(StoreUnavailable):
        holdfast.open(path, read_only=True)


def test_a_process_that_can_open_no_more_files_is_told(tmp_path: Path) -> None:
    """However many it can still open: none, or all but the last that is needed."""
    path = tmp_path / "agent.db"
    fill(path)
    script = """
        import os, resource
        import holdfast
        from holdfast.errors import StoreUnavailable
        from taken_files import take_all
        holdfast.open(sys.argv[1]).close()  # what is loaded then is loaded
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        for spare in range(12):
            taken = take_all(but=spare)
            try:
                holdfast.open(sys.argv[1]).close()
            except StoreUnavailable:
                pass
            finally:
                for each in taken:
                    os.close(each)
        say("told")
    """
    with procs.child(script, path) as other:
        other.wait_for("told")
        other.end()
