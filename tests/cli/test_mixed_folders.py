"""A folder means all the stores in it, of whatever kind; what can't be read is named, and a store
of ours is pointed to the command that copies it.
"""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import goose_stores
import hermes_stores
import holdfast
import item_stores
import openviking_stores
from commanding import command
from holdfast.importers.openviking.reader import OpenVikingReader
from item_stores import Agents, Claude, Codex
from thorough import few_cases

KINDS = {"agents", "claude", "codex", "goose", "hermes", "openviking"}


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A store of each program, and sessions of OpenViking deep below."""
    root = tmp_path / "mixed"
    for program in (Agents, Claude, Codex):
        (root / program.kind).mkdir(parents=True)
        item_stores.made(program, root / program.kind, program.records())
    goose_stores.built(root / "sessions.db", goose_stores.one_call)
    book = hermes_stores.Book(root / "state.db")
    hermes_stores.plain(book, "sound")
    book.close()
    tree = root / "a/b/c/d/viking/account/user/someone/sessions"
    for name in ("one", "two"):
        openviking_stores.Session(tree / name, name).live(openviking_stores.messages(1, 4))
    return root


def own_store(path: Path) -> Path:
    with holdfast.open(path) as store:
        store.session("somebody").append({"role": "user", "content": "Mine."})
    return path


def told(*arguments: object) -> dict[str, Any]:
    return {store["path"]: store for store in command(*arguments, "--json").json["stores"]}


def test_a_tree_of_openviking_hides_no_other_store(mixed: Path, tmp_path: Path) -> None:
    done = command("doctor", mixed, "--json")
    stores = done.json["stores"]
    assert (
        done.code == 0
        and {store["kind"] for store in stores} == KINDS
        and len(stores) == len(KINDS)
    )
    [tree] = [store for store in stores if store["kind"] == "openviking"]
    assert (tree["sessions"], tree["messages"]) == (2, 8)
    into = tmp_path / "agent.db"
    first = told("import", mixed, "--into", into)
    assert {store["kind"] for store in first.values()} == KINDS
    assert sum(store["new"] for store in first.values()) == sum(
        store["sessions"] for store in stores
    )
    assert all(store["new"] == 0 for store in told("import", mixed, "--into", into).values())
    (mixed / "sessions.db").unlink()
    assert all(store["new"] == 0 for store in told("import", mixed, "--into", into).values()), (
        "nor its neighbours"
    )


def test_a_mixed_folder_is_healed_each_store_at_its_place(mixed: Path, tmp_path: Path) -> None:
    done = command("doctor", mixed, "--heal", tmp_path / "out", "--json")
    assert done.code == 0
    outs = {store["path"]: Path(store["out"]) for store in done.json["healed"]["stores"]}
    assert outs[str(mixed)] == tmp_path / "out" / "openviking.db" and outs[str(mixed)].is_file()
    assert len({path for path in outs.values() if path.is_file()}) == len(KINDS)


def test_sessions_alone_are_copied_of_a_folder_that_holds_other_things(mixed: Path) -> None:
    (mixed / "film.mkv").write_bytes(b"x" * 1000)
    shelf = OpenVikingReader(mixed)
    try:
        copied = {path.name for path in shelf._copy.path.rglob("*") if path.is_file()}
        assert copied == {"messages.jsonl", ".meta.json"} and len(list(shelf.sessions())) == 2
    finally:
        shelf.close()


def test_a_neighbour_in_use_does_not_make_a_tree_one_in_use(mixed: Path) -> None:
    holder = goose_stores.built(mixed / "held.db", goose_stores.one_call)
    code = "import sys; f = open(sys.argv[1], 'rb'); print('open', flush=True); sys.stdin.read()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code, holder], **pipes) as process:  # type: ignore[call-overload]
        process.stdout.readline()
        live = {path: store["live"] for path, store in told("doctor", mixed).items()}
        process.stdin.close()
    assert live[str(holder)] is True and live[str(mixed)] is False


def cut(size: int) -> Callable[[bytes], bytes]:
    return lambda raw: raw[:size]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "magic alone": cut(16),
    "header alone": cut(100),
    "a page": cut(4096),
    "half": lambda raw: raw[: len(raw) // 2],
    "header zeroed": lambda raw: bytes(100) + raw[100:],
    "magic overwritten": lambda raw: b"\xff" * 16 + raw[16:],
    "first page zeroed": lambda raw: raw[:100] + bytes(3996) + raw[4096:],
    "first page overwritten": lambda raw: raw[:100] + b"\xa5" * 3996 + raw[4096:],
    "UTF-16": lambda raw: raw[:56] + (2).to_bytes(4, "big") + raw[60:],
    "of the future": lambda raw: raw[:18] + b"\x05\x05" + raw[20:],
    "zeros": lambda raw: bytes(len(raw)),
}


@pytest.mark.slow
@few_cases(every=3)
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_database_that_can_t_be_opened_is_named(tmp_path: Path, damage: str) -> None:
    """In a folder with a sound store, and alone; the sound one is imported."""
    folder = tmp_path / "stores"
    folder.mkdir()
    sound = item_stores.made(Claude, folder, Claude.records())
    with closing(
        sqlite3.connect(item_stores.made(Agents, tmp_path, Agents.records()))
    ) as connection:
        connection.execute("CREATE TABLE filler AS SELECT zeroblob(20000) AS x")
        connection.commit()
    hurt = folder / "s.db"
    hurt.write_bytes(DAMAGE[damage]((tmp_path / Agents.name).read_bytes()))
    done = command("doctor", folder, "--json")
    stores = {store["path"]: store for store in done.json["stores"]}
    assert (
        done.code == 3
        and set(stores) == {str(sound), str(hurt)}
        and done.json["totals"]["unreadable"] == 1
    )
    [finding] = stores[str(hurt)]["findings"]
    assert finding["rule"].endswith("/unreadable-store") and finding["policy"] == "report"
    alone = command("doctor", hurt, "--json")
    assert alone.code == 3 and alone.json["stores"][0]["findings"][0]["rule"] == finding["rule"]
    brought = command("import", folder, "--into", tmp_path / "new.db", "--json")
    assert brought.code == 5
    by_path = {store["path"]: store for store in brought.json["stores"]}
    assert by_path[str(sound)]["new"] == 1 and by_path[str(hurt)]["unreadable"]
    assert str(hurt) in command("import", folder, "--into", tmp_path / "new.db").out
    healed = command("doctor", folder, "--heal", tmp_path / "out", "--json")
    assert (
        healed.code == 3
        and [store["out"] is None for store in healed.json["healed"]["stores"]].count(True) == 1
    )


@pytest.mark.parametrize(
    "raw", [bytes(5000), "\ufeff{}\n".encode("utf-16")], ids=["zeros", "UTF-16"]
)
def test_lines_that_are_zeros_are_named(tmp_path: Path, raw: bytes) -> None:
    sound = item_stores.made(Claude, tmp_path, Claude.records())
    (tmp_path / "lost.jsonl").write_bytes(raw)
    done = command("doctor", tmp_path, "--json")
    assert done.code == 3
    rules = {
        store["path"]: [finding["rule"] for finding in store["findings"]]
        for store in done.json["stores"]
    }
    assert rules == {str(sound): [], str(tmp_path / "lost.jsonl"): ["holdfast/unreadable-store"]}


def test_files_of_others_are_not_taken_for_damaged_stores(tmp_path: Path) -> None:
    item_stores.made(Claude, tmp_path, Claude.records())
    with closing(sqlite3.connect(tmp_path / "places.sqlite")) as connection:
        connection.execute("CREATE TABLE places (url TEXT)")
        connection.commit()
    (tmp_path / "rows.jsonl").write_text('{"a": 1}\n')
    (tmp_path / "broken.json").write_text('{"a": ')
    (tmp_path / "thumbs.db").write_bytes(b"\xd0\xcf\x11\xe0" * 500)
    (tmp_path / "made.db").touch()
    (tmp_path / "picture.png").write_bytes(bytes(5000))
    os.mkfifo(tmp_path / "pipe.db")
    done = command("doctor", tmp_path, "--json")
    assert done.code == 0 and [store["kind"] for store in done.json["stores"]] == ["claude"]


def agents_store(path: Path) -> Path:
    return item_stores.made(Agents, path.parent, Agents.records()).rename(path)


def goose_store(path: Path) -> Path:
    return goose_stores.built(path, goose_stores.one_call)


def hermes_store(path: Path) -> Path:
    return hermes_stores.healthy(path)


ODD: dict[str, Callable[[Path], None]] = {
    "a pipe": lambda path: os.mkfifo(path),
    "a folder": lambda path: path.mkdir(),
    "a link": lambda path: path.symlink_to("/etc/passwd"),
    "a link to nothing": lambda path: path.symlink_to("/nowhere/at/all"),
}


@pytest.mark.slow
@few_cases(every=5)
@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("make", [agents_store, goose_store, hermes_store, own_store])
def test_a_log_that_is_no_file_is_not_followed_and_is_told(
    tmp_path: Path, make: Callable[[Path], Path], odd: str
) -> None:
    path = make(tmp_path / "s.db")
    [sound] = command("doctor", path, "--json").json["stores"]
    assert sound["messages"] and sound["findings"] == []
    Path(f"{path}-wal").unlink(missing_ok=True)
    ODD[odd](Path(f"{path}-wal"))
    done = command("doctor", path, "--json")
    [store] = done.json["stores"]
    assert (store["kind"], store["sessions"], store["messages"]) == (
        sound["kind"],
        sound["sessions"],
        sound["messages"],
    )
    [finding] = store["findings"]
    assert (
        done.code == 1
        and finding["place"] == "s.db-wal"
        and "read without it" in finding["measured"]
    )
    if make is not own_store:
        [brought] = command("import", path, "--into", tmp_path / "new.db", "--json").json["stores"]
        assert brought["new"] and any("s.db-wal" in lost for lost in brought["unreadable"])


def test_importing_a_store_of_ours_names_the_command_that_copies_it(tmp_path: Path) -> None:
    """A file, a backup of it, and folders of them; what the command names works."""
    folder = tmp_path / "stores"
    folder.mkdir()
    own, into = own_store(folder / "my agent.db"), tmp_path / "new.db"
    backup = tmp_path / "backup.db"
    assert command("store", "backup", backup, "--store", own).code == 0
    for given, named in ((own, own), (backup, backup), (folder, own)):
        done = command("import", given, "--into", into)
        assert done.code == 2 and "is a Holdfast store" in done.err
        said = f"holdfast copy '{named}'" if " " in str(named) else f"holdfast copy {named}"
        assert f"{said} {into}" in done.err.replace("\n", " ")
        assert not into.exists()
    assert command("copy", own, into).code == 0


def test_stores_of_ours_among_others_are_told_and_the_others_imported(
    mixed: Path, tmp_path: Path
) -> None:
    own = own_store(mixed / "ours.db")
    done = command("import", mixed, "--into", mixed / "target.db")
    assert (
        done.code == 0
        and f"holdfast copy {own}" in done.err.replace("\n", " ")
        and "openviking" not in done.err
    )
    again = command("import", mixed, "--into", mixed / "target.db")
    assert again.code == 0 and "copy " + str(mixed / "target.db") not in again.err.replace(
        "\n", " "
    )
    own.unlink()
    assert "Holdfast store" not in command("import", mixed, "--into", mixed / "target.db").err


def test_an_own_store_that_is_cut_is_told_by_its_own_path(tmp_path: Path) -> None:
    path = own_store(tmp_path / "agent.db")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    done = command("doctor", path)
    assert done.code == 3 and "holdfast-private" not in done.out
