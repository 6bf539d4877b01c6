"""Copying a store with entries that can't be read: each takes away nothing but itself (I-25), on
both engines.
"""

import contextlib
import shutil
from pathlib import Path
from typing import Any

import apsw
import pytest

import holdfast
from holdfast import copy
from holdfast.domain.entry import Entry
from holdfast.runtime.live.damage import placeholder
from holdfast.runtime.transfer import compare_logs
from looking import raw_entries
from spoiling import Spoiled, place
from thorough import few_cases

__all__ = ["place"]


@pytest.fixture
def target(place: Spoiled, tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    """A store on the other engine."""
    if "://" in str(place.where):
        return tmp_path / "copy.db"
    return request.getfixturevalue("databases")(schema=True)


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare_logs, "PAGE", 4)


def furnished(store: holdfast.Store) -> holdfast.Session:
    session = store.session("k")
    for number in range(3):
        with session.turn(f"question {number}", event_id=f"e{number}", reply_to="ann") as turn:
            turn.say(f"answer {number}")
    store.accept("k", "took")
    with session.turn() as turn:
        turn.say("taken")
    session.label(next(session.transcript()).id, star=True)
    session.compact("in short", keep_turns=2)
    store.accept("k", "waits")
    return session


@pytest.mark.slow
@few_cases(every=3)
@pytest.mark.parametrize("column", ["note", "body"])
def test_an_entry_that_can_not_be_read_is_a_placeholder_and_all_else_is_copied(
    place: Spoiled, target: Any, column: str
) -> None:
    with place.open() as store:
        session = furnished(store)
        entries = raw_entries(store, session.id)
    seq = next(
        entry.seq for entry in entries if entry.kind == "message" and b"answer 1" in entry.body
    )
    place.spoil(session.id, seq, column, b"\xff{")
    copied = copy(place.where, target)
    assert copied.differences == () and copied.entries == len(entries)
    assert [(each.session_id, each.key, each.seqs) for each in copied.salvaged] == [
        (session.id, "k", (seq,))
    ]
    with place.open() as here, holdfast.open(target) as there:
        ours, theirs = raw_entries(here, session.id), raw_entries(there, session.id)
        assert theirs == [*entries[: seq - 1], placeholder(ours[seq - 1]), *entries[seq:]]
        moved = there.session("k", create=False)
        assert [each.text for each in moved.transcript()] == [
            each.text for each in here.get(session.id).transcript()
        ]
        assert list(moved.context()) == list(here.get(session.id).context())
        assert (_inbox(moved), _owed(there)) == (_inbox(here.get(session.id)), _owed(here))
        assert len(_inbox(moved)) == 1 and len(_owed(there)) == 3
        assert there.accept("k", "again", event_id="e1").again
        assert there.check() == []
    assert copy(place.where, target).added == 0, "it is there"


@pytest.mark.slow
def test_an_entry_of_any_kind_is_told_and_the_rest_is_the_same(
    place: Spoiled, tmp_path: Path
) -> None:
    with place.open() as store:
        session = furnished(store)
        entries = raw_entries(store, session.id)
        inbox = _inbox(session)
    assert {entry.kind for entry in entries} >= {
        "opened",
        "turn",
        "end",
        "label",
        "compaction",
        "message",
    }
    for number, kind in enumerate(sorted({entry.kind for entry in entries})):
        spoiled = next(entry for entry in entries if entry.kind == kind)
        place.spoil(session.id, spoiled.seq, "note", b"{")
        copied = copy(place.where, target := tmp_path / f"{number}.db")
        assert (copied.differences, copied.salvaged[0].seqs) == ((), (spoiled.seq,))
        with holdfast.open(target) as there:
            assert _but(raw_entries(there, session.id), spoiled.seq) == _but(entries, spoiled.seq)
            assert [
                message for message in _inbox(there.get(session.id)) if message not in inbox
            ] == []
            assert there.check() == [] and there.session("k").id == session.id
        place.spoil(session.id, spoiled.seq, "note", spoiled.note)


