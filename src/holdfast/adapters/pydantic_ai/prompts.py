"""Prompts that stand next to each other in what a model is asked: one prompt, for providers that
take no two in a row.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, UserPromptPart


def with_prompts_joined(messages: Sequence[Any]) -> list[Any] | None:
    """These messages with neighbouring prompts made one, in copies; None when there are none. A response
    that was cut off before it said anything does not part two prompts.
    """
    messages = _without_silence(messages)
    found: list[Any] = []
    last: UserPromptPart | None = None
    is_changed = False
    for message in messages:
        parts: list[Any] = []
        for part in message.parts if isinstance(message, ModelRequest) else ():
            if last is not None and isinstance(part, UserPromptPart):
                # It stands where the last of them does: that message is the one to be answered.
                if not parts:
                    _take_last_part(found)
                part, is_changed = _joined(last, part), True
                parts = parts[:-1]
            parts.append(part)
            last = part if isinstance(part, UserPromptPart) else None
        if isinstance(message, ModelRequest):
            if parts != list(message.parts):
                message = dataclasses.replace(message, parts=parts)
        else:
            last = None
        found.append(message)
    return found if is_changed else None


def _without_silence(messages: Sequence[Any]) -> list[Any]:
    """These messages without the responses between two prompts that say nothing."""
    found: list[Any] = []
    silent: list[Any] = []
    for message in messages:
        if _says_nothing(message):
            silent.append(message)
            continue
        if not (found and _is_prompt(found[-1], -1) and _is_prompt(message, 0)):
            found += silent
        silent = []
        found.append(message)
    return found + silent


def _says_nothing(message: Any) -> bool:
    if not isinstance(message, ModelResponse):
        return False
    return all(
        isinstance(part, TextPart) and not part.content for part in message.parts
    )


def _is_prompt(message: Any, place: int) -> bool:
    """Whether the first or the last part of a message is a prompt."""
    parts = message.parts if isinstance(message, ModelRequest) else ()
    return bool(parts) and isinstance(parts[place], UserPromptPart)


def _take_last_part(found: list[Any]) -> None:
    """Takes the last part out of the last message, and a message of nothing else."""
    before = found.pop()
    if len(before.parts) > 1:
        found.append(dataclasses.replace(before, parts=list(before.parts[:-1])))


def _joined(one: UserPromptPart, other: UserPromptPart) -> UserPromptPart:
    if isinstance(one.content, str) and isinstance(other.content, str):
        content: Any = f"{one.content}\n\n{other.content}"
    else:
        content = [*_listed(one.content), *_listed(other.content)]
    return dataclasses.replace(other, content=content)


def _listed(content: Any) -> Sequence[Any]:
    return [content] if isinstance(content, str) else content
