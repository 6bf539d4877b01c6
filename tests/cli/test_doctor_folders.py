"""`holdfast doctor FOLDER`: the stores in it are examined and healed in one go, with totals at the
end.
"""

from pathlib import Path

import pytest

import goose_stores
import hermes_stores
import holdfast
import item_stores
from commanding import command, on_terminal


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Thirty stores of three kinds, in folders below; six are damaged."""
    return filled(tmp_path / "stores", 10)


@pytest.fixture
def few(tmp_path: Path) -> Path:
    """Six stores; four are damaged."""
    return filled(tmp_path / "stores", 2)


def filled(stores: Path, rounds: int) -> Path:
    for number in range(rounds):
        below = stores / f"machine-{number % 3}"
        below.mkdir(parents=True, exist_ok=True)
        case = goose_stores.orphan_tool_request if number < 4 else goose_stores.one_call
        goose_stores.built(below / f"goose-{number}.db", case)
        claude = below / f"claude-{number}"
        claude.mkdir()
        item_stores.made(item_stores.Claude, claude, item_stores.Claude.records())
        hermes_stores.damaged(
            below / f"state-{number}.db", "orphan_user"
        ) if number < 2 else _sound(below, number)
    (stores / "notes.txt").write_text("nothing")
    return stores


def _sound(below: Path, number: int) -> None:
    book = hermes_stores.Book(below / f"state-{number}.db")
    hermes_stores.plain(book, "sound")
    book.close()


def files_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_thirty_stores_are_examined_with_totals_at_the_end(folder: Path) -> None:
    told = command("doctor", folder, "--json").json
    assert len(told["stores"]) == 30
    totals = told["totals"]
    assert (totals["stores"], totals["healthy"], totals["unreadable"]) == (30, 24, 0)
    assert totals["sessions"] == sum(store["sessions"] for store in told["stores"])
    assert totals["messages"] == sum(store["messages"] for store in told["stores"])
    assert totals["rules"] == {"goose/orphan-tool-request": 4, "hermes/orphan-user": 2}
    assert sum(totals["severities"].values()) == sum(totals["policies"].values()) == 6
    assert totals["not_examined"] == {}

    done = command("doctor", folder)
    assert done.code == 1
    end = done.out[done.out.index("30 stores") :]
    assert "24 are healthy" in end and "6 findings" in end
    assert "goose/orphan-tool-request" in end and "4 findings in 4 stores" in end
    cause = "Remedy (auto)" if "Remedy (auto)" in done.out else "Remedy (mark)"
    assert done.out.count(cause) <= 2, "a rule is explained once, not once for each store"


def test_a_single_store_is_told_without_totals_to_people_and_with_them_to_programs(
    few: Path,
) -> None:
    path = few / "machine-0" / "goose-0.db"
    assert "1 store" not in command("doctor", path).out
    assert command("doctor", path, "--json").json["totals"]["stores"] == 1


@pytest.mark.slow
def test_a_folder_is_healed_into_a_folder_in_one_go(folder: Path, tmp_path: Path) -> None:
    before = {name: (folder / name).read_bytes() for name in files_in(folder)}
    out = tmp_path / "healed"
    done = command("doctor", folder, "--heal", out, "--json")
    assert done.code == 0
    told = done.json
    assert told["healed"]["out"] == str(out) and told["healed"]["as"] == "holdfast"
    healed = told["healed"]["stores"]
    assert [store["path"] for store in healed] == [store["path"] for store in told["stores"]]
    assert all(Path(store["out"]).is_file() and store["left"] == [] for store in healed)
    assert files_in(out) == {str(Path(store["out"]).relative_to(out)) for store in healed}, (
        "nothing else"
    )
    assert (told["totals"]["changes"], told["totals"]["left"]) == (6, 0)
    assert {name: (folder / name).read_bytes() for name in files_in(folder)} == before
    assert {path.name for path in tmp_path.iterdir()} == {"stores", "healed"}
    assert command("doctor", out).code == 0
    with holdfast.open(out / "machine-0" / "goose-0.db") as store:
        assert len(list(store.sessions())) == 1


def test_what_was_changed_is_told_to_people_by_store(few: Path, tmp_path: Path) -> None:
    done = command("doctor", few, "--heal", tmp_path / "healed")
    assert done.code == 0
    end = done.out[done.out.rindex("6 stores") :]
    assert "4 changes" in end and f"the healed copies are in {tmp_path / 'healed'}" in end
    assert str(tmp_path / "healed" / "machine-0" / "goose-0.db") in done.out


def test_healing_a_folder_again_gives_the_same_bytes(few: Path, tmp_path: Path) -> None:
    outs = [tmp_path / "one", tmp_path / "two"]
    for out in outs:
        command("doctor", few, "--heal", out)
    one, two = ({name: (out / name).read_bytes() for name in files_in(out)} for out in outs)
    assert one == two and len(one) == 6


def test_stores_with_the_same_name_keep_apart(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        goose_stores.built(tmp_path / name / "sessions.db", goose_stores.orphan_tool_request)
    (tmp_path / "a" / "x.jsonl").write_bytes(
        item_stores.made(item_stores.Claude, tmp_path, item_stores.Claude.records()).read_bytes()
    )
    goose_stores.built(tmp_path / "a" / "x.jsonl.db", goose_stores.one_call)
    done = command("doctor", tmp_path / "a", tmp_path / "b", "--heal", tmp_path / "out", "--json")
    assert done.code == 0
    outs = [store["out"] for store in done.json["healed"]["stores"]]
    assert len(set(outs)) == 4 and all(Path(out).is_file() for out in outs)


def test_a_folder_with_one_store_is_healed_into_a_folder_if_it_is_asked_for_with_a_slash(
    tmp_path: Path,
) -> None:
    (tmp_path / "one").mkdir()
    goose_stores.built(tmp_path / "one" / "sessions.db", goose_stores.orphan_tool_request)
    assert command("doctor", tmp_path / "one", "--heal", f"{tmp_path / 'folder'}/").code == 0
    assert files_in(tmp_path / "folder") == {"sessions.db"}
    assert command("doctor", tmp_path / "one", "--heal", tmp_path / "file").code == 0
    assert (tmp_path / "file").is_file()


@pytest.mark.slow
def test_a_store_that_can_t_be_read_keeps_none_of_the_others_from_healing(tmp_path: Path) -> None:
    stores = tmp_path / "stores"
    stores.mkdir()
    goose_stores.built(stores / "a.db", goose_stores.orphan_tool_request)
    torn = goose_stores.built(stores / "b.db", goose_stores.one_call)
    torn.write_bytes(torn.read_bytes()[:5000])
    goose_stores.built(stores / "c.db", goose_stores.orphan_tool_request)
    bad = tmp_path / "words.txt"
    bad.write_text("no store")
    done = command("doctor", stores, bad, "--heal", tmp_path / "out", "--json")
    assert done.code == 3
    assert done.json["totals"]["unreadable"] >= 1
    lost = [store for store in done.json["healed"]["stores"] if store["out"] is None]
    assert str(bad) in [store["path"] for store in lost]
    assert {"a.db", "c.db"} <= {Path(name).name for name in files_in(tmp_path / "out")}
    said = command("doctor", stores, bad, "--heal", tmp_path / "again").out
    assert "can't be read" in said


def test_a_folder_of_which_nothing_can_be_read_leaves_nothing(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("no store")
    assert (
        command("doctor", tmp_path / "a.txt", tmp_path / "b.txt", "--heal", tmp_path / "out").code
        == 3
    )
    assert {path.name for path in tmp_path.iterdir()} == {"a.txt", "b.txt"}


def test_a_folder_of_several_kinds_is_not_healed_as_one_of_them(few: Path, tmp_path: Path) -> None:
    done = command("doctor", few, "--heal", tmp_path / "out", "--as", "hermes")
    assert done.code == 2 and "holdfast" in done.err and not (tmp_path / "out").exists()


def test_several_stores_of_one_kind_are_healed_as_that_kind(tmp_path: Path) -> None:
    stores = tmp_path / "stores"
    stores.mkdir()
    for name in ("a.db", "b.db"):
        hermes_stores.damaged(stores / name, "orphan_user")
    assert command("doctor", stores, "--heal", tmp_path / "out", "--as", "hermes").code == 0
    assert files_in(tmp_path / "out") == {"a.db", "b.db"}
    assert {
        store["kind"] for store in command("doctor", tmp_path / "out", "--json").json["stores"]
    } == {"hermes"}


def test_a_folder_without_a_store_is_told_as_that(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = command("doctor", tmp_path / "empty")
    assert done.code == 3 and "There is no store in this folder." in done.out


@pytest.mark.slow
def test_progress_is_shown_on_a_terminal_and_nowhere_else(few: Path) -> None:
    done = command("doctor", few)
    assert done.err == "" and "%" not in done.out
    seen = on_terminal("doctor", few, columns=100)
    assert "\r[" in seen.out and "of 6 stores" in seen.out
    assert "\r[" not in on_terminal("doctor", few, columns=100, TERM="dumb").out


def test_a_store_whose_name_is_as_long_as_can_be_is_healed_with_the_others(tmp_path: Path) -> None:
    """Nothing more can be written into the folder beside such a file, neither by the doctor nor by
    SQLite.
    """
    stores = filled(tmp_path / "stores", 1)
    for letter in ("é", "e"):
        built = goose_stores.built(tmp_path / f"{letter}.db", goose_stores.orphan_tool_request)
        name = letter * (252 // len(letter.encode()))
        Path(built).rename(stores / f"{name}.db")
        (stores / f"{name[:-1]}x.db").write_bytes((stores / f"{name}.db").read_bytes())
    told = command("doctor", stores, "--heal", tmp_path / "healed", "--json").json
    healed = [store["out"] for store in told["healed"]["stores"] if "machine" not in store["out"]]
    assert len(set(healed)) == 4
    for path in healed:
        with holdfast.open(path) as store:
            assert len(store.sessions()) == 1
