"""Damage: said with its place and never wiped, while the rest stays readable (I-18; FAULTS C9, G1,
G2, G3, G9).
"""

import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

import holdfast
import procs
from holdfast import Session, Store
from holdfast.errors import Damaged, HoldfastError, StoreUnavailable

PAGE = 4096
SESSIONS = 12
MESSAGES = 30


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of a dozen sessions, one after the other, so that each has pages of its
    own; closed.
    """
    path = tmp_path_factory.mktemp("healthy") / "agent.db"
    with holdfast.open(path, durability="process") as store:
        for key in range(SESSIONS):
            session = store.session(f"k{key}")
            for number in range(MESSAGES):
                session.append(text_of(key, number))
    return path


@pytest.fixture
def path(healthy: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(healthy, tmp_path))


def text_of(key: int, number: int) -> str:
    return f"{key}.{number} " + "words " * 100


def told(session: Session) -> list[str]:
    return [message.text for message in session.transcript()]


def pages_of(path: Path, table: str) -> list[int]:
    """The numbers of the leaf pages of a table or an index, in order."""
    with closing(apsw.Connection(str(path))) as connection:
        rows = connection.execute(
            "SELECT pageno FROM dbstat WHERE name = ? AND pagetype = 'leaf'", (table,)
        )
        return sorted(page for (page,) in rows)


def overwrite(path: Path, at: int, data: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(data)


def zeros(size: int) -> bytes:
    return bytes(size)


def garbage(size: int) -> bytes:
    return random.Random(7).randbytes(size)


def reads(store: Store) -> dict[int, list[str] | Damaged]:
    """What each session says, or that it is damaged; nothing else."""
    found: dict[int, list[str] | Damaged] = {}
    for key in range(SESSIONS):
        try:
            found[key] = told(store.session(f"k{key}", create=False))
        except Damaged as error:
            found[key] = error
    return found


@pytest.mark.parametrize("spoil", [zeros, garbage])
def test_a_damaged_page_of_the_log_is_told_with_its_place_and_the_rest_stays_readable(
    path: Path, spoil: Callable[[int], bytes]
) -> None:
    """I-18, G2, G3: the sessions that lie on it, and which of their entries; all other sessions are
    whole.
    """
    leaves = pages_of(path, "entry")
    overwrite(path, (leaves[len(leaves) // 2] - 1) * PAGE, spoil(PAGE))
    before = path.read_bytes()
    with holdfast.open(path) as store:
        found = reads(store)
        hit = [key for key, said in found.items() if isinstance(said, Damaged)]
        assert 1 <= len(hit) <= 2
        for key, said in found.items():
            if isinstance(said, Damaged):
                assert (
                    str(path) in str(said)
                    and store.session(f"k{key}").id in str(said)
                    and "entr" in str(said)
                )
            else:
                assert said == [text_of(key, number) for number in range(MESSAGES)]
    assert path.read_bytes() == before, "nothing was wiped, nothing mended behind anybody's back"


def test_the_entries_beside_the_damage_can_be_read_one_page_after_the_other(path: Path) -> None:
    """I-18, G3: the error names the entries that are lost, and reading goes on behind them."""
    leaves = pages_of(path, "entry")
    overwrite(path, (leaves[len(leaves) // 2] - 1) * PAGE, zeros(PAGE))
    with holdfast.open(path) as store:
        key = next(key for key, said in reads(store).items() if isinstance(said, Damaged))
        session = store.session(f"k{key}")
        with pytest.raises(Damaged) as caught:
            list(session.entries())
        first, last = (
            int(word)
            for word in str(caught.value).split("entries ")[1].split(" of")[0].split(" to ")
        )
        rest = [entry.seq for entry in session.entries(after=last)]
        assert rest == list(range(last + 1, MESSAGES + 2))
        assert [
            entry.seq for entry in store._work.engine.entries(session.id, limit=first - 1)
        ] == list(range(1, first))


def test_a_damaged_session_takes_no_more_and_the_others_go_on(tmp_path: Path) -> None:
    """G3: what changes a damaged session stops; its neighbours in the same store write on."""
    path = tmp_path / "agent.db"
    with holdfast.open(path, durability="process") as store:
        for key in range(SESSIONS):
            session = store.session(f"k{key}")
            session.record(
                [{"role": "user", "content": f"{key}.{number}"} for number in range(300)]
            )
    index = pages_of(path, "entry_by_seq")
    overwrite(path, (index[len(index) // 2] - 1) * PAGE, zeros(PAGE))
    with holdfast.open(path) as store:
        refused = 0
        for key in range(SESSIONS):
            try:
                session = store.session(f"k{key}", create=False)
                session.append("more")
                assert told(session)[-1] == "more"
            except Damaged as error:
                assert str(path) in str(error)
                refused += 1
        assert 0 < refused < SESSIONS / 2


def test_damage_inside_a_payload_is_told_with_its_place_and_takes_nothing_else(
    tmp_path: Path,
) -> None:
    """G2, I-25: a zeroed block of a long text is no text any more; it is not taken for one."""
    path = tmp_path / "agent.db"
    with holdfast.open(path) as store:
        session = store.session("long")
        session.append("begin " + "long words " * 2000 + "end")
        session.append("next")
        store.session("other").append("whole")
    with closing(apsw.Connection(str(path))) as connection:
        row = connection.execute(
            "SELECT max(pageno) FROM dbstat WHERE name = 'entry' AND pagetype = 'overflow'"
        )
        page = row.get
    overwrite(path, (page - 1) * PAGE + 8, zeros(1000))
    before = path.read_bytes()
    with holdfast.open(path) as store:
        session = store.session("long")
        [shown] = session.context()
        assert "Entry 2 can't be read" in shown["content"] and shown["content"].endswith("next")
        messages = list(session.transcript())
        assert "Entry 2 can't be read" in messages[0].text and messages[0].payload is None
        assert messages[1].text == "next"
        assert any(session.id in str(problem) for problem in store.check())
        assert told(store.session("other")) == ["whole"]
    assert path.read_bytes() == before


@pytest.mark.slow
def test_every_page_may_be_damaged_and_all_errors_are_typed(path: Path, tmp_path: Path) -> None:
    """I-18: page by page; what can be read is right, what can't is said, and the file stays as it
    is.
    """
    size = path.stat().st_size
    for page in range(1, size // PAGE + 1):
        for name, data in (("zeros", zeros(PAGE)), ("garbage", garbage(PAGE))):
            copy = Path(shutil.copy(path, tmp_path / f"{page}-{name}.db"))
            overwrite(copy, (page - 1) * PAGE, data)
            before = copy.read_bytes()
            try:
                with holdfast.open(copy, durability="process") as store:
                    for key in range(0, SESSIONS, 4):
                        try:
                            said = told(store.session(f"k{key}", create=False))
                            assert said == [text_of(key, number) for number in range(MESSAGES)]
                        except HoldfastError as error:
                            assert str(copy) in str(error) or error.code == "not_found"
            except Damaged as error:
                assert str(copy) in str(error)
            assert copy.read_bytes() == before
            copy.unlink()


# Torn
# ----------------------------------------------------------------------------------------------------------------


def cuts(size: int) -> Iterator[int]:
    """Every page boundary, and odd places."""
    yield from (2, 15, 16, 99, 100, 101, 511, 513)
    yield from range(PAGE, size, PAGE)
    yield from (size - 1, size - 17, size // 2 + 3)


def _write(path: Path, content: bytes) -> None:
    """As its owner's alone."""
    path.touch(0o600)
    path.write_bytes(content)


