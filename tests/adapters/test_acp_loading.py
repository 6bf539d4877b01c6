"""A session that is loaded again: what is replayed is stored once."""

from collections.abc import Iterator

import pytest

import holdfast
from acp_wire import Wire, insist_valid, line
from holdfast.testing import temporary_store


@pytest.fixture
def store() -> Iterator[holdfast.Store]:
    with temporary_store() as store:
        yield store


@pytest.fixture
def recorded(store: holdfast.Store) -> Wire:
    """Two turns, the second one cancelled while a tool ran and text streamed."""
    wire = Wire(store)
    wire.prompt("One.", id=1)
    wire.chunk("agent_thought_chunk", "Hm.", messageId="m1")
    wire.text("First ", messageId="m1")
    wire.text("answer. ", messageId="m1")
    wire.call("c1")
    wire.result("c1", "of c1")
    wire.text("So.", messageId="m2")
    wire.end(1)
    wire.prompt("Two.", id=2)
    wire.text("Warning!\n\n")
    wire.call("c2")
    wire.text("Second ans", messageId="m3")
    wire.end(2, reason="cancelled")
    return wire


def replay_first(wire: Wire) -> None:
    wire.chunk("user_message_chunk", "One.", messageId="u1")
    wire.chunk("agent_thought_chunk", "Hm.", messageId="m1")
    wire.text("First answer.", messageId="m1")
    wire.call("c1", status="pending")
    wire.result("c1", "of c1")
    wire.text("So.", messageId="m2")


def replay_second(wire: Wire) -> None:
    wire.chunk("user_message_chunk", "Two.", messageId="u2")


def again(store: holdfast.Store) -> Wire:
    wire = Wire(store)
    wire.load()
    return wire


def test_what_is_stored_is_not_stored_again(store: holdfast.Store, recorded: Wire) -> None:
    before, head = recorded.told(), recorded.session().head()
    for _ in range(3):
        wire = again(store)
        replay_first(wire)
        replay_second(wire)
        assert wire.session().head() == head
        wire.pass_on("agent", line(id="load", error={"code": 1, "message": "no"}))
    wire = again(store)
    replay_first(wire)
    replay_second(wire)
    wire.answer("load", {})
    assert wire.told() == before
    assert len(wire.session().turns()) == 2
    insist_valid(wire.session())


def test_every_line_of_a_replay_is_passed_on(store: holdfast.Store, recorded: Wire) -> None:
    wire = again(store)
    sent = len(wire.to_client)
    replay_first(wire)
    wire.answer("load", {})
    assert wire.to_client[sent:].count(b"\n") == 7


def test_a_session_that_was_made_elsewhere_is_stored_whole(store: holdfast.Store) -> None:
    wire = again(store)
    replay_first(wire)
    replay_second(wire)
    wire.answer("load", {})
    assert wire.told() == [
        ("user", "One."),
        ("assistant", "First answer."),
        ("assistant", "c1"),
        ("tool", "of c1"),
        ("assistant", "So."),
        ("user", "Two."),
    ]
    wire.prompt("Three.", id=2)
    wire.end(2)
    once = wire.told()
    wire = again(store)
    replay_first(wire)
    replay_second(wire)
    wire.chunk("user_message_chunk", "Three.", messageId="u3")
    wire.answer("load", {})
    assert wire.told() == once
    insist_valid(wire.session())


def test_a_replay_in_small_chunks_is_one_message_each(store: holdfast.Store) -> None:
    """goose #7962: every token became a row."""
    wire = again(store)
    wire.chunk("user_message_chunk", "One.", messageId="u1")
    for word in ("First ", "answer ", "here."):
        wire.text(word, messageId="m1")
    wire.answer("load", {})
    assert wire.told() == [("user", "One."), ("assistant", "First answer here.")]


def test_what_went_on_elsewhere_is_added_at_the_end(store: holdfast.Store, recorded: Wire) -> None:
    before = recorded.told()
    wire = again(store)
    replay_first(wire)
    replay_second(wire)
    wire.chunk("user_message_chunk", "Elsewhere.", messageId="u3")
    wire.text("Yes.", messageId="m4")
    wire.answer("load", {})
    assert wire.told() == [*before, ("user", "Elsewhere."), ("assistant", "Yes.")]
    shown = str(wire.session().context("openai.chat"))
    assert "Elsewhere." in shown
    insist_valid(wire.session())


