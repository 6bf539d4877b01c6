"""Which blocks goose 1.52 can load: their types, and the fields without which it refuses the whole
session.
"""

from collections.abc import Callable
from typing import Any

Block = dict[str, Any]
Check = Callable[[Any], bool]


def block_problem(block: Any) -> str:
    """What keeps goose from loading a block; empty when nothing does."""
    if not isinstance(block, dict) or not isinstance(block.get("type"), str):
        return "a block without a type"
    check = _KNOWN.get(block["type"])
    if check is None:
        return f"a block of type `{block['type'][:60]}`"
    return "" if check(block) else f"a `{block['type']}` block without its fields"


def _has(*names: str) -> Check:
    return lambda block: all(isinstance(block.get(name), str) for name in names)


_has_id = _has("id")


def _outcome(said: Any, holds: Check) -> bool:
    """Whether a call or a result is an error with its words, or a success whose value holds what
    goose reads of it.
    """
    if not isinstance(said, dict):
        return False
    if said.get("status") == "error":
        return isinstance(said.get("error"), str)
    return said.get("status") == "success" and holds(said.get("value"))


def _request(block: Block) -> bool:
    return _has_id(block) and _outcome(block.get("toolCall"), _is_call)


def _response(block: Block) -> bool:
    return _has_id(block) and _outcome(block.get("toolResult"), _is_output)


def _is_call(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("name"), str)


def _is_output(value: Any) -> bool:
    # The value is the list of contents itself, or an object that has it.
    if isinstance(value, dict):
        value = value.get("content", [])
    return isinstance(value, list)


_KNOWN: dict[str, Check] = {
    "text": _has("text"),
    "image": _has("data", "mimeType"),
    "document": _has(),
    "thinking": _has("thinking", "signature"),
    "redactedThinking": _has("data"),
    "toolRequest": _request,
    "toolResponse": _response,
    "toolConfirmationRequest": _has("id", "toolName"),
    "actionRequired": lambda block: isinstance(block.get("data"), dict),
    "systemNotification": _has("notificationType", "msg"),
    "error": _has(),
}
