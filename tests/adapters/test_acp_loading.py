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


def turn(wire: Wire, *chunks: tuple[str, str], id: int = 1, reason: str = "end_turn") -> None:
    """A turn of an agent that gives its messages no ids."""
    wire.prompt(f"Prompt {id}.", id=id)
    for kind, words in chunks:
        wire.chunk(f"agent_{kind}_chunk", words)
    wire.end(id, reason=reason)


def replay(store: holdfast.Store, *chunks: tuple[str, str], id: int = 1) -> Wire:
    wire = again(store)
    wire.chunk("user_message_chunk", f"Prompt {id}.")
    for kind, words in chunks:
        wire.chunk(f"agent_{kind}_chunk", words)
    wire.answer("load", {})
    return wire


def said(wire: Wire) -> list[tuple[str, list[str]]]:
    """Who said and thought what."""
    out = []
    for message in wire.session().transcript():
        words = [part["text"] for part in message.payload["parts"] if "text" in part]
        if words:
            out.append((message.role, words))
    return out


CUTS = [["Hello ", "world. Yes."], ["Hello world", ". ", "Yes."], ["Hello world. Yes."]]


@pytest.mark.parametrize("cuts", [*CUTS, ["H", "ello", "world.", "\n", "Yes.", " "]])
def test_a_message_without_an_id_is_known_however_it_is_cut(
    store: holdfast.Store, cuts: list[str]
) -> None:
    turn(Wire(store), ("message", "Hello "), ("message", "world. "), ("message", "Yes."))
    for _ in range(3):
        wire = replay(store, *[("message", words) for words in cuts])
        assert wire.told() == [("user", "Prompt 1."), ("assistant", "Hello world. Yes.")]


def test_a_prompt_is_known_however_it_is_cut(store: holdfast.Store) -> None:
    for id, words in ((1, "Go on and on."), (2, "Go")):
        wire = Wire(store)
        wire.prompt(words, id=id)
        wire.end(id)
    before = wire.told()
    wire = again(store)
    for words in ("Go", " on and", " on."):
        wire.chunk("user_message_chunk", words)
    wire.chunk("user_message_chunk", "Go")
    wire.answer("load", {})
    assert wire.told() == before


def test_prompts_that_follow_each_other_are_not_taken_for_a_later_one(
    store: holdfast.Store,
) -> None:
    wire = Wire(store)
    for id, words in enumerate(("Go", "Go on", "Go Go")):
        wire.prompt(words, id=id)
        wire.text(f"{id}.")
        wire.end(id, reason="cancelled")
    before = wire.told()
    for _ in range(2):
        wire = again(store)
        # The agent has forgotten what it said.
        for words in ("Go", "Go", " on", "Go", " Go"):
            wire.chunk("user_message_chunk", words)
        wire.text("2.")
        wire.answer("load", {})
        assert wire.told() == before


def test_thoughts_without_ids_are_stored_once(store: holdfast.Store) -> None:
    chunks = [("thought", "Hm, "), ("thought", "so."), ("message", "One.")]
    turn(Wire(store), *chunks)
    for _ in range(3):
        wire = replay(store, ("thought", "Hm, so."), ("message", "One."))
        assert said(wire)[1:] == [("assistant", ["Hm, so."]), ("assistant", ["One."])]


@pytest.mark.parametrize("has_died", [False, True])
@pytest.mark.parametrize(
    "replayed, rest",
    [
        (["Hello "], []),
        (["Hello MARK"], []),
        (["Hello MARK and the rest."], [" and the rest."]),
        (["Hello ", "MARK", " and ", "the rest."], [" and the rest."]),
    ],
)
def test_of_a_message_without_an_id_that_was_cut_off_the_rest_is_added_once(
    store: holdfast.Store, replayed: list[str], rest: list[str], has_died: bool
) -> None:
    wire = Wire(store)
    wire.prompt("Prompt 1.")
    wire.text("Hello ")
    wire.text("MARK")
    if has_died:
        wire.recorder.end("the agent is gone")
    else:
        wire.end(reason="cancelled")
    turn(Wire(store), ("message", "Later."), id=2)
    for _ in range(3):
        wire = again(store)
        wire.chunk("user_message_chunk", "Prompt 1.")
        for words in replayed:
            wire.text(words)
        wire.chunk("user_message_chunk", "Prompt 2.")
        wire.text("Later.")
        wire.answer("load", {})
        words = [words for role, words in wire.told() if role == "assistant"]
        assert words == ["Hello MARK", "Later.", *rest]


def test_words_round_a_late_outcome_are_known(store: holdfast.Store) -> None:
    def tell(wire: Wire) -> None:
        wire.call("c1")
        wire.text("Between.")
        wire.result("c1", "out")
        wire.text("After.")

    wire = Wire(store)
    wire.prompt("Go.")
    tell(wire)
    wire.end()
    for _ in range(3):
        assert wire.told() == [
            ("user", "Go."),
            ("assistant", "c1"),
            ("assistant", "Between."),
            ("tool", "out"),
            ("assistant", "After."),
        ]
        insist_valid(wire.session())
        wire = again(store)
        wire.chunk("user_message_chunk", "Go.")
        tell(wire)
        wire.answer("load", {})


def test_what_is_new_after_words_that_are_known_is_added(store: holdfast.Store) -> None:
    turn(Wire(store), ("message", "Yes."))
    for _ in range(2):
        wire = again(store)
        for words in ("Prompt 1.", "Prompt 2."):
            wire.chunk("user_message_chunk", words)
            wire.text("Ye")
            wire.text("s.")
            wire.chunk("agent_thought_chunk", "Hm.")
        wire.answer("load", {})
        spoken = [words for role, words in said(wire) if role == "assistant"]
        assert spoken == [["Yes."], ["Hm."], ["Yes."], ["Hm."]]


def test_a_call_whose_id_is_used_again_is_known_by_its_place(store: holdfast.Store) -> None:
    """An agent that numbers the calls of each turn anew, and forgets what was cancelled."""
    wire = Wire(store)
    wire.prompt("One.", id=1)
    wire.call("call_0")
    wire.end(1, reason="cancelled")
    wire.prompt("Two.", id=2)
    wire.call("call_0")
    wire.result("call_0", "of two")
    wire.end(2)
    for _ in range(2):
        wire = again(store)
        wire.chunk("user_message_chunk", "One.")
        for words in ("Two.", "Three."):
            wire.chunk("user_message_chunk", words)
            wire.call("call_0")
            wire.result("call_0", f"of {words}")
        wire.answer("load", {})
        states = [call.state for call in wire.session().calls()]
        assert states == ["unknown", "done", "done"]
        results = [words for role, words in wire.told() if role == "tool"]
        assert results == ["of two", "of Three."]
