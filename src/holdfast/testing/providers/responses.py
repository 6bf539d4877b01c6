"""What the Responses API refuses in the list of items that is its input."""

import re
from collections.abc import Sequence
from functools import partial
from typing import Any

from holdfast.testing.providers.checks import (
    Payload,
    arguments_problems,
    blank,
    content_problems,
    unknown_keys,
)

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_CALLS = frozenset(
    {
        "function_call",
        "custom_tool_call",
        "computer_call",
        "local_shell_call",
        "shell_call",
        "apply_patch_call",
    }
)
"""Items that somebody else than the server has to answer."""

ITEMS = {
    "additional_tools": "id role tools type",
    "apply_patch_call": "call_id caller id operation status type",
    "apply_patch_call_output": "call_id caller id output status type",
    "code_interpreter_call": "code container_id id outputs status type",
    "compaction": "encrypted_content id type",
    "compaction_trigger": "id type",
    "computer_call": "action actions call_id id pending_safety_checks status type",
    "computer_call_output": "acknowledged_safety_checks call_id id output status type",
    "configuration_update": "id reasoning text type",
    "custom_tool_call": "async call_id caller id input name namespace type",
    "custom_tool_call_output": "call_id caller id output type",
    "file_search_call": "id queries results status type",
    "function_call": "arguments async call_id caller id name namespace status type",
    "function_call_output": "call_id caller id name namespace output status type",
    "image_generation_call": (
        "action background error id output_format quality result revised_prompt size status "
        "svg_usage type"
    ),
    "item_reference": "id type",
    "local_shell_call": "action call_id id status type",
    "local_shell_call_output": "id output status type",
    "mcp_approval_request": "arguments id name server_label type",
    "mcp_approval_response": "approval_request_id approve id reason type",
    "mcp_call": "approval_request_id arguments error id name output server_label status type",
    "mcp_list_tools": "error id server_label tools type",
    "message": "content id phase role status type",
    "program": "call_id code fingerprint id type",
    "program_output": "call_id id result status type",
    "reasoning": "content encrypted_content id status summary type",
    "shell_call": "action call_id caller environment id status type",
    "shell_call_output": "call_id caller id max_output_length output status type",
    "tool_search_call": "arguments call_id execution id status type",
    "tool_search_output": "call_id execution id status tools type",
    "web_search_call": "action id status type",
}
"""The kinds of items, and the keys of each."""
BEYOND_PARAMETERS = {
    "custom_tool_call": {"status"},
    "custom_tool_call_output": {"status"},
    "local_shell_call_output": {"call_id"},
}
"""Keys that stand in the API's own answers or examples and not among its parameters."""
BLOCKS = {
    "input_text": "type text prompt_cache_breakpoint",
    "input_image": "type image_url file_id detail prompt_cache_breakpoint",
    "input_file": "type file_id file_data file_url filename detail prompt_cache_breakpoint",
    "input_audio": "type input_audio",
    "output_text": "type text annotations logprobs",
    "refusal": "type refusal",
}


SAID_BY_MODELS = ("output_text", "refusal", "input_text", "input_audio")
SAID_TO_MODELS = ("input_text", "input_image", "input_file", "input_audio")
"""Blocks that are taken in a message of the model's own, and in one of anybody else."""


def responses_problems(payloads: Sequence[Any]) -> list[str]:
    """What is wrong with these items; empty when nothing is."""
    problems: list[str] = []
    calls: list[str] = []
    answers: list[str] = []
    for index, item in enumerate(payloads):
        at = f"input[{index}]"
        if not isinstance(item, dict):
            problems.append(f"{at}: not an item")
            continue
        # Messages are the one kind that need not say what they are.
        kind = item.get("type", "message")
        if not isinstance(kind, str) or kind not in ITEMS:
            problems.append(f"{at}: unknown type {kind!r}")
            continue
        allowed = set(ITEMS[kind].split()) | BEYOND_PARAMETERS.get(kind, set())
        problems += unknown_keys(item, allowed, at)
        if kind == "message":
            problems += _responses_message(item, at)
        elif kind in _CALLS:
            problems += _responses_call(item, calls, at)
        # Results of the server's own tools are in their call; these come from outside.
        elif kind.removesuffix("_output") in _CALLS:
            problems += _responses_output(item, calls, answers, at)
        elif kind == "reasoning":
            # A slice and not an index: reasoning may be the last item, which is a
            # problem by itself.
            problems += _responses_reasoning(item, payloads[index + 1 : index + 2], at)
    for one in calls:
        if one not in answers:
            problems.append(f"call {one!r} was not answered")
    return problems


