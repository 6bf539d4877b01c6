"""What a command leaves behind, says and ends with where something small is out of the ordinary."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import apsw
import pytest

import holdfast
import namespaces
from commanding import LIMIT_S, SOURCE, as_nobody, command, process, started, surroundings
from thorough import few_cases

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


def test_a_warning_is_a_sentence(path: Path) -> None:
    path.chmod(0o644)
    done = process("sessions", "list", "--store", path)
    assert done.code == 0 and done.err.startswith("holdfast: ") and "chmod" in done.err
    assert "Warning" not in done.err and ".py" not in done.err


@few_cases(every=4)
@pytest.mark.parametrize(
    ("words", "code"),
    [(["sessions", "show", "nope"], 3), (["nope"], 2), (["sessions", "rm", "key:k"], 1)],
    ids=str,
)
@pytest.mark.parametrize("lost", ["2>/dev/full", "2>&1 | true", "2>&-"])
def test_talk_that_nobody_hears_changes_no_exit_code(
    path: Path, words: list[str], code: int, lost: str
) -> None:
    line = [sys.executable, "-m", "holdfast.cli.main", *words]
    if "|" in lost:
        # a pipe whose reader is gone when it is written to
        reader, writer = os.pipe()
        os.close(reader)
        done = subprocess.run(
            line, env=surroundings(HOLDFAST_STORE=str(path)), stderr=writer, timeout=LIMIT_S
        )
        os.close(writer)
    else:
        shell = ["sh", "-c", f'"$@" {lost}', "sh", *line]
        done = subprocess.run(shell, env=surroundings(HOLDFAST_STORE=str(path)), timeout=LIMIT_S)
    assert done.returncode == code


def test_a_tail_ends_when_its_reader_goes(path: Path) -> None:
    """Nothing happens in the session, so nothing would be written that could fail."""
    with started("sessions", "tail", "key:k", "--store", path) as tail:
        assert tail.stdout is not None and tail.stdout.readline()
        tail.stdout.close()
        assert tail.wait(LIMIT_S) == 0


def test_a_tail_without_a_stdout_has_nobody_to_tell(path: Path) -> None:
    line = [sys.executable, "-m", "holdfast.cli.main", "sessions", "tail", "key:k"]
    shell = ["sh", "-c", 'exec "$@" >&-', "sh", *line, "--store", str(path)]
    done = subprocess.run(shell, env=surroundings(), capture_output=True, timeout=LIMIT_S)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_store_in_a_folder_that_is_only_read_can_be_copied(path: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.rename(path, theirs / "agent.db")
    theirs.chmod(0o500)
    try:
        done = as_nobody("copy", theirs / "agent.db", tmp_path / "mine.db")
        assert done.returncode == 0, done.stderr
        assert [each.name for each in theirs.iterdir()] == ["agent.db"]
    finally:
        theirs.chmod(0o700)
    with holdfast.open(tmp_path / "mine.db") as store:
        assert len(list(store.session("k", create=False).transcript())) == 6


INTERRUPTED_WHILE_LOADING = """
import importlib, os, signal, sys

wanted, entry = sys.argv[1:]
del sys.argv[1:]

class Interrupter:
    def find_spec(self, name, path=None, target=None):
        if name == wanted:
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupter())
module, _, name = entry.partition(":")
sys.exit(getattr(importlib.import_module(module), name)())
"""


@pytest.mark.parametrize("loaded", ["holdfast", "holdfast.domain.entry", "holdfast.cli.output"])
def test_ctrl_c_while_the_command_loads_ends_it_quietly(loaded: str) -> None:
    entry = tomllib.loads((SOURCE.parent / "pyproject.toml").read_text())["project"]["scripts"]
    line = [sys.executable, "-c", INTERRUPTED_WHILE_LOADING, loaded, entry["holdfast"]]
    done = subprocess.run(line, env=surroundings(), capture_output=True, timeout=LIMIT_S)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")
