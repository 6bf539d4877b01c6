"""Where Hermes' gateway holds events that have no turn yet, all of it in memory."""

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


def is_idle(adapter: Any, key: str) -> bool:
    """Whether nothing of this chat runs or is about to."""
    return key not in adapter._active_sessions and key not in adapter._pending_messages


def is_starting(runner: Any) -> bool:
    """Whether the gateway still holds back what comes in."""
    return bool(getattr(runner, "_startup_restore_in_progress", False))
