"""Which blocks goose 1.52 can load: their types, and the fields without which it refuses the whole
session.
"""

from collections.abc import Callable
from typing import Any


def block_problem(block: Any) -> str:
    """What keeps goose from loading a block; empty when nothing does."""
    if not isinstance(block, dict) or not isinstance(block.get("type"), str):
        return "a block without a type"
    check = _KNOWN.get(block["type"])
    if check is None:
        return f"a block of type `{block['type'][:60]}`"
    return "" if check(block) else f"a `{block['type']}` block without its fields"


def _has(*names: str) -> Callable[[dict[str, Any]], bool]:
    return lambda block: all(isinstance(block.get(name), str) for name in names)


def _request(block: dict[str, Any]) -> bool:
    call = block.get("toolCall")
    if not isinstance(block.get("id"), str) or not isinstance(call, dict):
        return False
    if call.get("status") == "error":
        return isinstance(call.get("error"), str)
    value = call.get("value")
    return (
        call.get("status") == "success"
        and isinstance(value, dict)
        and isinstance(value.get("name"), str)
    )


def _response(block: dict[str, Any]) -> bool:
    result = block.get("toolResult")
    if not isinstance(block.get("id"), str) or not isinstance(result, dict):
        return False
    if result.get("status") == "error":
        return isinstance(result.get("error"), str)
    value = result.get("value")
    content = value.get("content", []) if isinstance(value, dict) else value
    return result.get("status") == "success" and isinstance(content, list)


_KNOWN: dict[str, Callable[[dict[str, Any]], bool]] = {
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
