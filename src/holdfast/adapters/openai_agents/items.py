"""From what stands in a session to the items that the SDK is given."""

from collections.abc import Iterable
from typing import Any

from holdfast.domain.repair import UNKNOWN_OUTCOME, StoredMessage
from holdfast.runtime.live.message import Message

Item = Any
"""An item of the Responses API: a dict, or whatever somebody has stored."""

_ANSWERS = ("function_call_output", "custom_tool_call_output", "computer_call_output")
_CALLS = ("function_call", "custom_tool_call", "computer_call")


def items_of(seen: StoredMessage, payload: Any) -> list[Item]:
    """The items of one message, with this payload: one, or those of a whole response."""
    if payload is None:
        # It was erased, or can't be read: its place says so, and the others stay as they are.
        message = Message(seen, turn=None)
        role = message.role if message.role in ("user", "assistant") else "assistant"
        return [{"role": role, "content": message.text}]
    if not isinstance(payload, list):
        return [payload]
    return _whole(payload) if seen.note.partial else payload


def _whole(items: list[Item]) -> list[Item]:
    """What may be sent again of a response that was cut: its words and its finished calls, not a
    call whose arguments are cut, nor thoughts that led to nothing.
    """
    kept = []
    for item in items:
        is_signed = bool(item.get("encrypted_content"))
        is_done = item.get("status") == "completed"
        if is_done or is_signed or item.get("type") == "message":
            kept.append(item)
    while kept and kept[-1].get("type") == "reasoning":
        kept.pop()
    return [item for item in kept if item.get("content") != []]


def closed(items: list[Item], unknown: Iterable[str]) -> list[Item]:
    """These items, with an output for each call whose outcome nobody knows."""
    wanted = set(unknown)
    if not wanted:
        return items
    found = []
    for item in items:
        found.append(item)
        if is_call(item) and item["call_id"] in wanted:
            wanted.discard(item["call_id"])
            kind = f"{item['type']}_output"
            found.append(
                {"type": kind, "call_id": item["call_id"], "output": UNKNOWN_OUTCOME}
            )
    return found


def unanswered(items: list[Item]) -> set[str]:
    """The ids of calls that have no output."""
    calls, answers = set(), set()
    for item in items:
        if is_call(item):
            calls.add(item["call_id"])
        elif isinstance(item, dict) and item.get("type") in _ANSWERS:
            answers.add(item.get("call_id"))
    return calls - answers


def without_strays(items: list[Item]) -> list[Item]:
    """These items without outputs whose call is not there: it was in what can't be read."""
    calls = {item["call_id"] for item in items if is_call(item)}
    kept = []
    for item in items:
        is_answer = isinstance(item, dict) and item.get("type") in _ANSWERS
        if not is_answer or item.get("call_id") in calls:
            kept.append(item)
    return kept


def is_call(item: Item) -> bool:
    """Whether an item is a call that somebody else than the server answers."""
    if not isinstance(item, dict) or item.get("type") not in _CALLS:
        return False
    return isinstance(item.get("call_id"), str)


def same(one: Item, other: Item) -> bool:
    """Whether two items are the same one: what says nothing, and where it stands in its life, may
    differ.
    """
    return bool(_essence(one) == _essence(other))


def _essence(value: Any) -> Any:
    if isinstance(value, list):
        return [_essence(each) for each in value]
    if not isinstance(value, dict):
        return value
    kept = {}
    for key, each in value.items():
        if each not in (None, []) and key not in ("status", "created_by"):
            kept[key] = _essence(each)
    return kept
