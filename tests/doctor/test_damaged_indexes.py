"""An index that is damaged takes nothing from a healed store: what the tables hold is all there, in
its place (I-18, I-25; FAULTS G3).
"""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

import commanding
import holdfast
from thorough import few_cases

PAGE = 4096
ENTRIES = """
SELECT session.id, session.tenant, session.key, entry.seq, entry.kind, entry.turn, entry.id, entry.body
FROM entry NOT INDEXED JOIN session NOT INDEXED ON session.n = entry.session ORDER BY 1, 4
"""


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("healthy") / "agent.db"
    with holdfast.open(path, durability="process") as store:
        for key in ("one", "two", "three"):
            with store.session(key).turn(f"question of {key}") as turn:
                turn.say(f"answer of {key}")
        for number in range(3):
            with store.session("two").turn(f"again {number}") as turn:
                turn.say(f"said {number}")
    return path


@pytest.fixture
def path(healthy: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(healthy, tmp_path))


def rows(path: Path) -> list[Any]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute(ENTRIES).fetchall()


def root_of(path: Path, name: str) -> int:
    with closing(apsw.Connection(str(path))) as db:
        root: int = db.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (name,)).get
        return (root - 1) * PAGE


def damage(path: Path, name: str, change: Callable[[bytearray], None]) -> None:
    """Changes the bytes of the one page that an index or a table has."""
    data = bytearray(path.read_bytes())
    at = root_of(path, name)
    page = data[at : at + PAGE]
    change(page)
    assert page != data[at : at + PAGE]
    data[at : at + PAGE] = page
    path.write_bytes(data)


def flipped(seq: int, byte: int, bit: int) -> Callable[[bytearray], None]:
    """A bit of what the index says of an entry of session 2: its seq, or the number of its row."""

    def change(page: bytearray) -> None:
        # four columns in the header: lengths and types; then session, seq and row
        at = page.index(bytes([4, 1, 1, 1, 2, seq]))
        page[at + byte] ^= bit

    return change


def zeroed(page: bytearray) -> None:
    page[:] = bytes(len(page))


def healed(path: Path) -> Path:
    out = path.parent / "healed.db"
    done = commanding.command("doctor", path, "--heal", out, "--json")
    assert done.code == 0, done.err
    assert done.json["healed"]["changes"]
    assert commanding.command("store", "check", "--store", out).code == 0
    return out


INDEXES = [
    "entry_by_seq",
    "entry_labels",
    "session_by_activity",
    "session_by_key",
    "sqlite_autoindex_session_1",
]


@few_cases(every=2)
@pytest.mark.parametrize("name", INDEXES)
def test_a_zeroed_page_of_an_index_takes_no_entry(path: Path, name: str) -> None:
    before = rows(path)
    damage(path, name, zeroed)
    assert rows(healed(path)) == before


@few_cases(every=2)
@pytest.mark.parametrize(
    ("byte", "bit"),
    [(5, 8), (5, 64), (6, 1), (6, 16), (4, 1)],
    ids=["seq", "far seq", "row", "another row", "session"],
)
def test_a_bit_of_an_index_takes_no_entry(path: Path, byte: int, bit: int) -> None:
    before = rows(path)
    damage(path, "entry_by_seq", flipped(5, byte, bit))
    assert rows(path) == before, "the table is whole"
    assert rows(healed(path)) == before


@few_cases(every=3)
@pytest.mark.parametrize("seq", [0, 6, 13, 69, 1 << 40, (1 << 63) - 1, "text", b"\xff"])
def test_an_entry_whose_place_is_damaged_stands_where_it_arrived(path: Path, seq: Any) -> None:
    """Its row says another place, and the index the right one."""
    before = rows(path)
    misplace(path, "UPDATE entry SET seq = ? WHERE session = 2 AND seq = 5", seq)
    assert rows(healed(path)) == before


@few_cases(every=2)
@pytest.mark.parametrize("session", [1, 3, 77, "text"])
def test_an_entry_that_seems_to_be_anothers_is_given_back(path: Path, session: Any) -> None:
    before = rows(path)
    misplace(path, "UPDATE entry SET session = ? WHERE session = 2 AND seq = 5", session)
    assert rows(healed(path)) == before


def misplace(path: Path, sql: str, value: Any) -> None:
    """Changes a row behind the back of its index."""
    with closing(apsw.Connection(str(path))) as db:
        index = db.execute("SELECT sql FROM sqlite_master WHERE name = 'entry_by_seq'").get
        root = root_of(path, "entry_by_seq") // PAGE + 1
        db.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
        db.execute(
            "PRAGMA writable_schema=ON; DELETE FROM sqlite_master WHERE name = 'entry_by_seq'"
        )
    with closing(apsw.Connection(str(path))) as db:
        db.execute(sql, (value,))
        assert db.changes() == 1
        db.execute("PRAGMA writable_schema=ON")
        db.execute(
            "INSERT INTO sqlite_master VALUES ('index', 'entry_by_seq', 'entry', ?, ?)",
            (root, index),
        )


def test_sessions_whose_rows_are_lost_are_known_by_their_entries(path: Path) -> None:
    before = rows(path)
    damage(path, "session", zeroed)
    assert rows(healed(path)) == before, "ids, tenants and keys are in the indexes"


@pytest.mark.parametrize(("byte", "bit"), [(5, 8), (6, 1)], ids=["seq", "row"])
def test_a_copy_does_not_believe_a_damaged_index(path: Path, byte: int, bit: int) -> None:
    """The session is told, and is not copied as something that it is not; the others are."""
    damage(path, "entry_by_seq", flipped(5, byte, bit))
    copied = holdfast.copy(path, path.parent / "copy.db")
    with holdfast.open(path) as store:
        [apart] = copied.differences
        assert apart.session_id == store.session("two").id and "index" in apart.problem
    assert copied.sessions == 2


def test_a_copy_tells_of_sessions_that_an_index_hides(path: Path) -> None:
    damage(path, "sqlite_autoindex_session_1", lambda page: page.__setitem__(4, page[4] ^ 1))
    copied = commanding.command("copy", path, path.parent / "copy.db")
    assert copied.code in (1, 5), copied.err