def test_a_torn_file_is_refused_wherever_it_was_cut_and_kept_as_it_is(path: Path) -> None:
    """G9: never taken for a smaller store, never started anew."""
    whole = path.read_bytes()
    for size in cuts(len(whole)):
        _write(path, whole[:size])
        kept = path.read_bytes()
        try:
            with pytest.raises((Damaged, StoreUnavailable)) as caught:
                holdfast.open(path)
            assert str(path) in str(caught.value), size
        finally:
            assert path.read_bytes() == kept, size
        path.unlink()
    _write(path, whole)
    with holdfast.open(path) as store:
        assert told(store.session("k0")) == [text_of(0, number) for number in range(MESSAGES)]


@pytest.mark.parametrize("at", range(0, 16))
def test_a_damaged_header_is_refused_and_the_file_not_touched(path: Path, at: int) -> None:
    """G9: each byte by which a database is known."""
    overwrite(path, at, b"\xff")
    before = path.read_bytes()
    with pytest.raises(Damaged) as caught:
        holdfast.open(path)
    assert str(path) in str(caught.value) and "keep a copy" in str(caught.value)
    assert path.read_bytes() == before
    assert not os.path.exists(f"{path}-wal")


def test_a_file_that_is_no_database_is_refused_and_not_touched(path: Path) -> None:
    for content in (b"hello\n", b"{}", b"\0" * 10_000, b"SQLite format 2\0" + bytes(5000)):
        path.write_bytes(content)
        with pytest.raises(Damaged, match="another program's file"):
            holdfast.open(path)
        assert path.read_bytes() == content


