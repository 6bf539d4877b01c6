"""A store that fails: what can't be stored is not shown, and the client is told."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from acp_wire import Wire, insist_valid, line
from holdfast.adapters.acp import steps
from holdfast.errors import StoreUnavailable
from holdfast.testing import temporary_store


@pytest.fixture
def wire() -> Iterator[Wire]:
    with temporary_store() as store:
        yield Wire(store)


@pytest.fixture
def broken(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """While the list holds something, nothing can be stored."""
    state: list[bool] = []
    do = wire.recorder._storage.do

    def fail(step: steps.WireStep) -> None:
        if state:
            raise StoreUnavailable(
                where="agents.db", problem="the disk is full", remedy="Free some"
            )
        do(step)

    monkeypatch.setattr(wire.recorder._storage, "do", fail)
    yield state


def answers(sent: bytes) -> list[Any]:
    return [json.loads(each) for each in sent.splitlines()]


def test_a_prompt_that_can_not_be_stored_is_answered_with_an_error(
    wire: Wire, broken: list[bool]
) -> None:
    broken.append(True)
    before = wire.to_client, wire.to_agent
    assert wire.prompt("Hi.") == b""
    [answer] = answers(wire.to_client.removeprefix(before[0]))
    assert answer["id"] == 1 and "the disk is full" in answer["error"]["message"]
    assert answer["error"]["data"] == {"holdfast": "store_unavailable"}
    assert wire.to_agent == before[1]
    broken.clear()
    wire.prompt("Again.", id=2)
    wire.text("Yes.", messageId="m1")
    wire.end(2)
    assert wire.told() == [("user", "Again."), ("assistant", "Yes.")]


def test_a_chunk_that_can_not_be_stored_is_not_shown_and_the_agent_is_stopped(
    wire: Wire, broken: list[bool]
) -> None:
    wire.prompt("Hi.", id=1)
    wire.prompt("More.", id=2)
    wire.text("Hel", messageId="m1")
    client, agent = wire.to_client, wire.to_agent
    broken.append(True)
    assert wire.text("lo.", messageId="m1") == b""
    told = answers(wire.to_client.removeprefix(client))
    assert [each["id"] for each in told] == [1, 2] and all("error" in each for each in told)
    [stop] = answers(wire.to_agent.removeprefix(agent))
    assert stop["method"] == "session/cancel" and stop["params"] == {"sessionId": "s"}
    assert len(wire.problems) == 1 and "the disk is full" in wire.problems[0]

    # What the agent still says reaches nobody, and what it asks is answered for the client.
    client, agent = wire.to_client, wire.to_agent
    wire.text("and more", messageId="m1")
    asked = {"sessionId": "s", "toolCall": {"toolCallId": "c1"}, "options": []}
    assert wire.agent("session/request_permission", asked, id=0) == b""
    [cancelled] = answers(wire.to_agent.removeprefix(agent))
    assert cancelled["result"] == {"outcome": {"outcome": "cancelled"}}
    assert wire.end(1, reason="cancelled") == b""
    assert wire.prompt("Too early.", id=9) == b""
    client = wire.to_client
    assert wire.end(2, reason="cancelled") == b""
    assert wire.to_client == client

    broken.clear()
    wire.prompt("Again.", id=3)
    wire.text("Yes.", messageId="m2")
    assert wire.end(3)
    assert ("assistant", "Hel") in wire.told() and ("assistant", "Yes.") in wire.told()
    assert "lo." not in str(wire.told())
    assert [turn.end for turn in wire.session().turns()] == ["failed", "completed"]
    insist_valid(wire.session())


def test_the_client_can_stop_the_agent_though_nothing_can_be_stored(
    wire: Wire, broken: list[bool]
) -> None:
    wire.prompt("Hi.", id=1)
    broken.append(True)
    assert b"session/cancel" in wire.client("session/cancel", {"sessionId": "s"})


def test_that_the_agent_should_stop_is_passed_on_before_the_store_is_waited_for(
    wire: Wire, broken: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    wire.prompt("Hi.", id=1)
    stop = line(method="session/cancel", params={"sessionId": "s"})
    taken = wire.recorder.take("client", [stop])
    # Whoever has it waits for the store.
    lock, wire.recorder._lock = wire.recorder._lock, None  # type: ignore[assignment]
    assert next(taken).forward == stop
    wire.recorder._lock = lock
    broken.append(True)
    [sent] = taken
    # The agent was told once; the client is told that its turn can't be stored.
    assert (sent.forward, sent.to_agent) == (b"", b"")
    [answer] = answers(sent.to_client)
    assert answer["id"] == 1 and "error" in answer


def test_an_end_that_can_not_be_stored_is_told_as_an_error(wire: Wire, broken: list[bool]) -> None:
    wire.prompt("Hi.", id=1)
    wire.text("Hello.", messageId="m1")
    client = wire.to_client
    broken.append(True)
    assert wire.end(1) == b""
    [answer] = answers(wire.to_client.removeprefix(client))
    assert answer["id"] == 1 and "error" in answer


def test_a_permission_that_can_not_be_stored_is_not_given(wire: Wire, broken: list[bool]) -> None:
    wire.prompt("Hi.", id=1)
    wire.call("c1")
    broken.append(True)
    agent = wire.to_agent
    asked = {"sessionId": "s", "toolCall": {"toolCallId": "c1"}, "options": []}
    assert wire.agent("session/request_permission", asked, id=0) == b""
    told = answers(wire.to_agent.removeprefix(agent))
    assert {each.get("method", each.get("id")) for each in told} == {"session/cancel", 0}


def test_a_turn_that_is_stopped_from_outside_stops_the_agent(wire: Wire) -> None:
    wire.prompt("Hi.", id=1)
    wire.text("Hel", messageId="m1")
    agent = wire.to_agent
    wire.session().stop("enough")
    assert wire.text("lo.", messageId="m1") == b""
    assert b"session/cancel" in wire.to_agent.removeprefix(agent)
    assert wire.told() == [("user", "Hi."), ("assistant", "Hel")]


def test_what_a_failing_store_has_taken_is_in_the_order_in_which_it_was_shown(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is nearly full has room for a small message, and none for a large one."""
    wire.prompt("Hi.", id=1)
    engine = wire.session()._log.engine
    submit = engine.submit

    def is_large(commit: Any) -> bool:
        # Chunks are small.
        writes = commit if isinstance(commit, tuple) else ()
        return any(len(draft.body) > 1000 for write in writes for draft in write.drafts)

    def small_alone(commit: Any) -> Any:
        if is_large(commit):
            raise StoreUnavailable(
                where="agents.db", problem="the disk is full", remedy="Free some"
            )
        return submit(commit)

    wire.text("x" * 2000, messageId="m1")
    monkeypatch.setattr(engine, "submit", small_alone)
    wire.call("c1")
    assert "the disk is full" in wire.problems[0]
    monkeypatch.undo()
    wire.end(1, reason="cancelled")
    wire.prompt("Again.", id=2)
    wire.end(2)
    words = [words[:2] for _, words in wire.told()]
    assert words == ["Hi", "xx", "c1", "Ag"]


