"""Whose a store's files are: its owner's alone, whatever the umask is (FAULTS K5)."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast


def modes(folder: Path) -> dict[str, str]:
    return {each.name: oct(stat.S_IMODE(each.stat().st_mode)) for each in sorted(folder.iterdir())}


@pytest.fixture(params=[0o000, 0o022, 0o077, 0o277, 0o777], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_all_files_of_a_store_are_its_owners_alone(tmp_path: Path, umask: int) -> None:
    """K5: the database, its log, the log's index, the lock, the search file, a backup."""
    with holdfast.open(tmp_path / "agent.db") as store:
        session = store.session("k")
        with session.turn("A secret") as turn:
            turn.say("kept")
        store.search("secret")
        store.backup(tmp_path / "copy.db")
        found = modes(tmp_path)
    assert {"agent.db", "agent.db-wal", "agent.db-shm", "agent.db-lock", "copy.db"} < found.keys()
    assert any("search" in name for name in found)
    assert set(found.values()) == {"0o600"}, found


def test_rights_that_somebody_gave_are_left_and_reported(tmp_path: Path) -> None:
    """Nothing is tightened behind anybody's back: `check` says what to do."""
    path = tmp_path / "agent.db"
    with holdfast.open(path) as store:
        store.session("k").append("A secret")
    path.chmod(0o644)
    with holdfast.open(path) as store:
        (problem,) = [problem for problem in store.check() if problem.place == str(path)]
        assert "644" in problem.problem and "chmod 600" in problem.remedy
    assert modes(tmp_path)["agent.db"] == "0o644"
