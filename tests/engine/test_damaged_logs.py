"""A damaged write-ahead log: SQLite drops what was committed behind the damage without a word; it is
told before that happens, and got back (I-3, I-18; FAULTS G2).
"""

import os
import random
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import commanding
import hermes_stores
import holdfast
from holdfast.errors import Damaged
from holdfast.write_ahead_log import FRAME_BYTES, HEADER_BYTES, bring_back, log_damage
from thorough import few_cases

PAGE = 4096
FRAME = FRAME_BYTES + PAGE
WORDS = ["old", *(f"acknowledged {number}" for number in range(20))]
WRITER = """
import os, sys
import holdfast
store = holdfast.open(sys.argv[1])
for text in sys.argv[2:]:
    store.session("k").append(text)
os.kill(os.getpid(), 9)
"""
# A bit of the header, of a page, of the number of a page, of its end of a commit, of a salt, of a checksum.
PLACES = [0, 9, 18, 30, 30_000, *(HEADER_BYTES + 6 * FRAME + at for at in (3, 7, 12, 17, 500))]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose writer was killed: all but its first words are in the log alone."""
    path = tmp_path_factory.mktemp("killed") / "agent.db"
    with holdfast.open(path) as store:
        store.session("k").append(WORDS[0])
    subprocess.run([sys.executable, "-c", WRITER, str(path), *WORDS[1:]], check=False)
    assert frames(path) >= 20
    return path


@pytest.fixture
def path(killed: Path, tmp_path: Path) -> Path:
    for name in ("agent.db", "agent.db-wal"):
        shutil.copy(killed.parent / name, tmp_path)
    return tmp_path / "agent.db"


def frames(path: Path) -> int:
    return (os.path.getsize(f"{path}-wal") - HEADER_BYTES) // FRAME


def flip(path: Path, at: int) -> bytes:
    log = Path(f"{path}-wal")
    raw = bytearray(log.read_bytes())
    raw[at] ^= 1
    log.write_bytes(raw)
    return bytes(raw)


def words(path: Path) -> list[str]:
    with holdfast.open(path) as store:
        return [message.text for message in store.session("k", create=False).transcript()]


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("at", PLACES)
def test_a_store_with_a_damaged_log_is_refused_and_the_log_stays(
    path: Path, at: int, read_only: bool
) -> None:
    raw = flip(path, at)
    with pytest.raises(Damaged) as caught:
        holdfast.open(path, read_only=read_only)
    assert "log" in str(caught.value) and "--heal" in str(caught.value)
    assert Path(f"{path}-wal").read_bytes() == raw


def test_a_store_that_need_not_survive_a_power_cut_is_opened_and_its_log_is_kept(
    path: Path,
) -> None:
    """Its log is not synced: after a power cut, gaps in it are nothing out of the ordinary."""
    raw = flip(path, 30_000)
    with pytest.warns(RuntimeWarning, match="write-ahead log"):
        holdfast.open(path, durability="process").close()
    assert Path(f"{path}-wal-damaged-1").read_bytes() == raw


@few_cases(every=3)
@pytest.mark.parametrize("at", PLACES)
def test_the_doctor_tells_of_the_log_and_the_healed_copy_has_all_words(path: Path, at: int) -> None:
    flip(path, at)
    looked = commanding.command("doctor", str(path))
    assert looked.code == 1, looked
    assert "agent.db-wal" in looked.out
    healed = path.parent / "healed.db"
    assert commanding.command("doctor", str(path), "--heal", str(healed)).code == 0
    assert words(healed) == WORDS


def test_the_log_of_another_program_is_told_and_read_behind_the_damage(tmp_path: Path) -> None:
    """Hermes keeps its last sessions in the log alone until somebody checkpoints it."""
    path = hermes_stores.healthy(tmp_path / "state.db")
    code = """
