"""Where Hermes' gateway holds events that have no turn yet, all of it in memory.

What waits in a chat lies in one place for what is next, and in a list behind it. Hermes fills both
from several sides; here they are one queue, in the order in which its messages came in.
"""

from typing import Any, NamedTuple

from holdfast.adapters.hermes.received.book import Received
from holdfast.adapters.hermes.received.inbox import GatewayInbox


class Chat(NamedTuple):
    """A chat of the gateway, by its key in Hermes, and whatever holds something of it."""

    key: str
    adapter: Any
    runner: Any
    inbox: GatewayInbox

    @property
    def is_idle(self) -> bool:
        """Whether nothing of this chat runs or is about to."""
        return self.key not in self.adapter._active_sessions

    @property
    def is_held_back(self) -> bool:
        """Whether the gateway answers nothing now: it is starting, or shuts down."""
        is_starting = getattr(self.runner, "_startup_restore_in_progress", False)
        return bool(is_starting or self.runner._draining)

    def take_waiting(self) -> list[Any]:
        """Empties the queue of this chat; what was in it, the next one first."""
        events = []
        slot = self.adapter._pending_messages.pop(self.key, None)
        if slot is not None:
            events.append(slot)
        events += self.runner._queued_events.pop(self.key, ())
        return events

    def put_waiting(self, events: list[Any]) -> None:
        """Fills the queue of this chat, which is empty."""
        # Hermes takes an entry in either place for something that waits: nothing goes there empty.
        if events:
            self.adapter._pending_messages[self.key] = events[0]
        if events[1:]:
            self.runner._queued_events[self.key] = events[1:]

    def insert(self, events: list[Any], event: Any) -> None:
        """Puts an event at its place among these (`insert_in_order`)."""
        insert_in_order(self.inbox, events, event)

    def lost(self, besides: list[Any]) -> list[Received]:
        """What no queue holds and no turn has, nor any of these events."""
        known = queued_ids(self.adapter, self.runner, self.inbox)
        for event in besides:
            for each in self.inbox.of(event):
                known.add(each.id)
        return self.inbox.book.lost(self.key, known)


def insert_in_order(inbox: GatewayInbox, events: list[Any], event: Any) -> None:
    """Puts an event before the first of these that came in after it. What has no receipt, a word of
    Hermes' own, stays where it is.
    """
    came = inbox.arrival(event)
    for place, other in enumerate(events):
        if came and came < inbox.arrival(other):
            events.insert(place, event)
            return
    events.append(event)


def queued_ids(adapter: Any, runner: Any, inbox: GatewayInbox) -> set[str]:
    """The ids of all messages that lie in a queue of this adapter or of the runner."""
    events = list(adapter._pending_messages.values())
    for overflow in list(runner._queued_events.values()):
        events += overflow
    for state in adapter._text_debounce_store().values():
        events.append(state.event)
    # Those two are not in every adapter, nor in a runner that has started.
    events += getattr(adapter, "_pending_text_batches", {}).values()
    events += getattr(runner, "_startup_restore_queue", None) or ()
    ids = set()
    for event in events:
        for each in inbox.of(event):
            ids.add(each.id)
    return ids
