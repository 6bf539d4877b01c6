"""A copy of a store in use: of one moment, verified, owner-only, and there whole or not at all."""

import os
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

import holdfast
import procs
from holdfast import Store
from holdfast.engine.sqlite.maintenance import backup as backing
from holdfast.errors import Damaged, StoreUnavailable
from holdfast.testing.faults.disk import LASTING, Faults
from holdfast.testing.oracle import judge
from thorough import few_cases

PAGE = 4096


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with holdfast.open(path, durability="process") as opened:
        session = opened.session("k")
        for number in range(20):
            with session.turn(f"Question {number}") as turn:
                turn.say(f"Answer {number} " + "words " * 200)
        yield opened


def texts(where: Path, key: str) -> list[str]:
    with holdfast.open(where) as store:
        return [message.text for message in store.session(key, create=False).transcript()]


def left_over(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir() if not each.name.startswith("agent.db"))


def test_a_backup_is_a_store_of_its_own(store: Store, path: Path, tmp_path: Path) -> None:
    made = store.backup(tmp_path / "copy.db")
    assert (made.path, made.bytes) == (
        str(tmp_path / "copy.db"),
        (tmp_path / "copy.db").stat().st_size,
    )
    assert (made.sessions, made.entries) == (store.info().sessions, store.info().entries)
    assert left_over(tmp_path) == ["copy.db"]
    store.session("k").append("not in the copy")
    with holdfast.open(tmp_path / "copy.db") as copy:
        assert copy.check() == [] and judge(copy) == []
        copy.session("k").append("only in the copy")
    assert texts(tmp_path / "copy.db", "k")[-1] == "only in the copy"
    assert [message.text for message in store.session("k").transcript()][-1] == "not in the copy"


def test_what_lies_in_the_log_only_is_in_the_backup(path: Path, tmp_path: Path) -> None:
    with holdfast.open(path) as store:
        store.session("k").append("not yet in the database file")
        store.backup(tmp_path / "copy.db")
    assert texts(tmp_path / "copy.db", "k") == ["not yet in the database file"]


WRITES = """
    import holdfast
    with holdfast.open(sys.argv[1], durability="process") as store:
        session = store.session(sys.argv[2])
        number = 0
        while True:
            with session.turn(f"{number}") as turn:
                turn.say("x" * 2000)
            say(number)
            number += 1
"""


