"""Providers that refuse what the real ones refuse: a request's messages in, its problems out.

The rules are those the providers document and those that public reports met (FAULTS E): independent
of the code that makes contexts, so that the two can be held against each other. Keys and kinds are
those of the parameters that the providers' own clients declare; a test compares the two.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from holdfast.testing.providers.anthropic import anthropic_problems
from holdfast.testing.providers.responses import responses_problems

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
    "function": ({"id", "type", "function"}, {"name", "arguments"}),
    "custom": ({"id", "type", "custom"}, {"name", "input"}),
}
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


def _blank(text: Any) -> bool:
    return not isinstance(text, str) or not text.strip()


def _content_problems(content: Any, at: str) -> list[str]:
    """Chat content: words that say something, or a list of blocks that do."""
    if isinstance(content, str):
        return [f"{at}: blank content"] if _blank(content) else []
    if not isinstance(content, list) or not content:
        return [f"{at}: no content"]
    problems = []
    for index, block in enumerate(content):
        if block.get("type") == "text" and _blank(block.get("text")):
            problems.append(f"{at}.content[{index}]: blank text")
        if block.get("type") == "image_url" and _blank(
            (block.get("image_url") or {}).get("url")
        ):
            problems.append(f"{at}.content[{index}]: an image without a url")
        allowed = (COMPLETIONS_BLOCKS | _VENDOR_BLOCKS).get(str(block.get("type")))
        if allowed is None:
            problems.append(
                f"{at}.content[{index}]: unknown type {block.get('type')!r}"
            )
        else:
            problems += [
                f"{at}.content[{index}]: unknown key {key!r}"
                for key in block.keys() - allowed
            ]
    return problems


def _completions(payloads: Sequence[Any]) -> list[str]:
    problems: list[str] = []
    unanswered: list[str] = []
    last = None
    for index, message in enumerate(payloads):
        at = f"messages[{index}]"
        role = message.get("role") if isinstance(message, dict) else None
        if role not in COMPLETIONS_KEYS:
            problems.append(f"{at}: role {role!r}")
            continue
        allowed = COMPLETIONS_KEYS[role] | (
            _VENDOR_KEYS if role == "assistant" else set()
        )
        problems += [f"{at}: unknown key {key!r}" for key in message.keys() - allowed]
        problems += [
            f"{at}: {key} is null"
            for key in message
            if message[key] is None and key != "content"
        ]
        if role == "tool":
            problems += _completions_result(message, unanswered, at)
            last = role
            continue
        if unanswered:
            problems.append(f"{at}: calls {unanswered} were not answered before it")
        if role == last and role in ("user", "assistant"):
            problems.append(f"{at}: {role} twice in a row")
        calls = message.get("tool_calls")
        if calls is None and not (
            role == "assistant"
            and message["content"] is None
            and message.get("refusal")
        ):
            problems += _content_problems(message.get("content"), at)
        elif isinstance(message.get("content"), list):
            problems += _content_problems(message["content"], at)
        unanswered = _completions_calls(calls, problems, at)
        last = role
    return [*problems, "the last calls were not answered"] if unanswered else problems


def _completions_result(
    message: dict[str, Any], unanswered: list[str], at: str
) -> list[str]:
    problems = _content_problems(message.get("content"), at)
    call_id = message.get("tool_call_id")
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
    ids = [call.get("id") for call in calls]
    problems += [
        f"{at}: call id {one!r} {count} times"
        for one, count in Counter(ids).items()
        if count > 1
    ]
    for call in calls:
        if _blank(call["id"]) or len(call["id"]) > 40:
            problems.append(f"{at}: call id {call['id']!r}")
        said = (
            call.get(call.get("type"))
            if call.get("type") in ("function", "custom")
            else None
        )
        if not isinstance(said, dict) or not _NAME.fullmatch(str(said.get("name"))):
            problems.append(f"{at}: function name in {call!r}")
        else:
            problems += _completions_call(call, said, at)
    return ids


def _completions_call(call: dict[str, Any], said: dict[str, Any], at: str) -> list[str]:
    outer, inner = _COMPLETIONS_CALLS[call["type"]]
    problems = [
        f"{at}: unknown key {key!r} in a call"
        for key in call.keys() - outer - _VENDOR_CALL_KEYS
    ]
    problems += [f"{at}: unknown key {key!r} in a call" for key in said.keys() - inner]
    words = said.get("arguments" if call["type"] == "function" else "input")
    if not isinstance(words, str):
        return [*problems, f"{at}: arguments are not a string"]
    return [
        *problems,
        *(
            [f"{at}: {words!r} is not JSON"]
            if call["type"] == "function" and not _json(words)
            else []
        ),
    ]


def _json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _neutral(payloads: Sequence[Any]) -> list[str]:
    problems: list[str] = []
    unanswered: list[str] = []
    seen: set[str] = set()
    last = None
    for index, message in enumerate(payloads):
        at = f"messages[{index}]"
        problems += [
            f"{at}: unknown key {key!r}" for key in message.keys() - {"role", "parts"}
        ]
        role, parts = message["role"], message["parts"]
        if not parts:
            problems.append(f"{at}: no parts")
        problems += [
            f"{at}: blank text"
            for part in parts
            if part["type"] == "text" and _blank(part["text"])
        ]
        answers = [part["call_id"] for part in parts if part["type"] == "result"]
        if role == "tool" and (len(answers) != 1 or answers != unanswered[:1]):
            problems.append(f"{at}: {answers} where {unanswered} were due")
        if role != "tool" and (unanswered or answers):
            problems.append(f"{at}: results {unanswered} due, {answers} given")
        if role == last and role in ("user", "assistant"):
            problems.append(f"{at}: {role} twice in a row")
        unanswered = (
            unanswered[1:]
            if role == "tool"
            else [part["id"] for part in parts if part["type"] == "call"]
        )
        if role != "tool":
            problems += [
                f"{at}: call id {one!r} again"
                for one in unanswered
                if one in seen or _blank(one)
            ]
            problems += [f"{at}: one call id twice"] * (
                len(set(unanswered)) < len(unanswered)
            )
            seen.update(unanswered)
        last = role
    return [*problems, "the last calls were not answered"] if unanswered else problems


_PROVIDERS: dict[str, Callable[[Sequence[Any]], list[str]]] = {
    "openai.chat": _completions,
    "openai.responses": responses_problems,
    "anthropic": anthropic_problems,
    "holdfast": _neutral,
}
