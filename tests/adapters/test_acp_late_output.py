"""What a tool printed is its outcome, also where it came after its turn, or in two updates of a
replay, as Codex words it.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from acp_wire import Wire, insist_valid

TERMINAL = [{"type": "terminal", "terminalId": "c1"}]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[holdfast.Store]:
    with holdfast.open(tmp_path / "s.db", durability="process") as store:
        yield store


@pytest.fixture
def wire(store: holdfast.Store) -> Wire:
    return Wire(store)


def printed(wire: Wire, words: str) -> None:
    delta = {"terminal_output_delta": {"data": words, "terminal_id": "c1"}}
    wire.update(sessionUpdate="tool_call_update", toolCallId="c1", _meta=delta)


def finished(wire: Wire) -> None:
    wire.update(
        sessionUpdate="tool_call_update",
        toolCallId="c1",
        status="completed",
        rawOutput={"exit_code": 0},
    )


def outcomes(wire: Wire) -> list[str]:
    """What the model is told of the outcomes of calls."""
    insist_valid(wire.session())
    context = wire.session().context("openai.chat")
    return [each["content"] for each in context if each["role"] == "tool"]


def replay(wire: Wire, *, output: bool = True) -> None:
    wire.load()
    wire.chunk("user_message_chunk", "Look.", messageId="u1")
    wire.call("c1", status="completed", content=TERMINAL)
    if output:
        printed(wire, "a saw\n")
    wire.text("There.", messageId="m1")
    wire.answer("load", {})


def test_what_a_cancelled_tool_printed_before_and_after_is_its_outcome(wire: Wire) -> None:
    wire.prompt("Look.", id=1)
    wire.call("c1", status="in_progress", content=TERMINAL)
    printed(wire, "a ")
    wire.end(1, reason="cancelled")
    printed(wire, "saw")
    wire.prompt("Well?", id=2)
    printed(wire, "\n")
    finished(wire)
    wire.text("There.", messageId="m1")
    wire.end(2)
    assert outcomes(wire) == ["a saw\n"]


def test_an_output_that_a_replay_tells_after_the_call_is_its_outcome(
    wire: Wire, store: holdfast.Store
) -> None:
    wire.prompt("Look.")
    wire.call("c1", status="in_progress", content=TERMINAL)
    wire.recorder.end("the agent is gone")
    assert "interrupted" in outcomes(wire)[0]
    again = Wire(store)
    replay(again)
    replay(again)
    assert outcomes(again) == ["a saw\n"]


@pytest.mark.parametrize("output, expected", [(True, ["a saw\n"]), (False, ["(no output)"])])
def test_a_session_that_was_made_elsewhere_comes_with_its_outputs(
    wire: Wire, output: bool, expected: list[str]
) -> None:
    replay(wire, output=output)
    assert outcomes(wire) == expected


def test_a_replay_that_ends_with_a_call_leaves_nothing_out(wire: Wire) -> None:
    wire.load()
    wire.chunk("user_message_chunk", "Look.", messageId="u1")
    wire.call("c1", status="completed", content=TERMINAL)
    wire.answer("load", {})
    assert outcomes(wire) == ["(no output)"]
