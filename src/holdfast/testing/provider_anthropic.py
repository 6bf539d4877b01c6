"""What the Messages API refuses: the strictest of the providers, so its rules have a file of their own."""

import re
from collections.abc import Sequence
from typing import Any

_CALL_ID = re.compile(r"[a-zA-Z0-9_-]+")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_THINKING = ("thinking", "redacted_thinking")
_MEDIA = ("image/jpeg", "image/png", "image/gif", "image/webp")


def anthropic_problems(payloads: Sequence[Any]) -> list[str]:
    """What is wrong with these messages; empty when nothing is."""
    problems: list[str] = []
    due: list[str] = []
    seen: set[str] = set()
    expected = "user"
    for index, message in enumerate(payloads):
        at = f"messages[{index}]"
        problems += [f"{at}: unknown key {key!r}" for key in message.keys() - {"role", "content"}]
        role = message.get("role")
        if role != expected:
            problems.append(f"{at}: role {role!r} where {expected!r} is due")
        expected = "assistant" if role == "user" else "user"
        blocks = _blocks(message.get("content"), problems, at)
        problems += [
            problem for place, block in enumerate(blocks) for problem in _block(block, f"{at}.content[{place}]")
        ]
        problems += _results(blocks, due, at)
        due = [block.get("id", "") for block in blocks if block.get("type") == "tool_use"]
        if role == "assistant":
            problems += _thinking(blocks, at)
        elif due:
            problems.append(f"{at}: a user message makes calls")
        problems += [f"{at}: call id {one!r} again" for one in due if one in seen]
        problems += [f"{at}: one call id twice"] * (len(set(due)) < len(due))
        seen.update(due)
    if due:
        problems.append("the last calls were not answered")
    return problems + _ending(payloads[-1]) if payloads else problems


def _blank(text: Any) -> bool:
    return not isinstance(text, str) or not text.strip()


def _blocks(content: Any, problems: list[str], at: str) -> list[dict[str, Any]]:
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    if not isinstance(content, list) or not content:
        problems.append(f"{at}: no content")
        return []
    return content


def _block(block: dict[str, Any], at: str) -> list[str]:
    kind = block.get("type")
    if kind == "text":
        return [f"{at}: blank text"] if _blank(block.get("text")) else []
    if kind == "thinking":
        return [f"{at}: unsigned thinking"] if _blank(block.get("signature")) else []
    if kind == "redacted_thinking":
        return [f"{at}: redacted thinking without data"] if _blank(block.get("data")) else []
    if kind == "tool_use":
        return _call(block, at)
    if kind == "tool_result":
        return _result(block, at)
    if kind == "image":
        return _image(block.get("source") or {}, at)
    return [f"{at}: unknown type"] if _blank(kind) else []


def _call(block: dict[str, Any], at: str) -> list[str]:
    problems = [f"{at}: unknown key {key!r}" for key in block.keys() - {"type", "id", "name", "input", "caller"}]
    if not _CALL_ID.fullmatch(str(block.get("id"))):
        problems.append(f"{at}: call id {block.get('id')!r}")
    if not _NAME.fullmatch(str(block.get("name"))):
        problems.append(f"{at}: name {block.get('name')!r}")
    if not isinstance(block.get("input"), dict):
        problems.append(f"{at}: input is not an object")
    return problems


def _result(block: dict[str, Any], at: str) -> list[str]:
    content = block.get("content")
    if isinstance(content, str):
        return [f"{at}: blank result"] if _blank(content) else []
    if not isinstance(content, list) or not content:
        return [f"{at}: empty result"]
    return [problem for part in content for problem in _block(part, at)]


def _image(source: dict[str, Any], at: str) -> list[str]:
    kind = source.get("type")
    if kind == "base64":
        fine = source.get("media_type") in _MEDIA and not _blank(source.get("data"))
    elif kind == "url":
        fine = str(source.get("url")).startswith(("http://", "https://"))
    else:
        fine = kind == "file" and not _blank(source.get("file_id"))
    return [] if fine else [f"{at}: image source {source!r}"]


def _results(blocks: list[dict[str, Any]], due: list[str], at: str) -> list[str]:
    """All results that are due, exactly once each, before anything else."""
    given = [block.get("tool_use_id") for block in blocks if block.get("type") == "tool_result"]
    if sorted(map(str, given)) != sorted(due):
        return [f"{at}: results {given} where {due} were due"]
    if any(block.get("type") != "tool_result" for block in blocks[: len(given)]):
        return [f"{at}: something stands before the results"]
    return []


def _thinking(blocks: list[dict[str, Any]], at: str) -> list[str]:
    kinds = [str(block.get("type")) for block in blocks]
    rest = next((place for place, kind in enumerate(kinds) if kind not in _THINKING), len(kinds))
    interleaved = any(kind.startswith("server_tool") for kind in kinds)
    if any(kind in _THINKING for kind in kinds[rest:]) and not interleaved:
        return [f"{at}: thinking after other blocks"]
    return [f"{at}: ends in thinking"] if kinds and kinds[-1] in _THINKING else []


def _ending(message: dict[str, Any]) -> list[str]:
    if message.get("role") != "assistant":
        return []
    content = message.get("content")
    text = content if isinstance(content, str) else content[-1].get("text") if content else None
    if isinstance(text, str) and text != text.rstrip():
        return ["the last message ends in white space"]
    return []