import os, sys, sqlite3
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("PRAGMA journal_mode=WAL")
session = db.execute("SELECT min(id) FROM sessions").fetchone()
for number in range(9):
    db.execute("INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, ?, ?, ?)",
               (*session, ("user", "assistant")[number % 2], f"in the log {number}", 2e9 + number))
os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    before = commanding.command("doctor", path, "--json").json["stores"][0]
    for at in (18, 5000):
        flip(path, at)
        found = commanding.command("doctor", path, "--json").json["stores"][0]
        assert found["messages"] == before["messages"]
        places = [finding["place"] for finding in found["findings"]]
        assert "state.db-wal" in places
        into = tmp_path / f"{at}.db"
        brought = commanding.command("import", path, "--into", into)
        assert "state.db-wal" in brought.err
        flip(path, at)
        assert (
            brought.out == commanding.command("import", path, "--into", tmp_path / f"{at}b.db").out
        )


def test_the_check_of_a_store_tells_of_its_log(path: Path) -> None:
    raw = flip(path, 30_000)
    checked = commanding.command("store", "check", "--store", str(path))
    assert checked.code == 5 and "of its write-ahead log is" in checked.err
    assert Path(f"{path}-wal").read_bytes() == raw


@pytest.mark.parametrize("cut", [1, 30, FRAME - 1, FRAME, 2 * FRAME + 5])
def test_a_log_that_ends_early_is_no_damage(path: Path, cut: int) -> None:
    """A crash leaves such logs: what was being written then was not acknowledged."""
    os.truncate(f"{path}-wal", os.path.getsize(f"{path}-wal") - cut)
    assert log_damage(f"{path}-wal", page_bytes=PAGE) is None
    assert words(path)[:-2] == WORDS[: len(words(path)) - 2]


def test_the_last_write_may_be_torn_anywhere(path: Path) -> None:
    """A power cut keeps any of the sectors of what was not yet synced."""
    log = Path(f"{path}-wal")
    whole = log.read_bytes()
    start = len(whole) - 2 * FRAME  # a commit of two frames
    for at in range(start, len(whole), 512):
        log.write_bytes(whole[:at] + bytes(512) + whole[at + 512 :])
        assert log_damage(str(log), page_bytes=PAGE) is None
    holdfast.open(path).close()