def _responses_message(item: Payload, at: str) -> list[str]:
    if item.get("role") not in ("user", "assistant", "system", "developer"):
        return [f"{at}: role {item.get('role')!r}"]
    check = partial(_block_problems, item["role"])
    return content_problems(item.get("content"), check, at)


def _block_problems(role: str, block: Payload, at: str) -> list[str]:
    kind = str(block.get("type"))
    problems = unknown_keys(block, BLOCKS.get(kind, "").split(), at)
    allowed = SAID_BY_MODELS if role == "assistant" else SAID_TO_MODELS
    if kind not in allowed:
        problems.append(f"{at}: {block.get('type')!r} in a message of {role}")
    if kind in ("input_text", "output_text") and blank(block.get("text")):
        problems.append(f"{at}: blank text")
    sources = (block.get("image_url"), block.get("file_id"))
    if kind == "input_image" and all(blank(source) for source in sources):
        problems.append(f"{at}: an image without a source")
    return problems


def _responses_call(item: Payload, calls: list[str], at: str) -> list[str]:
    problems = []
    call_id = item.get("call_id")
    # The Responses API takes ids of up to 64 characters.
    if blank(call_id) or len(str(call_id)) > 64:
        problems.append(f"{at}: call_id {call_id!r}")
    if call_id in calls:
        problems.append(f"{at}: call_id {call_id!r} again")
    # Whatever was wrong with it: its answer must not be a second problem.
    calls.append(str(call_id))
    if item["type"] not in ("function_call", "custom_tool_call"):
        if not any(item.get(key) for key in ("action", "actions", "operation")):
            problems.append(f"{at}: nothing is said to be done")
        return problems
    if not _NAME.fullmatch(str(item.get("name"))):
        problems.append(f"{at}: name {item.get('name')!r}")
    words = item.get("arguments", item.get("input"))
    wants_json = item["type"] == "function_call"
    return problems + arguments_problems(words, at, wants_json=wants_json)


def _responses_output(
    item: Payload, calls: list[str], answers: list[str], at: str
) -> list[str]:
    problems = []
    call_id = item.get("call_id")
    if not call_id and item["type"] == "local_shell_call_output":
        # This one may name its call by its own id, as its calls are named by theirs.
        call_id = item.get("id")
    call_id = str(call_id)
    if call_id not in calls:
        problems.append(f"{at}: {call_id!r} answers no call before it")
    if call_id in answers:
        problems.append(f"{at}: {call_id!r} is answered twice")
    answers.append(call_id)
    if not _is_output(item):
        problems.append(f"{at}: output {item.get('output')!r}")
    return problems


def _is_output(item: Payload) -> bool:
    """Whether the output of a call has the shape that calls of its kind want."""
    kind = item["type"]
    output = item.get("output")
    if kind == "computer_call_output":
        shot = output if isinstance(output, dict) else {}
        has_image = bool(shot.get("image_url") or shot.get("file_id"))
        return has_image and shot.get("type") == "computer_screenshot"
    if kind == "shell_call_output":
        keys = {"stdout", "stderr", "outcome"}
        return isinstance(output, list) and all(
            isinstance(one, dict) and one.keys() == keys for one in output
        )
    if kind == "apply_patch_call_output":
        return item.get("status") in ("completed", "failed")
    return isinstance(output, list) or not blank(output)


def _responses_reasoning(item: Payload, following: Sequence[Any], at: str) -> list[str]:
    problems = []
    if not isinstance(item.get("summary"), list):
        problems.append(f"{at}: reasoning without a summary")
    follower = following[0] if following else {}
    if not _comes_of_reasoning(follower):
        problems.append(f"{at}: reasoning without the item it led to")
    return problems


def _comes_of_reasoning(item: Any) -> bool:
    kind = item.get("type", "message") if isinstance(item, dict) else None
    if kind == "message":
        return bool(item.get("role") == "assistant")
    if kind in ("reasoning", "mcp_list_tools", "compaction"):
        return True
    return isinstance(kind, str) and kind.endswith("_call")
