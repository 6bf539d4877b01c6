"""One look at the folder tells that the files of a store are still its own, and no change is missed
by that: not one right after a look, and not one that a coarse clock gives the same time as the one
before (FAULTS G7, G8).
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import holdfast
from holdfast import Session
from holdfast.errors import StoreUnavailable
from thorough import few_cases
from worlds import HandWorld

LONG_S = 60
"""Longer than the grain of any file system."""

real_stat: Callable[..., os.stat_result] = os.stat


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.db"


@pytest.fixture
def world() -> HandWorld:
    return HandWorld()


@pytest.fixture
def session(path: Path, world: HandWorld) -> Iterator[Session]:
    with holdfast.open(path, world=world) as store:
        session = store.session("k")
        session.append("before")
        yield session


@pytest.fixture
def calm(session: Session, world: HandWorld) -> Session:
    """A session whose folder has not changed for long."""
    for _ in range(2):
        world.advance(seconds=LONG_S)
        session.append("and nothing happened")
    return session


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is looked at from now on."""
    seen: list[str] = []

    def look(path: Any, *args: Any, **options: Any) -> os.stat_result:
        seen.append(str(path))
        return real_stat(path, *args, **options)

    monkeypatch.setattr(os, "stat", look)
    return seen


def of_the_store(path: Path, looks: list[str]) -> list[str]:
    return [name for name in looks if name.startswith(str(path))]


class CoarseTimes:
    """A file system that tells time in steps of two seconds, by the clock that the test moves."""

    def __init__(self, world: HandWorld) -> None:
        self._world = world
        self._times: dict[Any, tuple[int, int]] = {}

    def stat(self, path: Any, *args: Any, **options: Any) -> Any:
        found = real_stat(path, *args, **options)
        changed, shown = self._times.get(path, (0, 0))
        if found.st_ctime_ns != changed:
            shown = int(self._world.seconds // 2) * 2_000_000_000
            self._times[path] = found.st_ctime_ns, shown
        facts = {name: getattr(found, name) for name in dir(found) if name.startswith("st_")}
        return SimpleNamespace(**facts | {"st_mtime_ns": shown, "st_ctime_ns": shown})


def moved_away(session: Session, file: Path) -> None:
    """The file is moved, that is noticed at once by who writes, and when it is back the handle goes
    on.
    """
    away = file.with_name("away")
    file.rename(away)
    with pytest.raises(StoreUnavailable):
        session.append("refused")
    away.rename(file)
    session.append("after")


def test_while_nothing_changes_only_the_folder_is_looked_at(
    path: Path, calm: Session, looks: list[str]
) -> None:
    """To look at a log that is being written makes its next sync a third slower."""
    for number in range(3):
        calm.append(f"{number}")
        assert len(list(calm.transcript())) == 4 + number
    assert str(path.parent) in looks
    assert not of_the_store(path, looks)


@pytest.mark.parametrize("end", ["", "-wal", "-shm"])
def test_a_file_that_is_moved_right_after_a_look_is_missed(
    path: Path, calm: Session, end: str
) -> None:
    calm.append("all was well")
    if end:
        os.rename(f"{path}{end}", f"{path}.away")
        with pytest.raises(StoreUnavailable, match="log"):
            calm.append("refused")
    else:
        moved_away(calm, path)


@pytest.mark.parametrize("end", ["", "-wal"])
def test_a_reader_misses_it_as_soon(path: Path, calm: Session, end: str) -> None:
    assert len(list(calm.transcript())) == 3
    os.rename(f"{path}{end}", f"{path}.away")
    with pytest.raises(StoreUnavailable):
        list(calm.transcript())


def test_a_file_that_takes_the_place_of_another_in_one_step_is_seen(
    path: Path, calm: Session
) -> None:
    path.with_name("other").write_bytes(path.read_bytes())
    calm.append("a neighbour is no trouble")
    os.replace(path.with_name("other"), path)
    with pytest.raises(StoreUnavailable, match="another file"):
        calm.append("refused")


def test_a_neighbour_that_comes_and_goes_has_the_files_looked_at_and_is_no_trouble(
    path: Path, calm: Session, world: HandWorld, looks: list[str]
) -> None:
    path.with_name("neighbour").touch()
    calm.append("looked at all of them")
    assert f"{path}-wal" in looks
    for _ in range(2):
        world.advance(seconds=LONG_S)
        calm.append("and once more, when it was quiet again")
    looks.clear()
    calm.append("only at the folder")
    assert str(path.parent) in looks
    assert not of_the_store(path, looks)


@few_cases(every=3)
@pytest.mark.parametrize("seconds", [0, 0.5, 1, 1.9, 2, 2.4, 2.6, 5])
@pytest.mark.parametrize("start", [0, 0.3, 1.5])
def test_a_change_within_the_same_grain_of_time_is_seen(
    path: Path,
    calm: Session,
    world: HandWorld,
    monkeypatch: pytest.MonkeyPatch,
    start: float,
    seconds: float,
) -> None:
    """Two changes that leave the same time, and a look between them: what was seen is looked at
    again until the grain is over.
    """
    world.advance(seconds=start)
    monkeypatch.setattr(os, "stat", CoarseTimes(world).stat)
    path.with_name("neighbour").touch()
    calm.append("looked")
    world.advance(seconds=seconds)
    calm.append("looked again")
    calm.append("and again")
    moved_away(calm, path)
