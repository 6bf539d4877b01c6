"""What the rules of several providers have in common: blank words, unknown keys, repeated calls."""

import json
from collections.abc import Callable, Collection
from typing import Any

Payload = dict[str, Any]


def blank(text: Any) -> bool:
    """Whether this is not a string, or one that says nothing."""
    # Deliberately not `formats.reading.is_blank`, which is judged by this code.
    return not isinstance(text, str) or not text.strip()


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    # Nested too deeply for a provider, too.
    except (ValueError, RecursionError):
        return False
    return True


def unknown_keys(payload: Payload, allowed: Collection[str], at: str) -> list[str]:
    """A problem for every key that the provider does not take here."""
    return [f"{at}: unknown key {key!r}" for key in payload if key not in allowed]


def content_problems(
    content: Any, block_problems: Callable[[Payload, str], list[str]], at: str
) -> list[str]:
    """What is wrong with words that must say something, or with a list of blocks that must."""
    if isinstance(content, str):
        return [f"{at}: blank content"] if blank(content) else []
    if not isinstance(content, list) or not content:
        return [f"{at}: no content"]
    problems = []
    for place, block in enumerate(content):
        if isinstance(block, dict):
            problems += block_problems(block, f"{at}.content[{place}]")
        else:
            problems.append(f"{at}.content[{place}]: not a block")
    return problems


def arguments_problems(words: Any, at: str, *, wants_json: bool) -> list[str]:
    """What is wrong with the arguments of a call; a tool of one's own may take any text."""
    if not isinstance(words, str):
        return [f"{at}: arguments are not a string"]
    if wants_json and not is_json(words):
        return [f"{at}: {words!r} is not JSON"]
    return []


def repeated_role(role: Any, last: Any, at: str) -> list[str]:
    """Users and models take turns; others may say several things in a row."""
    if role == last and role in ("user", "assistant"):
        return [f"{at}: {role} twice in a row"]
    return []


def repeated_calls(ids: list[str], seen: Collection[str], at: str) -> list[str]:
    """Calls of a message whose ids were used before it, or twice in it."""
    problems = [f"{at}: call id {one!r} again" for one in ids if one in seen]
    if len(set(ids)) < len(ids):
        problems.append(f"{at}: one call id twice")
    return problems
