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

from holdfast.domain.message import freeze, is_plain
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
_FIELDS: dict[str, tuple[tuple[str, Any], ...]] = {}
"""The fields of each, in order, with what they usually hold; `_NEVER` where nothing is usual."""
_NEVER = object()
for _name, _kind in _CLASSES.items():
    _usual = {
        field: about.get_default(call_default_factory=True)
        for field, about in _kind.model_fields.items()
        if not about.is_required()
    }
    _DEFAULTS[_name] = _usual
    _FIELDS[_name] = tuple(
        (field, _usual.get(field, _NEVER))
        for field in _kind.model_fields
        if field != "type"
    )
_CHANGING: dict[str, list[str]] = {}
"""The fields whose usual value is a list or a dict."""
for _name, _usual in _DEFAULTS.items():
    _CHANGING[_name] = [
        field for field, value in _usual.items() if isinstance(value, list | dict)
    ]
_KNOWN = {name: frozenset(kind.model_fields) for name, kind in _CLASSES.items()}
_encode = msgspec.json.Encoder().encode


def is_message(value: Any) -> bool:
    """Whether this is a message of one of LangChain's own classes."""
    return type(value) in _TYPES


def payload_of(message: Any) -> dict[str, Any]:
    """The message as a payload, whose fields may still be more than JSON can hold."""
    name = _TYPES[type(message)]
    said = message.__dict__
    data = {}
    for field, usual in _FIELDS[name]:
        value = said.get(field, usual)
        if value is not usual and usual != value:
            data[field] = value
    if message.__pydantic_extra__:
        data.update(message.__pydantic_extra__)
    return {"type": name, "data": data}


def fingerprint(payload: dict[str, Any]) -> bytes | None:
    """The bytes of a payload, quickly: the same for the same message. None where msgspec can't
    tell, and `body_from` must be asked.
    """
    try:
        return _encode(payload)
    except (TypeError, ValueError, UnicodeEncodeError):
        return None


def body_of(
    message: Any, dumps: Callable[[Any], Typed]
) -> tuple[dict[str, Any], bytes]:
    """The payload and its frozen bytes. What JSON can't hold is put beside the rest by `dumps`."""
    payload = payload_of(message)
    return payload, body_from(payload, fingerprint(payload), dumps)


def body_from(
    payload: dict[str, Any], seen: bytes | None, dumps: Callable[[Any], Typed]
) -> bytes:
    """The frozen bytes of a payload with this fingerprint. What JSON can't hold is put beside the
    rest by `dumps`.
    """
    # Nearly all messages: what was written to know them by is what is stored.
    if seen is not None and is_plain(payload):
        return seen
    data = payload["data"]
    typed = {}
    for field, value in list(data.items()):
        if not is_json(value):
            way, raw = dumps(value)
            typed[field] = [way, base64.b64encode(raw).decode()]
            del data[field]
    if typed:
        payload["typed"] = typed
    return freeze(payload)


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
    values = _DEFAULTS[name].copy()
    for field in _CHANGING[name]:
        # A fresh list or dict for each: its owner may change it.
        values[field] = values[field].copy()
    known, extra = _KNOWN[name], {}
    if known.issuperset(data):
        values.update(data)
    else:
        extra = {field: data[field] for field in data if field not in known}
        values.update((field, data[field]) for field in data if field in known)
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
            name, id = call["name"], call["id"]
            # No result can say that it is of a call without an id.
            if id is not None and id not in answered:
                owed.append(
                    lc.ToolMessage(
                        UNKNOWN_OUTCOME, tool_call_id=id, name=name, status="error"
                    )
                )
    return whole + owed if to_the_end else whole
