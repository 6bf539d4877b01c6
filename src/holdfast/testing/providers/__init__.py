"""Providers that refuse what the real ones refuse: a request's messages in, its problems out.

The rules are those the providers document and those that public reports met (FAULTS E): independent
of the code that makes contexts, so that the two can be held against each other. Keys and kinds are
those of the parameters that the providers' own clients declare; a test compares the two.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from holdfast.testing.providers.anthropic import anthropic_problems
from holdfast.testing.providers.checks import (
    Payload,
    arguments_problems,
    blank,
    content_problems,
    repeated_calls,
    repeated_role,
    unknown_keys,
)
from holdfast.testing.providers.responses import responses_problems

# The API's own rule for the names of tools.
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
COMPLETIONS_KEYS = {
    "system": {"role", "content", "name"},
    "developer": {"role", "content", "name"},
    "user": {"role", "content", "name"},
    "tool": {"role", "content", "tool_call_id", "name"},
    "assistant": {
        "role",
        "content",
        "name",
        "refusal",
        "tool_calls",
        "audio",
        "function_call",
        "annotations",
    },
}
"""Keys that the API takes. Two are not among its parameters: `annotations`, as it takes its own
answers back whole, and the `name` of a result, which agents send all the time.
"""
COMPLETIONS_BLOCKS = {
    "text": {"type", "text", "prompt_cache_breakpoint"},
    "image_url": {"type", "image_url", "prompt_cache_breakpoint"},
    "input_audio": {"type", "input_audio", "prompt_cache_breakpoint"},
    "file": {"type", "file", "prompt_cache_breakpoint"},
    "refusal": {"type", "refusal"},
}
_COMPLETIONS_CALLS = {
    "function": ({"id", "type", "function"}, {"name", "arguments"}, "arguments"),
    "custom": ({"id", "type", "custom"}, {"name", "input"}, "input"),
}
"""Of each kind of call: its keys, those of what it holds, and which of them has the words."""
_VENDOR_KEYS = {"reasoning_content", "reasoning", "reasoning_details", "images"}
_VENDOR_BLOCKS = {"thinking": {"type", "thinking", "closed"}}
_VENDOR_CALL_KEYS = {"extra_content"}
"""What servers that speak this API add to their answers, and take back (DeepSeek, OpenRouter,
Mistral, Gemini).
"""


def check(
    format_name: str, payloads: Sequence[Any], *, prefill: bool = True
) -> list[str]:
    """What the provider would refuse in these messages; empty when it takes them. Without `prefill`
    they must not end with a message of the model's own, as in a request for its next one.
    """
    problems = _PROVIDERS[format_name](payloads)
    # Some models refuse to go on from a last message of their own.
    if not prefill and payloads and _is_the_models(payloads[-1]):
        problems = [*problems, "the last message is the model's own"]
    return problems


def _is_the_models(payload: Any) -> bool:
    if not isinstance(payload, dict):
        return False
    kind = str(payload.get("type", "message"))
    if "role" not in payload:
        return not kind.endswith(("_output", "_response"))
    return bool(payload["role"] == "assistant")


def _block_problems(block: Payload, at: str) -> list[str]:
    kind = str(block.get("type"))
    allowed = (COMPLETIONS_BLOCKS | _VENDOR_BLOCKS).get(kind)
    if allowed is None:
        return [f"{at}: unknown type {block.get('type')!r}"]
    problems = unknown_keys(block, allowed, at)
    if kind == "text" and blank(block.get("text")):
        problems.append(f"{at}: blank text")
    image = block.get("image_url")
    if kind == "image_url" and not (
        isinstance(image, dict) and not blank(image.get("url"))
    ):
        problems.append(f"{at}: an image without a url")
    return problems


def _completions(payloads: Sequence[Any]) -> list[str]:
    problems: list[str] = []
    unanswered: list[str] = []
    last = None
    for index, message in enumerate(payloads):
        at = f"messages[{index}]"
        role = message.get("role") if isinstance(message, dict) else None
        if not isinstance(role, str) or role not in COMPLETIONS_KEYS:
            problems.append(f"{at}: role {role!r}")
            continue
        problems += _completions_keys(message, role, at)
        if role == "tool":
            problems += _completions_result(message, unanswered, at)
        else:
            if unanswered:
                problems.append(f"{at}: calls {unanswered} were not answered before it")
            problems += repeated_role(role, last, at)
            problems += _completions_content(message, role, at)
            unanswered = _completions_calls(message.get("tool_calls"), problems, at)
        last = role
    if unanswered:
        problems.append("the last calls were not answered")
    return problems


def _completions_keys(message: Payload, role: str, at: str) -> list[str]:
    allowed = COMPLETIONS_KEYS[role]
    if role == "assistant":
        # Only in answers: nobody else says what a vendor adds.
        allowed = allowed | _VENDOR_KEYS
    problems = unknown_keys(message, allowed, at)
    for key, value in message.items():
        # A message that only calls tools has no content, and says so; nothing else is null.
        if value is None and key != "content":
            problems.append(f"{at}: {key} is null")
    return problems


def _completions_content(message: Payload, role: str, at: str) -> list[str]:
    """A message needs content unless it makes calls, or is the model's refusal."""
    # One that has none need not say so.
    content = message.get("content")
    refuses = role == "assistant" and content is None and message.get("refusal")
    needs_content = message.get("tool_calls") is None and not refuses
    if needs_content or isinstance(content, list):
        return content_problems(content, _block_problems, at)
    return []


