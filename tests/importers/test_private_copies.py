"""A private copy is of one moment, though the program writes while it is made."""

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import holdfast
from holdfast.doctor.exam import examine
from holdfast.errors import StoreUnavailable
from holdfast.importers import private_copy
from holdfast.importers.private_copy import PrivateCopy
from thorough import SWEEP

TICK_NS = 10**9


def test_a_change_in_the_same_tick_of_the_clock_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system that tells the time by a tick gives the second of two changes the same time."""
    source, log = tmp_path / "store.db", tmp_path / "store.db-wal"
    for path in (source, log):
        path.write_bytes(b"before")
    copied = private_copy._copy_file
    # a second has to pass before two changes have two times
    monkeypatch.setattr(private_copy, "GRAIN_NS", 2 * TICK_NS, raising=False)
    at = time.time_ns()

    def written_meanwhile(file: Path, target: Path) -> None:
        copied(file, target)
        if file == source:
            for path in (source, log):
                path.write_bytes(b"behind")
                os.utime(path, ns=(at, at))

    for path in (source, log):
        os.utime(path, ns=(at, at))
    monkeypatch.setattr(private_copy, "_copy_file", written_meanwhile)
    with PrivateCopy(source) as copy:
        assert copy.path.read_bytes() == Path(f"{copy.path}-wal").read_bytes() == b"behind"


WRITER = """
    import sys, holdfast
    with holdfast.open(sys.argv[1], durability="process") as store:
        print("begun", flush=True)
        while True:
            with store.turn(sys.argv[2], "A question.") as turn:
                for _ in turn.deliver(["An ", "answer."]):
                    pass
"""


@pytest.mark.slow
def test_a_store_that_is_written_without_a_pause_is_examined_and_found_sound(
    tmp_path: Path,
) -> None:
    """A copy of one moment is not one of files that stay as they are: a log grows meanwhile."""
    path = tmp_path / "agent.db"
    holdfast.open(path).close()
    program = [sys.executable, "-c", textwrap.dedent(WRITER), str(path)]
    writers = [
        subprocess.Popen([*program, f"k{number}"], stdout=subprocess.PIPE) for number in range(3)
    ]
    try:
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"begun\n"
        for _ in range(8 if SWEEP else 3):
            report = examine("holdfast", str(path))
            assert (report.findings, report.live) == ([], True)
            assert report.messages > 0 or report.sessions == 0
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()


def test_what_is_appended_to_a_log_while_it_is_copied_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the end of it was read before the place in front of it was written."""
    path = tmp_path / "agent.db"
    with holdfast.open(path, durability="process") as store:
        session = store.session("k")
        session.append("before")
        copy_file = private_copy._copy_file

        def written_meanwhile(file: Path, target: Path) -> None:
            copy_file(file, target)
            if file.name.endswith("-wal"):
                size = target.stat().st_size
                for text in ("meanwhile", "and more", "and more"):
                    session.append(text)
                later = file.read_bytes()
                assert len(later) > size + 5000
                with target.open("r+b") as copy:  # a hole, and what was written behind it
                    copy.truncate(size + 5000)
                    copy.seek(size + 5000)
                    copy.write(later[size + 5000 :])

        monkeypatch.setattr(private_copy, "_copy_file", written_meanwhile)
        with PrivateCopy(path) as copy:
            with holdfast.open(copy.path, read_only=True) as copied:
                texts = [message.text for message in copied.session("k").transcript()]
            assert (texts, copy.left_out) == (["before"], [])


def test_a_store_of_which_no_copy_can_be_made_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "agent.db"
    with holdfast.open(path) as store:
        store.session("k").append("One.")
    copy_file = private_copy._copy_file

    def changed_meanwhile(file: Path, target: Path) -> None:
        copy_file(file, target)
        with file.open("r+b") as changed:
            changed.seek(24)  # the counter of changes
            changed.write(os.urandom(4))

    monkeypatch.setattr(private_copy, "_copy_file", changed_meanwhile)
    with pytest.raises(StoreUnavailable, match="written without a pause"):
        examine("holdfast", str(path))
