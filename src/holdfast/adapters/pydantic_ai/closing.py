"""The history that a run goes on from: what stands in a session, and of the calls that the last run has
left open those closed whose outcomes can't come any more.
"""

from collections.abc import Sequence
from typing import Any

from pydantic_ai.messages import ModelRequest, ModelResponse, repair_messages

from holdfast.adapters.framework import standing, stored
from holdfast.adapters.pydantic_ai.messages import in_one_go, messages_of
from holdfast.runtime.session import Session

DEFERRED = "pydantic_ai_deferred"
"""The label of a response some of whose calls get their results from elsewhere: their ids."""

ANSWERED = ("done", "failed")


def history_of(session: Session, *, to_send: bool = False) -> list[Any]:
    """What stands in a session, as the framework's messages; `to_send`: as a client can send them."""
    messages = in_one_go(stored(session))
    if messages is None:
        messages = messages_of(standing(session), to_send=to_send)
    return _closed(session, messages)


def _closed(session: Session, messages: list[Any]) -> list[Any]:
    """These messages, with the calls of the last response closed as the framework closes those of a
    run that was interrupted; none of them if one still waits for something.
    """
    place = _last_response(messages)
    if place is None:
        return messages
    is_open = _open_calls(messages[place], messages[place + 1 :])
    if not is_open:
        return messages
    waiting = set(standing(session)[place].labels.get(DEFERRED, ()))
    for call in session.calls():
        # What was answered, and is not in the view any more, waits for nothing: it was rewound or
        # hidden, or its id was used before. One that was stored outside a turn is its caller's.
        is_over = call.state == "unknown" and call.turn is not None
        if not is_over and call.state not in ANSWERED:
            waiting.add(call.call_id)
    if is_open & waiting:
        return messages
    # `repair_messages` closes the calls of a run that was interrupted; this marks it as
    # one.
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
