"""The kit's events and Holdfast's messages: one is stored as the other, and read back equal."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
from google.adk.events.event import Event, NodeInfo
from google.adk.events.event_actions import EventActions
from google.genai import types
from pydantic_core import PydanticSerializationError

from holdfast.adapters.framework import uuid_of
from holdfast.domain.message import DEPTH_MAX, Spoken, freeze, thaw
from holdfast.domain.repair import INTERRUPTED, StoredMessage
from holdfast.errors import HoldfastError, InvalidMessage
from holdfast.formats import registry
from holdfast.formats.frameworks.adk import NAME
from holdfast.runtime.live.message import Message
from holdfast.runtime.live.session_log import speak

ABORTED = "INVOCATION_ABORTED"
"""The kit's own mark of an event that answers the calls of a run which was cut off."""
TEMPORARY = "temp:"

_NO_ACTIONS, _NO_NODE = EventActions(), NodeInfo()
_decode = msgspec.json.Decoder().decode


class StoredEvent(NamedTuple):
    """An event as it stands in the log."""

    seen: StoredMessage
    event: Event


def spoken_of(event: Event) -> Spoken:
    """An event, frozen and noted, without what is temporary in its state."""
    said = {"exclude_none": True, "exclude": _saying_nothing(event)}
    try:
        body = event.model_dump_json(**said).encode()
        payload = _decode(body)
    except (ValueError, msgspec.DecodeError):
        return _spoken_with_detours(event, said)
    # Whatever a value in the event's state raises when it is dumped: values are
    # anybody's.
    except Exception as error:
        problem = f"it can't be written as JSON ({type(error).__name__})"
        raise InvalidMessage(problem=problem, place="the event") from error
    lasting = _lasting(payload)
    # So deep it can be only with so many brackets, and then it is looked at.
    if lasting is not payload or body.count(b"{") + body.count(b"[") > DEPTH_MAX:
        body = freeze(lasting)
    return Spoken(registry.get(NAME).note(lasting), body)


def _spoken_with_detours(event: Event, said: dict[str, Any]) -> Spoken:
    """One with halves of characters, or numbers that msgspec does not read."""
    try:
        payload = event.model_dump(mode="json", **said)
    except PydanticSerializationError as error:
        raise InvalidMessage(problem=str(error), place="the event") from error
    return speak(_lasting(payload), NAME)


def _saying_nothing(event: Event) -> set[str]:
    """The fields of an event that hold nothing: they take more room than most words, and come back
    by themselves.
    """
    found = set()
    if event.actions == _NO_ACTIONS:
        found.add("actions")
    if event.node_info == _NO_NODE:
        found.add("node_info")
    return found


def _lasting(payload: Any) -> Any:
    actions = payload.get("actions") or {}
    delta = actions.get("state_delta") or {}
    kept = {}
    for name, value in delta.items():
        if not name.startswith(TEMPORARY):
            kept[name] = value
    if len(kept) == len(delta):
        return payload
    return {**payload, "actions": {**actions, "state_delta": kept}}


def chunk_of(event: Event) -> dict[str, Any]:
    """A piece of a stream as a chunk."""
    said: dict[str, Any] = event.model_dump(mode="json", exclude_none=True)
    return said


def words_of(event: Event) -> str:
    """The words of an event that a user is shown."""
    return "".join(part.text or "" for part in _parts(event) if not part.thought)


def thoughts_in(event: Event) -> bool:
    """Whether the model has let its thoughts be seen in an event."""
    return any(part.thought and part.text for part in _parts(event))


def _parts(event: Event) -> list[Any]:
    content = event.content
    return (content.parts if content is not None else None) or []


def event_of(seen: StoredMessage, agent: str = "model") -> Event:
    """The event that a message was; of one that somebody else has said or that can't be read, its
    words, as said by `agent` where the model has said them.
    """
    if seen.note.format == NAME and seen.note.origin != "unreadable":
        try:
            return Event.model_validate_json(seen.body)
        except ValueError:
            pass
        # Bytes that pydantic does not read, such as halves of characters, can be read
        # by ours.
        try:
            return Event.model_validate(thaw(seen.body))
        except (ValueError, HoldfastError):
            pass
    message = Message(seen, turn=None)
    is_model = seen.note.role == "assistant"
    author, role = (agent, "model") if is_model else ("user", "user")
    content = types.Content(role=role, parts=[types.Part(text=message.text)])
    return Event(id=seen.id, author=author, content=content, timestamp=seen.at / 1000)


def with_closed_calls(found: Sequence[StoredEvent], cut: Iterable[int]) -> list[Event]:
    """These events, with an answer right after each call that nobody will answer: the run that made
    it was cut off, in one of these turns. What became of it is unknown.
    """
    turns = set(cut)
    if not turns:
        return [each.event for each in found]
    answered = set()
    for each in found:
        answered |= {answer.id for answer in each.event.get_function_responses()}
    events = []
    for seen, event in found:
        events.append(event)
        if seen.turn in turns:
            waiting = event.long_running_tool_ids or ()
            left = []
            for call in event.get_function_calls():
                # One that runs long is answered by somebody, some time.
                if call.id not in answered and call.id not in waiting:
                    left.append(call)
            if left:
                events.append(_closing(event, left))
    return events


def _closing(event: Event, calls: Sequence[Any]) -> Event:
    parts = []
    for call in calls:
        answer = types.FunctionResponse(
            id=call.id, name=call.name, response={"error": INTERRUPTED}
        )
        parts.append(types.Part(function_response=answer))
    # The same one whoever reads it.
    name = hashlib.sha256(f"{event.id}/closing".encode()).digest()
    return Event(
        id=uuid_of(name),
        invocation_id=event.invocation_id,
        author=event.author,
        branch=event.branch,
        isolation_scope=event.isolation_scope,
        content=types.Content(role="user", parts=parts),
        error_code=ABORTED,
        error_message=INTERRUPTED,
        timestamp=event.timestamp,
    )