def test_a_message_that_was_taken_does_not_wait_again(place: Spoiled, target: Any) -> None:
    """Though what took it can't be read."""
    with place.open() as store:
        session = furnished(store)
        inbox = _inbox(session)
        turns = [entry for entry in raw_entries(store, session.id) if entry.kind == "turn"]
        taking = next(entry for entry in turns if b"takes" in entry.note)
    place.spoil(session.id, taking.seq, "note", b"{")
    copy(place.where, target)
    with holdfast.open(target) as there:
        assert _inbox(there.session("k", create=False)) == inbox


def test_a_fork_whose_first_entry_can_not_be_read_shares_its_past(
    place: Spoiled, target: Any
) -> None:
    with place.open() as store:
        parent = furnished(store)
        fork = parent.fork()
        fork.append("only here")
        texts = [message.text for message in fork.transcript()]
        first = raw_entries(store, fork.id)[0].seq
    place.spoil(fork.id, first, "note", b"{")
    copied = copy(place.where, target)
    assert copied.differences == () and [each.session_id for each in copied.salvaged] == [fork.id]
    with holdfast.open(target) as there:
        assert [message.text for message in there.get(fork.id).transcript()] == texts
        there.get(parent.id).append("not there")
        assert [message.text for message in there.get(fork.id).transcript()] == texts


def test_entries_that_are_missing_keep_their_places(tmp_path: Path) -> None:
    """One within a page, one at its end, and more in a row than a page has."""
    path = tmp_path / "agent.db"
    with holdfast.open(path) as store:
        session = store.session("k")
        session.append_all([f"message {number}" for number in range(20)])
        entries = raw_entries(store, session.id)
    gone = [3, 5, *range(8, 15)]
    with contextlib.closing(apsw.Connection(str(path))) as connection:
        connection.executemany("DELETE FROM entry WHERE seq = ?", [(seq,) for seq in gone])
    copied = copy(path, tmp_path / "copy.db")
    assert (copied.differences, copied.salvaged[0].seqs) == ((), tuple(gone))
    assert copied.salvaged[0].problem == "there is no such entry"
    with holdfast.open(tmp_path / "copy.db") as there:
        assert _but(raw_entries(there, session.id), *gone) == _but(entries, *gone)
        assert len(list(there.session("k").transcript())) == 20


def test_a_page_of_the_file_that_can_not_be_read_takes_its_own_entries_only(tmp_path: Path) -> None:
    path, whole = tmp_path / "agent.db", tmp_path / "whole.db"
    with holdfast.open(path, durability="process") as store:
        session = store.session("k")
        session.append_all([f"{number} " + "words " * 100 for number in range(40)])
        entries = raw_entries(store, session.id)
    shutil.copy(path, whole)
    with contextlib.closing(apsw.Connection(str(path))) as connection:
        leaves = (
            "SELECT pageno FROM dbstat WHERE name = 'entry' AND pagetype = 'leaf' ORDER BY pageno"
        )
        page = [number for (number,) in connection.execute(leaves)][3]
    with open(path, "r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(bytes(4096))
    copied = copy(path, tmp_path / "copy.db")
    assert copied.differences == ()
    [told] = copied.salvaged
    assert 0 < len(told.seqs) < 12 and "no such entry" not in told.problem
    with holdfast.open(tmp_path / "copy.db") as there:
        assert _but(raw_entries(there, session.id), *told.seqs) == _but(entries, *told.seqs)


def _but(entries: list[Entry], *seqs: int) -> list[Entry]:
    return [entry for entry in entries if entry.seq not in seqs]


def _inbox(session: holdfast.Session) -> list[str]:
    return [message.id for message in session.pending()]


def _owed(store: holdfast.Store) -> list[str]:
    return [owed.text for owed in store.outbox()]
