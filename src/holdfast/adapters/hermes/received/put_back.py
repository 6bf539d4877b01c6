"""What no turn has taken is handed to Hermes again: when its chat is idle, and after a start.

One of a chat is handed in as if it came now; those that came after it stand in Hermes' own queue
behind it, so that what comes in meanwhile does not pass them.
"""

import asyncio
import logging
from typing import Any

from holdfast.adapters.hermes.received.book import Received
from holdfast.adapters.hermes.received.event_labels import event_of
from holdfast.adapters.hermes.received.inbox import GatewayInbox
from holdfast.adapters.hermes.received.queues import (
    is_idle,
    is_starting,
    queued_ids,
)

log = logging.getLogger("holdfast.hermes")


async def at_idle(
    adapter: Any, key: str, *, runner: Any, inbox: GatewayInbox, base: Any
) -> None:
    """Nothing runs in this chat any more: goes on with what waits, or was lost."""
    if is_starting(runner) or not is_idle(adapter, key):
        return
    overflow = runner._queued_events.get(key)
    if overflow:
        # Hermes looks there only when a turn ends: its head would wait for the next message.
        event = overflow.pop(0)
        if not overflow:
            del runner._queued_events[key]
        await adapter.handle_message(event)
        return
    lost = inbox.book.lost(key, queued_ids(adapter, runner, inbox))
    if lost:
        await _hand_in(adapter, key, lost, runner=runner, inbox=inbox, base=base)


async def at_start(*, runner: Any, inbox: GatewayInbox, base: Any) -> None:
    """Hands in what earlier processes have left, chat by chat."""
    for key, left in inbox.book.left_behind().items():
        event = _event_of(left[0], inbox, base)
        adapter = runner._adapter_for_source(event.source) if event else None
        if adapter is None:
            log.warning("messages of %s wait: its platform is not there", key)
            continue
        for each in left:
            each.is_left = False
        await _hand_in(adapter, key, left, runner=runner, inbox=inbox, base=base)


async def _hand_in(
    adapter: Any,
    key: str,
    some: list[Received],
    *,
    runner: Any,
    inbox: GatewayInbox,
    base: Any,
) -> None:
    # In their hands already: nobody else may put them back while the tries are counted.
    inbox.book.enter(some)
    try:
        events = []
        for each in await asyncio.to_thread(inbox.try_again, some):
            event = _event_of(each, inbox, base)
            if event is not None:
                events.append(event)
        if not events:
            return
        log.warning("%s: %d messages are put back", key, len(events))
        first, *others = events
        if others:
            runner._queued_events.setdefault(key, []).extend(others)
        await adapter.handle_message(first)
    finally:
        inbox.book.leave(some)


def _event_of(received: Received, inbox: GatewayInbox, base: Any) -> Any:
    """The event made again; None where Hermes does not know its platform any more."""
    try:
        event = event_of(received.text, received.labels, base)
    except Exception as error:
        log.warning("a message of %s can't be put back: %s", received.key, error)
        return None
    inbox.attach(event, [received])
    # Else Hermes queues it once more while it starts.
    event._hermes_startup_restore_replay = True
    return event
