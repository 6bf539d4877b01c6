"""Where Hermes' gateway holds events that have no turn yet, all of it in memory.

What waits in a chat lies in one place for what is next, and in a list behind it. Hermes fills both
from several sides; here they are one queue, in the order in which its messages came in.
"""

from typing import Any

from holdfast.adapters.hermes.received.inbox import GatewayInbox


def queued_ids(adapter: Any, runner: Any, inbox: GatewayInbox) -> set[str]:
    """The ids of all messages that lie in a queue of this adapter or of the runner."""
    events = list(adapter._pending_messages.values())
    for overflow in list(runner._queued_events.values()):
        events += overflow
    for state in adapter._text_debounce_store().values():
        events.append(state.event)
    events += getattr(adapter, "_pending_text_batches", {}).values()
    events += getattr(runner, "_startup_restore_queue", None) or ()
    return {each.id for event in events for each in inbox.of(event)}


def take_waiting(adapter: Any, runner: Any, key: str) -> list[Any]:
    """Empties the queue of a chat; what was in it, the next one first."""
    events = []
    slot = adapter._pending_messages.pop(key, None)
    if slot is not None:
        events.append(slot)
    events += runner._queued_events.pop(key, ())
    return events


def put_waiting(adapter: Any, runner: Any, key: str, events: list[Any]) -> None:
    """Fills the queue of a chat, which is empty."""
    if events:
        adapter._pending_messages[key] = events[0]
    if events[1:]:
        runner._queued_events[key] = events[1:]


def insert_by_arrival(events: list[Any], event: Any, inbox: GatewayInbox) -> None:
    """Puts an event before the first of those that came in after it. What has no receipt, a word of
    Hermes' own, stays where it is.
    """
    came = _arrival(event, inbox)
    for place, other in enumerate(events):
        if came and came < _arrival(other, inbox):
            events.insert(place, event)
            return
    events.append(event)


def _arrival(event: Any, inbox: GatewayInbox) -> str:
    """The id of the first message of an event, which begins with the time of its receipt."""
    return min((each.id for each in inbox.of(event)), default="")


def is_idle(adapter: Any, key: str) -> bool:
    """Whether nothing of this chat runs or is about to."""
    return key not in adapter._active_sessions


def is_starting(runner: Any) -> bool:
    """Whether the gateway still holds back what comes in."""
    return bool(getattr(runner, "_startup_restore_in_progress", False))
