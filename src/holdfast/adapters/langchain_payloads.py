"""LangChain's messages as payloads of the format `langchain`, and back: shared by the adapters for
LangChain and for LangGraph.

A payload has what a message says and no default, in the order of its fields, so that the same
message always gives the same bytes. Only LangChain's own classes are messages here: one of somebody's
own class would come back as another.
"""

import base64
import math
from collections.abc import Callable
from typing import Any

import msgspec
from langchain_core import messages as lc

from holdfast.domain.message import freeze
from holdfast.domain.repair import UNKNOWN_OUTCOME
from holdfast.errors import InvalidMessage

Typed = tuple[str, bytes]
"""A value as a serialiser of LangGraph's writes it: the name of the way, and bytes."""

_CLASSES: dict[str, type[Any]] = {
    "human": lc.HumanMessage,
    "ai": lc.AIMessage,
    "system": lc.SystemMessage,
    "tool": lc.ToolMessage,
    "function": lc.FunctionMessage,
    "chat": lc.ChatMessage,
    "HumanMessageChunk": lc.HumanMessageChunk,
    "AIMessageChunk": lc.AIMessageChunk,
    "SystemMessageChunk": lc.SystemMessageChunk,
    "ToolMessageChunk": lc.ToolMessageChunk,
    "FunctionMessageChunk": lc.FunctionMessageChunk,
    "ChatMessageChunk": lc.ChatMessageChunk,
}
_TYPES = {kind: name for name, kind in _CLASSES.items()}
# What LangChain gives a field by itself; it is not said again.
_DEFAULTS: dict[str, dict[str, Any]] = {}
_FIELDS: dict[str, tuple[str, ...]] = {}
for _name, _kind in _CLASSES.items():
    _FIELDS[_name] = tuple(field for field in _kind.model_fields if field != "type")
    _DEFAULTS[_name] = {
        field: about.get_default(call_default_factory=True)
        for field, about in _kind.model_fields.items()
        if not about.is_required()
    }
_KNOWN = {name: frozenset(kind.model_fields) for name, kind in _CLASSES.items()}
_encode = msgspec.json.Encoder().encode


def is_message(value: Any) -> bool:
    """Whether this is a message of one of LangChain's own classes."""
    return type(value) in _TYPES


def payload_of(message: Any) -> dict[str, Any]:
    """The message as a payload, whose fields may still be more than JSON can hold."""
    name = _TYPES[type(message)]
    defaults = _DEFAULTS[name]
    said = message.__dict__
    data = {}
    for field in _FIELDS[name]:
        if field not in said:
            continue
        value = said[field]
        if field not in defaults or defaults[field] != value:
            data[field] = value
    if message.__pydantic_extra__:
        data.update(message.__pydantic_extra__)
    return {"type": name, "data": data}


def fingerprint(message: Any) -> bytes | None:
    """The bytes of its payload, quickly: the same for the same message. None where msgspec can't
    tell, and `body_of` must be asked.
    """
    try:
        return _encode(payload_of(message))
    except (TypeError, ValueError, UnicodeEncodeError):
        return None


def body_of(
    message: Any, dumps: Callable[[Any], Typed]
) -> tuple[dict[str, Any], bytes]:
    """The payload and its frozen bytes. What JSON can't hold is put beside the rest by `dumps`."""
    payload = payload_of(message)
    data = payload["data"]
    typed = {}
    for field, value in list(data.items()):
        if not is_json(value):
            way, raw = dumps(value)
            typed[field] = [way, base64.b64encode(raw).decode()]
            del data[field]
    if typed:
        payload["typed"] = typed
    return payload, freeze(payload)


def message_of(payload: Any, loads: Callable[[Typed], Any]) -> Any:
    """The message that a payload of this format is."""
    kind = _CLASSES.get(payload["type"])
    if kind is None:
        problem = f"`{payload['type']}` is no type of message"
        raise InvalidMessage(problem=problem, place="type")
    data = dict(payload["data"])
    for field, (way, raw) in payload.get("typed", {}).items():
        data[field] = loads((way, base64.b64decode(raw)))
    return _made(kind, payload["type"], data)


def _made(kind: type[Any], name: str, data: dict[str, Any]) -> Any:
    """As `model_construct` does it, without asking about each field: what was a message when it was
    stored is one now. Whole messages take a tenth of the time that LangChain needs to check them.
    """
    values: dict[str, Any] = {}
    for field, value in _DEFAULTS[name].items():
        # A fresh list or dict for each: its owner may change it.
        values[field] = value.copy() if isinstance(value, list | dict) else value
    known, extra = _KNOWN[name], {}
    for field, value in data.items():
        if field in known:
            values[field] = value
        else:
            extra[field] = value
    made = object.__new__(kind)
    object.__setattr__(made, "__dict__", values)
    object.__setattr__(made, "__pydantic_fields_set__", set(data))
    object.__setattr__(made, "__pydantic_extra__", extra)
    object.__setattr__(made, "__pydantic_private__", None)
    return made


_PLAIN = frozenset({str, bool, type(None)})
_INTEGER_MAX = 1 << 63


def is_json(value: Any) -> bool:
    """Whether JSON gives this value back as it is, types included."""
    kind = type(value)
    if kind in _PLAIN:
        return True
    if kind is int:
        return bool(-_INTEGER_MAX <= value < _INTEGER_MAX)
    if kind is float:
        return math.isfinite(value)
    if kind is list:
        return all(is_json(item) for item in value)
    if kind is dict:
        return all(type(key) is str and is_json(item) for key, item in value.items())
    return False


def with_results(messages: list[Any], *, to_the_end: bool) -> list[Any]:
    """The messages, each call of a tool with a result behind it: a provider refuses one without.
    With `to_the_end` also those that nothing has come after yet.
    """
    answered = set()
    for message in messages:
        if isinstance(message, lc.ToolMessage):
            answered.add(message.tool_call_id)
    whole: list[Any] = []
    owed: list[Any] = []
    for message in messages:
        if not isinstance(message, lc.ToolMessage):
            whole += owed
            owed = []
        whole.append(message)
        for call in getattr(message, "tool_calls", None) or ():
            if call["id"] not in answered:
                name, id = call["name"], call["id"]
                owed.append(
                    lc.ToolMessage(
                        UNKNOWN_OUTCOME, tool_call_id=id, name=name, status="error"
                    )
                )
    return whole + owed if to_the_end else whole