def test_a_session_that_is_in_use_elsewhere_is_told_to_the_client(wire: Wire) -> None:
    other = Wire(wire.store)
    other.prompt("Mine.", id=1)
    client = wire.to_client
    assert wire.prompt("And mine.", id=1) == b""
    [answer] = answers(wire.to_client.removeprefix(client))
    assert answer["error"]["data"] == {"holdfast": "session_busy"}
    other.text("Yes.", messageId="m1")
    other.end(1)
    assert wire.prompt("Now.", id=2)
    wire.end(2)
    assert [words for _, words in wire.told()] == ["Mine.", "Yes.", "Now."]


def test_a_load_that_can_not_be_looked_up_is_an_error(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(session: str) -> None:
        raise StoreUnavailable(where="agents.db", problem="it is locked", remedy="Wait")

    monkeypatch.setattr(wire.recorder._storage, "known", fail)
    client = wire.to_client
    assert wire.load() == b""
    [answer] = answers(wire.to_client.removeprefix(client))
    assert answer["id"] == "load" and "error" in answer


def test_a_session_whose_key_was_reset_goes_on_in_the_new_one(wire: Wire) -> None:
    wire.prompt("One.", id=1)
    wire.end(1)
    wire.store.reset("acp:toy:s")
    assert wire.prompt("Two.", id=2)
    wire.text("Yes.", messageId="m1")
    wire.end(2)
    assert wire.told() == [("user", "Two."), ("assistant", "Yes.")]


def test_an_answer_that_comes_at_once_comes_after_the_question(wire: Wire) -> None:
    """What is left until a line is out is stored before the next line of either side is read."""
    wire.prompt("Hi.")
    wire.text("May I?", messageId="m1")
    asked = {"sessionId": "s", "toolCall": {"toolCallId": "c1", "rawInput": {"a": 1}}}
    question = line(method="session/request_permission", id=0, params=asked)
    [sent] = wire.recorder.take("agent", [question])
    chosen = {"outcome": {"outcome": "selected", "optionId": "allow"}}
    wire.pass_on("client", line(id=0, result=chosen))
    wire.recorder.settle(sent)
    wire.result("c1")
    wire.end()
    said = [(message.text, message.labels) for message in wire.session().transcript()]
    assert [words for words, _ in said] == ["Hi.", "May I?", "", "done"]
    assert said[2][1]["acp.permission"]["toolCall"] == asked["toolCall"]
    assert said[2][1]["acp.permission_answer"] == chosen
    insist_valid(wire.session())


def test_a_request_for_permission_that_has_an_outcome_is_still_asked(wire: Wire) -> None:
    wire.prompt("Hi.")
    call = {"toolCallId": "c1", "status": "completed", "rawInput": {"a": 1}}
    asked = {"sessionId": "s", "toolCall": call, "options": []}
    assert wire.agent("session/request_permission", asked, id=0)
    wire.result("c1")
    assert wire.end()
    assert wire.problems == []
    insist_valid(wire.session())


def test_a_request_for_permission_outlives_a_kill_before_its_label(wire: Wire) -> None:
    wire.prompt("Hi.")
    asked = {"sessionId": "s", "toolCall": {"toolCallId": "c1", "rawInput": {"a": 1}}}
    [sent] = wire.recorder.take(
        "agent", [line(method="session/request_permission", id=0, params=asked)]
    )
    assert sent.forward
    # Nothing more is stored by this recorder; its turn is ended from outside.
    session = wire.session()
    session.stop("killed")
    [_, call] = session.transcript()
    assert call.payload["_acp"]["updates"][1]["request"]["toolCall"] == asked["toolCall"]
