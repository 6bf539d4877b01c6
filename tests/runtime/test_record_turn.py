"""Turns that begin with a caller's own list, or go on with one: what is new stands in the turn (I-12)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Session, Store
from holdfast.domain.record.memory import Memory
from holdfast.errors import SessionBusy, SessionEnded, TurnInterrupted
from holdfast.runtime.changes.record_turn import (
    GivenList,
    ListTurn,
    go_on_with,
    start_in,
    start_with,
)
from holdfast.runtime.plans.plan import run
from holdfast.runtime.turn import Turn
from thorough import few_on_postgres

pytestmark = few_on_postgres("what of a list is new is decided in `domain/record`")

Payload = dict[str, Any]
FORMAT = "openai.chat"


def user(text: str) -> Payload:
    return {"role": "user", "content": text}


def model(text: str) -> Payload:
    return {"role": "assistant", "content": text}


def call(id: str) -> Payload:
    function = {"name": "ls", "arguments": "{}"}
    return {
        **model("I look."),
        "tool_calls": [{"id": id, "type": "function", "function": function}],
    }


def result(id: str) -> Payload:
    return {"role": "tool", "tool_call_id": id, "content": "there"}


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    where = str(tmp_path / "agent.db")
    if request.param == "postgres":
        where = request.getfixturevalue("databases")(schema=True)
    with holdfast.open(where, durability="process") as opened:
        yield opened


def begun(session: Session, memory: Memory, *messages: Payload, **more: Any) -> ListTurn:
    return run(start_with(session._log, GivenList(memory, messages, FORMAT, **more)))


def answered(started: ListTurn, message: Payload) -> None:
    """The turn's answer, and its end."""
    turn = Turn(started.work)
    turn.add(message, FORMAT)
    run(started.work.leave_block(None))


def stored(session: Session) -> list[tuple[str, int | None]]:
    """The words of the transcript, each with the number of its turn."""
    found = []
    for message in session.transcript():
        found.append((message.text, int(message.turn.split(":")[1]) if message.turn else None))
    return found


def words(session: Session) -> list[str]:
    return [message["content"] for message in session.context(FORMAT)]


def test_what_is_new_stands_in_the_turn_and_the_list_is_the_context(store: Store) -> None:
    session, memory = store.session("k"), Memory()
    first = begun(session, memory, user("A?"))
    assert len(first.new) == 1
    answered(first, model("A."))
    second = begun(session, memory, user("A?"), model("A."), user("B?"))
    assert len(second.new) == 1
    answered(second, model("B."))
    assert stored(session) == [("A?", 1), ("A.", 1), ("B?", 2), ("B.", 2)]
    assert [turn.end for turn in session.turns()] == ["completed", "completed"]
    assert words(session) == ["A?", "A.", "B?", "B."]


