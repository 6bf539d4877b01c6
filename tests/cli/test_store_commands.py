"""`holdfast store`: what is in a store, what is wrong with it, a copy of it, and its format."""

import re
import sqlite3

import holdfast
from commanding import command


def test_info_tells_what_the_library_tells(world):
    told = command("store", "info", "--store", world.path, "--json").json
    with holdfast.open(world.path) as store:
        info = store.info()
    assert set(told) == set(info.__struct_fields__)
    assert (told["sessions"], told["entries"], told["tenants"]) == (info.sessions, info.entries, 2)
    out = command("store", "info", "--store", world.path).out
    assert f"{info.sessions} sessions, {info.entries} entries, 2 tenants" in out
    assert str(world.path) in out


def test_a_sound_store_is_0(world):
    done = command("store", "check", "--store", world.path)
    assert (done.code, done.out, done.err) == (0, "", "No problems found.\n")
    assert command("store", "check", "--store", world.path, "--json").json == {"problems": []}


def test_what_is_found_wrong_is_1_and_told_with_place_and_remedy(path):
    hurt = sqlite3.connect(path)
    with hurt:
        hurt.execute("DELETE FROM entry WHERE seq = 5")  # a hole in a log
    hurt.close()
    done = command("store", "check", "--store", path)
    assert done.code == 1
    assert re.search(r"^session .*\(I-1\)$", done.out, re.M)
    assert "found." in done.err
    problems = command("store", "check", "--store", path, "--json")
    assert problems.code == 1
    assert set(problems.json["problems"][0]) == {
        "rule",
        "place",
        "problem",
        "invariant",
        "remedy",
        "session",
    }


def test_a_backup_is_a_store_of_its_own(world, tmp_path):
    done = command("store", "backup", tmp_path / "copy.db", "--store", world.path)
    assert done.code == 0
    assert done.out.strip() == str(tmp_path / "copy.db")
    assert done.err.startswith("Verified: ")
    shown = [
        command("sessions", "show", world.table, "--store", at).out
        for at in (world.path, tmp_path / "copy.db")
    ]
    assert shown[0] == shown[1]


def test_a_backup_overwrites_nothing(world, tmp_path):
    (tmp_path / "copy.db").write_text("precious")
    done = command("store", "backup", tmp_path / "copy.db", "--store", world.path)
    assert done.code != 0
    assert (tmp_path / "copy.db").read_text() == "precious"


def test_a_store_of_this_release_needs_no_migration(path):
    done = command("store", "migrate", "--store", path, "--json")
    assert done.code == 0
    assert done.json["before"] == done.json["after"]
    assert "up to date" in command("store", "migrate", "--store", path).err