def test_a_marker_in_the_midst_of_a_replay_is_kept_and_no_model_sees_it(
    store: holdfast.Store, recorded: Wire
) -> None:
    """Claude replays `[Request interrupted by user]` where a turn was cancelled."""
    wire = again(store)
    replay_first(wire)
    wire.chunk("user_message_chunk", "[Request interrupted by user]", messageId="u9")
    replay_second(wire)
    wire.answer("load", {})
    [marker] = [each for each in wire.session().transcript() if "Request" in each.text]
    assert marker.labels["visible_to_model"] is False
    assert "Request" not in str(wire.session().context("openai.chat"))
    head = wire.session().head()
    wire = again(store)
    replay_first(wire)
    wire.chunk("user_message_chunk", "[Request interrupted by user]", messageId="u9")
    replay_second(wire)
    assert wire.session().head() == head


def test_an_outcome_that_only_the_agent_has_takes_its_place(
    store: holdfast.Store, recorded: Wire
) -> None:
    wire = again(store)
    replay_first(wire)
    replay_second(wire)
    wire.call("c2", status="pending")
    wire.result("c2", "of c2", "failed")
    wire.answer("load", {})
    states = {call.call_id: call.state for call in wire.session().calls()}
    assert states == {"c1": "done", "c2": "failed"}
    results = [each for each in wire.session().context("openai.chat") if each["role"] == "tool"]
    assert [each["content"] for each in results] == ["of c1", "of c2"]
    told = wire.told()
    wire = again(store)
    wire.call("c2", status="pending")
    wire.result("c2", "of c2", "failed")
    wire.answer("load", {})
    assert wire.told() == told


def test_of_a_message_that_was_cut_off_here_the_rest_is_added(
    store: holdfast.Store, recorded: Wire
) -> None:
    for _ in range(2):
        wire = again(store)
        replay_first(wire)
        replay_second(wire)
        wire.text("Second ", messageId="m3")
        wire.text("answer.", messageId="m3")
        wire.answer("load", {})
        assert wire.told()[-2:] == [("assistant", "Second ans"), ("assistant", "wer.")]


def test_the_same_words_asked_twice_are_two_messages(store: holdfast.Store) -> None:
    wire = Wire(store)
    for id in (1, 2):
        wire.prompt("Again.", id=id)
        wire.text("Yes.", messageId=f"m{id}")
        wire.end(id)
    wire = again(store)
    for id in (1, 2, 3):
        wire.chunk("user_message_chunk", "Again.", messageId=f"u{id}")
        wire.text("Yes.", messageId=f"m{id}")
    wire.answer("load", {})
    assert [words for role, words in wire.told() if role == "user"] == ["Again."] * 3


def test_other_sessions_go_on_while_one_is_loaded(store: holdfast.Store, recorded: Wire) -> None:
    wire = Wire(store)
    wire.prompt("Hi.", id=1, session="other")
    wire.load()
    replay_first(wire)
    wire.text("Hel", session="other", messageId="m1")
    replay_second(wire)
    wire.text("lo.", session="other", messageId="m1")
    wire.answer("load", {})
    wire.end(1)
    assert wire.told("other") == [("user", "Hi."), ("assistant", "Hello.")]
    assert wire.told() == recorded.told()


def test_a_load_that_fails_makes_no_session(store: holdfast.Store) -> None:
    wire = again(store)
    wire.pass_on("agent", line(id="load", error={"code": -32002, "message": "Resource not found"}))
    assert list(store.sessions()) == []


def test_a_fork_of_the_agents_shares_its_past(store: holdfast.Store, recorded: Wire) -> None:
    wire = Wire(store)
    wire.client("session/fork", {"sessionId": "s", "cwd": "/w"}, id=7)
    wire.answer(7, {"sessionId": "t"})
    assert wire.told("t") == recorded.told()
    wire.prompt("Here.", id=8, session="t")
    wire.end(8)
    assert wire.told("t")[-1] == ("user", "Here.")
    assert wire.told() == recorded.told()
