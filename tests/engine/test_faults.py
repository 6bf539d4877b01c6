"""A disk that fails: the n-th operation, for n = 1, 2, 3 … until a whole life runs clean (FAULTS
G4-G6, F8, A11).

After each failure: an error was a typed one that needs an operator, and nothing else was raised;
what was acknowledged is there exactly once; every invariant holds; the handle that met the trouble
went on when the cause was gone; and so does a new one, in this process, in another, and in one that
finds the files as they were just then.

An ordinary run fails some operations once, each with one kind of trouble in turn: most are like
their neighbours. `HOLDFAST_EXPLORE=1` tries every kind at every operation, and takes some minutes.
"""

import errno
import fcntl
import gc
import itertools
import json
import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import apsw
import psutil
import pytest

import holdfast
import procs
from aftermath import Later, fresh, wrong
from holdfast.domain.entry import STARTING, Draft
from holdfast.engine.protocol import Chunk, Opening, Start, Write, Written
from holdfast.engine.sqlite import engine as sqlite_engine
from holdfast.engine.sqlite.engine import SqliteEngine
from holdfast.engine.sqlite.file_guard import fair_lock
from holdfast.errors import HoldfastError, OperatorNeeded
from holdfast.testing.conformance.builders import mint, named
from holdfast.testing.faults.disk import (
    LASTING,
    LOCKING,
    READING,
    WRITING,
    Faults,
    Struck,
    Trouble,
    fail_each,
)
from holdfast.testing.faults.scripted_workload import ScriptedWorkload
from thorough import EXPLORE, few_cases

# A connection that was never closed, because opening it failed, fails once more when it is thrown
# away.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

MODES: list[tuple[Trouble, int]] = [("io", 1), ("full", 2), ("io", LASTING), ("full", LASTING)]
SWEEPS = [
    (trouble, times, 1 if EXPLORE else 1 + 5 * nth, 1 if EXPLORE else 23)
    for nth, (trouble, times) in enumerate(MODES)
]
FRAME_HEADER_BYTES = 24
CHILD_EVERY = 30

CHILD = """
import json
from pathlib import Path
import holdfast
from aftermath import wrong
from holdfast.testing.faults.scripted_workload import ScriptedWorkload
facts = json.load(open(sys.argv[2]))
life = ScriptedWorkload()
life.tried, life.secrets = facts["tried"], facts["secrets"]
for sentence in wrong(Path(sys.argv[1]), [tuple(act) for act in facts["told"]], life):
    say("wrong", sentence)
say("done")
"""


