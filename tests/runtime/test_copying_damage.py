"""Copying a file of which cells were changed: no session is left out without a word, and nothing that
was altered looks sound in the target (I-14, I-18, I-25).
"""

import contextlib
from pathlib import Path
from typing import Any

import apsw
import pytest

import holdfast
from holdfast import copy
from holdfast.runtime.transfer import copy_order
from thorough import few_cases

LARGE = "B" * 100_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Two sessions, a fork of the first, and one of that."""
    path = tmp_path / "agent.db"
    with holdfast.open(path, durability="process") as store:
        for key in ("a", "b"):
            with store.session(key).turn(f"question of {key}") as turn:
                turn.say(f"answer to {key}")
        fork = store.session("a").fork(key="f")
        fork.append("in the fork")
        fork.fork(key="g").append("in the fork of the fork")
    return path


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "copy.db"


def change(path: Path, statement: str, *values: Any) -> None:
    with contextlib.closing(apsw.Connection(str(path))) as connection:
        connection.execute(statement, values)
        assert connection.changes() == 1


def texts(path: Path) -> dict[str | None, list[str]]:
    with holdfast.open(path) as store:
        return {
            info.key: [message.text for message in store.get(info.id).transcript()]
            for info in store.sessions()
        }


WORDS = {
    "a": ["question of a", "answer to a"],
    "b": ["question of b", "answer to b"],
    "f": ["question of a", "answer to a", "in the fork"],
    "g": ["question of a", "answer to a", "in the fork", "in the fork of the fork"],
}


def is_lost(text: str) -> bool:
    return "can't be read" in text


# The time of its last activity.


@few_cases(every=3)
@pytest.mark.parametrize("time", ["x", b"\0", 1.5, -7])
@pytest.mark.parametrize("page", [1, 1000])
def test_a_session_without_a_time_is_listed_and_copied(
    path: Path, target: Path, monkeypatch: pytest.MonkeyPatch, time: Any, page: int
) -> None:
    monkeypatch.setattr(copy_order, "PAGE", page)
    change(path, "UPDATE session SET active_at = ? WHERE key = 'a'", time)
    copied = copy(path, target)
    assert (copied.sessions, copied.differences, copied.salvaged) == (4, (), ())
    assert texts(target) == WORDS
    assert copy(path, target).added == 0


@pytest.mark.parametrize("time", ["x", b"\0"])
def test_a_list_of_sessions_has_those_without_a_time_at_its_end(path: Path, time: Any) -> None:
    change(path, "UPDATE session SET active_at = ? WHERE key = 'f'", time)
    change(path, "UPDATE session SET active_at = ? WHERE key = 'b'", time)
    with holdfast.open(path) as store:
        assert [info.key for info in store.sessions()] == ["g", "a", "f", "b"]
        assert [info.key for info in store.sessions(state="open")] == ["g", "a", "f", "b"]
        assert [info.key for info in store.sessions(key="b")] == ["b"]
        found, after = [], None
        while True:
            page = store.sessions(limit=1, after=after)
            found += [info.key for info in page]
            if (after := page.next) is None:
                break
        assert found == ["g", "a", "f", "b"]


def test_a_copy_gives_a_session_without_a_time_that_of_its_last_entry(
    path: Path, target: Path
) -> None:
    change(path, "UPDATE session SET active_at = 'x' WHERE key = 'b'")
    copy(path, target)
    with contextlib.closing(apsw.Connection(str(target))) as connection:
        assert connection.execute("SELECT min(active_at) FROM session").get > 0


# The place of an entry.


@few_cases(every=3)
@pytest.mark.parametrize("seq", ["x", b"\0", -3, 0, 2.5], ids=repr)
@pytest.mark.parametrize("kind", ["opened", "turn", "", "end"])
def test_an_entry_without_a_place_takes_nothing_else_with_it(
    path: Path, target: Path, seq: Any, kind: str
) -> None:
    place = "SELECT max(n) FROM entry WHERE session = 1 AND kind = ?"
    change(path, f"UPDATE entry SET seq = ? WHERE n = ({place})", seq, kind)
    copied = copy(path, target)
    assert (copied.sessions, copied.differences) == (4, ())
    [salvaged] = copied.salvaged
    lost = {"opened": 1, "turn": 3, "": 4, "end": 5}[kind]
    assert (salvaged.key, salvaged.seqs) == ("a", (lost,))
    found = texts(target)
    assert found["b"] == WORDS["b"]
    for key in ("a", "f", "g"):
        words = [text for text in found[key] if not is_lost(text)]
        assert words == [text for text in WORDS[key] if kind or text != "answer to a"]
    assert copy(path, target).added == 0, "it is there"


@pytest.mark.parametrize("kind", ["end", "message"])
def test_the_last_entry_of_a_fork_without_a_place_is_told(
    path: Path, target: Path, kind: str
) -> None:
    last = "SELECT max(entry.n) FROM entry JOIN session ON session.n = session WHERE key = 'f'"
    change(path, f"UPDATE entry SET seq = 1 WHERE n = ({last})")
    [salvaged] = copy(path, target).salvaged
    assert (salvaged.key, salvaged.seqs) == ("f", (7,))
    assert list(map(is_lost, texts(target)["f"])) == [False, False, True]


# A key.


@pytest.mark.parametrize("key", [b"\xff\x80", b"\xe1"])
def test_a_session_whose_key_is_no_text_is_copied_with_the_one_its_log_tells(
    path: Path, target: Path, key: bytes
) -> None:
    change(path, "UPDATE session SET key = CAST(? AS TEXT) WHERE key = 'a'", key)
    read = texts(path)
    assert {None: read[None], **WORDS} == read | {"a": WORDS["a"]}, "it is there without a key"
    copied = copy(path, target)
    assert (copied.sessions, copied.differences) == (4, ())
    [salvaged] = copied.salvaged
    assert (salvaged.key, salvaged.seqs) == ("a", ()) and "key" in salvaged.problem
    assert texts(target) == WORDS
    again = copy(path, target)
    assert (again.sessions, again.added, again.differences) == (4, 0, ())


def test_a_later_session_of_a_key_follows_one_whose_key_is_no_text(
    path: Path, target: Path
) -> None:
    with holdfast.open(path) as store:
        store.session("b").end("done")
        store.session("b").append("once more")
    change(path, "UPDATE session SET key = x'ff' WHERE key = 'b' AND epoch = 1")
    copied = copy(path, target)
    assert (copied.sessions, copied.differences) == (5, ())
    with holdfast.open(target) as store:
        assert [info.epoch for info in store.sessions(key="b")] == [2, 1]
        assert store.check() == []


# A large part.


@pytest.fixture
def large(path: Path) -> Path:
    with holdfast.open(path) as store:
        store.session("b").append(LARGE)
        store.session("b").append("after it")
    return path


def test_a_large_part_that_was_altered_does_not_look_sound_in_the_target(
    large: Path, target: Path
) -> None:
    change(large, "UPDATE blob SET body = CAST('X' || substr(body, 2) AS BLOB)")
    copied = copy(large, target)
    assert (copied.sessions, copied.differences) == (4, ())
    [salvaged] = copied.salvaged
    assert (salvaged.key, salvaged.seqs) == ("b", (6,))
    assert salvaged.problem == "a large part of it is not what it was stored as"
    found = texts(target)["b"]
    assert [*found[:2], found[3]] == [*WORDS["b"], "after it"] and is_lost(found[2])
    assert copy(large, target).added == 0


def test_a_large_part_that_is_missing_is_told(large: Path, target: Path) -> None:
    change(large, "DELETE FROM blob")
    copied = copy(large, target)
    [salvaged] = copied.salvaged
    assert (salvaged.key, salvaged.seqs) == ("b", (6,))
    assert salvaged.problem == "a large part of it is missing"
    assert "is missing from the store" in texts(target)["b"][2]


def test_a_large_part_that_is_whole_is_copied(large: Path, target: Path) -> None:
    assert copy(large, target).salvaged == ()
    assert texts(target)["b"] == [*WORDS["b"], LARGE, "after it"]
