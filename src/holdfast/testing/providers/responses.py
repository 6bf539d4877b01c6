"""What the Responses API refuses in the list of items that is its input."""

import json
import re
from collections.abc import Sequence
from typing import Any

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


def _blank(text: Any) -> bool:
    return not isinstance(text, str) or not text.strip()


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
        kind = item.get("type", "message")
        if kind not in ITEMS:
            problems.append(f"{at}: unknown type {kind!r}")
            continue
        allowed = set(ITEMS[kind].split()) | BEYOND_PARAMETERS.get(kind, set())
        problems += [f"{at}: unknown key {key!r}" for key in item.keys() - allowed]
        if kind == "message":
            problems += _responses_message(item, at)
        elif kind in _CALLS:
            problems += _responses_call(item, calls, at)
        elif kind.removesuffix("_output") in _CALLS:
            problems += _responses_output(item, calls, answers, at)
        elif kind == "reasoning":
            problems += _responses_reasoning(item, payloads[index + 1 : index + 2], at)
    problems += [
        f"call {one!r} was not answered" for one in calls if one not in answers
    ]
    return problems


def _responses_message(item: dict[str, Any], at: str) -> list[str]:
    if item.get("role") not in ("user", "assistant", "system", "developer"):
        return [f"{at}: role {item.get('role')!r}"]
    content = item.get("content")
    if isinstance(content, str):
        return [f"{at}: blank content"] if _blank(content) else []
    if not isinstance(content, list) or not content:
        return [f"{at}: no content"]
    allowed = (
        {"output_text", "refusal"}
        if item["role"] == "assistant"
        else {"input_text", "input_image", "input_file"}
    )
    problems = []
    for place, block in enumerate(content):
        kind = block.get("type")
        known = set(BLOCKS.get(str(kind), "").split())
        problems += [
            f"{at}.content[{place}]: unknown key {key!r}"
            for key in block.keys() - known
        ]
        if kind not in allowed and kind not in ("input_text", "input_audio"):
            problems.append(
                f"{at}.content[{place}]: {kind!r} in a message of {item['role']}"
            )
        if kind in ("input_text", "output_text") and _blank(block.get("text")):
            problems.append(f"{at}.content[{place}]: blank text")
        if (
            kind == "input_image"
            and _blank(block.get("image_url"))
            and _blank(block.get("file_id"))
        ):
            problems.append(f"{at}.content[{place}]: an image without a source")
    return problems


def _responses_call(item: dict[str, Any], calls: list[str], at: str) -> list[str]:
    problems = []
    call_id = item.get("call_id")
    if _blank(call_id) or len(str(call_id)) > 64:
        problems.append(f"{at}: call_id {call_id!r}")
    if call_id in calls:
        problems.append(f"{at}: call_id {call_id!r} again")
    calls.append(str(call_id))
    if item["type"] not in ("function_call", "custom_tool_call"):
        said = [key for key in ("action", "actions", "operation") if item.get(key)]
        return problems if said else [*problems, f"{at}: nothing is said to be done"]
    if not _NAME.fullmatch(str(item.get("name"))):
        problems.append(f"{at}: name {item.get('name')!r}")
    words = item.get("arguments", item.get("input"))
    if not isinstance(words, str):
        problems.append(f"{at}: arguments are not a string")
    elif item["type"] == "function_call" and not _json(words):
        problems.append(f"{at}: {words!r} is not JSON")
    return problems


def _json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _responses_output(
    item: dict[str, Any], calls: list[str], answers: list[str], at: str
) -> list[str]:
    problems = []
    kind, output = item["type"], item.get("output")
    call_id = str(
        item.get("call_id")
        or (item.get("id") if kind == "local_shell_call_output" else None)
    )
    if call_id not in calls:
        problems.append(f"{at}: {call_id!r} answers no call before it")
    if call_id in answers:
        problems.append(f"{at}: {call_id!r} is answered twice")
    answers.append(call_id)
    if kind == "computer_call_output":
        shot = output if isinstance(output, dict) else {}
        fine = shot.get("type") == "computer_screenshot" and bool(
            shot.get("image_url") or shot.get("file_id")
        )
    elif kind == "shell_call_output":
        fine = isinstance(output, list) and all(
            one.keys() == {"stdout", "stderr", "outcome"} for one in output
        )
    elif kind == "apply_patch_call_output":
        fine = item.get("status") in ("completed", "failed")
    else:
        fine = isinstance(output, list) or not _blank(output)
    return problems if fine else [*problems, f"{at}: output {output!r}"]


def _responses_reasoning(
    item: dict[str, Any], following: Sequence[Any], at: str
) -> list[str]:
    problems = []
    if not isinstance(item.get("summary"), list):
        problems.append(f"{at}: reasoning without a summary")
    follower = following[0] if following else {}
    kind = follower.get("type", "message")
    said = kind == "message" and follower.get("role") == "assistant"
    if (
        not said
        and kind not in ("reasoning", "mcp_list_tools", "compaction")
        and not kind.endswith("_call")
    ):
        problems.append(f"{at}: reasoning without the item it led to")
    return problems
