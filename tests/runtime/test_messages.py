"""What a message tells of itself: its words, what a tool answered, and the calls that it makes."""

import json

import pytest

import holdfast
from holdfast.testing.providers import check

ARGUMENTS = '{"city": "Kyoto"}'
SPOKEN = {
    "openai.chat": (
        {
            "role": "assistant",
            "content": "Let me look.",
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "weather", "arguments": ARGUMENTS},
                },
                {"id": "c2", "type": "custom", "custom": {"name": "shell", "input": "ls -l"}},
            ],
        },
        [
            {"role": "tool", "tool_call_id": "c1", "content": "rain, 14 °C"},
            {
                "role": "tool",
                "tool_call_id": "c2",
                "content": [{"type": "text", "text": "total 0"}],
            },
        ],
    ),
    "openai.responses": (
        [
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "Let me look."}],
            },
            {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": ARGUMENTS},
            {"type": "custom_tool_call", "call_id": "c2", "name": "shell", "input": "ls -l"},
        ],
        [
            {"type": "function_call_output", "call_id": "c1", "output": "rain, 14 °C"},
            {"type": "custom_tool_call_output", "call_id": "c2", "output": "total 0"},
        ],
    ),
    "anthropic": (
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Let me look."},
                {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Kyoto"}},
                {"type": "tool_use", "id": "c2", "name": "shell", "input": {"command": "ls -l"}},
            ],
        },
        [
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": "rain, 14 °C"},
                    {
                        "type": "tool_result",
                        "tool_use_id": "c2",
                        "content": [{"type": "text", "text": "total 0"}],
                    },
                ],
            }
        ],
    ),
}


@pytest.fixture
def session(tmp_path):
    with holdfast.open(tmp_path / "agent.db") as store:
        yield store.session("k")


@pytest.fixture(params=SPOKEN)
def told(request, session):
    """A turn with two calls and their results, in each format."""
    called, results = SPOKEN[request.param]
    with session.turn("What is the weather, and what is here?", format=request.param) as turn:
        turn.add(called)
        for result in results:
            turn.add(result)
        turn.say("It rains.")
    return list(session.transcript())


def test_a_message_that_calls_has_its_words_as_text_and_its_calls_beside_them(told):
    caller = told[1]
    assert caller.text == "Let me look."
    [first, second] = caller.calls
    assert (first.call_id, first.name, json.loads(first.arguments)) == (
        "c1",
        "weather",
        {"city": "Kyoto"},
    )
    assert (second.call_id, second.name) == ("c2", "shell") and "ls -l" in second.arguments
    assert told[0].calls == told[-1].calls == []


def test_the_obvious_summary_keeps_what_the_tools_answered(told):
    summary = "\n".join(message.text for message in told)
    assert "rain, 14 °C" in summary and "total 0" in summary and "It rains." in summary


def test_a_repr_shows_words_calls_and_results(told):
    assert (
        "'Let me look.'" in repr(told[1])
        and "weather(" in repr(told[1])
        and "ls -l" in repr(told[1])
    )
    assert "rain, 14 °C" in repr(told[2])


def test_words_beside_a_result_stand_on_a_line_of_their_own(session):
    with session.turn("Go.", format="anthropic") as turn:
        turn.add(
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "c1", "name": "f", "input": {}}],
            }
        )
        result = {"type": "tool_result", "tool_use_id": "c1", "content": "done"}
        turn.add({"role": "user", "content": [result, {"type": "text", "text": "And now?"}]})
    assert list(session.transcript())[-1].text == "done\nAnd now?"


def test_what_a_turn_stores_of_a_tool_is_its_text_too(session):
    with session.turn("Go.") as turn:
        turn.call("look", {"at": "sky"}, call_id="c1")
        turn.result("c1", {"seen": ["stars"]})
    [_, called, answered] = session.transcript()
    assert (called.text, called.calls[0].name, json.loads(called.calls[0].arguments)) == (
        "",
        "look",
        {"at": "sky"},
    )
    assert json.loads(answered.text) == {"seen": ["stars"]}


def test_a_follower_is_told_the_same_text_as_a_reader_of_the_transcript(told, session):
    joined = {}
    for event in session.follow():
        if event.message_id is not None:
            joined[event.message_id] = joined.get(event.message_id, "") + event.text
        if len(joined) == len(told):
            break
    assert joined == {message.id: message.text for message in told}


def error_results(format):
    anthropic = {
        "type": "tool_result",
        "tool_use_id": "c1",
        "content": "no such city",
        "is_error": True,
    }
    return {
        "anthropic": {"role": "user", "content": [anthropic]},
        "holdfast": {
            "role": "tool",
            "parts": [
                {"type": "result", "call_id": "c1", "content": "no such city", "error": True}
            ],
        },
    }[format]


@pytest.mark.parametrize("format", ["anthropic", "holdfast"])
def test_a_result_that_is_an_error_stays_one(session, format):
    """It is read as an error, counts as a failed call, and is told to the model as an error."""
    with session.turn("Go.") as turn:
        called = {"type": "function", "function": {"name": "weather", "arguments": "{}"}}
        turn.add({"role": "assistant", "content": None, "tool_calls": [{"id": "c1", **called}]})
        turn.add(error_results(format), format=format)
    [answered] = [message for message in session.transcript() if message.role == "tool"]
    assert [part.error for part in answered.parts] == [True]
    assert [call.state for call in session.calls()] == ["failed"]
    [block] = session.context("anthropic")[2]["content"]
    assert block == {
        "type": "tool_result", "tool_use_id": "c1", "content": "no such city", "is_error": True
    }  # fmt: skip
    [part] = session.context("holdfast")[2]["parts"]
    assert part["error"] is True


def test_a_failed_result_of_a_turn_is_an_error_for_anthropic_and_a_good_one_is_none(session):
    with session.turn("Go.") as turn:
        for name in ("bad", "good"):
            turn.call(name, {}, call_id=name)
        turn.result("bad", "it broke", error=True)
        turn.result("good", "fine")
    context = session.context("anthropic")
    bad, good = context[2]["content"]
    assert bad["is_error"] is True and "is_error" not in good
    assert check("anthropic", context) == []


def test_whoever_changes_labels_changes_a_copy(store):
    beside = {"files": ["a.png"], "source": {"chat": {"id": 7}}}
    message_id = store.accept("k", "look", labels=beside).message_id
    session = store.session("k")

    def spoil(message):
        assert message.labels == beside
        message.labels["files"].append("b.png")
        message.labels["source"]["chat"].clear()
        del message.labels["files"]

    for _ in range(2):
        spoil(session.pending()[0])
        spoil(store.pending()[0])
        spoil(next(session.transcript()))
    with session.turn() as turn:
        store.accept("k", "and here", labels=beside)
        [came] = turn.inbox()
        spoil(came)
        turn.say("I see")
    for message in session.transcript():
        if message.role == "user":
            spoil(message)
    # What is written later is not made of what a reader has changed.
    session.label(message_id, seen=True)
    assert next(session.fork().transcript()).labels == {**beside, "seen": True}
