"""What the Messages API refuses: the strictest of the providers, so its rules have a file of their
own.
"""

import itertools
import re
from collections.abc import Sequence
from typing import Any

from holdfast.testing.providers.checks import (
    Payload,
    blank,
    repeated_calls,
    unknown_keys,
)

# Other than a name, an id may have any length.
_CALL_ID = re.compile(r"[a-zA-Z0-9_-]+")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_THINKING = ("thinking", "redacted_thinking")
_MEDIA = ("image/jpeg", "image/png", "image/gif", "image/webp")


BLOCKS = {
    "text": "type text cache_control citations",
    "image": "type source cache_control transformations",
    "document": "type source cache_control citations context title",
    "search_result": "type content source title cache_control citations",
    "thinking": "type thinking signature",
    "redacted_thinking": "type data",
    "tool_use": "type id name input cache_control caller toolset_name",
    "tool_result": "type tool_use_id content is_error cache_control toolset_name",
    "server_tool_use": "type id name input cache_control caller",
    "web_search_tool_result": "type tool_use_id content cache_control caller",
    "web_fetch_tool_result": "type tool_use_id content cache_control caller",
    "code_execution_tool_result": "type tool_use_id content cache_control",
    "bash_code_execution_tool_result": "type tool_use_id content cache_control",
    "text_editor_code_execution_tool_result": "type tool_use_id content cache_control",
    "tool_search_tool_result": "type tool_use_id content cache_control",
    "container_upload": "type file_id cache_control",
}
"""The kinds of blocks, and the keys of each."""
BETA_BLOCKS = {
    "mcp_tool_use": "type id name server_name input cache_control",
    "mcp_tool_result": "type tool_use_id content is_error cache_control",
    "compaction": "type content encrypted_content cache_control",
}
IN_RESULTS = {
    "tool_reference": "type tool_name cache_control",
    "browser_state": "type tabs cache_control state_changes",
}


NEEDED = {
    "text": ("text", "blank text"),
    "thinking": ("signature", "unsigned thinking"),
    "redacted_thinking": ("data", "redacted thinking without data"),
}
"""Of some blocks: the key that must not be blank, and what is wrong when it is."""


def anthropic_problems(payloads: Sequence[Any]) -> list[str]:
    """What is wrong with these messages; empty when nothing is."""
    problems: list[str] = []
    due: list[str] = []
    seen: set[str] = set()
    expected = "user"
    for index, message in enumerate(payloads):
        at = f"messages[{index}]"
        if not isinstance(message, dict):
            problems.append(f"{at}: not a message")
            continue
        problems += unknown_keys(message, {"role", "content"}, at)
        role = message.get("role")
        if role != expected:
            problems.append(f"{at}: role {role!r} where {expected!r} is due")
        # Roles alternate strictly here, whatever was wrong with this one.
        expected = "assistant" if role == "user" else "user"
        blocks = _blocks(message.get("content"), problems, at)
        for place, block in enumerate(blocks):
            problems += _block(block, f"{at}.content[{place}]")
        problems += _results(blocks, due, at)
        problems += _served(blocks, at, last=index == len(payloads) - 1)
        uses = [block for block in blocks if block.get("type") == "tool_use"]
        due = [str(block.get("id", "")) for block in uses]
        if role == "assistant":
            problems += _thinking(blocks, at)
        elif due:
            problems.append(f"{at}: a user message makes calls")
        problems += repeated_calls(due, seen, at)
        seen.update(due)
    if due:
        problems.append("the last calls were not answered")
    if payloads:
        problems += _ending(payloads[-1])
    return problems


def _blocks(content: Any, problems: list[str], at: str) -> list[Payload]:
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    if not isinstance(content, list) or not content:
        problems.append(f"{at}: no content")
        return []
    return _objects(content, problems, at)


def _objects(blocks: list[Any], problems: list[str], at: str) -> list[Payload]:
    """Those of the blocks that are some."""
    found = [block for block in blocks if isinstance(block, dict)]
    if len(found) < len(blocks):
        problems.append(f"{at}: something is no block")
    return found


