"""One damaged cell of a Holdfast store takes nothing but its row: whatever SQLite hands out there, the
doctor examines and heals the rest (I-18, I-25; FAULTS G3).
"""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import commanding
import holdfast
from thorough import few_cases

LAST, FIRST = "SELECT max(n) FROM entry WHERE {}", "SELECT min(n) FROM entry WHERE {}"
NO_JSON, NO_TEXT = b'{"role":"tool"x', b'{"role":"\xff"}'
# What SQLite takes in any column, whatever the type of that is.
ENTRY = [
    ("note", 7),
    ("body", 0),
    ("seq", b"\xff"),
    ("id", -1),
    ("id", "text"),
    ("at", b"\xff"),
    ("turn", "text"),
    ("kind", b"\xff"),
]
SESSION = [
    ("base", "text"),
    ("origin", b"\xff"),
    ("epoch", "text"),
    ("ended", "text"),
    ("fence", 1.5),
    ("opened_at", b"\xff"),
    ("active_at", "text"),
    ("holder", b"\xff"),
    ("tenant", b"default"),
]
BESIDE = [("inbox", "message"), ("event", "message")]


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("healthy") / "agent.db"
    with holdfast.open(path) as store:
        for key in ("a", "b"):
            session = store.session(key)
            for number in range(3):
                with session.turn(f"question {number}") as turn:
                    turn.call("look", {}, call_id="c")
                    turn.result("c", "seen")
                    turn.say(f"answer {number} of {key}")
        session.compact("all of it", keep_turns=1)
        store.session("a").fork(key="f")
        store.accept("b", "waits", event_id="e")
    return path


@pytest.fixture
def path(healthy: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(healthy, tmp_path))


def spoil(path: Path, sql: str, *values: Any) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA ignore_check_constraints=ON")
        assert db.execute(sql, values).rowcount == 1
        db.commit()


def examined_and_healed(path: Path) -> Path:
    """It is told by all who look, and the healed copy can be read from end to end."""
    looked = commanding.command("doctor", path, "--json")
    assert looked.code == 1, looked.err
    found = looked.json["stores"][0]
    assert found["findings"] and found["sessions"] >= 2
    assert commanding.command("store", "check", "--store", path).code == 1
    healed = path.parent / "healed.db"
    done = commanding.command("doctor", path, "--heal", healed, "--json")
    assert done.code in (0, 1), done.err
    left = done.json["healed"]["left"]
    assert all(one["policy"] == "report" for one in left), left
    listed = commanding.command("sessions", "list", "--store", healed, "--json").json["sessions"]
    assert len(listed) >= 2
    for one in listed:
        for form in ("holdfast", "openai.chat"):
            exported = commanding.command("export", one["id"], "--as", form, "--store", healed)
            assert exported.code == 0, exported.err
    assert commanding.command("sessions", "list", "--store", path).code == 0
    copied = commanding.command("copy", path, path.parent / "copy.db")
    assert copied.code in (0, 1), copied.err
    return healed


@few_cases(every=2)
@pytest.mark.parametrize("note", [NO_JSON, NO_TEXT])
def test_a_note_in_a_past_that_a_fork_shares(path: Path, note: bytes) -> None:
    where = FIRST.format("kind = '' AND typeof(note) = 'blob'")
    spoil(path, f"UPDATE entry SET note = ? WHERE n = ({where})", note)
    healed = examined_and_healed(path)
    with holdfast.open(healed) as store:
        assert "answer 2 of a" in [m.text for m in store.session("f").transcript()]
        assert "answer 2 of b" in [m.text for m in store.session("b").transcript()]


@few_cases(every=3)
@pytest.mark.parametrize(("column", "value"), ENTRY, ids=str)
def test_a_cell_of_an_entry(path: Path, column: str, value: Any) -> None:
    where = LAST.format("kind = 'end'")
    spoil(path, f"UPDATE entry SET {column} = ? WHERE n = ({where})", value)
    examined_and_healed(path)


@few_cases(every=3)
@pytest.mark.parametrize(("column", "value"), SESSION, ids=str)
def test_a_cell_of_a_session(path: Path, column: str, value: Any) -> None:
    spoil(path, f"UPDATE session SET {column} = ? WHERE key = 'b'", value)
    examined_and_healed(path)


@few_cases(every=2)
@pytest.mark.parametrize(("table", "column"), BESIDE)
def test_a_cell_beside_the_log(path: Path, table: str, column: str) -> None:
    spoil(path, f"UPDATE {table} SET {column} = ?", "text")
    examined_and_healed(path)


def test_a_definition_of_a_table_that_lost_a_letter(path: Path) -> None:
    raw = path.read_bytes()
    assert raw.count(b"    body    BLOB") >= 1
    path.write_bytes(raw.replace(b"    body    BLOB", b"    bodx    BLOB"))
    looked = commanding.command("doctor", path, "--json")
    assert looked.code == 3, looked.err
    assert [one["rule"] for one in looked.json["stores"][0]["findings"]] == [
        "holdfast/unreadable-store"
    ]
    assert "defect" not in looked.out


@few_cases(every=3)
@pytest.mark.parametrize("origin", [2**63 - 1, 2**62, 10**9, -(2**63)])
def test_a_past_that_no_file_can_hold_is_told_by_the_first_entry(path: Path, origin: int) -> None:
    spoil(path, "UPDATE session SET origin = ? WHERE key = 'a'", origin)
    healed = examined_and_healed(path)
    with holdfast.open(healed, read_only=True) as store:
        texts = [message.text for message in store.session("a", create=False).transcript()]
    assert [text for text in texts if text.startswith("answer")] == [
        f"answer {number} of a" for number in range(3)
    ]
