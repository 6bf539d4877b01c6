"""From what stands in a session to the items that the SDK is given."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from holdfast.domain.message import Call, Image, Result, Text
from holdfast.domain.repair import UNKNOWN_OUTCOME, StoredMessage
from holdfast.runtime.live.message import Message

Item = Any
"""An item of the Responses API: a dict, or whatever somebody has stored."""

FORMAT = "openai.responses"
_ANSWERS = ("function_call_output", "custom_tool_call_output", "computer_call_output")
_CALLS = ("function_call", "custom_tool_call", "computer_call")


def items_of(seen: StoredMessage, payload: Any) -> list[Item]:
    """The items of one message, with this payload: one, or those of a whole response."""
    if payload is None:
        # It was erased, or can't be read: its place says so, and the others stay as they are.
        message = Message(seen, turn=None)
        role = message.role if message.role in ("user", "assistant") else "assistant"
        return [{"role": role, "content": message.text}]
    if seen.note.format != FORMAT:
        return _of_another(Message(seen, turn=None), payload, seen.note.partial)
    if not isinstance(payload, list):
        return [payload]
    return _whole(payload) if seen.note.partial else payload


def _of_another(message: Message, payload: Any, is_cut: bool) -> list[Item]:
    """A message that is in another shape, as items: one of another program's, or a call's denial."""
    if _is_plain(payload):
        return [payload]
    items: list[Item] = []
    for part in message.parts:
        if isinstance(part, Result):
            named = {"call_id": part.call_id, "output": part.content}
            items.append({"type": "function_call_output", **named})
        elif isinstance(part, Call) and not is_cut:
            said = {"name": part.name, "arguments": part.arguments}
            items.append({"type": "function_call", "call_id": part.id, **said})
    return _in_words(message) + items


def _is_plain(payload: Any) -> bool:
    """Whether a payload of a chat is an item as it is."""
    if not isinstance(payload, dict) or set(payload) != {"role", "content"}:
        return False
    return isinstance(payload["content"], str) and payload["role"] != "tool"


def _in_words(message: Message) -> list[Item]:
    """What a message says and shows, as one item."""
    words = [part.text for part in message.parts if isinstance(part, Text)]
    pictures = [part.url for part in message.parts if isinstance(part, Image)]
    if message.role == "assistant" or not pictures:
        role = message.role if message.role == "assistant" else "user"
        said = "".join(words)
        return [{"role": role, "content": said}] if said else []
    content = [{"type": "input_text", "text": each} for each in words if each]
    content += [{"type": "input_image", "image_url": each} for each in pictures]
    return [{"role": "user", "content": content}]


def answered_once(items: list[Item], denials: list[Item]) -> list[Item]:
    """These items without the denials of calls that the SDK has answered itself since."""
    open_calls: Counter[Any] = Counter()
    for item in items:
        if is_call(item):
            open_calls[item["call_id"]] += 1
        elif isinstance(item, dict) and item.get("type") in _ANSWERS:
            open_calls[item.get("call_id")] -= 1
    gone = []
    for denial in denials:
        if open_calls[denial["call_id"]] < 0:
            open_calls[denial["call_id"]] += 1
            gone.append(id(denial))
    return [item for item in items if id(item) not in gone]


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
    # The API refuses reasoning without the item that it led to.
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
    """These items without outputs whose call is not there: it was hidden, or is in
    what can't be read.
    """
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