def _block(block: Payload, at: str) -> list[str]:
    kind = str(block.get("type"))
    known = (BLOCKS | BETA_BLOCKS | IN_RESULTS).get(kind)
    if known is None:
        return [f"{at}: unknown type {kind!r}"]
    problems = unknown_keys(block, known.split(), at)
    if kind in NEEDED:
        key, problem = NEEDED[kind]
        if blank(block.get(key)):
            problems.append(f"{at}: {problem}")
    if kind in ("tool_use", "server_tool_use", "mcp_tool_use"):
        problems += _call(block, at)
    if kind == "tool_result":
        problems += _result(block, at)
    if kind == "image":
        problems += _image(block.get("source"), at)
    return problems


def _served(blocks: list[Payload], at: str, *, last: bool) -> list[str]:
    """Uses of the provider's own tools, each with its result after it in the same message; at the
    very end of a request one may be open, and is gone on with.
    """
    uses = []
    results = []
    for block in blocks:
        kind = str(block.get("type"))
        if kind in ("server_tool_use", "mcp_tool_use"):
            uses.append(block.get("id"))
        elif kind.endswith("_tool_result"):
            results.append(block.get("tool_use_id"))
    problems = []
    for one in results:
        if one not in uses:
            problems.append(f"{at}: {one!r} is the result of no use")
    open_uses = [one for one in uses if one not in results]
    # A pause: the provider goes on with its own tool when it is sent its words again.
    if open_uses and not (last and blocks[-1].get("id") in open_uses):
        problems.append(f"{at}: uses {open_uses} have no result")
    return problems


def _call(block: Payload, at: str) -> list[str]:
    problems = []
    if not _CALL_ID.fullmatch(str(block.get("id"))):
        problems.append(f"{at}: call id {block.get('id')!r}")
    if not _NAME.fullmatch(str(block.get("name"))):
        problems.append(f"{at}: name {block.get('name')!r}")
    if not isinstance(block.get("input"), dict):
        problems.append(f"{at}: input is not an object")
    return problems


def _result(block: Payload, at: str) -> list[str]:
    content = block.get("content")
    if isinstance(content, str):
        return [f"{at}: blank result"] if blank(content) else []
    if not isinstance(content, list) or not content:
        return [f"{at}: empty result"]
    problems: list[str] = []
    for part in _objects(content, problems, at):
        problems += _block(part, at)
    return problems


def _image(given: Any, at: str) -> list[str]:
    source = given if isinstance(given, dict) else {}
    kind = source.get("type")
    if kind == "base64":
        fine = source.get("media_type") in _MEDIA and not blank(source.get("data"))
    elif kind == "url":
        fine = str(source.get("url")).startswith(("http://", "https://"))
    else:
        fine = kind == "file" and not blank(source.get("file_id"))
    return [] if fine else [f"{at}: image source {given!r}"]


def _results(blocks: list[Payload], due: list[str], at: str) -> list[str]:
    """All results that are due, exactly once each, before anything else."""
    results = [block for block in blocks if block.get("type") == "tool_result"]
    given = [block.get("tool_use_id") for block in results]
    # In any order, as long as all are there and none twice.
    if sorted(map(str, given)) != sorted(due):
        return [f"{at}: results {given} where {due} were due"]
    if blocks[: len(results)] != results:
        return [f"{at}: something stands before the results"]
    return []


def _thinking(blocks: list[Payload], at: str) -> list[str]:
    kinds = [str(block.get("type")) for block in blocks]
    # A model that uses the provider's own tools thinks again between two of them.
    interleaved = any(kind.startswith("server_tool") for kind in kinds)
    rest = itertools.dropwhile(_THINKING.__contains__, kinds)
    if not interleaved and any(kind in _THINKING for kind in rest):
        return [f"{at}: thinking after other blocks"]
    if kinds and kinds[-1] in _THINKING:
        return [f"{at}: ends in thinking"]
    return []


def _ending(message: Any) -> list[str]:
    if not isinstance(message, dict) or message.get("role") != "assistant":
        return []
    text = message.get("content")
    if isinstance(text, list) and text and isinstance(text[-1], dict):
        text = text[-1].get("text")
    if isinstance(text, str) and text != text.rstrip():
        return ["the last message ends in white space"]
    return []