@pytest.mark.slow
def test_a_backup_while_others_write_is_of_one_moment_and_has_all_that_was_acknowledged_before(
    store: Store, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes write all the while; between two pieces of the copy each gets something
    acknowledged.
    """
    monkeypatch.setattr(backing, "PAGES_AT_ONCE", 2)
    with procs.child(WRITES, path, "one") as one, procs.child(WRITES, path, "two") as two:
        before = {"one": int(one.line() or 0), "two": int(two.line() or 0)}
        steps = 0
        step = backing._step

        def stepping(pages: object) -> None:
            nonlocal steps
            steps += 1
            assert one.line() and two.line(), "neither waits for the copy"
            step(pages)

        monkeypatch.setattr(backing, "_step", stepping)
        made = store.backup(tmp_path / "copy.db")
        assert steps > 5
        one.kill()
        two.kill()
    with holdfast.open(tmp_path / "copy.db") as copy:
        assert copy.info().entries == made.entries
        for key, number in before.items():
            said = [
                int(m.text)
                for m in copy.session(key, create=False).transcript()
                if m.role == "user"
            ]
            assert said == list(range(len(said))) and len(said) > number
        assert copy.check() == [] and judge(copy) == []


STARTS = """
    import holdfast
    from holdfast.engine.sqlite.maintenance import backup as backing
    where, to, stop = sys.argv[1:]
    backing.PAGES_AT_ONCE = 8

    def halting(name):
        work = getattr(backing, name)
        def halt(*args):
            if name == stop:
                say("there")
                hear()
            return work(*args)
        setattr(backing, name, halt)

    for name in ("_copy", "_step", "_verify", "_name"):
        halting(name)
    with holdfast.open(where) as store:
        store.backup(to)
        say("done")
"""


@pytest.mark.slow
@few_cases(every=2)
@pytest.mark.parametrize("stop", ["_copy", "_step", "_verify", "_name"])
def test_a_backup_that_was_killed_leaves_nothing_of_its_name(
    store: Store, path: Path, tmp_path: Path, stop: str
) -> None:
    """And the next one to the same place is not in its way."""
    with procs.child(STARTS, path, tmp_path / "copy.db", stop) as other:
        other.wait_for("there")
        assert not (tmp_path / "copy.db").exists()
        with pytest.raises(StoreUnavailable, match="under way"):
            store.backup(tmp_path / "copy.db")
        other.kill()
    assert not (tmp_path / "copy.db").exists()
    store.backup(tmp_path / "copy.db")
    assert left_over(tmp_path) == ["copy.db"]
    assert len(texts(tmp_path / "copy.db", "k")) == 40


def test_two_backups_to_one_place_do_not_get_in_each_others_way(
    store: Store, path: Path, tmp_path: Path
) -> None:
    with procs.child(STARTS, path, tmp_path / "copy.db", "_verify") as other:
        other.wait_for("there")
        with pytest.raises(StoreUnavailable, match="under way"):
            store.backup(tmp_path / "copy.db")
        other.tell()
        assert other.end() == ["done"]
    assert len(texts(tmp_path / "copy.db", "k")) == 40


@pytest.mark.parametrize(
    "there", ["a file", "an empty file", "a folder", "a link to nowhere", "the store itself"]
)
def test_nothing_is_ever_overwritten(store: Store, path: Path, tmp_path: Path, there: str) -> None:
    to = tmp_path / "copy.db"
    match there:
        case "a file":
            to.write_bytes(b"precious")
        case "an empty file":
            to.touch()
        case "a folder":
            to.mkdir()
        case "a link to nowhere":
            to.symlink_to(tmp_path / "nowhere")
        case _:
            to = path
    before = to.read_bytes() if there == "a file" else None
    with pytest.raises(StoreUnavailable, match="already") as caught:
        store.backup(to)
    assert str(to) in str(caught.value) and "never" not in caught.value.problem
    assert before is None or to.read_bytes() == before
    assert not os.path.exists(f"{to}.partial")


def test_something_that_took_the_name_meanwhile_is_not_overwritten(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = backing._name

    def late(partial: str, to: str) -> None:
        Path(to).write_bytes(b"precious")
        name(partial, to)

    monkeypatch.setattr(backing, "_name", late)
    with pytest.raises(StoreUnavailable):
        store.backup(tmp_path / "copy.db")
    assert (tmp_path / "copy.db").read_bytes() == b"precious" and left_over(tmp_path) == ["copy.db"]


def test_a_folder_that_is_not_there_is_said(store: Store, tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="No such file") as caught:
        store.backup(tmp_path / "nowhere" / "copy.db")
    assert "folder" in caught.value.remedy


def test_odd_names_are_names(store: Store, tmp_path: Path) -> None:
    for name in ("a b.db", "100%.db", "what?.db", "#1.db", "ü 🦀.db"):
        store.backup(tmp_path / name)
        assert len(texts(tmp_path / name, "k")) == 40


def test_a_disk_without_room_for_the_copy_is_said_and_leaves_nothing(
    store: Store, tmp_path: Path
) -> None:
    verbs = frozenset({"write"})
    copying = Faults(
        at=1,
        trouble="full",
        times=LASTING,
        verbs=verbs,
        only=lambda name: name.endswith(".partial"),
    )
    with copying, pytest.raises(StoreUnavailable, match="full"):
        store.backup(tmp_path / "copy.db")
    assert left_over(tmp_path) == []
    store.backup(tmp_path / "copy.db")


def test_a_copy_that_is_not_what_was_copied_does_not_get_its_name(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that loses what it was given: it is read back before anybody relies on it."""
    copy = backing._copy

    def losing(*args: object) -> None:
        copy(*args)  # type: ignore[arg-type]
        partial = tmp_path / "copy.db.partial"
        with open(partial, "r+b") as file:
            file.seek(partial.stat().st_size // PAGE // 2 * PAGE)
            file.write(bytes(PAGE))

    monkeypatch.setattr(backing, "_copy", losing)
    with pytest.raises(Damaged):
        store.backup(tmp_path / "copy.db")
    assert left_over(tmp_path) == []


def test_a_copy_that_is_sound_and_of_another_moment_does_not_get_its_name(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every page of it is in order; an entry that was to be copied is not there."""
    copy = backing._copy

    def losing(*args: object) -> None:
        copy(*args)  # type: ignore[arg-type]
        partial = apsw.Connection(str(tmp_path / "copy.db.partial"))
        partial.execute("DELETE FROM entry WHERE rowid = (SELECT max(rowid) FROM entry)")
        assert partial.changes() == 1
        partial.close()

    monkeypatch.setattr(backing, "_copy", losing)
    with pytest.raises(Damaged, match="not what was copied"):
        store.backup(tmp_path / "copy.db")
    assert left_over(tmp_path) == []


def test_a_damaged_store_is_not_passed_on_as_a_good_copy(
    path: Path, store: Store, tmp_path: Path
) -> None:
    store.close()
    plain = apsw.Connection(str(path))
    [[page]] = plain.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'entry'")
    plain.close()
    with open(path, "r+b") as file:
        file.seek((page - 1) * PAGE)
        file.write(bytes(PAGE))
    with holdfast.open(path) as damaged, pytest.raises(Damaged) as caught:
        damaged.backup(tmp_path / "copy.db")
    assert str(path) in str(caught.value)
    assert left_over(tmp_path) == []
