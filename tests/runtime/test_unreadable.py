"""An entry that can't be read takes away nothing but itself (I-25), on every engine.

The entries are spoiled by hand, with SQL, as a bad disk or another program could.
"""

import asyncio
import threading
import uuid
from pathlib import Path
from typing import Any

import apsw
import pytest

import holdfast
from holdfast.domain.entry import NOTES, Decided, MessageNote, note_of, noted
from holdfast.domain.message import CallNote
from holdfast.errors import Damaged, InvalidMessage
from holdfast.runtime.plans import plan as drive
from holdfast.runtime.plans import plan_asyncio
from spoiling import Spoiled, place
from thorough import few_cases, sample

__all__ = ["place"]

FORMATS = ("openai.chat", "openai.responses", "anthropic")
NOISE = [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"\0garbage"]


def furnished(store: holdfast.Store) -> tuple[holdfast.Session, holdfast.Session]:
    """A session with an entry of nearly every kind, and one beside it."""
    session = store.session("bad")
    session.instructions("Be brief.")
    with session.turn("kelp and salt", reply_to="r", event_id="e1") as turn:
        turn.say("words of one")
        turn.call("look", {"a": 1}, call_id="c1")
        turn.result("c1", "found")
        turn.call("pay", {"a": 2}, call_id="c2", needs_approval=True)
    session.decide("c2", True, by="ann")
    with session.turn("second", reply_to="r") as turn:
        turn.call("pay", {"a": 2}, call_id="c2")
        turn.result("c2", "paid")
        turn.say("words of two")
        turn.retract()
        turn.say("words of three")
    [first, *_] = session.transcript()
    session.label(first.id, star=True)
    session.compact("in short", keep_turns=1)
    store.outbox()[0].failed("no line")
    with session.turn("third") as turn:
        turn.say("kelp again")
    other = store.session("good")
    with other.turn("kelp here too", reply_to="q") as turn:
        turn.say("yes")
    return session, other


def everything(store: holdfast.Store, bad: str, good: str) -> None:
    """All that can be asked of the store is answered, and the other session is whole."""
    assert {listed.id for listed in store.sessions()} == {bad, good}
    assert [message.text for message in store.get(good).transcript()] == ["kelp here too", "yes"]
    assert "kelp here too" in [hit.snippet for hit in store.search("kelp")]
    assert {owed.session_id for owed in store.outbox()} >= {good}
    session = store.get(bad)
    texts = [message.text for message in session.transcript()]
    assert "kelp again" in texts or any("can't be read" in text for text in texts)
    for format in FORMATS:
        assert isinstance(session.context(format), list)
    session.info(), session.turns(), session.calls(), session.pending(), list(session.entries())
    assert session.append("still here")
    with session.turn("and a turn") as turn:
        turn.say("as ever")
        turn.context()
    assert [message.text for message in session.transcript()][-2:] == ["and a turn", "as ever"]
    store.retain(1000, preview=True)


@pytest.mark.slow
def test_an_entry_of_any_kind_that_can_not_be_read_takes_away_nothing_but_itself(
    place: Spoiled,
) -> None:
    with place.open() as store:
        session, other = furnished(store)
        kinds = {entry.seq: entry.kind for entry in session.entries()}
        kept = {entry.seq: entry for entry in session.entries()}
    assert set(kinds.values()) >= {
        "message",
        "turn",
        "end",
        "call",
        "ask",
        "decision",
        "label",
        "compaction",
        "post",
    }
    spots = [(seq, "note") for seq, kind in kinds.items() if kind in NOTES]
    spots += [(seq, "body") for seq in kinds if kept[seq].body]
    # What is made of bytes that can't be read is decided above the engine.
    for seq, column in sample(spots, every=2 if isinstance(place.where, Path) else 5):
        place.spoil(session.id, seq, column, b"{")
        with place.open() as store:
            everything(store, session.id, other.id)
            assert store.check() != []
        place.spoil(session.id, seq, column, getattr(kept[seq], column))
    place.spoil(session.id, 3, "note", b"{")
    with place.open() as store:
        store.session("bad").end("over")
        events = list(store.get(session.id).follow())
        assert [event.entry.seq for event in events if event.entry] == list(
            range(1, len(events) + 1)
        )
        assert store.erase(session.id).done
        assert [message.state for message in store.get(session.id).transcript()][:1] == ["erased"]


