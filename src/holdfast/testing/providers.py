"""Providers that refuse what the real ones refuse: a request's messages in, its problems out.

The rules are those the providers document and those that public reports met (FAULTS E): independent of the code that
makes contexts, so that the two can be held against each other.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from holdfast.testing.provider_anthropic import anthropic_problems

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_COMPLETIONS_KEYS = {
    "system": {"role", "content", "name"},
    "developer": {"role", "content", "name"},
    "user": {"role", "content", "name"},
    "tool": {"role", "content", "tool_call_id", "name"},
    "assistant": {
        "role", "content", "name", "refusal", "tool_calls", "audio", "annotations", "reasoning_content", "reasoning",
    },
}  # fmt: skip


def check(format_name: str, payloads: Sequence[Any]) -> list[str]:
    """What the provider would refuse in these messages; empty when it takes them."""
    return _PROVIDERS[format_name](payloads)


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
        if block.get("type") == "image_url" and _blank((block.get("image_url") or {}).get("url")):
            problems.append(f"{at}.content[{index}]: an image without a url")
        if block.get("type") not in ("text", "image_url", "input_audio", "file", "refusal"):
            problems.append(f"{at}.content[{index}]: unknown type {block.get('type')!r}")
    return problems


def _completions(payloads: Sequence[Any]) -> list[str]:
    problems: list[str] = []
    unanswered: list[str] = []
    last = None
    for index, message in enumerate(payloads):
        at = f"messages[{index}]"
        role = message.get("role") if isinstance(message, dict) else None
        if role not in _COMPLETIONS_KEYS:
            problems.append(f"{at}: role {role!r}")
            continue
        problems += [f"{at}: unknown key {key!r}" for key in message.keys() - _COMPLETIONS_KEYS[role]]
        problems += [f"{at}: {key} is null" for key in message if message[key] is None and key != "content"]
        if role == "tool":
            problems += _completions_result(message, unanswered, at)
            last = role
            continue
        if unanswered:
            problems.append(f"{at}: calls {unanswered} were not answered before it")
        if role == last and role in ("user", "assistant"):
            problems.append(f"{at}: {role} twice in a row")
        calls = message.get("tool_calls")
        if calls is None and not (role == "assistant" and message["content"] is None and message.get("refusal")):
            problems += _content_problems(message.get("content"), at)
        elif isinstance(message.get("content"), list):
            problems += _content_problems(message["content"], at)
        unanswered = _completions_calls(calls, problems, at)
        last = role
    return [*problems, "the last calls were not answered"] if unanswered else problems


def _completions_result(message: dict[str, Any], unanswered: list[str], at: str) -> list[str]:
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
    problems += [f"{at}: call id {one!r} {count} times" for one, count in Counter(ids).items() if count > 1]
    for call in calls:
        if _blank(call["id"]) or len(call["id"]) > 40:
            problems.append(f"{at}: call id {call['id']!r}")
        said = call.get(call.get("type")) if call.get("type") in ("function", "custom") else None
        if not isinstance(said, dict) or not _NAME.fullmatch(str(said.get("name"))):
            problems.append(f"{at}: function name in {call!r}")
        elif not isinstance(said.get("arguments", said.get("input")), str):
            problems.append(f"{at}: arguments are not a string")
    return ids


def _responses(payloads: Sequence[Any]) -> list[str]:
    problems: list[str] = []
    calls: list[str] = []
    answers: list[str] = []
    for index, item in enumerate(payloads):
        at = f"input[{index}]"
        if not isinstance(item, dict):
            problems.append(f"{at}: not an item")
            continue
        problems += [f"{at}: private key {key!r}" for key in item if key.startswith("_")]
        kind = item.get("type", "message")
        if kind == "message":
            problems += _responses_message(item, at)
        elif kind in ("function_call", "custom_tool_call"):
            problems += _responses_call(item, calls, at)
        elif kind in ("function_call_output", "custom_tool_call_output"):
            problems += _responses_output(item, calls, answers, at)
        elif kind == "reasoning":
            problems += _responses_reasoning(item, payloads[index + 1 : index + 2], at)
    problems += [f"call {one!r} was not answered" for one in calls if one not in answers]
    return problems


def _responses_message(item: dict[str, Any], at: str) -> list[str]:
    if item.get("role") not in ("user", "assistant", "system", "developer"):
        return [f"{at}: role {item.get('role')!r}"]
    content = item.get("content")
    if isinstance(content, str):
        return [f"{at}: blank content"] if _blank(content) else []
    if not isinstance(content, list) or not content:
        return [f"{at}: no content"]
    allowed = {"output_text", "refusal"} if item["role"] == "assistant" else {"input_text", "input_image", "input_file"}
    problems = []
    for place, block in enumerate(content):
        kind = block.get("type")
        if kind not in allowed and kind not in ("input_text", "input_audio"):
            problems.append(f"{at}.content[{place}]: {kind!r} in a message of {item['role']}")
        if kind in ("input_text", "output_text") and _blank(block.get("text")):
            problems.append(f"{at}.content[{place}]: blank text")
        if kind == "input_image" and _blank(block.get("image_url")) and _blank(block.get("file_id")):
            problems.append(f"{at}.content[{place}]: an image without a source")
    return problems


def _responses_call(item: dict[str, Any], calls: list[str], at: str) -> list[str]:
    problems = []
    call_id = item.get("call_id")
    if _blank(call_id) or len(str(call_id)) > 64:
        problems.append(f"{at}: call_id {call_id!r}")
    if call_id in calls:
        problems.append(f"{at}: call_id {call_id!r} again")
    if not _NAME.fullmatch(str(item.get("name"))):
        problems.append(f"{at}: name {item.get('name')!r}")
    if not isinstance(item.get("arguments", item.get("input")), str):
        problems.append(f"{at}: arguments are not a string")
    calls.append(str(call_id))
    return problems


def _responses_output(item: dict[str, Any], calls: list[str], answers: list[str], at: str) -> list[str]:
    problems = []
    call_id = str(item.get("call_id"))
    if call_id not in calls:
        problems.append(f"{at}: {call_id!r} answers no call before it")
    if call_id in answers:
        problems.append(f"{at}: {call_id!r} is answered twice")
    if _blank(item.get("output")) and not isinstance(item.get("output"), list):
        problems.append(f"{at}: blank output")
    answers.append(call_id)
    return problems


def _responses_reasoning(item: dict[str, Any], following: Sequence[Any], at: str) -> list[str]:
    problems = []
    if not isinstance(item.get("summary"), list):
        problems.append(f"{at}: reasoning without a summary")
    follower = following[0] if following else {}
    kind = follower.get("type", "message")
    said = kind == "message" and follower.get("role") == "assistant"
    if not said and kind != "reasoning" and not kind.endswith("_call"):
        problems.append(f"{at}: reasoning without the item it led to")
    return problems


def _neutral(payloads: Sequence[Any]) -> list[str]:
    problems: list[str] = []
    unanswered: list[str] = []
    seen: set[str] = set()
    last = None
    for index, message in enumerate(payloads):
        at = f"messages[{index}]"
        problems += [f"{at}: unknown key {key!r}" for key in message.keys() - {"role", "parts"}]
        role, parts = message["role"], message["parts"]
        if not parts:
            problems.append(f"{at}: no parts")
        problems += [f"{at}: blank text" for part in parts if part["type"] == "text" and _blank(part["text"])]
        answers = [part["call_id"] for part in parts if part["type"] == "result"]
        if role == "tool" and (len(answers) != 1 or answers != unanswered[:1]):
            problems.append(f"{at}: {answers} where {unanswered} were due")
        if role != "tool" and (unanswered or answers):
            problems.append(f"{at}: results {unanswered} due, {answers} given")
        if role == last and role in ("user", "assistant"):
            problems.append(f"{at}: {role} twice in a row")
        unanswered = unanswered[1:] if role == "tool" else [part["id"] for part in parts if part["type"] == "call"]
        if role != "tool":
            problems += [f"{at}: call id {one!r} again" for one in unanswered if one in seen or _blank(one)]
            problems += [f"{at}: one call id twice"] * (len(set(unanswered)) < len(unanswered))
            seen.update(unanswered)
        last = role
    return [*problems, "the last calls were not answered"] if unanswered else problems


_PROVIDERS: dict[str, Callable[[Sequence[Any]], list[str]]] = {
    "openai.chat": _completions,
    "openai.responses": _responses,
    "anthropic": anthropic_problems,
    "holdfast": _neutral,
}
