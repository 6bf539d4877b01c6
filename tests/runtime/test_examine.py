"""The judge of whole stores can fail: what is broken by hand is told, with the number of its invariant."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

import holdfast
from holdfast import Session, Store
from holdfast.domain.entry import CallStarted, Draft, Labelled, TurnEnded, noted
from holdfast.engine.protocol import Chunk, Start, Write, Written
from holdfast.testing.examine import broken
from holdfast.testing.telling import mint


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store in which everything has happened once, and all is well."""
    with holdfast.open(tmp_path / "agent.db", durability="process") as store:
        session = store.session("k")
        with session.turn("one", event_id="e1", reply_to="desk") as turn:
            list(turn.deliver(["Once ", "upon"]))
            turn.result(turn.call("look", {}, call_id="c1"), "seen")
        with session.turn("two") as turn:
            turn.say("Two.")
        with session.turn("three") as turn:
            turn.say("Three.")
        session.compact("They talked.", keep_turns=1)
        store.accept("k", "waiting")
        session.fork().append("elsewhere")
        store.session("other").append("aside")
        store.reset("other")
        assert broken(store) == []
        yield store


@pytest.fixture
def session(store: Store) -> Session:
    return store.session("k")


def write(store: Store, session: Session, kind: str, note: Any, *, turn: int | None) -> None:
    """An entry that nobody would write."""
    draft = Draft(kind, turn, mint(), 1, noted(note) if note is not None else b"", b"")
    [outcome] = store._work.engine.commit([(Write(session.id, (draft,), ended_too=True),)])
    assert isinstance(outcome, Written)


def tamper(store: Store, statement: str) -> None:
    """Changes the file behind the store's back."""
    connection = apsw.Connection(store._work.engine.where)
    connection.execute(statement)
    connection.close()


def numbers(store: Store) -> str:
    return " ".join(broken(store))


TAMPERED = {
    "a gap in the log": ("DELETE FROM entry WHERE seq = 3 AND session = 1", "I-1"),
    "an accepted message that is not in the inbox": ("DELETE FROM inbox", "I-4"),
    "an event that nobody knows": ("DELETE FROM event", "I-2"),
    "a reply that is owed no more": ("DELETE FROM outbox", "I-23"),
    "an old session that has not ended": ("UPDATE session SET ended = 0", "I-8"),
    "a current session that is ended": ("UPDATE session SET ended = 1", "I-8"),
    "a turn above the fence": ("UPDATE session SET fence = 0", "I-7"),
    "an epoch left out": ("UPDATE session SET epoch = 7 WHERE key = 'other' AND epoch = 2", "I-8"),
}


@pytest.mark.parametrize("statement, number", TAMPERED.values(), ids=TAMPERED.keys())
def test_what_is_missing_in_a_table_is_told(store: Store, statement: str, number: str) -> None:
    tamper(store, statement)
    assert number in numbers(store)


WRITTEN: dict[str, tuple[list[tuple[str, Any, int | None]], str]] = {
    "a turn that ends twice": ([("end", TurnEnded(), 1)], "I-6"),
    "an end of a turn that never was": ([("end", TurnEnded(), 9)], "I-6"),
    "an entry after its turn": ([("retract", None, 1)], "I-7"),
    "labels of no message": ([("label", Labelled("ab" * 16), None)], "I-13"),
    "an end of the session that changed nothing": ([("closed", None, None)], "I-8"),
    "a call that was started twice": ([("call", CallStarted("c1", "ab" * 16), None)] * 2, "I-22"),
}


@pytest.mark.parametrize("entries, number", WRITTEN.values(), ids=WRITTEN.keys())
def test_what_should_not_be_in_the_log_is_told(
    store: Store, session: Session, entries: list[tuple[str, Any, int | None]], number: str
) -> None:
    for kind, note, turn in entries:
        write(store, session, kind, note, turn=turn)
    assert number in numbers(store)


def test_words_that_were_journaled_and_are_in_no_message_are_told(store: Store, session: Session) -> None:
    """I-5: a turn that ended without what it had handed on."""
    engine = store._work.engine
    begun = Draft("turn", 0, mint(), 1)
    [started] = engine.commit([(Write(session.id, (begun,), idle=True, start=Start("me", 600)),)])
    assert isinstance(started, Written)
    words = Chunk(mint(), 0, b'[["open",0,["text","openai.chat"]],["text",0,"shown"]]')
    end = Draft("end", started.turn, mint(), 1, noted(TurnEnded()))
    engine.commit([(Write(session.id, fence=started.turn, chunk=words),)])
    engine.commit([(Write(session.id, (end,), fence=started.turn, finish=True),)])
    assert "shown" in numbers(store) and "I-5" in numbers(store)


def test_one_session_that_can_not_be_read_does_not_hide_the_others(store: Store) -> None:
    """I-18."""
    tamper(store, "UPDATE entry SET note = x'00ff' WHERE session = 1 AND seq = 3")
    tamper(store, "UPDATE session SET ended = 0 WHERE key = 'other'")
    assert "I-18" in numbers(store) and "I-8" in numbers(store)
