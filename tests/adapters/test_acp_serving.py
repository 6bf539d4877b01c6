"""`--serve-load`: a session that is loaded is replayed from the store."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

import holdfast
from acp_wire import Wire, line
from holdfast.testing import temporary_store


@pytest.fixture
def store() -> Iterator[holdfast.Store]:
    with temporary_store() as store:
        yield store


def recorded(store: holdfast.Store) -> list[tuple[str, str]]:
    """A turn, and one that was cancelled while a tool ran; what was told."""
    wire = Wire(store)
    wire.prompt("One.", id=1)
    wire.chunk("agent_thought_chunk", "Hm.", messageId="m1")
    wire.text("First ", messageId="m1")
    wire.text("answer.", messageId="m1")
    wire.call("c1", kind="execute")
    wire.result("c1", "of c1")
    wire.end(1)
    wire.prompt("Two.", id=2)
    wire.text("Second ans", messageId="m2")
    wire.call("c2")
    wire.end(2, reason="cancelled")
    return wire.told()


def sent_since(wire: Wire, before: bytes) -> list[Any]:
    return [json.loads(each) for each in wire.to_client.removeprefix(before).splitlines()]


def replay_of_the_agent(wire: Wire) -> None:
    """As goose has it: of the cancelled turn, the prompt."""
    wire.chunk("user_message_chunk", "One.", messageId="u1")
    wire.text("First answer.", messageId="m1")
    wire.call("c1", status="pending")
    wire.result("c1", "of c1")
    wire.chunk("user_message_chunk", "Two.", messageId="u2")


def test_what_was_shown_is_replayed_whole_and_then_the_answer(store: holdfast.Store) -> None:
    told = recorded(store)
    wire = Wire(store, serves_load=True)
    before = wire.to_client
    assert b"session/load" in wire.load()
    replay_of_the_agent(wire)
    commands = {"sessionUpdate": "available_commands_update", "availableCommands": []}
    wire.update(**commands)
    wire.answer("load", {"modes": {}})
    *updates, answer = sent_since(wire, before)
    assert answer == {"jsonrpc": "2.0", "id": "load", "result": {"modes": {}}}
    assert {each["params"]["sessionId"] for each in updates} == {"s"}
    first, *said = [each["params"]["update"] for each in updates]
    assert first == commands
    assert [(each["sessionUpdate"], words(each)) for each in said] == [
        ("user_message_chunk", "One."),
        ("agent_thought_chunk", "Hm."),
        ("agent_message_chunk", "First answer."),
        ("tool_call", "c1"),
        ("tool_call_update", "c1"),
        ("user_message_chunk", "Two."),
        ("agent_message_chunk", "Second ans"),
        ("tool_call", "c2"),
        ("tool_call_update", "c2"),
    ]
    assert said[2]["messageId"] == "m1"
    assert (said[3]["rawInput"], said[3]["kind"]) == ({"command": "ls"}, "execute")
    assert said[4]["status"] == "completed" and said[-1]["status"] == "failed"
    assert wire.told() == told


def words(update: Any) -> str:
    return update["toolCallId"] if "toolCallId" in update else update["content"]["text"]


def test_a_session_that_is_new_here_is_stored_and_replayed(store: holdfast.Store) -> None:
    wire = Wire(store, serves_load=True)
    before = wire.to_client
    wire.load()
    replay_of_the_agent(wire)
    wire.answer("load", {})
    *updates, _ = sent_since(wire, before)
    assert [words(each["params"]["update"]) for each in updates] == [
        "One.",
        "First answer.",
        "c1",
        "c1",
        "Two.",
    ]


def test_what_we_replay_is_known_when_it_comes_back(store: holdfast.Store) -> None:
    told = recorded(store)
    wire = Wire(store, serves_load=True)
    before = wire.to_client
    wire.load()
    wire.answer("load", {})
    *updates, _ = sent_since(wire, before)
    head = wire.session().head()
    wire = Wire(store)
    wire.load()
    for each in updates:
        wire.pass_on("agent", line(**each))
    assert wire.told() == [*told, ("tool", "[interrupted: the outcome of this call is unknown]")]
    assert wire.session().head() == head + 1


def test_a_load_that_fails_replays_nothing(store: holdfast.Store) -> None:
    recorded(store)
    wire = Wire(store, serves_load=True)
    before = wire.to_client
    wire.load()
    refusal = {"code": -32002, "message": "Resource not found"}
    wire.pass_on("agent", line(id="load", error=refusal))
    assert sent_since(wire, before) == [{"jsonrpc": "2.0", "id": "load", "error": refusal}]


def test_an_agent_without_resume_is_asked_to_load_and_nothing_is_replayed(
    store: holdfast.Store,
) -> None:
    recorded(store)
    wire = Wire(store, serves_load=True)
    before = wire.to_client
    asked = wire.client("session/resume", {"sessionId": "s", "cwd": "/w"}, id=5)
    assert json.loads(asked)["method"] == "session/load"
    replay_of_the_agent(wire)
    wire.answer(5, {"modes": {}})
    assert sent_since(wire, before) == [{"jsonrpc": "2.0", "id": 5, "result": {"modes": {}}}]


def test_other_sessions_and_later_turns_are_passed_on(store: holdfast.Store) -> None:
    recorded(store)
    wire = Wire(store, serves_load=True)
    wire.prompt("Hi.", id=1, session="other")
    wire.load()
    assert wire.text("Hello.", session="other", messageId="m1")
    assert wire.text("First answer.", messageId="m1") == b""
    wire.answer("load", {})
    wire.prompt("Three.", id=3)
    assert wire.text("Third.", messageId="m9")


@pytest.mark.parametrize("is_begun", [False, True])
def test_a_plan_and_what_an_interrupted_tool_had_printed_are_replayed(
    store: holdfast.Store, is_begun: bool
) -> None:
    wire = Wire(store)
    wire.prompt("Go.")
    plan = {"sessionUpdate": "plan", "entries": [{"content": "Look"}]}
    wire.update(**plan)
    wire.call("c1", rawInput={"command": "ls"} if is_begun else {})
    line_1 = {"type": "content", "content": {"type": "text", "text": "line 1"}}
    progress = {"sessionUpdate": "tool_call_update", "toolCallId": "c1", "status": "in_progress"}
    wire.update(**progress, content=[line_1])
    wire.end(reason="cancelled")
    wire = Wire(store, serves_load=True)
    before = wire.to_client
    wire.load()
    wire.answer("load", {})
    *updates, _ = [each.get("params", {}).get("update") for each in sent_since(wire, before)]
    assert updates[1] == plan
    assert updates[-1]["status"] == "failed"
    first, why = updates[-1]["content"]
    assert first == line_1 and "interrupted" in why["content"]["text"]
