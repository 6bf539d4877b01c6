"""A session whose id, tenant or key is damaged takes no other with it, and is told by all who look
(I-18, I-25; FAULTS G3).
"""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import commanding
import holdfast
from holdfast.errors import Damaged
from thorough import few_cases

NO_TEXT = "CAST(? AS TEXT)"


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("healthy") / "agent.db"
    with holdfast.open(path, durability="process") as store:
        for key in ("one", "two"):
            with store.session(key).turn(f"question of {key}") as turn:
                turn.say(f"answer of {key}")
    return path


@pytest.fixture
def path(healthy: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(healthy, tmp_path))


def spoil(path: Path, sql: str, *values: Any) -> None:
    with closing(sqlite3.connect(path)) as db:
        assert db.execute(sql, values).rowcount == 1
        db.commit()


def value_of(path: Path, column: str) -> bytes:
    with closing(sqlite3.connect(path)) as db:
        value: str = db.execute(f"SELECT {column} FROM session WHERE n = 1").fetchone()[0]
        return value.encode()


def told_and_healed(path: Path) -> list[list[str]]:
    """All who look tell of it; what the healed copy says, session by session."""
    assert commanding.command("store", "check", "--store", path).code == 1
    looked = commanding.command("doctor", path, "--json")
    assert looked.code == 1 and looked.json["stores"][0]["findings"], looked.err
    copied = commanding.command("copy", path, path.parent / "copy.db")
    assert copied.code == 1, copied.err
    with holdfast.open(path.parent / "copy.db") as copy:
        assert "two" in [info.key for info in copy.sessions()]
    healed = path.parent / "healed.db"
    done = commanding.command("doctor", path, "--heal", healed, "--json")
    assert done.code == 0, done.err
    assert commanding.command("store", "check", "--store", healed).code == 0
    with holdfast.open(healed) as store:
        keys = sorted(info.key or "" for info in store.sessions())
        assert keys == ["one", "two"]
        return [[message.text for message in store.session(key).transcript()] for key in keys]


BOTH = [["question of one", "answer of one"], ["question of two", "answer of two"]]


@pytest.mark.parametrize("column", ["id", "tenant", "key"])
def test_a_bit_of_a_name(path: Path, column: str) -> None:
    first, *rest = value_of(path, column)
    spoilt = bytes([first | 0x80, *rest])
    spoil(path, f"UPDATE session SET {column} = {NO_TEXT} WHERE n = 1", spoilt)
    with holdfast.open(path) as store:
        # One without a key that can be asked for is there by its id.
        assert [info.key for info in store.sessions()] == ["two", None][: 1 + (column == "key")]
        assert store.check()
        assert store.backup(path.parent / "backup.db").sessions == 2
    assert told_and_healed(path) == BOTH


@few_cases(every=2)
@pytest.mark.parametrize("id", [b"abc", "", "x\0y", "not-a-uuid", b"\xff\xfe"], ids=repr)
def test_an_id_that_no_session_can_have(path: Path, id: Any) -> None:
    spoil(path, "UPDATE session SET id = ? WHERE n = 1", id)
    assert told_and_healed(path) == BOTH


def test_a_bit_of_an_entrys_kind_takes_no_list_away(path: Path) -> None:
    spoilt = b"\xf4urn"
    spoil(
        path,
        f"UPDATE entry SET kind = {NO_TEXT} WHERE session = 1 AND kind = 'turn'",
        spoilt,
    )
    with holdfast.open(path) as store:
        assert sorted(info.key or "" for info in store.sessions()) == ["one", "two"]
    assert told_and_healed(path)[1] == BOTH[1]


@pytest.mark.parametrize("seq", [50_000_000, (1 << 63) - 1])
def test_a_seq_that_no_log_can_have(path: Path, seq: int) -> None:
    """Neither is filled up to there: the entry stands where it arrived."""
    last = "SELECT max(n) FROM entry WHERE session = 1"
    spoil(path, f"UPDATE entry SET seq = ? WHERE n = ({last})", seq)
    assert told_and_healed(path) == BOTH
    with holdfast.open(path) as store:
        store.session("two").append("more")
        if seq > 1 << 53:
            with pytest.raises(Damaged):
                store.session("one").append("more")


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_a_page_of_sessions_is_not_cut_short_by_one_that_can_not_be_asked_for(
    tmp_path: Path, limit: int
) -> None:
    path = tmp_path / "many.db"
    with holdfast.open(path, durability="process") as store:
        for number in range(6):
            store.session(f"k{number}").append("words")
    for key, id in (("k4", b"\xfe"), ("k3", b"\xfd"), ("k1", b"\xff")):
        spoil(path, "UPDATE session SET id = ? WHERE key = ?", id, key)
    with holdfast.open(path) as store:
        page = store.sessions(limit=limit)
        found = [info.key for info in page]
        while page.next:
            page = store.sessions(limit=limit, after=page.next)
            found += [info.key for info in page]
    assert found == ["k5", "k2", "k0"]