@pytest.mark.slow
@few_cases(every=3)
@pytest.mark.parametrize(
    "noise", NOISE, ids=[f"{len(each)} bytes of {each[:6]!r}" for each in NOISE]
)
def test_a_payload_of_any_bytes_is_shown_as_a_placeholder(place: Spoiled, noise: bytes) -> None:
    with place.open() as store:
        session, other = furnished(store)
        [victim] = [message for message in session.transcript() if message.text == "words of three"]
    place.spoil(session.id, victim.seq, "body", noise)
    with place.open() as store:
        told = {message.seq: message for message in store.get(session.id).transcript()}
        assert f"Entry {victim.seq} can't be read" in told[victim.seq].text
        assert "words of one" in [message.text for message in told.values()]
        shown = str(store.get(session.id).context())
        assert f"Entry {victim.seq} can't be read" in shown and "in short" in shown
        everything(store, session.id, other.id)
        assert store.erase(session.id).done
        assert not any(message.text for message in store.get(session.id).transcript())


def test_a_note_that_could_not_be_read_back_is_not_written() -> None:
    wrong: list[Any] = [
        MessageNote(model=5),  # type: ignore[arg-type]
        MessageNote(finish=["stop"]),  # type: ignore[arg-type]
        MessageNote(calls=(CallNote(7, "f"),)),  # type: ignore[arg-type]
        MessageNote(event=object()),  # type: ignore[arg-type]
        Decided("c", "m", True, 5),  # type: ignore[arg-type]
    ]
    for note in wrong:
        with pytest.raises(InvalidMessage):
            noted(note)
    odd = MessageNote(event="\ud800", calls=(CallNote("c", "f"),))
    assert note_of("message", noted(odd)) == odd


@pytest.mark.slow
def test_two_resetters_with_messages_in_the_inbox_both_succeed(place: Spoiled) -> None:
    """What the one takes along, the other finds gone: it looks again, and resets the new
    session.
    """
    with place.open() as one, place.open() as other:
        for round in range(12):
            key = f"k{round}"
            for word in ("a", "b", "c"):
                one.accept(key, word)
            together = threading.Barrier(2)
            failed: list[BaseException] = []

            def reset(
                store: holdfast.Store,
                key: str = key,
                together: Any = together,
                failed: Any = failed,
            ) -> None:
                try:
                    together.wait()
                    store.reset(key)
                except BaseException as error:
                    failed.append(error)

            threads = [threading.Thread(target=reset, args=(store,)) for store in (one, other)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert failed == []
            assert one.session(key).epoch == 3
            assert [message.text for message in one.session(key).pending()] == ["a", "b", "c"]


def test_what_took_the_inbox_along_between_two_looks_is_found_out(
    tmp_path: Path, monkeypatch: Any
) -> None:
    """The reset reads the inbox, then somebody else resets, then it reads the log: it
    begins again.
    """
    with (
        holdfast.open(tmp_path / "agent.db") as store,
        holdfast.open(tmp_path / "agent.db") as other,
    ):
        store.accept("k", "hello")
        engine, moved = store._work.engine, []
        inbox = engine.inbox

        def late(session: str) -> Any:
            waiting = inbox(session)
            if not moved:
                moved.append(other.reset("k"))
            return waiting

        monkeypatch.setattr(engine, "inbox", late)
        assert store.reset("k").epoch == 3
        assert [message.text for message in store.session("k").pending()] == ["hello"]


def test_no_plan_leaks_a_stop_iteration(session: holdfast.Session) -> None:
    """One rule, in both drivers: what a plan waits for may raise anything."""

    def plan() -> drive.Plan[str]:
        try:
            yield drive.Read(lambda: next(iter([])))
        except RuntimeError as error:
            assert isinstance(error.__cause__, StopIteration)
            return "told"
        return "not told"

    assert drive.run(plan()) == "told"
    assert asyncio.run(plan_asyncio.arun(plan())) == "told"
    for word in ("one", "two"):
        with session.turn(word) as turn:
            turn.say(word)
    with pytest.raises(RuntimeError, match="raised StopIteration") as told:
        session.compact(lambda _: next(iter([])), keep_turns=0)
    assert isinstance(told.value.__cause__, StopIteration)


@pytest.mark.parametrize("parent", ["its own", "nobody's"])
def test_a_fork_whose_parent_is_missing_takes_nothing_away_but_itself(path, parent):
    with holdfast.open(path) as store:
        root = store.session("root")
        root.append("common words")
        fork = root.fork(key="fork")
        fork.append("words of its own")
    wrong = fork.id if parent == "its own" else str(uuid.UUID(int=1))
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE session SET parent = ? WHERE id = ?", (wrong, fork.id))
    connection.close()
    with holdfast.open(path) as store:
        with pytest.raises(Damaged):
            store.session("fork").context()
        assert {listed.key for listed in store.sessions()} == {"root", "fork"}
        assert [hit.key for hit in store.search("common")] == ["root"]
        assert len(store.session("root").context()) == 1
        store.accept("fork", "more")
        assert [message.text for message in store.pending()] == ["more"]
        assert store.outbox() == []