@pytest.fixture(autouse=True)
def short_wal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints come often, so that they fail too."""
    monkeypatch.setattr(sqlite_engine, "WAL_PAGES_MAX", 40)


def is_log(path: str) -> bool:
    """The database and what is beside it, but for the search file, which has a sweep of its own."""
    return "-search" not in path


def survive(folder: Path, faults: Faults, *, run: int) -> ScriptedWorkload:
    """Lives a life on a disk that fails, and looks at what it left; after some runs, another
    process does.
    """
    place, crash = folder / "agent.db", folder / "crash"
    told_at_crash: list[Any] = []

    def heal() -> None:
        if not crash.exists():
            told_at_crash.extend(life.acts)
            copy(place, crash)
        faults.heal()

    life = ScriptedWorkload(heal=heal, large_bytes=40_000 if EXPLORE else 0)
    life.live(place)
    faults.heal()
    if (crash / place.name).exists() and (run % 3 == 0 or EXPLORE):
        assert wrong(crash / place.name, told_at_crash, life, world=Later()) == []
    if run % CHILD_EVERY == 1:
        facts = folder / "facts.json"
        facts.write_text(
            json.dumps({"told": life.acts, "tried": life.tried, "secrets": life.secrets})
        )
        assert procs.run(CHILD, place, facts) == ["done"]
    else:
        assert wrong(place, life.acts, life, again=run % 5 == 0) == []
    return life


def copy(place: Path, folder: Path) -> None:
    """The files as a killed process would leave them. Another program copies: this process must not
    open and close a file on which it has locks.
    """
    folder.mkdir()
    found = [name for end in ("", "-wal", "-journal") if os.path.exists(name := f"{place}{end}")]
    if found:
        subprocess.run(["cp", *found, str(folder)], check=True)


def sweep(tmp_path: Path, **options: Any) -> list[Struck]:
    """Lives as often as there are operations; those that were failed."""
    runs = itertools.count(1)
    folder = tmp_path / "life"
    struck = []
    for faults in fail_each(
        lambda faults: survive(fresh(folder), faults, run=next(runs)), **options
    ):
        struck += faults.struck[:1]
    return struck


@pytest.mark.slow
@few_cases(every=2)
@pytest.mark.parametrize(
    "trouble, times, first, step", SWEEPS, ids=["once", "full twice", "lasting", "full lasting"]
)
def test_whatever_write_fails_nothing_acknowledged_is_lost_and_the_store_goes_on(
    tmp_path: Path, trouble: Trouble, times: int, first: int, step: int
) -> None:
    """I-3, I-1, I-5, I-6, I-10: operations that change a file, from the first one of a new store
    on.
    """
    # The header of a frame in the log goes with its page, which is the next write: two in one, in
    # an ordinary run.
    least = 0 if EXPLORE else FRAME_HEADER_BYTES + 1
    options = {"trouble": trouble, "times": times, "first": first, "step": step}
    struck = sweep(tmp_path, only=is_log, least_bytes=least, **options)
    assert {"write", "sync"} <= {one.verb for one in struck}
    assert len(struck) > (60 if EXPLORE else 12)


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, LASTING], ids=["once", "lasting"])
def test_whatever_read_fails_nothing_acknowledged_is_lost_and_the_store_goes_on(
    tmp_path: Path, times: int
) -> None:
    """I-3, I-18: a sample of the reads; there are many, and most are like their neighbours."""
    struck = sweep(
        tmp_path,
        verbs=READING,
        times=times,
        first=times % 7 + 1,
        step=1 if EXPLORE else 37,
        only=is_log,
    )
    assert len(struck) > 6


@pytest.mark.slow
def test_whatever_lock_fails_nothing_acknowledged_is_lost_and_the_store_goes_on(
    tmp_path: Path,
) -> None:
    """F8: a lock that can't be had is an error, never a row less."""
    assert len(sweep(tmp_path, verbs=LOCKING, only=is_log)) > 5


@pytest.mark.slow
def test_whatever_fails_in_the_search_file_only_searching_and_erasing_notice(
    tmp_path: Path,
) -> None:
    """I-17, G10. Erasing is not done while words may lie in the search file."""
    lives: list[ScriptedWorkload] = []
    runs, struck = itertools.count(1), 0
    for faults in fail_each(
        lambda faults: lives.append(survive(fresh(tmp_path / "life"), faults, run=next(runs))),
        times=LASTING, step=1 if EXPLORE else 11, only=lambda path: "-search" in path,
    ):  # fmt: skip
        struck += len(faults.struck)
        assert all("-search" in str(trouble) for trouble in lives[-1].troubles)
    assert struck > 5


# A commit in doubt
# --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_commit_in_doubt_is_found_or_done_once(tmp_path: Path, times: int) -> None:
    """I-3, I-5: a log that could not be synced may hold the commit all the same, and the reopened
    file shows it then. A turn that was started so has its number; a chunk is not journaled again.
    """
    found = 0
    for at in itertools.count(1):
        place = fresh(tmp_path / "engine") / "agent.db"
        with Faults(at=0, times=times) as faults:
            engine = SqliteEngine(str(place), durability="power", tick=lambda: 0.0)
            faults.fail_at(faults.count + at)
            started, chunks = write_without_reading(engine)
            faults.heal()
            rows = [row.index for row in engine.journal(named(1))]
            state = engine.state(named(1))
            engine.close()
        assert len(set(rows)) == len(rows) and set(chunks) <= set(rows), faults.struck
        if started is not None:
            assert state is not None and state.turn == started == 1, faults.struck
        found += len(faults.struck) > 0
        if not faults.struck:
            break
    assert found > 20