def test_what_a_log_was_used_for_before_is_no_damage(tmp_path: Path) -> None:
    """A log is written over from its start; behind its end lies what it held before."""
    path = tmp_path / "used.db"
    code = """
import os, sys, sqlite3
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("PRAGMA journal_mode=WAL")
db.execute("PRAGMA cache_size=5")
db.execute("CREATE TABLE t (x)")
def fill(n, end):
    db.execute("BEGIN")
    for _ in range(n):
        db.execute("INSERT INTO t VALUES (randomblob(3000))")
    db.execute(end)
fill(100, "COMMIT")
db.execute("PRAGMA wal_checkpoint(RESTART)")
fill(3, "COMMIT")
fill(60, "ROLLBACK")
fill(4, "COMMIT")
fill(2, "COMMIT")
os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert log_damage(f"{path}-wal", page_bytes=PAGE) is None
    assert sqlite3.connect(path).execute("SELECT count(*) FROM t").fetchone() == (109,)


def test_a_store_that_others_write_is_opened_without_reading_all_of_its_log(tmp_path: Path) -> None:
    path = tmp_path / "live.db"
    with holdfast.open(path) as store:
        session = store.session("k")
        for number in range(50):
            session.append(f"word {number}")
        with holdfast.open(path, read_only=True) as other:
            assert other.session("k", create=False).info().messages == 50
        assert commanding.command("sessions", "list", "--store", str(path)).code == 0


def test_a_log_that_is_emptied_while_it_is_looked_at_is_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "store.db-wal"
    log.write_bytes(b"x" * 100_000)
    sized = os.fstat

    def sized_then_emptied(number: int) -> os.stat_result:
        found = sized(number)
        os.truncate(log, 0)
        return found

    monkeypatch.setattr(os, "fstat", sized_then_emptied)
    assert log_damage(str(log), page_bytes=4096) is None


# What is gone of the beginning: a block, some frames, and the header alone or more than a frame cut off.
LOST = [
    ("zeros", PAGE),
    ("zeros", 5 * FRAME),
    ("noise", PAGE),
    ("cut", HEADER_BYTES),
    ("cut", 5000),
]


def lose_start(path: Path, how: str, size: int) -> bytes:
    log = Path(f"{path}-wal")
    noise = random.Random(size).randbytes(size)
    put = {"zeros": bytes(size), "noise": noise, "cut": b""}[how]
    log.write_bytes(put + log.read_bytes()[size:])
    return log.read_bytes()


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize(("how", "size"), LOST)
def test_a_log_that_lost_its_beginning_is_refused_and_stays(
    path: Path, how: str, size: int, read_only: bool
) -> None:
    """Whole frames that follow each other show that something was stored here."""
    raw = lose_start(path, how, size)
    with pytest.raises(Damaged, match="of its write-ahead log is"):
        holdfast.open(path, read_only=read_only)
    assert commanding.command("store", "check", "--store", str(path)).code == 5
    assert Path(f"{path}-wal").read_bytes() == raw


@few_cases(every=2)
@pytest.mark.parametrize(("how", "size"), LOST)
def test_words_behind_a_lost_beginning_are_healed(path: Path, how: str, size: int) -> None:
    """The pages of the first frames were written again later, as those that grow are."""
    raw = lose_start(path, how, size)
    healed = path.parent / "healed.db"
    told = commanding.command("doctor", str(path), "--heal", str(healed))
    assert "of this log is damaged" in told.out
    assert "was not written again later" in told.out
    assert words(healed) == WORDS
    assert Path(f"{path}-wal").read_bytes() == raw


def test_frames_that_the_database_holds_already_are_not_read_again(tmp_path: Path) -> None:
    """Before them lies a frame of the log's next use, and what else was with it is lost."""
    path = tmp_path / "used.db"
    code = """
import os, sys, sqlite3
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("PRAGMA journal_mode=WAL")
db.execute("CREATE TABLE t (x)")
for word in "old", "older":
    db.execute("DELETE FROM t")
    db.execute("INSERT INTO t VALUES (?)", (word,))
db.execute("PRAGMA wal_checkpoint(RESTART)")
db.execute("BEGIN")
db.execute("UPDATE t SET x = 'new'")
db.execute("CREATE TABLE u (x)")
db.execute("COMMIT")
db.execute("PRAGMA wal_checkpoint(PASSIVE)")
os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    log = Path(f"{path}-wal")
    # of the three frames of the last use, the second is left
    raw = log.read_bytes()
    second, third = HEADER_BYTES + FRAME, HEADER_BYTES + 2 * FRAME
    assert raw[second + 8 : second + 16] == raw[third + 8 : third + 16]
    log.write_bytes(bytes(second) + raw[second:third] + bytes(FRAME) + raw[third + FRAME :])
    damage = log_damage(str(log), page_bytes=PAGE)
    assert damage is not None and damage.lost == 3
    assert bring_back(str(log), damage, page_bytes=PAGE) == 0
    assert sqlite3.connect(path).execute("SELECT x FROM t").fetchall() == [("new",)]


@pytest.mark.parametrize("size", [0, 31, HEADER_BYTES, 5 * FRAME, 64 * FRAME + 7])
def test_a_log_of_zeros_is_an_empty_one(path: Path, size: int) -> None:
    log = Path(f"{path}-wal")
    log.write_bytes(bytes(size))
    assert log_damage(str(log), page_bytes=PAGE) is None
    assert words(path) == WORDS[:1]


def test_noise_is_no_log(path: Path) -> None:
    log = Path(f"{path}-wal")
    log.write_bytes(random.Random(7).randbytes(20 * FRAME))
    assert log_damage(str(log), page_bytes=PAGE) is None