def _completions_result(message: Payload, unanswered: list[str], at: str) -> list[str]:
    problems = content_problems(message.get("content"), _block_problems, at)
    call_id = message.get("tool_call_id")
    # Taken off: a second answer to the same call is one too many.
    if call_id in unanswered:
        unanswered.remove(call_id)
    else:
        problems.append(f"{at}: {call_id!r} answers no call of the message before it")
    return problems


def _completions_calls(calls: Any, problems: list[str], at: str) -> list[str]:
    if calls is None:
        return []
    if not isinstance(calls, list) or not calls:
        problems.append(f"{at}: tool_calls is not a list of calls")
        return []
    ids: list[str] = []
    for call in calls:
        if not isinstance(call, dict):
            problems.append(f"{at}: {call!r} is no call")
            continue
        id = call.get("id")
        # Chat Completions takes ids of up to 40 characters.
        if blank(id) or len(str(id)) > 40:
            problems.append(f"{at}: call id {id!r}")
        # Whatever was wrong with it: its answer must not be a second problem.
        ids.append(str(id))
        problems += _completions_call(call, at)
    # Within one message: in the next one, servers reuse ids (FAULTS E4).
    for one, count in Counter(ids).items():
        if count > 1:
            problems.append(f"{at}: call id {one!r} {count} times")
    return ids


def _completions_call(call: Payload, at: str) -> list[str]:
    kind = str(call.get("type"))
    said = call.get(kind) if kind in _COMPLETIONS_CALLS else None
    if not isinstance(said, dict) or not _NAME.fullmatch(str(said.get("name"))):
        return [f"{at}: function name in {call!r}"]
    outer, inner, words = _COMPLETIONS_CALLS[kind]
    problems = []
    unknown = call.keys() - outer - _VENDOR_CALL_KEYS
    unknown_inside = said.keys() - inner
    for key in (*unknown, *unknown_inside):
        problems.append(f"{at}: unknown key {key!r} in a call")
    wants_json = kind == "function"
    return problems + arguments_problems(said.get(words), at, wants_json=wants_json)


def _neutral(payloads: Sequence[Any]) -> list[str]:
    problems: list[str] = []
    unanswered: list[str] = []
    seen: set[str] = set()
    last = None
    for index, message in enumerate(payloads):
        at = f"messages[{index}]"
        role = message["role"]
        parts = message["parts"]
        problems += _neutral_parts(message, at)
        problems += _neutral_results(role, parts, unanswered, at)
        problems += repeated_role(role, last, at)
        if role == "tool":
            # One message answers one call, in the order of the calls.
            unanswered = unanswered[1:]
        else:
            unanswered = [part["id"] for part in parts if part["type"] == "call"]
            # A blank id is no better than one that was used: results can't find their call.
            blanks = {one for one in unanswered if blank(one)}
            problems += repeated_calls(unanswered, seen | blanks, at)
            seen.update(unanswered)
        last = role
    if unanswered:
        problems.append("the last calls were not answered")
    return problems


def _neutral_parts(message: Payload, at: str) -> list[str]:
    problems = unknown_keys(message, {"role", "parts"}, at)
    if not message["parts"]:
        problems.append(f"{at}: no parts")
    for part in message["parts"]:
        if part["type"] == "text" and blank(part["text"]):
            problems.append(f"{at}: blank text")
    return problems


def _neutral_results(
    role: str, parts: list[Payload], unanswered: list[str], at: str
) -> list[str]:
    """A tool's message answers the first call that is open; all others come after the last."""
    answers = [part["call_id"] for part in parts if part["type"] == "result"]
    if role != "tool":
        if unanswered or answers:
            return [f"{at}: results {unanswered} due, {answers} given"]
    elif len(answers) != 1 or answers != unanswered[:1]:
        return [f"{at}: {answers} where {unanswered} were due"]
    return []


_PROVIDERS: dict[str, Callable[[Sequence[Any]], list[str]]] = {
    "openai.chat": _completions,
    "openai.responses": responses_problems,
    "anthropic": anthropic_problems,
    "holdfast": _neutral,
}