def write_without_reading(engine: SqliteEngine) -> tuple[int | None, list[int]]:
    """A turn and three chunks: the number of the turn, and the chunks that were acknowledged.
    Nothing is read meanwhile: the writer's connection is the only one, so that reopening it
    recovers the log.
    """

    def did(write: Write) -> Written | None:
        try:
            [outcome] = engine.commit([(write,)])
        except OperatorNeeded:
            return None
        return outcome if isinstance(outcome, Written) else None

    did(Write(named(1), (Draft("opened", None, mint(), 1),), open=Opening("t", "k", 1)))
    drafts = (Draft("message", None, mint(), 1, b"{}", b'"hi"'), Draft("turn", STARTING, mint(), 1))
    turn = did(Write(named(1), drafts, idle=True, start=Start("me", 600)))
    message = mint()
    chunks = [
        n
        for n in range(3)
        if did(Write(named(1), fence=1, chunk=Chunk(message, n, b"[]"))) is not None
    ]
    return None if turn is None else turn.turn, chunks


# Files of our own
# ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@few_cases(every=3)
@pytest.mark.parametrize("call", ["open", "fstat", "flock", "pwrite", "pread"])
@pytest.mark.parametrize("times", [1, LASTING], ids=["once", "lasting"])
def test_whatever_fails_at_the_fair_lock_is_told_and_the_store_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, times: int
) -> None:
    """I-3, F8: the lock has a file of its own; no room for it, no lock to be had, no rights."""
    for at in itertools.count(1, 1 if EXPLORE else 37):
        calls = Calls(call, at=at, times=times)
        monkeypatch.setattr(fair_lock, "os", calls.of(os))
        monkeypatch.setattr(fair_lock, "fcntl", calls.of(fcntl))
        place = fresh(tmp_path / "life") / "agent.db"
        life = ScriptedWorkload(heal=calls.heal)
        life.live(place)
        calls.heal()
        assert wrong(place, life.acts, life) == []
        if not calls.struck:
            return


class Calls:
    """Fails the calls of one function of a module, from number `at` on."""

    def __init__(self, name: str, *, at: int, times: int) -> None:
        self._name, self._at, self._times = name, at, times
        self._lock = threading.Lock()
        self.count = self.struck = 0

    def heal(self) -> None:
        self._at = 0

    def of(self, module: Any) -> Any:
        """The module, with that function failing if it is there."""
        whole = SimpleNamespace(**vars(module))
        if hasattr(module, self._name):
            setattr(whole, self._name, self._failing(getattr(module, self._name)))
        return whole

    def _failing(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **options: Any) -> Any:
            if fcntl.LOCK_UN in args:
                return function(*args, **options)  # letting go never fails
            with self._lock:
                self.count += 1
                if self._at and self._at <= self.count < self._at + self._times:
                    self.struck += 1
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return function(*args, **options)

        return called


def open_under(folder: Path) -> int:
    """How many files in this folder the process has open. Others may be opened by threads of tests
    that ran before.
    """
    files = psutil.Process().open_files()
    return sum(file.path.startswith(str(folder)) for file in files)


def test_opening_again_and_again_in_vain_holds_no_files(tmp_path: Path) -> None:
    """A program that waits for its disk to come back must not run out of files meanwhile."""
    place = tmp_path / "agent.db"
    holdfast.open(place).close()
    gc.collect()  # what an error's traceback holds is let go of when it is collected
    before = open_under(tmp_path)
    for at in range(1, 60):
        with Faults(at=at, times=LASTING, verbs=WRITING | READING | LOCKING) as faults:
            try:
                store = holdfast.open(place)
            except HoldfastError as trouble:
                assert isinstance(trouble, OperatorNeeded)
            else:
                faults.heal()
                store.close()
    gc.collect()
    assert open_under(tmp_path) <= before


