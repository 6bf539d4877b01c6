"""Prompts that stand next to each other in what a model is asked: one prompt, for providers that take no
two in a row. A run that was cut off before its model said anything leaves its prompt alone.

What was said stays as it was said: they are one in a request, and nowhere else.
"""

import copy
from collections.abc import Sequence
from typing import Any

from agent_framework import Content, Message


def prompts_in_a_row(messages: Sequence[Any], source_id: str) -> list[list[Any]]:
    """These messages, of which a prompt of this history has the next one beside it: that of the history,
    or of the run. Two that a run is given at once, or that another provider brings, are as they
    were meant.
    """
    found: list[list[Any]] = []
    for message in messages:
        if found and _goes_with(found[-1][-1], message, source_id):
            found[-1].append(message)
        else:
            found.append([message])
    return found


def _goes_with(before: Any, message: Any, source_id: str) -> bool:
    if not (_is_prompt(before) and _is_prompt(message)):
        return False
    is_same = before.author_name == message.author_name
    brought = _source(message) in (None, source_id)
    return is_same and brought and _source(before) == source_id


def _is_prompt(message: Any) -> bool:
    """Whether these are words of a user's, or pictures: answers to calls have places of their own."""
    kinds = [content.type for content in message.contents]
    return message.role == "user" and not any("function" in kind for kind in kinds)


def _source(message: Any) -> Any:
    """Which provider has brought a message; None for what the run was given."""
    attribution = message.additional_properties.get("_attribution")
    return None if attribution is None else attribution.get("source_id")


def as_one(prompts: Sequence[Any]) -> Message:
    """One prompt with the words of these. It stands for the last of them, which is to be answered."""
    contents: list[Any] = []
    for prompt in prompts:
        contents += prompt.contents
    if all(content.type == "text" for content in contents):
        # The framework's client for Chat Completions sends each content of a user as a
        # message.
        words = "\n\n".join(content.text or "" for content in contents)
        contents = [Content.from_text(words)]
    joined: Message = copy.copy(prompts[-1])
    joined.contents = contents
    return joined
