"""What a command leaves behind, says and ends with where something small is out of the ordinary."""

import os
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

import namespaces
from commanding import LIMIT_S, command, surroundings

STRANGERS = ("notes.jsonl", "closed.db", "open.db")


@pytest.fixture
def strangers(tmp_path: Path) -> Path:
    """Files of others: no database, one that is closed, and one with a log."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "notes.jsonl").write_text('{"type": "user"}\n' * 99)
    for name in ("closed.db", "open.db"):
        theirs = apsw.Connection(str(folder / name))
        theirs.execute(
            "PRAGMA journal_mode=WAL; CREATE TABLE t (x); INSERT INTO t VALUES (1)"
        ).fetchall()
        if name == "open.db":
            theirs.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        theirs.close()
    assert (folder / "open.db-wal").stat().st_size
    return folder


@pytest.mark.parametrize("name", STRANGERS)
def test_a_strangers_file_gets_no_lock_beside_it(strangers: Path, path: Path, name: str) -> None:
    before = {each.name: each.read_bytes() for each in strangers.glob(f"{name}*")}
    exported = path.parent / "session.jsonl"
    assert command("export", "key:k", "--out", exported, "--store", path).code == 0
    for words in (["sessions", "list", "--store"], ["import", exported, "--into"]):
        assert command(*words, strangers / name).code == 5
        after = {each.name: each.read_bytes() for each in strangers.glob(f"{name}*")}
        after.pop(f"{name}-shm", None)
        before.pop(f"{name}-shm", None)
        assert after == before


def test_a_store_without_its_lock_file_is_opened(path: Path) -> None:
    os.unlink(f"{path}-lock")
    assert command("sessions", "list", "--store", path).code == 0


def test_a_store_that_would_be_imported_into_itself_is_copied_instead(path: Path) -> None:
    for given in (path, path.parent):
        done = command("import", given, "--into", path)
        assert done.code == 2 and f"`holdfast copy {path} OTHER`" in done.err, done.err


def test_a_full_disk_is_not_called_no_error(path: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    line = [sys.executable, "-m", "holdfast.cli.main", "store", "backup", str(disk / "copy.db")]
    done = subprocess.run(
        [*namespaces.small_disk(disk, 48), *line, "--store", str(path)],
        env=surroundings(),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 5 and "the disk is full" in done.stderr
    assert "not an error" not in done.stderr


@pytest.mark.parametrize(
    "words", [["--store"], ["--store", "a.db"], ["--json"], ["--tenant=x", "--store"]], ids=" ".join
)
def test_options_without_a_command_are_a_mistake(words: list[str]) -> None:
    done = command(*words)
    assert (done.code, done.out) == (2, "") and "command" in done.err


def test_what_is_there_already_is_one_kind_of_mistake(path: Path) -> None:
    taken = path.parent / "taken"
    taken.write_text("mine")
    for words in (
        ["store", "backup", taken, "--store", path],
        ["export", "key:k", "--out", taken, "--store", path],
        ["doctor", path, "--heal", taken],
    ):
        assert command(*words).code == 2, words
    assert taken.read_text() == "mine"
