"""From Pydantic AI's messages to payloads, and from what stands in a session to its messages."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from pydantic import TypeAdapter
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
)

from holdfast.adapters.framework import bodies_of
from holdfast.domain.arguments import kind_of
from holdfast.domain.message import Call, Result, Text, without_halves
from holdfast.domain.repair import StoredMessage
from holdfast.errors import BadArgument
from holdfast.formats import registry
from holdfast.formats.frameworks.pydantic_ai import NAME
from holdfast.formats.reading import NOT_JSON, parsed, text
from holdfast.runtime.live.message import Message

FORMAT = NAME
_anything: Any = TypeAdapter(Any)
_UNSAID = frozenset(
    [
        "timestamp",
        "instructions",
        "run_id",
        "conversation_id",
        "metadata",
        "model_name",
        "provider_name",
        "provider_url",
        "provider_details",
        "provider_response_id",
        "finish_reason",
        "workspace_ref",
        "history_digest",
        "failed_attempts",
    ]
)
_UNSAID_IN_PARTS = frozenset(
    [
        "id",
        "provider_name",
        "provider_details",
        "citations",
        "signature",
        "tool_kind",
        "metadata",
        "retry",
        "dynamic_ref",
    ]
)
"""Fields that the framework reads as None when they are not there."""


def payload_of(message: Any) -> dict[str, Any]:
    """A message as the framework dumps it, without what says nothing: it comes back equal."""
    [payload] = ModelMessagesTypeAdapter.dump_python([message], mode="json")
    return _brief(payload)


def _brief(payload: dict[str, Any]) -> dict[str, Any]:
    said = _without(payload, _UNSAID)
    usage = said.get("usage")
    if isinstance(usage, dict):
        said["usage"] = {name: count for name, count in usage.items() if count}
    said["parts"] = [_without(part, _UNSAID_IN_PARTS) for part in said["parts"]]
    return said


def _without(block: dict[str, Any], names: frozenset[str]) -> dict[str, Any]:
    kept = {}
    for name, value in block.items():
        if value is not None or name not in names:
            kept[name] = value
    return kept


def plain_of(value: Any) -> Any:
    """A part of a message, or an event's, as JSON."""
    return _anything.dump_python(value, mode="json")


def payloads_of(messages: Any) -> list[dict[str, Any]]:
    """The payloads of a caller's messages; `BadArgument` for what is none."""
    if isinstance(messages, str) or not isinstance(messages, Sequence):
        given = kind_of(messages)
        raise BadArgument(parameter="messages", takes="a list of messages", given=given)
    for message in messages:
        if not isinstance(message, ModelRequest | ModelResponse):
            takes = "messages of Pydantic AI"
            given = kind_of(message)
            raise BadArgument(parameter="messages", takes=takes, given=given)
    try:
        dumped: list[dict[str, Any]] = ModelMessagesTypeAdapter.dump_python(
            list(messages), mode="json"
        )
    # Whatever an object in a tool's answer raises when it is dumped.
    except Exception as error:
        takes = "messages that JSON can hold"
        given = f"one that it can't ({type(error).__name__})"
        raise BadArgument(parameter="messages", takes=takes, given=given) from error
    for payload in dumped:
        for part in payload["parts"]:
            if not isinstance(part, dict) or not text(part.get("part_kind")):
                takes = "messages whose parts are Pydantic AI's"
                given = f"one with {kind_of(part)} for a part"
                raise BadArgument(parameter="messages", takes=takes, given=given)
    return [_brief(payload) for payload in dumped]


def messages_of(stored: Iterable[Message], *, to_send: bool = False) -> list[Any]:
    """What stands in a session, as the framework's messages; nothing is repaired. `to_send`: without
    halves of characters.
    """
    said = list(stored)
    found = in_one_go([message._seen for message in said])
    if found is not None:
        return found
    payloads = [_payload(message) for message in said]
    if to_send:
        # The client can't send half of a character: no run would ever get further. (What has one
        # can't be read in one go.)
        payloads = without_halves(payloads)
    _name_results(payloads)
    try:
        found = ModelMessagesTypeAdapter.validate_python(payloads)
    except ValueError:
        # One of them is not as this release of the framework reads them: it alone is told in words.
        found = []
        for message, payload in zip(said, payloads, strict=True):
            found += _read(message, payload)
    return found


def in_one_go(stored: Sequence[StoredMessage]) -> list[Any] | None:
    """Messages that are all the framework's own, from their bytes; None where one is not, or
    can't be read.
    """
    bodies = bodies_of(stored, FORMAT)
    if bodies is None:
        return None
    try:
        found: list[Any] = ModelMessagesTypeAdapter.validate_json(
            b"[" + b",".join(bodies) + b"]"
        )
    except ValueError:
        return None
    return found


def _name_results(payloads: list[dict[str, Any]]) -> None:
    """Gives each result of another program the name of the tool whose call it answers."""
    names: dict[Any, Any] = {}
    for payload in payloads:
        for part in payload.get("parts", ()):
            kind = part.get("part_kind")
            if kind == "tool-call":
                names[part.get("tool_call_id")] = part.get("tool_name")
            elif kind == "tool-return" and part.get("tool_name") == "":
                part["tool_name"] = names.get(part.get("tool_call_id"), "tool")


def _read(message: Message, payload: dict[str, Any]) -> list[ModelMessage]:
    try:
        found: list[ModelMessage] = ModelMessagesTypeAdapter.validate_python([payload])
    except ValueError:
        words = _in_words(message)
        found = ModelMessagesTypeAdapter.validate_python([words])
    return found


def _payload(message: Message) -> dict[str, Any]:
    if message.format == FORMAT:
        payload = message.payload
        if isinstance(payload, dict):
            return payload
    return _in_words(message)


def _in_words(message: Message) -> dict[str, Any]:
    """A message that another program has said, or that can't be read: its words, calls and results.
    It is the same one at every look: what the framework would put the present time on has its own.
    """
    worded = _worded(message)
    at = datetime.fromtimestamp(message.at / 1000, UTC).isoformat()
    timed = [worded] if worded["kind"] == "response" else worded["parts"]
    for each in timed:
        each["timestamp"] = at
    return worded


def _worded(message: Message) -> dict[str, Any]:
    shape: Any = registry.get(FORMAT)
    blocks = []
    for part in message.parts:
        if isinstance(part, Result) and message.role == "tool":
            answer: dict[str, Any] = shape.result(
                part.call_id, part.content, error=part.error
            )
            return answer
        if isinstance(part, Call) and message.role == "assistant":
            said = parsed(part.arguments)
            arguments = part.arguments if said is NOT_JSON else said
            blocks.append(shape.call(part.id, part.name, arguments))
        elif isinstance(part, Text) and part.text:
            blocks.append(shape.text(part.text))
    role = message.role if message.role != "tool" else "user"
    worded: dict[str, Any] = shape.word(role, blocks or [shape.text(message.text)])
    return worded
