"""What is copied, synced and thrown away, and in which order: each of these can be left out without
a word being missed until the power goes, or the one moment comes (I-3, I-5, I-21).
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

import holdfast
from holdfast.engine.open import open_engine
from holdfast.engine.protocol import Chunk, Opening, Start, Write
from holdfast.importers import private_copy
from holdfast.testing.conformance.builders import did, drafts, named
from holdfast.testing.reference import Ticks


def test_a_private_copy_is_of_one_moment_though_the_store_is_written_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database and a log of different moments are no store."""
    source, log = tmp_path / "store.db", tmp_path / "store.db-wal"
    source.write_bytes(b"database, first")
    log.write_bytes(b"log, first")
    copy_file = private_copy._copy_file

    def written_meanwhile(given: Path, target: Path) -> None:
        copy_file(given, target)
        if given == source and source.read_bytes() == b"database, first":
            source.write_bytes(b"database, second moment")
            log.write_bytes(b"log, second moment")

    monkeypatch.setattr(private_copy, "_copy_file", written_meanwhile)
    with private_copy.PrivateCopy(source) as copy:
        found = copy.path.read_bytes(), Path(f"{copy.path}-wal").read_bytes()
    assert found == (b"database, second moment", b"log, second moment")


def test_a_backup_is_synced_before_it_gets_its_name_and_its_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that survives a power cut must not stand for pages that did not."""
    steps: list[tuple[str, str]] = []
    fsync, link = os.fsync, os.link

    def noted_fsync(file: int) -> None:
        steps.append(("synced", os.readlink(f"/proc/self/fd/{file}")))
        fsync(file)

    def noted_link(source: Any, target: Any, **options: Any) -> None:
        steps.append(("named", os.fspath(target)))
        link(source, target, **options)

    with holdfast.open(tmp_path / "agent.db") as store:
        store.session("k").append("hello")
        monkeypatch.setattr(os, "fsync", noted_fsync)
        monkeypatch.setattr(os, "link", noted_link)
        store.backup(tmp_path / "backup.db")
    backup = str(tmp_path / "backup.db")
    assert steps == [("synced", backup + ".partial"), ("named", backup), ("synced", str(tmp_path))]


class Log:
    """What happens to the logs of stores: cut short, written, synced."""

    def __init__(self) -> None:
        self.steps: list[str] = []


@pytest.fixture
def log() -> Iterator[Log]:
    notes, usual = Log(), apsw.vfs_names()[0]

    class File(apsw.VFSFile):
        def __init__(self, name: Any, flags: list[int]) -> None:
            super().__init__(usual, name, flags)
            self._is_log = bool(flags[0] & apsw.SQLITE_OPEN_WAL)

        def xTruncate(self, size: int) -> None:
            super().xTruncate(size)
            if self._is_log:
                notes.steps.append("cut")

        def xSync(self, flags: int) -> None:
            super().xSync(flags)
            if self._is_log:
                notes.steps.append("synced")

    class Noting(apsw.VFS):
        def __init__(self) -> None:
            super().__init__("noting-cuts", usual, makedefault=True)

        def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
            return File(name, flags)

    vfs = Noting()
    yield notes
    vfs.unregister()


def test_an_erasure_is_acknowledged_after_the_log_was_cut_and_that_was_synced(
    log: Log, tmp_path: Path
) -> None:
    """I-21: after a power cut between the two, the old log would be there again, words and all."""
    with holdfast.open(tmp_path / "agent.db") as store:
        session = store.session("k")
        session.append("words to be erased")
        store.erase(session.id)
        steps = list(log.steps)
    assert "cut" in steps
    last = len(steps) - 1 - steps[::-1].index("cut")
    assert "synced" in steps[last + 1 :], steps


def test_the_first_chunk_of_a_running_turn_is_not_thrown_away_with_the_generation_it_ends(
    tmp_path: Path,
) -> None:
    """I-5: rows up to the one at which a turn started are not its own; the next one is."""
    engine: Any = open_engine(tmp_path / "agent.db", durability="process", tick=Ticks())
    try:
        did(engine, Write(named(1), drafts=drafts(1), open=Opening("default", "k", 1)))
        message = b"m" * 16

        def started() -> int:
            return did(
                engine, Write(named(1), drafts=drafts(1), idle=True, start=Start("me", 600.0))
            ).turn

        def said(turn: int, index: int) -> None:
            did(engine, Write(named(1), fence=turn, chunk=Chunk(message, index, b"x")))

        over = started()
        said(over, 0)
        did(engine, Write(named(1), drafts=drafts(1), fence=over, finish=True))
        turn = started()
        said(turn, 0)  # the last row of its generation
        engine._locked(engine._turn_over)
        said(turn, 1)
        engine._locked(engine._turn_over)
        assert [row.index for row in engine.journal(named(1)) if row.turn == turn] == [0, 1]
        did(engine, Write(named(1), drafts=drafts(1), fence=turn, finish=True))
        engine._locked(engine._turn_over)
        engine._locked(engine._turn_over)
        assert engine.journal(named(1)) == [], "and what nobody needs is thrown away"
    finally:
        engine.close()
