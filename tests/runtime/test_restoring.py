"""A session that was written out is that session again, and nothing is lost on the way."""

from pathlib import Path

import pytest

import holdfast
from commanding import command
from holdfast.errors import Conflict, Damaged
from holdfast.runtime.restoring import restore
from holdfast.testing.examine import broken
from looking import raw_entries


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A store with a session that has all that a session can have."""
    path = tmp_path / "source.db"
    with holdfast.open(path) as store:
        session = store.session("k")
        session.instructions("Be kind.")
        for number in range(6):
            with session.turn(f"question {number}\ud800\0", event_id=f"e{number}", reply_to="somebody") as turn:
                turn.call("look", "{}", call_id=f"c{number}")
                turn.result(f"c{number}", "found " * 9000)
                turn.say(f"answer {number}")
        session.compact("what was", keep_turns=2)
        session.label(next(iter(session.transcript())).id, starred=True)
        store.accept("k", "waits", event_id="w")
    return path


def written(source: Path, to: Path, session: str = "key:k") -> Path:
    assert command("export", session, "--as", "holdfast", "--out", str(to), "--store", str(source)).code == 0
    return to


def test_a_restored_session_is_the_same_session(source: Path, tmp_path: Path) -> None:
    """I-14: entries, inbox, outbox, events, the view and what it costs to load it."""
    lines = written(source, tmp_path / "k.jsonl")
    with holdfast.open(source) as old, holdfast.open(tmp_path / "new.db") as new:
        brought = restore(new, lines)
        assert (brought.new, brought.messages) == (1, 25)
        one, other = old.session("k"), new.session("k", create=False)
        assert raw_entries(new, other.id) == raw_entries(old, one.id)
        assert other.id == one.id and list(other.context()) == list(one.context())
        assert [message.id for message in other.pending()] == [message.id for message in one.pending()]
        owed = [(debt.text, debt.reply_to) for debt in new.outbox()]
        assert owed == [(debt.text, debt.reply_to) for debt in old.outbox()]
        assert new.accept("k", "waits", event_id="w").again
        found = broken(new)
        assert not found, "\n".join(found)


def test_restoring_again_adds_nothing_and_a_longer_one_adds_what_is_new(source: Path, tmp_path: Path) -> None:
    first = written(source, tmp_path / "first.jsonl")
    with holdfast.open(source) as store:
        with store.session("k").turn("more") as turn:
            turn.say("indeed")
    second = written(source, tmp_path / "second.jsonl")
    with holdfast.open(tmp_path / "new.db") as new:
        restore(new, first)
        assert restore(new, first).messages == 0
        assert restore(new, second).messages == 2
        assert restore(new, first).messages == 0
        session = new.session("k", create=False)
        assert [message.text for message in session.transcript()][-1] == "indeed"
        found = broken(new)
        assert not found, "\n".join(found)


def test_two_histories_are_not_made_one(source: Path, tmp_path: Path) -> None:
    first = written(source, tmp_path / "first.jsonl")
    with holdfast.open(source) as store:
        store.session("k").append("there")
    second = written(source, tmp_path / "second.jsonl")
    with holdfast.open(tmp_path / "new.db") as new:
        restore(new, first)
        new.session("k").append("here")
        before = raw_entries(new, new.session("k").id)
        with pytest.raises(Conflict, match="went on differently"):
            restore(new, second)
        assert raw_entries(new, new.session("k").id) == before


def test_a_key_that_is_in_use_is_not_taken_away(source: Path, tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "new.db") as new:
        mine = new.session("k")
        brought = restore(new, written(source, tmp_path / "k.jsonl"))
        assert new.session("k").id == mine.id
        assert "in use" in brought.notes[0]


def test_a_fork_is_restored_with_the_past_that_it_shared(source: Path, tmp_path: Path) -> None:
    with holdfast.open(source) as store:
        fork = store.session("k").fork(key="branch")
        fork.append("only here")
        texts = [message.text for message in fork.transcript()]
    with holdfast.open(tmp_path / "new.db") as new:
        restore(new, written(source, tmp_path / "b.jsonl", "key:branch"))
        assert [message.text for message in new.session("branch", create=False).transcript()] == texts


def test_a_line_that_was_cut_is_told_and_the_store_stays_sound(source: Path, tmp_path: Path) -> None:
    lines = written(source, tmp_path / "k.jsonl")
    lines.write_bytes(lines.read_bytes()[:-200])
    with holdfast.open(tmp_path / "new.db") as new:
        with pytest.raises(Damaged, match=r"line \d+"):
            restore(new, lines)
        found = broken(new)
        assert not found, "\n".join(found)
