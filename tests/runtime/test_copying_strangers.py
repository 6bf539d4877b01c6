"""Copying a store that somebody made to do harm: nothing of another tenant's comes with it, and
nothing breaks.
"""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import holdfast
from copies import beside
from holdfast import copy
from holdfast.runtime.transfer.vet import vet_entry
from holdfast.testing.oracle import judge

SECRET = "the code is 4711"


@pytest.fixture
def target(path: Path) -> Path:
    return beside(path)


@pytest.fixture
def alices(target: Path) -> str:
    """A session of alice's in the target."""
    with holdfast.open(target, tenant="alice") as store:
        with store.session("k").turn(SECRET) as turn:
            turn.say("noted")
        return store.session("k").id


def forked(path: Path) -> str:
    """A fork in mallory's store, and a session beside it."""
    with holdfast.open(path, tenant="mallory") as store:
        store.session("sound").append("all is well")
        parent = store.session("parent")
        with parent.turn("one") as turn:
            turn.say("two")
        fork = parent.fork()
        fork.append("three")
        return fork.id


def craft(path: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as store, store:
        assert store.execute(statement, values).rowcount


def said(where: Path, tenant: str) -> list[str]:
    with holdfast.open(where, tenant=tenant) as store:
        found = judge(store)
        assert not found, "\n".join(found)
        return [
            message.text for one in store.sessions() for message in store.get(one.id).transcript()
        ]


@pytest.mark.parametrize("whose", ["another tenant's", "nobody's", "its own"])
def test_a_past_is_never_that_of_a_session_that_is_not_the_tenant_s_own(
    path: Path, target: Path, alices: str, whose: str
) -> None:
    fork = forked(path)
    parent = {"another tenant's": alices, "nobody's": "0" * 8 + alices[8:], "its own": fork}[whose]
    note = json.dumps({"parent": parent, "parent_seq": 4}).encode()
    craft(
        path,
        "UPDATE entry SET note = ? WHERE kind = 'opened' AND CAST(note AS TEXT) LIKE "
        "'%parent_seq%'",
        note,
    )
    copied = copy(path, target, tenant="mallory")
    assert [each.session_id for each in copied.differences] == [fork]
    assert sorted(said(target, "mallory")) == ["all is well", "one", "two"]
    assert said(target, "alice") == [SECRET, "noted"]


CRAFTED = {
    "a fence that is out of reach": "UPDATE session SET fence = 9223372036854775807 WHERE key = "
    "'parent'",
    "an id that is none": "UPDATE session SET id = 'parent' WHERE key = 'parent'",
}


@pytest.mark.parametrize("case", CRAFTED)
def test_a_crafted_session_is_left_and_the_others_come(
    path: Path, target: Path, alices: str, case: str
) -> None:
    forked(path)
    craft(path, CRAFTED[case])
    copied = copy(path, target, tenant="mallory")
    assert copied.differences
    assert "all is well" in said(target, "mallory") and said(target, "alice") == [SECRET, "noted"]


def test_of_a_crafted_key_nothing_comes(path: Path, target: Path, alices: str) -> None:
    forked(path)
    craft(path, "UPDATE session SET key = x'00ff' WHERE key = 'parent'")
    copied = copy(path, target, tenant="mallory")
    assert [each.key for each in copied.salvaged] == ["parent"], "as its first entry has it"
    assert "all is well" in said(target, "mallory") and said(target, "alice") == [SECRET, "noted"]


ENTRIES = {
    "a note that can't be read": "UPDATE entry SET note = '{\"takes\":7}' WHERE kind = 'turn'",
    "an id of one byte": "UPDATE entry SET id = x'00' WHERE kind = 'turn'",
    "a kind that is none": "UPDATE entry SET kind = 'gift' WHERE kind = 'end'",
    "a body that is no message": "UPDATE entry SET body = x'7b7d7d', note = x'7b7d' WHERE kind = "
    "'' AND turn > 0",
    "a time beyond time": "UPDATE entry SET at = 1 << 60 WHERE kind = 'turn'",
}


@pytest.mark.parametrize("case", ENTRIES)
def test_of_a_crafted_entry_nothing_comes_but_its_place(
    path: Path, target: Path, alices: str, case: str
) -> None:
    forked(path)
    craft(path, ENTRIES[case])
    copied = copy(path, target, tenant="mallory")
    assert copied.differences == ()
    [told] = copied.salvaged
    with (
        holdfast.open(path, tenant="mallory") as here,
        holdfast.open(target, tenant="mallory") as there,
    ):
        for each in here.sessions():
            ours, theirs = (store._work.engine.entries(each.id) for store in (here, there))
            other = [
                seq
                for seq, (one, two) in enumerate(zip(ours, theirs, strict=True), 1)
                if one != two
            ]
            assert other == (list(told.seqs) if each.id == told.session_id else [])
            for entry in theirs:
                vet_entry(entry)
    with holdfast.open(target, tenant="alice") as store:
        assert [message.text for message in store.session("k").transcript()] == [SECRET, "noted"]


def test_debts_that_no_turn_of_the_log_owes_are_not_copied(path: Path, target: Path) -> None:
    with holdfast.open(path) as store:
        with store.session("k").turn("hi", reply_to="ann") as turn:
            turn.say("hello")
    columns = (
        "SELECT x'abababababababababababababababab', session, 99, 'mallory', 5, tenant FROM outbox"
    )
    craft(path, f"INSERT INTO outbox (id, session, turn, reply_to, at, tenant) {columns}")
    copy(path, target)
    with holdfast.open(target) as store:
        assert [owed.reply_to for owed in store.outbox()] == ["ann"]


def test_a_reply_that_its_own_turn_confirmed_is_copied(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "from.db") as store:
        session = store.session("k")
        with session.turn("hello", reply_to="chat 1") as turn:
            turn.say("hi")
            turn.sent("platform 7")
        before = [message.text for message in session.transcript()]
    copied = holdfast.copy(tmp_path / "from.db", tmp_path / "to.db")
    assert not copied.differences
    with holdfast.open(tmp_path / "to.db") as store:
        assert [
            message.text for message in store.session("k").transcript()
        ] == before and store.outbox() == []


def test_a_view_whose_order_is_not_that_of_the_log_is_copied(tmp_path: Path) -> None:
    """What waited in the inbox stands behind what was said meanwhile, and a range over the two goes
    backwards.
    """
    with holdfast.open(tmp_path / "from.db") as store:
        session = store.session("k")
        with session.turn("one") as turn:
            turn.say("two")
        store.accept("k", "waiting")
        session.append("said meanwhile")
        with session.turn() as turn:
            session.compact("what was said", keep_turns=2)
            turn.say("three")
        before = list(session.context())
    copied = holdfast.copy(tmp_path / "from.db", tmp_path / "to.db")
    assert not copied.differences
    with holdfast.open(tmp_path / "to.db") as store:
        assert list(store.session("k").context()) == before