# The seam itself
# ----------------------------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A small database, to fail."""
    connection = apsw.Connection(str(tmp_path / "small.db"))
    connection.execute("PRAGMA journal_mode=WAL; CREATE TABLE t (x)").fetchall()
    connection.close()
    return tmp_path / "small.db"


def insert(place: Path) -> None:
    connection = apsw.Connection(str(place))
    try:
        connection.execute("INSERT INTO t VALUES (randomblob(9000))")
    finally:
        connection.close(True)


def test_the_seam_counts_and_fails_exactly_what_it_was_asked_to(place: Path) -> None:
    with Faults() as counting:
        insert(place)
    assert counting.count > 10 and counting.struck == []
    with Faults(at=counting.count) as last:
        with pytest.raises(apsw.Error):
            insert(place)
    assert [(one.number, one.verb) for one in last.struck] == [(counting.count, "delete")]
    with Faults(at=counting.count + 1) as none:
        insert(place)
    assert none.struck == []


@pytest.mark.slow
def test_a_sweep_fails_every_operation_once_and_ends_clean(place: Path) -> None:
    met: list[str] = []

    def life(faults: Faults) -> None:
        try:
            insert(place)
        except apsw.Error as error:
            met.append(type(error).__name__)

    runs = list(fail_each(life))
    assert [[one.number for one in faults.struck] for faults in runs] == [
        [n] for n in range(1, len(runs))
    ] + [[]]
    assert len(met) > len(runs) // 2 and set(met) <= {"IOError", "CantOpenError", "FullError"}


def test_a_full_disk_takes_half_of_a_write(place: Path) -> None:
    with Faults(
        at=2, trouble="full", verbs=frozenset({"write"}), only=lambda path: path.endswith("-wal")
    ) as faults:
        connection = apsw.Connection(str(place))
        with pytest.raises(apsw.FullError):
            connection.execute("INSERT INTO t VALUES (1)")
        # The header of the log, and half of the header of its first frame.
        assert os.path.getsize(f"{place}-wal") == 32 + 12
        connection.execute("INSERT INTO t VALUES (2)")
        connection.close()
    assert len(faults.struck) == 1


def test_trouble_lasts_until_it_is_healed(place: Path) -> None:
    with Faults(at=1, times=LASTING, verbs=frozenset({"sync"})) as faults:
        connection = apsw.Connection(str(place))
        for _ in range(3):
            with pytest.raises(apsw.IOError):
                connection.execute("INSERT INTO t VALUES (1)")
        faults.heal()
        connection.execute("INSERT INTO t VALUES (2)")
        connection.close()
    assert len(faults.struck) == 3


def test_the_seam_is_gone_after_its_block_and_what_was_opened_in_it_goes_on(tmp_path: Path) -> None:
    usual = apsw.vfs_names()[0]
    with Faults(at=1_000_000, verbs=WRITING | READING) as faults:
        store = holdfast.open(tmp_path / "agent.db")
    assert apsw.vfs_names()[0] == usual
    store.session("k").append("Hi")
    store.close()
    counted = faults.count
    with holdfast.open(tmp_path / "agent.db") as store:
        store.session("k").append("Hi")
    assert faults.count == counted, "a store that is opened afterwards does not go through it"


def test_an_engine_that_forgets_an_acknowledged_write_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The judges can fail: an engine that takes a failed commit for a done one."""
    monkeypatch.setattr(
        SqliteEngine,
        "_after_failure",
        lambda self, commits, error: [Written(1, 1, 1)] * len(commits),
    )
    with pytest.raises((AssertionError, HoldfastError, RuntimeError)):
        sweep(tmp_path, first=100, step=20, only=is_log)
