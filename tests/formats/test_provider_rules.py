"""The strict providers know the keys that the providers' own clients declare, and no others."""

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
