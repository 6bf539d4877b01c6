"""Calls that a run has left open: which of them wait for something, and which are over."""

from collections.abc import Sequence
from typing import Any

from pydantic_ai.messages import ModelRequest, ModelResponse, repair_messages

from holdfast.runtime.live.message import Message
from holdfast.runtime.session import Session

DEFERRED = "pydantic_ai_deferred"
"""The label of a response some of whose calls get their results from elsewhere: their ids."""


def closed(
    session: Session, stored: Sequence[Message], messages: list[Any]
) -> list[Any]:
    """These messages, with the calls of the last response closed if their outcomes can't come any
    more: as the framework closes those of a run that was interrupted. `stored` are the same
    messages, as they stand in the session.
    """
    place = _last_response(messages)
    if place is None:
        return messages
    is_open = _open_calls(messages[place], messages[place + 1 :])
    if not is_open:
        return messages
    waiting = set(stored[place].labels.get(DEFERRED, ()))
    for call in session.calls():
        # One that was stored outside a turn is its caller's.
        if call.state != "unknown" or call.turn is None:
            waiting.add(call.call_id)
    if is_open & waiting:
        return messages
    mark = ModelRequest(parts=[], state="interrupted")
    return [*messages[:place], *repair_messages([*messages[place:], mark])]


def _last_response(messages: Sequence[Any]) -> int | None:
    for place in range(len(messages) - 1, -1, -1):
        if isinstance(messages[place], ModelResponse):
            return place
    return None


def _open_calls(response: Any, after: Sequence[Any]) -> set[str]:
    answered = set()
    for message in after:
        for part in message.parts:
            answered.add(getattr(part, "tool_call_id", None))
    return {call.tool_call_id for call in response.tool_calls} - answered
