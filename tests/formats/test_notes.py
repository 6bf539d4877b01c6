"""What the log notes beside a payload, and what can't be a message at all."""

import pytest
from anthropic.types import Message, TextBlock, ToolUseBlock
from openai.types.chat import ChatCompletionMessage

from holdfast.domain.message import CallNote
from holdfast.errors import InvalidMessage
from holdfast.formats import registry
from holdfast.testing.strategies import FORMATS


@pytest.mark.parametrize("format_name", FORMATS)
@pytest.mark.parametrize("role", ["user", "assistant"])
def test_words_are_plain(format_name, role):
    form = registry.get(format_name)
    note = form.note(form.say(role, "Hi."))
    assert (note.role, note.format, note.plain) == (role, format_name, True)


@pytest.mark.parametrize("format_name", FORMATS)
@pytest.mark.parametrize("text", ["", " \n"])
def test_blanks_are_not_plain(format_name, text):
    form = registry.get(format_name)
    assert not form.note(form.say("user", text)).plain


def test_a_list_of_bare_texts_is_read():
    form = registry.get("langchain")
    for content in (["Hi."], ["Hi.", {"type": "text", "text": "Hi."}]):
        payload = {"type": "ai", "data": {"content": content}}
        assert form.note(payload).role == "assistant"
        assert [piece.part.text for piece in form.read(payload)] == ["Hi."] * len(content)


def test_a_failure_is_read_as_one():
    for said in (True, False, None):
        told = {} if said is None else {"is_error": said}
        block = {"type": "tool_result", "tool_use_id": "a", "content": "x", **told}
        [piece] = registry.get("anthropic").read({"role": "user", "content": [block]})
        assert piece.part.error is (said is True)


def test_calls_are_noted_with_whether_their_arguments_were_fully_said():
    calls = [
        {"id": one, "type": "function", "function": {"name": "f", "arguments": said}}
        for one, said in (("a", "{}"), ("b", '{"a'), ("c", ""))
    ]
    note = registry.get("openai.chat").note(
        {"role": "assistant", "content": None, "tool_calls": calls}
    )
    assert note.calls == (
        CallNote("a", "f"),
        CallNote("b", "f", whole=False),
        CallNote("c", "f", whole=False),
    )


@pytest.mark.parametrize(
    ("format_name", "payload"),
    [
        ("openai.chat", {"role": "tool", "tool_call_id": "a", "content": "x"}),
        ("openai.responses", {"type": "function_call_output", "call_id": "a", "output": "x"}),
        (
            "anthropic",
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "a", "content": "x"}],
            },
        ),
        (
            "holdfast",
            {"role": "tool", "parts": [{"type": "result", "call_id": "a", "content": "x"}]},
        ),
    ],
)
def test_a_message_that_only_answers_calls_is_a_tools(format_name, payload):
    note = registry.get(format_name).note(payload)
    assert (note.role, note.answers, note.plain) == ("tool", ("a",), False)


@pytest.mark.parametrize(
    ("format_name", "payload", "place"),
    [
        ("openai.chat", "Hi.", "the message"),
        ("openai.chat", {"content": "Hi."}, "role"),
        ("openai.chat", {"role": "wizard", "content": "Hi."}, "role"),
        ("openai.chat", {"role": "user", "content": 5}, "content"),
        ("openai.chat", {"role": "user", "content": ["Hi."]}, "content[0]"),
        ("openai.chat", {"role": "assistant", "tool_calls": "x"}, "tool_calls"),
        ("openai.chat", {"role": "assistant", "tool_calls": ["x"]}, "tool_calls[0]"),
        ("anthropic", {"role": "tool", "content": "Hi."}, "role"),
        ("anthropic", {"role": "user", "content": [{"text": "Hi."}]}, "content[0]"),
        ("openai.responses", {"content": "Hi."}, "role"),
        ("openai.responses", [{"type": "reasoning"}, "x"], "[1]"),
        ("openai.responses", [{"role": "user", "content": "Hi."}], "the message"),
        ("openai.responses", {"type": "message", "role": "user", "content": [1]}, "content[0]"),
        ("openai.responses", {"type": 5}, "type"),
        ("holdfast", {"role": "user", "content": "Hi."}, "parts"),
        ("holdfast", {"role": "user", "parts": ["Hi."]}, "parts[0]"),
    ],
)
def test_what_is_not_a_message_is_refused_with_its_place(format_name, payload, place):
    with pytest.raises(InvalidMessage) as refused:
        registry.get(format_name).note(payload)
    assert refused.value.place == place


def test_an_unknown_format_is_refused_with_the_known_ones():
    with pytest.raises(InvalidMessage, match="openai.responses"):
        registry.get("smoke.signals")


def test_a_registered_format_is_known():
    class Smoke(type(registry.get("openai.chat"))):
        name = "smoke.signals"

    registry.register(Smoke(registry.read))
    try:
        assert registry.get("smoke.signals").name in registry.known()
    finally:
        del registry._formats["smoke.signals"]


def test_sdk_objects_become_what_the_api_takes_back():
    said = ChatCompletionMessage.model_validate(
        {
            "role": "assistant",
            "content": None,
            "refusal": None,
            "tool_calls": None,
            "annotations": [],
        }
    )
    assert registry.plain(said) == {"role": "assistant", "content": None, "annotations": []}


def test_sdk_objects_inside_plain_data_are_converted():
    blocks = [
        TextBlock(type="text", text="Hi."),
        ToolUseBlock(type="tool_use", id="a", name="f", input={"x": 1}),
    ]
    converted = registry.plain({"role": "assistant", "content": blocks})
    assert converted["content"][1] == {
        "type": "tool_use",
        "id": "a",
        "name": "f",
        "input": {"x": 1},
    }


def test_plain_data_is_handed_back_as_it_is():
    payload = {"role": "user", "content": "Hi."}
    assert registry.plain(payload) is payload


def test_a_whole_anthropic_response_is_stored_and_only_its_message_is_sent():
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = Message.model_validate(
        {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "model": "x",
            "stop_reason": "end_turn",
            "usage": usage,
        }
        | {"content": [{"type": "text", "text": "Hi."}]}
    )
    assert registry.get("anthropic").note(registry.plain(message)).role == "assistant"


def test_a_response_whose_call_id_is_no_text_is_read_like_any_other() -> None:
    items = [{"type": "function_call", "call_id": ["x"], "name": "look", "arguments": "{}"}]
    assert registry.get("openai.responses").note(items).role == "assistant"
