"""`holdfast import` of several exported sessions: one that can't be brought over keeps none of the
others from coming.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

import holdfast
from commanding import command

KEYS = "abc"


class World:
    """Two stores and a folder: three sessions of the one were imported into the other."""

    def __init__(self, tmp_path: Path) -> None:
        self.source, self.target = tmp_path / "source.db", tmp_path / "target.db"
        self.folder = tmp_path / "written"
        self.folder.mkdir()
        with holdfast.open(self.source, durability="process") as store:
            for key in KEYS:
                store.session(key).append(f"word {key}")
            self.ids = {key: store.session(key).id for key in KEYS}
        self.write_out()
        assert self.imported().code == 0

    def write_out(self) -> None:
        for key, id in self.ids.items():
            file = self.folder / f"{key}.jsonl"
            file.unlink(missing_ok=True)
            assert command("--store", self.source, "export", id, "--out", file).code == 0

    def imported(self):
        return command("import", self.folder, "--into", self.target, "--json")

    def append(self, where: Path, key: str, text: str) -> None:
        with holdfast.open(where, durability="process") as store:
            store.get(self.ids[key]).append(text)

    def erase(self, where: Path, keys: str) -> None:
        with holdfast.open(where, durability="process") as store:
            for key in keys:
                store.erase(self.ids[key])

    def words_here(self) -> list[str]:
        with holdfast.open(self.target, durability="process") as store:
            return sorted(hit.snippet for hit in store.search("word"))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_session_that_was_erased_on_both_sides_is_told_and_passed_over(world: World) -> None:
    world.erase(world.source, KEYS)
    world.erase(world.target, "b")
    world.write_out()
    done = world.imported()
    assert done.code == 0
    assert world.words_here() == []
    notes = [store["notes"] for store in done.json["stores"]]
    assert [len(each) for each in notes] == [1, 1, 1]
    assert "erased here as well as where it comes from" in notes[1][0]
    again = world.imported()
    assert again.code == 0
    assert all(store["messages"] == 0 for store in again.json["stores"])


def damage(world: World) -> None:
    file = world.folder / "b.jsonl"
    file.write_bytes(file.read_bytes()[:-40])


def differ(world: World) -> None:
    world.append(world.source, "b", "word there")
    world.write_out()
    world.append(world.target, "b", "word here")


@pytest.mark.parametrize(("spoil", "code"), [(differ, 4), (damage, 5)])
def test_one_session_that_cannot_come_keeps_none_of_the_others_from_coming(
    world: World, spoil: Callable[[World], None], code: int
) -> None:
    for key in "ac":
        world.append(world.source, key, f"word two {key}")
    world.write_out()
    spoil(world)
    done = world.imported()
    assert done.code == code
    left_out = [store["unreadable"] for store in done.json["stores"]]
    assert [len(each) for each in left_out] == [0, 1, 0]
    assert [store["messages"] for store in done.json["stores"]] == [1, 0, 1]
    assert {"word two a", "word two c"} <= set(world.words_here())
    # The same as before for one alone: there is nothing else to go on with.
    alone = command("import", world.folder / "b.jsonl", "--into", world.target)
    assert alone.code == code