def test_an_empty_file_becomes_a_store(path: Path) -> None:
    """As `touch` or a temporary file leaves it: there is nothing to lose in it."""
    path.write_bytes(b"")
    with holdfast.open(path) as store:
        store.session("k").append("first")
    assert procs.run(READS, path) == ["first"]


def test_a_folder_in_its_place_is_refused(path: Path) -> None:
    path.unlink()
    path.mkdir()
    with pytest.raises(StoreUnavailable, match="not a file"):
        holdfast.open(path)


# The log of a process that was killed
# --------------------------------------------------------------------------------

READS = """
    import holdfast
    with holdfast.open(sys.argv[1]) as store:
        for message in store.session("k").transcript():
            say(message.text)
"""

LEAVES_A_LOG = """
    import holdfast
    store = holdfast.open(sys.argv[1])
    session = store.session("k")
    for number in range(5):
        session.append(f"message {number}")
    say("ready")
    hear()
"""


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A store whose process was killed: what it acknowledged lies in its log."""
    path = tmp_path / "killed" / "agent.db"
    path.parent.mkdir()
    with procs.child(LEAVES_A_LOG, path) as other:
        other.wait_for("ready")
        other.kill()
    return path


def copy_of(killed: Path, to: Path) -> Path:
    """The files that survive a machine's restart."""
    to.mkdir()
    for suffix in ("", "-wal"):
        shutil.copy(f"{killed}{suffix}", to)
    return to / killed.name


@pytest.mark.slow
def test_a_log_cut_at_any_byte_of_its_last_record_loses_that_record_at_most(
    killed: Path, tmp_path: Path
) -> None:
    """G1: what came before is read, and what comes after is written."""
    log = Path(f"{killed}-wal").read_bytes()
    frame = PAGE + 24
    assert (len(log) - 32) % frame == 0
    for cut in [*range(1, 64), *range(64, frame, 97), frame - 1, frame]:
        path = copy_of(killed, tmp_path / f"cut-{cut}")
        Path(f"{path}-wal").write_bytes(log[:-cut])
        with holdfast.open(path, durability="process") as store:
            session = store.session("k")
            assert told(session) == [f"message {number}" for number in range(4)]
            session.append("after")
            assert told(session)[-1] == "after"
        shutil.rmtree(path.parent)


@pytest.mark.slow
@pytest.mark.parametrize("spoil", [zeros, garbage])
def test_a_log_whose_last_record_is_damaged_loses_that_record_at_most(
    killed: Path, spoil: Callable[[int], bytes]
) -> None:
    log = Path(f"{killed}-wal")
    overwrite(log, log.stat().st_size - 1000, spoil(1000))
    with holdfast.open(killed) as store:
        session = store.session("k")
        assert told(session) == [f"message {number}" for number in range(4)]
        session.append("after")
    assert procs.run(READS, killed)[-1] == "after"


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["emptied", "deleted"])
def test_a_database_that_is_gone_while_its_log_is_there_is_not_started_anew(
    killed: Path, lost: str
) -> None:
    """G9: SQLite would delete the log. It stays, and so does the place where the database was."""
    whole, log = killed.read_bytes(), Path(f"{killed}-wal").read_bytes()
    killed.unlink()
    if lost == "emptied":
        killed.touch(0o600)
    for _ in range(2):
        with pytest.raises(Damaged, match="-wal"):
            holdfast.open(killed)
        assert Path(f"{killed}-wal").read_bytes() == log
        assert killed.exists() == (lost == "emptied")
    _write(killed, whole)
    with holdfast.open(killed) as store:
        assert told(store.session("k")) == [f"message {number}" for number in range(5)]


def test_a_half_written_database_is_made_whole_from_its_log(tmp_path: Path) -> None:
    """A power cut in the middle of a checkpoint: other pages came, and the first one did
    not yet.
    """
    path = tmp_path / "agent.db"
    with procs.child(LEAVES_A_LOG.replace("{number}", "{number}" + "x" * 9000), path) as other:
        other.wait_for("ready")
        other.kill()
    with open(path, "ab") as file:
        file.write(bytes(5 * PAGE))
    overwrite(path, 60, bytes(12))
    with holdfast.open(path) as store:
        assert [text[:9] for text in told(store.session("k"))] == [
            f"message {number}" for number in range(5)
        ]
        assert store.check() == []
