"""What no turn has taken is handed to Hermes again: when its chat is idle, between two turns, and after
a start.

It goes into Hermes' own queue at the place that is its by the time of its receipt, so that neither what
waits there nor what comes in meanwhile passes it; the first of the queue is handed in.
"""

import asyncio
import logging
from typing import Any

from holdfast.adapters.hermes.received.book import Received
from holdfast.adapters.hermes.received.event_labels import event_of
from holdfast.adapters.hermes.received.inbox import GatewayInbox
from holdfast.adapters.hermes.received.queues import (
    insert_by_arrival,
    is_idle,
    is_starting,
    put_waiting,
    queued_ids,
    take_waiting,
)

log = logging.getLogger("holdfast.hermes")


async def at_idle(
    adapter: Any, key: str, *, runner: Any, inbox: GatewayInbox, base: Any
) -> None:
    """Nothing may run in this chat any more: then goes on with what waits, or was lost. Hermes looks
    into its queue only when a turn ends: what came as the last one ended would lie there until the
    next message, and be answered after it.
    """
    if is_starting(runner) or not is_idle(adapter, key):
        return
    lost = inbox.book.lost(key, queued_ids(adapter, runner, inbox))
    if lost:
        await _hand_in(adapter, key, lost, runner=runner, inbox=inbox, base=base)
        return
    waiting = take_waiting(adapter, runner, key)
    put_waiting(adapter, runner, key, waiting[1:])
    if waiting:
        # Not by `handle_message`, which waits before it marks the chat as busy: what comes in
        # then would be first. This one has been through it.
        adapter._start_session_processing(waiting[0], key)


def between_turns(
    event: Any, adapter: Any, key: str, *, runner: Any, inbox: GatewayInbox, base: Any
) -> Any:
    """A turn has ended, and Hermes goes on with this event: instead, with the first of all that
    waits, whatever became of it; None where there is nothing, or Hermes itself knows it.
    """
    waiting = take_waiting(adapter, runner, key)
    if event is not None:
        waiting.insert(0, event)
    # The queue is empty for a moment: what was in it is not lost.
    known = queued_ids(adapter, runner, inbox)
    for each in waiting:
        known |= {received.id for received in inbox.of(each)}
    lost = inbox.book.lost(key, known)
    # Words that steered nothing: Hermes makes a turn of them if it has nothing else to do.
    if waiting or not all(each.is_handed_back for each in lost):
        for each in lost:
            each.is_wanted = False
            again = _event_of(each, inbox, base)
            if again is not None:
                insert_by_arrival(waiting, again, inbox)
    put_waiting(adapter, runner, key, waiting[1:])
    return waiting[0] if waiting else None


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
        hopeful = await asyncio.to_thread(inbox.try_again, some)
        waiting = take_waiting(adapter, runner, key)
        for each in hopeful:
            event = _event_of(each, inbox, base)
            if event is not None:
                insert_by_arrival(waiting, event, inbox)
        if not waiting:
            return
        log.warning("%s: %d messages are put back", key, len(hopeful))
        # Something may have come in while they were counted: then its turn's end goes on with them.
        first = waiting.pop(0) if is_idle(adapter, key) else None
        put_waiting(adapter, runner, key, waiting)
        if first is not None:
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
