"""Doctor and import, cut short: nothing of anybody's is removed, and nothing of a conversation is
left lying about.
"""

import errno
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import goose_stores
import holdfast
from commanding import command
from holdfast.importers import private_copy
from procs import child
from thorough import few_cases

HELD = """
import signal
from holdfast.runtime.transfer.import_session import SessionImport
signal.signal(signal.SIGINT, signal.default_int_handler)
land = SessionImport.land

def held(self):
    say("working")
    hear()
    return land(self)

SessionImport.land = held
from holdfast.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
SOFT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files, of this process and of those that it starts."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr("holdfast.importers.own_folder._swept", set())
    return folder


@pytest.fixture
def goose(tmp_path: Path) -> Path:
    """A store whose name begins with the name that its healed copy will have."""
    (tmp_path / "stores").mkdir()
    return goose_stores.built(
        tmp_path / "stores" / "healed.db.sick", goose_stores.orphan_tool_request
    )


def cut_short(number: int, *arguments: object) -> None:
    """A command that is sent a signal while it is at work, and ends by it."""
    with child(HELD, *arguments) as other:
        other.wait_for("working")
        os.kill(other.pid, number)
        other.end(code=130 if number == signal.SIGINT else -number)


@pytest.mark.slow
@few_cases(every=2)
@pytest.mark.parametrize("number", [*SOFT, signal.SIGKILL])
def test_healing_that_is_cut_short_removes_nothing_but_what_it_made(
    goose: Path, temporary: Path, number: signal.Signals
) -> None:
    folder, out = goose.parent, goose.parent / "healed.db"
    for name in ("healed.db.bak", "healed.db-notes", "healed.dbx", "other"):
        (folder / name).write_text("mine")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    cut_short(number, "doctor", goose, "--heal", out)
    after = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    assert after == before
    left = [path.name for path in folder.iterdir() if path.is_dir()]
    assert len(left) == (number == signal.SIGKILL)
    assert command("doctor", goose, "--heal", out).code in (0, 1)
    assert {path.name for path in folder.iterdir()} == {*before, "healed.db"}
    with holdfast.open(out) as store:
        assert len(list(store.sessions())) == 1


@pytest.mark.slow
@few_cases(every=2)
@pytest.mark.parametrize("number", SOFT)
def test_a_private_copy_goes_with_its_process(
    goose: Path, temporary: Path, tmp_path: Path, number: signal.Signals
) -> None:
    cut_short(number, "import", goose, "--into", tmp_path / "agent.db")
    assert list(temporary.iterdir()) == []


@pytest.mark.slow
def test_a_private_copy_of_a_killed_process_is_swept_by_the_next_one(
    goose: Path, temporary: Path, tmp_path: Path
) -> None:
    cut_short(signal.SIGKILL, "import", goose, "--into", tmp_path / "agent.db")
    assert len(list(temporary.iterdir())) == 1
    (temporary / "holdfast-private-by-somebody-else").write_text("a file")
    assert command("doctor", goose).code == 1
    assert [path.name for path in temporary.iterdir()] == ["holdfast-private-by-somebody-else"]


@pytest.mark.slow
def test_a_private_copy_of_a_living_process_is_not_swept(
    goose: Path, temporary: Path, tmp_path: Path
) -> None:
    with child(HELD, "import", goose, "--into", tmp_path / "agent.db") as other:
        other.wait_for("working")
        before = sorted(path.name for path in temporary.iterdir())
        command("doctor", goose)
        assert sorted(path.name for path in temporary.iterdir()) == before != []
        other.tell("go on")
        other.end()


def test_a_temporary_folder_without_room_is_told_as_such(
    goose: Path, temporary: Path, tmp_path: Path
) -> None:
    """The file claims more than any disk has free; most of it is a hole."""
    about = os.statvfs(temporary)
    os.truncate(goose, min(about.f_bavail * about.f_frsize + (1 << 30), 15 << 40))
    for done in (
        command("doctor", goose),
        command("import", goose, "--into", tmp_path / "agent.db"),
    ):
        assert done.code == 5
        assert (
            "no room for a private copy" in done.err
            and "TMPDIR" in done.err
            and "damaged" not in done.err
        )
    assert list(temporary.iterdir()) == []


def test_a_temporary_folder_that_gets_full_meanwhile_is_told_as_such(
    goose: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There was room when it was looked at; others have filled it since."""

    def full(number: int, mode: str) -> Any:
        os.close(number)
        return open("/dev/full", mode)

    monkeypatch.setattr(private_copy, "open", full, raising=False)
    with pytest.raises(private_copy.NoRoom, match="no room for a private copy"):
        private_copy.PrivateCopy(goose)
    assert list(temporary.iterdir()) == []


def test_a_limit_of_files_is_told_as_such(goose: Path, temporary: Path, tmp_path: Path) -> None:
    """Nothing is wrong with a store that is larger than what this process may write."""
    for words in (["doctor", goose], ["import", goose, "--into", tmp_path / "agent.db"]):
        line = shlex.join([sys.executable, "-m", "holdfast.cli.main", *map(str, words)])
        done = subprocess.run(
            ["sh", "-c", f"ulimit -f 16; exec {line}"], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 5, done
        assert "no room for a private copy" in done.stderr and "ulimit -f" in done.stderr
        assert "damaged" not in done.stderr + done.stdout
    assert list(temporary.iterdir()) == []


def test_a_limit_of_files_that_shows_only_while_it_is_copied_is_told_as_such(
    goose: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system may have a limit of its own."""

    def too_large(source: Path, target: Path) -> None:
        raise OSError(errno.EFBIG, "File too large")

    monkeypatch.setattr(private_copy, "_copy_file", too_large)
    with pytest.raises(private_copy.NoRoom, match="may not write a file of that size"):
        private_copy.PrivateCopy(goose)
    assert list(temporary.iterdir()) == []


def test_links_to_files_in_a_folder_are_not_followed(goose: Path, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "link.db").symlink_to(goose)
    assert command("import", folder, "--into", tmp_path / "agent.db").code == 3
    assert command("doctor", folder).code == 3
    assert command("import", folder / "link.db", "--into", tmp_path / "agent.db").code == 0
