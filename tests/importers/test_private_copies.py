"""A private copy is of one moment, though the program writes while it is made."""

import os
import time
from pathlib import Path

import pytest

from holdfast.importers import private_copy
from holdfast.importers.private_copy import PrivateCopy

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
