"""The oracle can fail: what is broken by hand, or was acknowledged and is not so, is reported with
its invariant.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

import holdfast
from holdfast import Session, Store
from holdfast.domain.entry import CallStarted, Draft, Labelled, TurnEnded, noted
from holdfast.engine.protocol import Chunk, Start, Write, Written
from holdfast.testing.conformance.builders import mint
from holdfast.testing.oracle import Acknowledged, judge


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
        assert judge(store) == []
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
    return " ".join(judge(store))


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


@pytest.mark.slow
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


def test_words_that_were_journaled_and_are_in_no_message_are_told(
    store: Store, session: Session
) -> None:
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


# What was acknowledged
# -----------------------------------------------------------------------------------------------


TRUE = [
    ["said", None, None, "one"],
    ["said", "{session}", "{one}", "one"],
    ["said", "{session}", None, "Two."],
    ["shown", "{session}:1", None, "Once up"],
    ["shown", "{session}:1", "{answer}", "Once "],
    ["began", "{session}:1"],
    ["ended", "{session}:1", "completed"],
    ["called", "{session}:1", "c1"],
    ["answered", "{session}:1", "c1", "seen"],
    ["opened", "{session}"],
    ["over", "{other}"],
    ["wrote", "{session}", "compaction", "They talked."],
    ["at", "{session}", 1, "opened"],
    ["labelled", "{session}", "{one}", "pinned", True],
    ["instructed", "{session}", "Be brief."],
    ["event", "k", "e1", "{one}"],
]

UNTRUE = {
    "words that are nowhere": (["said", None, None, "never"], "I-3"),
    "words that another session has": (["said", "{session}", None, "aside"], "I-3"),
    "another text of a message": (["said", "{session}", "{one}", "two"], "I-2"),
    "more than was stored of a message": (
        ["shown", "{session}:1", "{answer}", "Once upon a"],
        "I-5",
    ),
    "more than a turn said": (["shown", "{session}:1", None, "Once upon a"], "I-5"),
    "a message that was shown and is not there": (
        ["shown", "{session}:1", "ab" * 16, "Once"],
        "I-5",
    ),
    "a turn that never began": (["began", "{session}:9"], "I-4"),
    "another end": (["ended", "{session}:1", "failed"], "I-6"),
    "a call that is gone": (["called", "{session}:1", "c2"], "I-22"),
    "a call without its result": (["answered", "{session}:1", "c2"], "I-10"),
    "another result": (["answered", "{session}:1", "c1", "heard"], "I-10"),
    "a session that is not there": (["opened", "0" * 32], "I-3"),
    "a session that goes on": (["over", "{session}"], "I-8"),
    "an entry of another kind": (["at", "{session}", 1, "compaction"], "I-1"),
    "an entry with other words": (["wrote", "{session}", "compaction", "They sang."], "I-3"),
    "another label": (["labelled", "{session}", "{one}", "pinned", False], "I-13"),
    "other instructions": (["instructed", "{session}", "Be long."], "I-13"),
    "an event that was another message": (["event", "k", "e1", "ab" * 16], "I-2"),
    "a reply that is owed to nobody": (["owed", "ab" * 16, "{session}"], "I-23"),
    "a session whose end nobody erased": (["erased", "{other}"], "I-21"),
}


def ledger(store: Store, acts: list[list[Any]]) -> Acknowledged:
    """These acts, with the ids that this store has given."""
    session, [other] = (
        store.session("k"),
        [listed for listed in store.sessions(key="other") if listed.state == "ended"],
    )
    messages = {message.text: message.id for message in session.transcript()}
    names = {
        "session": session.id,
        "other": other.id,
        "one": messages["one"],
        "answer": messages["Once upon"],
    }
    return Acknowledged(
        [[fact.format(**names) if isinstance(fact, str) else fact for fact in act] for act in acts]
    )


@pytest.fixture
def marked(store: Store, session: Session) -> Store:
    first, *_ = session.transcript()
    session.label(first.id, pinned=True)
    session.instructions("Be brief.")
    return store


def test_a_ledger_of_what_is_so_is_not_contradicted(marked: Store) -> None:
    assert judge(marked, ledger(marked, TRUE)) == []


@pytest.mark.slow
@pytest.mark.parametrize("act, number", UNTRUE.values(), ids=UNTRUE.keys())
def test_what_was_acknowledged_and_is_not_so_is_reported(
    marked: Store, act: list[Any], number: str
) -> None:
    [sentence] = judge(marked, ledger(marked, [*TRUE, act]))
    assert sentence.startswith("acknowledged") and f"({number})" in sentence


def test_words_that_were_tried_may_be_missing_but_are_not_there_twice(
    store: Store, session: Session
) -> None:
    """I-2."""
    assert judge(store, Acknowledged(tried=["one", "never"])) == []
    session.append("one")
    [sentence] = judge(store, Acknowledged(tried=["one", "never"]))
    assert "'one' is there 2 times (I-2)" in sentence


def test_a_reply_that_was_sent_and_is_owed_again_is_reported(store: Store) -> None:
    """I-23."""
    [owed] = store.outbox()
    acts = [["owed", owed.id, owed.session_id]]
    assert judge(store, Acknowledged(acts)) == []
    [sentence] = judge(store, Acknowledged([*acts, ["paid", owed.id]]))
    assert "owed again (I-23)" in sentence


def test_an_erased_session_is_held_to_nothing_but_its_end(store: Store) -> None:
    """I-21."""
    [other] = [listed for listed in store.sessions(key="other") if listed.state == "ended"]
    acts = [["said", other.id, None, "aside"], ["erased", other.id]]
    store.erase(other.id)
    assert judge(store, Acknowledged(acts)) == []
