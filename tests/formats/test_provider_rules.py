"""The strict providers know the keys that the providers' own clients declare, and no others; and what
is none of their messages is refused, and breaks nothing.
"""

import copy
from collections.abc import Iterator
from typing import Any, get_args, get_origin

import pytest
import typing_extensions
from anthropic.types import (
    MessageParam,
)
from openai.types.chat import ChatCompletionMessageParam
from openai.types.responses.response_input_param import ResponseInputItemParam

from holdfast.testing import providers
from holdfast.testing.providers import anthropic, responses


def declared(hint: Any) -> list[type]:
    """The typed dicts that a parameter may be, unions and lists opened."""
    if typing_extensions.is_typeddict(hint):
        return [hint]
    return [one for part in get_args(hint) for one in declared(part)]


def keys_by_kind(kinds: list[type]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for kind in kinds:
        hints = typing_extensions.get_type_hints(kind)
        for name in _literals(hints["type"]):
            found.setdefault(name, set()).update(hints)
    return found


def _literals(hint: Any) -> list[str]:
    if get_origin(hint) is typing_extensions.Literal:
        return [one for one in get_args(hint) if isinstance(one, str)]
    return [one for part in get_args(hint) for one in _literals(part)]


def test_items_of_the_responses_api_are_those_of_its_client():
    found = keys_by_kind(declared(ResponseInputItemParam))
    assert {kind: set(keys.split()) for kind, keys in responses.ITEMS.items()} == found


def test_blocks_of_the_messages_api_are_those_of_its_client():
    contents = [typing_extensions.get_type_hints(one)["content"] for one in declared(MessageParam)]
    found = keys_by_kind([one for content in contents for one in declared(content)])
    assert {kind: set(keys.split()) for kind, keys in anthropic.BLOCKS.items()} == found


def test_messages_of_the_chat_api_are_those_of_its_client():
    for message in declared(ChatCompletionMessageParam):
        hints = typing_extensions.get_type_hints(message)
        [role] = _literals(hints["role"])
        if role != "function":  # the first kind of result, which contexts no longer have
            beyond = {"assistant": {"annotations"}, "tool": {"name"}}.get(role, set())
            assert providers.COMPLETIONS_KEYS[role] - beyond == set(hints), role
        for kind, keys in keys_by_kind(declared(hints["content"])).items():
            assert providers.COMPLETIONS_BLOCKS[kind] == keys, kind


@pytest.mark.parametrize("format", ["openai.chat", "openai.responses", "anthropic"])
def test_a_key_that_nobody_declared_is_refused_wherever_it_stands(format):
    text = {"openai.responses": "input_text"}.get(format, "text")
    for message in (
        {"role": "user", "content": "Hi.", "surprise": 1},
        {"role": "user", "content": [{"type": text, "text": "Hi.", "surprise": 1}]},
        {"role": "user", "content": [{"type": "surprise", "text": "Hi."}]},
    ):
        assert providers.check(format, [message])


_CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
_SHELL = {"type": "shell_call", "call_id": "c2", "action": {"commands": ["ls"]}}
_SHELL_SAID = {"stdout": "", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}
TAKEN: dict[str, list[Any]] = {
    "openai.chat": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Hi"},
                {"type": "image_url", "image_url": {"url": "http://x"}},
            ],
        },
        {"role": "assistant", "tool_calls": [_CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "There."},
        {"role": "assistant", "content": "Well."},
    ],
    "openai.responses": [
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "Hi"},
                {"type": "input_image", "image_url": "http://x"},
            ],
        },
        {"type": "reasoning", "summary": []},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "There."},
        _SHELL,
        {"type": "shell_call_output", "call_id": "c2", "output": [_SHELL_SAID]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "Well."}]},
    ],
    "anthropic": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Hi"},
                {"type": "image", "source": {"type": "url", "url": "http://x"}},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm", "signature": "s"},
                {"type": "tool_use", "id": "c1", "name": "look", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "c1",
                    "content": [{"type": "text", "text": "There."}],
                }
            ],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "Well."}]},
    ],
}
_OTHER = (None, 7, "x", [], {}, ["x"], {"x": 1}, [None], [{}], "[" * 100_000)


def _places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if at:
        yield at
    inside = value.items() if isinstance(value, dict) else ()
    for key, each in enumerate(value) if isinstance(value, list) else inside:
        yield from _places(each, (*at, key))


def _holder(value: Any, at: tuple[Any, ...]) -> Any:
    for key in at[:-1]:
        value = value[key]
    return value


@pytest.mark.parametrize("format", TAKEN)
def test_a_request_that_lacks_something_or_has_another_thing_there_breaks_nothing(format):
    taken = TAKEN[format]
    assert providers.check(format, taken) == []
    for at in _places(taken):
        for other in _OTHER:
            damaged = copy.deepcopy(taken)
            _holder(damaged, at)[at[-1]] = other
            assert isinstance(providers.check(format, damaged, prefill=False), list)
        damaged = copy.deepcopy(taken)
        del _holder(damaged, at)[at[-1]]
        providers.check(format, damaged, prefill=False)


def test_a_call_without_an_id_is_refused():
    call = {key: value for key, value in _CALL.items() if key != "id"}
    asked = [TAKEN["openai.chat"][0], {"role": "assistant", "tool_calls": [call]}]
    assert "messages[1]: call id None" in providers.check("openai.chat", asked)
