"""Tables of damaged SQLite stores: every row that SQLite itself can find is read, and what is lost
is told exactly.

What can be found is asked of SQLite in the plainest way there is, `SELECT … WHERE rowid = ?`, one
id after the other.
"""

import gzip
import json
import shutil
import sqlite3
from pathlib import Path

import pytest

import holdfast
import item_stores
from commanding import command
from goose_stores import GooseStore, text
from holdfast.errors import StoreUnavailable
from holdfast.importers import damaged_rows, detect
from holdfast.importers.goose.reader import GooseReader
from holdfast.importers.hermes.database import HermesStore
from holdfast.importers.sqlite_file import SqliteFile
from thorough import few_cases

SAMPLES = Path(__file__).resolve().parents[1] / "samples"
PAGE = 4096
LONG = "word " * 40


def agents_store(path, count=90):
    records = item_stores.Agents.records()[:1] * count
    item_stores.Agents.write(
        path, [{**record, "content": f"Line {n}. {LONG}"} for n, record in enumerate(records)]
    )
    with sqlite3.connect(path) as database:
        database.execute(
            "UPDATE agent_messages SET session_id = 't' WHERE id > ?", (count * 2 // 3,)
        )
    database.close()
    return path


def goose_store(path, count=60):
    with GooseStore(path) as store:
        for number in range(count):
            if number % 20 == 0:
                store.session(f"20260921_{number}")
            store.say("user" if number % 2 == 0 else "assistant", text(f"Line {number}. {LONG}"))
    return path


def hermes_store(path, count=60):
    path.write_bytes(gzip.decompress((SAMPLES / "hermes-0.19.0.db.gz").read_bytes()))
    with sqlite3.connect(path) as database:
        names = [name for (name,) in database.execute("SELECT id FROM sessions ORDER BY id")]
        for number in range(count):
            row = (
                names[number // 20 % len(names)],
                "user",
                f"Line {number}. {LONG}",
                1_790_000_000.0 + number,
            )
            database.execute(
                "INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, ?, ?, ?)",
                row,
            )
    database.close()
    return path


STORES = {
    "agents": (agents_store, "agent_messages"),
    "goose": (goose_store, "messages"),
    "hermes": (hermes_store, "messages"),
}
REAL = {
    "agents": "agents-0.24.0/responses-calls-side-by-side/sessions.db.gz",
    "goose": "goose-1.52.0/turns-with-a-tool/sessions.db.gz",
    "hermes": "hermes-0.19.0/turns-with-a-tool/state.db.gz",
}
programs = pytest.mark.parametrize("program", STORES)


def real_store(program, path, count=120):
    """A store that the program made, with its messages again and again so that they fill some
    pages.
    """
    path.write_bytes(gzip.decompress((SAMPLES / REAL[program]).read_bytes()))
    table = STORES[program][1]
    with sqlite3.connect(path) as database:
        names = ", ".join(
            name for _, name, *_ in database.execute(f"PRAGMA table_info({table})") if name != "id"
        )
        while database.execute(f"SELECT count(*) FROM {table}").fetchone()[0] < count:
            database.execute(
                f"INSERT INTO {table} ({names}) SELECT {names} FROM {table} ORDER BY id LIMIT 10"
            )
    database.close()
    return path


def opened(program, path):
    return HermesStore(path) if program == "hermes" else detect.open_reader(program, path)


def rows_read(program, path):
    """The ids of the rows that a reader reads or tells one by one, and the places of the stretches
    that it tells.
    """
    store = opened(program, path)
    try:
        if program == "hermes":
            read = [row.id for session in store.sessions for row in store.iterate(session)]
            told = store.file.problems
        else:
            read = [_number(line.place) for story in store.sessions() for line in story.lines]
            told = store.unreadable()
    finally:
        store.close()
    assert len(read) == len(set(read))
    return set(read), [one.place for one in told]


def _number(place):
    return int(place.replace("=", " ").split(" ")[-1])


def rows_there(program, path, last=200):
    """The ids of the rows that SQLite finds one by one; None when it does not even know
    the table.
    """
    database = sqlite3.connect(path)
    database.text_factory = bytes
    found = set()
    try:
        for id in range(last):
            try:
                query = f"SELECT * FROM {STORES[program][1]} WHERE rowid = ?"
                found |= {id for _ in database.execute(query, (id,)).fetchall()}
            except sqlite3.DatabaseError:
                continue
        return found
    finally:
        database.close()


@pytest.mark.slow
@programs
def test_whichever_page_is_gone_every_row_that_can_be_found_is_read(tmp_path, program):
    whole = real_store(program, tmp_path / "whole.db").read_bytes()
    everything = rows_there(program, tmp_path / "whole.db")
    damaged, cost = tmp_path / "damaged.db", 0
    for page in range(1, len(whole) // PAGE):
        damaged.write_bytes(whole[: page * PAGE] + bytes(PAGE) + whole[(page + 1) * PAGE :])
        there = rows_there(program, damaged)
        try:
            read, told = rows_read(program, damaged)
        except StoreUnavailable:
            assert not there
            continue
        assert read == there, page
        lost = sorted(everything - there)
        if lost and there:
            cost += 1
            ends = [
                str(lost[0]) if lost[0] > 1 else "first",
                str(lost[-1]) if lost[-1] < max(everything) else "end",
            ]
            [place] = [place for place in told if place.startswith(f"{STORES[program][1]}, ")]
            assert all(end in place for end in ends), place
    assert cost > 2


def leaf_cells(raw, root):
    """Where in a file the rowids of a table stand that are one byte long, by the rowid."""
    found = {}
    start = (root - 1) * PAGE
    for place in range(int.from_bytes(raw[start + 3 : start + 5], "big")):
        head = 12 if raw[start] == 5 else 8
        cell = start + int.from_bytes(
            raw[start + head + 2 * place : start + head + 2 * place + 2], "big"
        )
        if raw[start] == 5:
            found |= leaf_cells(raw, int.from_bytes(raw[cell : cell + 4], "big"))
        else:
            size = 1 if raw[cell] < 128 else 2
            found[raw[cell + size]] = cell + size
    return found | (
        leaf_cells(raw, int.from_bytes(raw[start + 8 : start + 12], "big"))
        if raw[start] == 5
        else {}
    )


@pytest.mark.slow
@few_cases(every=4)
@programs
@pytest.mark.parametrize("wrong", [0, 33, 127])
def test_one_wrong_rowid_costs_no_row_that_can_be_found(tmp_path, program, wrong):
    path = STORES[program][0](tmp_path / "whole.db")
    database = sqlite3.connect(path)
    query = "SELECT rootpage FROM sqlite_schema WHERE name = ?"
    [(root,)] = database.execute(query, (STORES[program][1],)).fetchall()
    database.close()
    whole = path.read_bytes()
    cells = leaf_cells(whole, root)
    assert len(cells) > 50
    for id in sorted(cells)[::7]:
        damaged = bytearray(whole)
        damaged[cells[id]] = wrong
        path.write_bytes(damaged)
        there = rows_there(program, path)
        read, told = rows_read(program, path)
        assert there <= read, id
        assert told or len(read) == len(cells)


def test_rows_whose_ids_lie_far_apart_are_found_behind_a_damaged_page(tmp_path):
    path = agents_store(tmp_path / "s.db")
    database = sqlite3.connect(path)
    database.execute("UPDATE agent_messages SET id = -id")
    database.execute("UPDATE agent_messages SET id = -id * 1000000")
    database.commit()
    database.execute("VACUUM")
    database.close()
    whole = bytearray(path.read_bytes())
    page = whole.index(b"Line 40. word") // PAGE
    whole[page * PAGE : (page + 1) * PAGE] = bytes(PAGE)
    path.write_bytes(whole)
    database = sqlite3.connect(path)
    there = set()
    for id in range(1_000_000, 91_000_000, 1_000_000):
        try:
            there |= {
                id
                for _ in database.execute(
                    "SELECT * FROM agent_messages WHERE id = ?", (id,)
                ).fetchall()
            }
        except sqlite3.DatabaseError:
            continue
    database.close()
    read, told = rows_read("agents", path)
    assert 40 < len(there) < 90 and read == there
    [gap] = [place for place in told if place.startswith("agent_messages, row ")]
    lost = set(range(1_000_000, 91_000_000, 1_000_000)) - there
    assert (
        gap.split()[2] == str(min(lost) - 999_999)
        and min(lost) < int(gap.split()[-1]) < max(lost) + 1_000_000
    )


def test_what_was_not_looked_for_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(damaged_rows, "NEAR", 5)
    monkeypatch.setattr(damaged_rows, "ASKED_MAX", 8)
    path = agents_store(tmp_path / "s.db")
    whole = bytearray(path.read_bytes())
    page = whole.index(b"Line 40. word") // PAGE
    whole[page * PAGE : (page + 1) * PAGE] = bytes(PAGE)
    path.write_bytes(whole)
    file = SqliteFile(path)
    read = {rowid for (rowid,) in file.scan("agent_messages", ())}
    assert read == rows_there("agents", path)  # one stretch is halved until its end is known
    assert "not every id" in file.problems[0].problem
    file.close()


BAD = "CAST(x'ad41' AS TEXT)"


def changed(program, path, *statements):
    STORES[program][0](path, 30)
    database = sqlite3.connect(path)
    for statement in statements:
        database.execute(statement)
    database.commit()
    database.close()
    return path


@pytest.mark.parametrize(
    ("program", "column"),
    [("agents", "created_at"), ("goose", "created_timestamp"), ("hermes", "timestamp")],
)
def test_a_time_that_is_no_text_costs_itself_and_no_words(tmp_path, program, column):
    whole, _ = rows_read(program, STORES[program][0](tmp_path / "whole.db", 30))
    path = changed(
        program,
        tmp_path / "s.db",
        f"UPDATE {STORES[program][1]} SET {column} = {BAD} WHERE id = 12",
    )
    read, _ = rows_read(program, path)
    assert read == whole
    assert command("import", path, "--into", tmp_path / "agent.db").code == 0
    with holdfast.open(tmp_path / "agent.db") as store:
        said = json.dumps(
            [
                str(message.text)
                for one in store.sessions()
                for message in store.get(one.id).transcript()
            ]
        )
    assert said.count("Line ") == 30


@pytest.mark.slow
@few_cases(every=2)
@programs
@pytest.mark.parametrize("value", ["x'00ff'", BAD], ids=["bytes", "no-utf8"])
def test_a_message_that_names_no_session_in_words_is_kept_under_a_made_name(
    tmp_path, program, value
):
    whole, _ = rows_read(program, STORES[program][0](tmp_path / "whole.db", 30))
    path = changed(
        program,
        tmp_path / "s.db",
        f"UPDATE {STORES[program][1]} SET session_id = {value} WHERE id = 12",
    )
    assert rows_read(program, path)[0] == whole
    told = command("import", path, "--into", tmp_path / "agent.db", "--json")
    assert told.code == 0 and told.json["stores"][0]["messages"] == len(whole)
    assert command("doctor", path).code in (0, 1)
    assert command("doctor", path, "--heal", tmp_path / "healed.db").code in (0, 1)


@few_cases(every=2)
@programs
@pytest.mark.parametrize("value", ["x'00ff'", BAD], ids=["bytes", "no-utf8"])
def test_a_session_whose_id_is_no_text_stops_no_other(tmp_path, program, value):
    table, column = ("agent_sessions", "session_id") if program == "agents" else ("sessions", "id")
    whole, _ = rows_read(program, STORES[program][0](tmp_path / "whole.db", 30))
    statement = (
        f"UPDATE {table} SET {column} = {value} WHERE rowid = (SELECT min(rowid) FROM {table})"
    )
    path = changed(program, tmp_path / "s.db", statement)
    assert rows_read(program, path)[0] == whole
    assert command("import", path, "--into", tmp_path / "agent.db").code == 0
    assert command("doctor", path, "--heal", tmp_path / "healed.db").code in (0, 1)


def test_a_number_that_is_none_in_json_stops_no_import_of_goose(tmp_path):
    path = changed("goose", tmp_path / "s.db", "UPDATE messages SET tokens = 9e999 WHERE id = 6")
    told = command("import", path, "--into", tmp_path / "agent.db", "--json")
    assert told.code == 0 and told.json["stores"][0]["messages"] == 30
    assert command("doctor", path, "--heal", tmp_path / "healed.db").code in (0, 1)


def test_a_column_that_computes_too_much_is_not_read(tmp_path):
    huge = (
        "ALTER TABLE messages ADD COLUMN g TEXT GENERATED ALWAYS AS (hex(zeroblob(100000000))) "
        "VIRTUAL"
    )
    path = changed("goose", tmp_path / "s.db", huge)
    shelf = GooseReader(path)
    assert sum(len(list(story.lines)) for story in shelf.sessions()) == 30
    [told] = shelf.unreadable()
    assert "can't check" in told.problem and "damaged" not in told.problem
    shelf.close()


def test_sessions_that_cant_be_read_stop_the_healing_of_no_other(tmp_path):
    path = changed(
        "agents",
        tmp_path / "s.db",
        "UPDATE agent_messages SET message_data = 'cut' WHERE session_id = 't'",
    )
    told = command("doctor", path, "--json").json["totals"]["rules"]
    assert set(told) == {"agents/unreadable-record"}
    assert command("doctor", path, "--heal", tmp_path / "healed.db").code in (0, 1)
    assert command("doctor", tmp_path / "healed.db").code == 0
    shutil.rmtree(tmp_path / "healed.db", ignore_errors=True)
    nothing = changed("agents", tmp_path / "n.db", "UPDATE agent_messages SET message_data = 'cut'")
    assert "agents/unreadable-store" in command("doctor", nothing, "--json").json["totals"]["rules"]