def test_a_session_is_opened_by_the_commit_that_starts_its_first_turn(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, commits = store._work.engine, []
    submit = engine.submit

    def counted(commit: Any) -> Any:
        commits.append(commit)
        return submit(commit)

    monkeypatch.setattr(engine, "submit", counted)
    memory = Memory()
    system = {"role": "system", "content": "Be kind."}
    started = run(start_in(store._work, "k", GivenList(memory, [system, user("A?")], FORMAT)))
    assert len(commits) == 1
    answered(started, model("A."))
    session = store.session("k")
    said = [system, user("A?"), model("A."), user("B?")]
    more = run(start_in(store._work, "k", GivenList(memory, said, FORMAT)))
    assert len(more.new) == 1 and more.work.session.id == session.id
    assert session.instructions() == "Be kind."
    assert stored(session) == [("A?", 1), ("A.", 1), ("B?", 2)]


def test_what_waits_is_left_waiting(store: Store) -> None:
    store.session("k").end("over")
    store.accept("k", "Later.")
    started = run(start_in(store._work, "k", GivenList(Memory(), [user("A?")], FORMAT)))
    answered(started, model("A."))
    session = store.session("k")
    assert [message.text for message in session.pending()] == ["Later."]
    assert words(session) == ["A?", "A."]


def test_a_turn_begins_with_one_commit(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    session, commits = store.session("k"), []
    submit = session._log.engine.submit

    def counted(commit: Any) -> Any:
        commits.append(commit)
        return submit(commit)

    monkeypatch.setattr(session._log.engine, "submit", counted)
    begun(session, Memory(), {"role": "system", "content": "Be kind."}, user("A?"), user("B?"))
    assert len(commits) == 1
    assert session.instructions() == "Be kind."


def test_an_answer_that_is_not_in_the_list_leaves_the_view(store: Store) -> None:
    session, memory = store.session("k"), Memory()
    answered(begun(session, memory, user("A?")), model("A."))
    started = begun(session, memory, user("A?"))
    assert started.new == ()
    answered(started, model("Another A."))
    assert stored(session) == [("A?", 1), ("A.", 1), ("Another A.", 2)]
    assert words(session) == ["A?", "Another A."]


def test_a_turn_goes_on_with_results(store: Store) -> None:
    session, memory = store.session("k"), Memory()
    started = begun(session, memory, user("A?"))
    Turn(started.work).add(call("c1"), FORMAT)
    said = [user("A?"), call("c1"), result("c1")]
    more = run(go_on_with(started.work, GivenList(memory, said, FORMAT)))
    assert more.work is started.work and len(more.new) == 1
    answered(more, model("A."))
    assert stored(session) == [("A?", 1), ("I look.", 1), ("there", 1), ("A.", 1)]
    assert words(session) == ["A?", "I look.", "there", "A."]


def test_news_alone_leave_the_view_as_it_is(store: Store) -> None:
    session, memory = store.session("k"), Memory()
    answered(begun(session, memory, user("A?")), model("A."))
    started = begun(session, memory, user("B?"), is_whole=False)
    run(go_on_with(started.work, GivenList(memory, [user("C?")], FORMAT, is_whole=False)))
    answered(started, model("C."))
    assert stored(session)[2:] == [("B?", 2), ("C?", 2), ("C.", 2)]
    assert words(session)[:2] == ["A?", "A."]


def test_another_turn_is_not_overtaken(store: Store) -> None:
    session = store.session("k")
    with session.turn("Hello.") as turn:
        with pytest.raises(SessionBusy) as caught:
            begun(session, Memory(), user("A?"))
        assert caught.value.turn_id == turn.id
    assert stored(session) == [("Hello.", 1)]


def test_what_others_wrote_meanwhile_is_looked_at_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, memory = store.session("k"), Memory()
    answered(begun(session, memory, user("A?")), model("A."))
    submit, meddled = session._log.engine.submit, []

    def meddling(commit: Any) -> Any:
        # Between the decision and its commit, once.
        if not meddled:
            meddled.append(True)
            store.session("k").append(user("Said elsewhere."))
        return submit(commit)

    monkeypatch.setattr(session._log.engine, "submit", meddling)
    started = begun(session, memory, user("A?"), model("A."), user("B?"))
    answered(started, model("B."))
    assert sorted(stored(session)) == sorted(
        [("A?", 1), ("A.", 1), ("Said elsewhere.", None), ("B?", 2), ("B.", 2)]
    )
    assert words(session) == ["A?", "A.", "B?", "B."]


def test_an_ended_session_and_an_ended_turn_are_told(store: Store) -> None:
    session, memory = store.session("k"), Memory()
    started = begun(session, memory, user("A?"))
    session.stop()
    with pytest.raises(TurnInterrupted):
        run(go_on_with(started.work, GivenList(memory, [user("A?"), user("B?")], FORMAT)))
    session.end("done")
    with pytest.raises(SessionEnded):
        begun(session, memory, user("A?"))
    assert [text for text, _ in stored(session)] == ["A?"]
