"""A command that finds nothing to work on says so: no empty success, no copy that is cut off, no folder
passed over, and no question to a stdin that is closed.
"""

import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
import item_stores
import namespaces
from commanding import as_nobody, command, surroundings
from thorough import few_cases


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "agent.db"
    with holdfast.open(path) as opened:
        session = opened.session("k")
        for number in range(3):
            with session.turn(f"question {number}") as turn:
                turn.say("answer")
    return path


@pytest.fixture
def claude(tmp_path: Path) -> Path:
    folder = tmp_path / "claude"
    folder.mkdir()
    item_stores.made(item_stores.Claude, folder, item_stores.Claude.records())
    return next(folder.rglob("*.jsonl"))


def test_a_healed_copy_needs_a_path(claude: Path) -> None:
    done = command("doctor", claude, "--heal", "")
    assert done.code == 2 and "--heal" in done.err


def test_a_session_that_no_store_has_is_not_examined_in_vain(store: Path, claude: Path) -> None:
    for path in (store, claude):
        done = command("doctor", path, "--session", "nope")
        assert done.code == 3 and "nope" in done.err and "No problems" not in done.out


def test_a_store_is_healed_whole(store: Path, tmp_path: Path) -> None:
    out = tmp_path / "healed.db"
    done = command("doctor", store, "--session", "nope", "--heal", out)
    assert done.code == 2 and "--session" in done.err and not out.exists()


def test_a_session_that_is_not_there_is_not_imported(claude: Path, tmp_path: Path) -> None:
    into = tmp_path / "into.db"
    done = command("import", claude, "--session", "nope", "--into", into)
    assert done.code == 3 and "nope" in done.err and not into.exists()


@few_cases(every=2)
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["sessions", "rewind", "key:k", "2"], 1),
        (["sessions", "rm", "key:k"], 1),
        (["reset", "k"], 1),
        (["sessions", "compact", "key:k", "--summary", "x", "--keep-turns", "1"], 1),
        (["sessions", "compact", "key:k", "--summary-file", "-", "--yes"], 2),
    ],
)
def test_a_closed_stdin_has_no_answer(store: Path, words: list[str], code: int) -> None:
    line = [sys.executable, "-m", "holdfast.cli.main", *words, "--store", str(store)]
    shell = ["sh", "-c", 'exec "$@" <&-', "sh", *line]
    done = subprocess.run(shell, env=surroundings(), capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stderr
    assert "NoneType" not in done.stderr


def test_a_folder_that_cant_be_entered_is_told(claude: Path, tmp_path: Path) -> None:
    closed = claude.parent / "closed"
    closed.mkdir()
    (closed / "other.jsonl").write_bytes(claude.read_bytes())
    closed.chmod(0)
    try:
        looked = as_nobody("doctor", claude.parent)
        assert looked.returncode == 3 and str(closed) in looked.stdout, looked
        brought = as_nobody("import", claude.parent, "--into", tmp_path / "into.db")
        assert brought.returncode == 5 and "closed" in brought.stdout + brought.stderr, brought
    finally:
        closed.chmod(0o700)


def small_disk(size_k: int, disk: Path, script: str, *words: object, **environment: str) -> int:
    """Runs a piece of shell with a disk of this size in this place, which only it can see; the
    command line is `$holdfast`.
    """
    disk.mkdir(exist_ok=True)
    line = f'holdfast="{sys.executable} -m holdfast.cli.main"\n{script}'
    mounted = namespaces.small_disk(disk, size_k)
    env = surroundings(**environment)
    run = [*mounted, "sh", "-c", line, "sh", *map(str, words)]
    return subprocess.run(run, env=env, capture_output=True, timeout=60).returncode


def test_a_disk_that_fills_up_gets_no_copy_that_is_cut_off(tmp_path: Path) -> None:
    """ "Moved when it is whole": what did not fit into the copy is in a log that is not moved."""
    long = tmp_path / "long.db"
    with holdfast.open(long) as opened:
        # Long enough for sizes at which there is room for the log, and not for what it brings.
        opened.session("k").append_all([f"word {number} " * 60 for number in range(300)])
    disk, got = tmp_path / "disk", tmp_path / "got.db"
    script = '$holdfast doctor "$1" --heal "$2"; code=$?; cp "$2" "$3"; exit $code'
    outcomes = []
    for size_k in (120, 400, 460, 1200):
        got.unlink(missing_ok=True)
        code = small_disk(size_k, disk, script, long, disk / "healed.db", got)
        outcomes.append((code, got.exists()))
    assert outcomes == [(5, False), (5, False), (5, False), (0, True)]
    looked = command("doctor", got, "--json").json["stores"][0]
    assert (looked["findings"], looked["sessions"]) == ([], 1)


def test_a_store_is_not_called_unreadable_for_want_of_room(store: Path, tmp_path: Path) -> None:
    """Beside a private copy SQLite makes an index: without room for it, nothing can be opened."""
    disk = tmp_path / "disk"
    size_k = store.stat().st_size // 1024
    for more in (4, 16, 28):
        script = '$holdfast doctor "$1" > "$2" 2>&1'
        said = tmp_path / "said"
        code = small_disk(size_k + more, disk, script, store, said, TMPDIR=str(disk))
        assert code != 3 and "no room" in said.read_text(), said.read_text()
