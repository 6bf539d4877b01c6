"""What no turn has taken is handed to Hermes again: when its chat is idle, between two turns, and after
a start.

It goes into Hermes' own queue at the place that is its by the time of its receipt, so that neither what
waits there nor what comes in meanwhile passes it; the first of the queue is handed in.
"""

import asyncio
import logging
from typing import Any

from holdfast.adapters.hermes.received import given_up
from holdfast.adapters.hermes.received.book import Received
from holdfast.adapters.hermes.received.event_labels import event_of
from holdfast.adapters.hermes.received.gateway import platform_base
from holdfast.adapters.hermes.received.inbox import GatewayInbox
from holdfast.adapters.hermes.received.queues import Chat

log = logging.getLogger("holdfast.hermes")


async def at_idle(chat: Chat) -> None:
    """Nothing may run in this chat any more: then goes on with what waits, or was lost. Hermes looks
    into its queue only when a turn ends: what came as the last one ended would lie there until the
    next message, and be answered after it.
    """
    if chat.is_held_back or not chat.is_idle:
        return
    lost = chat.lost([])
    if lost:
        await _hand_in(chat, lost)
        return
    waiting = chat.take_waiting()
    chat.put_waiting(waiting[1:])
    if waiting:
        # Not by `handle_message`, which waits before it marks the chat as busy: what comes in
        # then would be first. This one has been through it.
        chat.adapter._start_session_processing(waiting[0], chat.key)


def between_turns(chat: Chat, event: Any) -> Any:
    """A turn has ended, and Hermes goes on with this event: instead, with the first of all that
    waits, whatever became of it; None where there is nothing, or Hermes itself knows it.
    """
    waiting = chat.take_waiting()
    if event is not None:
        waiting.insert(0, event)
    # The queue is empty for a moment: what was in it is not lost.
    lost = chat.lost(waiting)
    is_told = all(each.is_handed_back for each in lost)
    # Words that steered nothing: Hermes makes a turn of them if it has nothing else to do.
    if waiting or not is_told:
        for each in lost:
            each.is_wanted = False
            again = _event_of(each, chat.inbox)
            if again is not None:
                chat.insert(waiting, again)
    chat.put_waiting(waiting[1:])
    return waiting[0] if waiting else None


async def at_start(runner: Any, inbox: GatewayInbox) -> None:
    """Hands in what earlier processes have left, chat by chat."""
    for key, left in inbox.book.left_behind().items():
        event = _event_of(left[0], inbox)
        adapter = None
        if event is not None:
            adapter = runner._adapter_for_source(event.source)
        if adapter is None:
            log.warning("messages of %s wait: its platform is not there", key)
            continue
        chat = Chat(key, adapter, runner, inbox)
        await _hand_in(chat, left)


async def _hand_in(chat: Chat, some: list[Received]) -> None:
    # In their hands already: nobody else may put them back meanwhile.
    chat.inbox.book.enter(some)
    try:
        hopeful, hopeless = chat.inbox.hopeful_of(some)
        # Before anything is waited for: what comes in now has to find them in the queue.
        waiting = chat.take_waiting()
        for each in hopeful:
            event = _event_of(each, chat.inbox)
            if event is not None:
                chat.insert(waiting, event)
        first = None
        # Else a turn runs, whose end goes on with them.
        if waiting and chat.is_idle:
            first = waiting.pop(0)
        chat.put_waiting(waiting)
        if hopeful:
            log.warning("%s: %d messages are put back", chat.key, len(hopeful))
        await _give_up(chat, hopeless)
        if hopeful:
            await asyncio.to_thread(chat.inbox.note_tries, hopeful[:1])
        if first is not None:
            await chat.adapter.handle_message(first)
    finally:
        chat.inbox.book.leave(some)


async def _give_up(chat: Chat, some: list[Received]) -> None:
    """These are tried no more: whoever has sent them is told, and so is the model of the next turn."""
    if not some:
        return
    notice = given_up.notice_of(some)
    log.error("%s: %s", chat.key, notice)
    is_stored = await asyncio.to_thread(given_up.store, chat, some, notice)
    if is_stored:
        await given_up.tell(chat, some[0], notice)


def _event_of(received: Received, inbox: GatewayInbox) -> Any:
    """The event made again; None where Hermes does not know its platform any more."""
    try:
        event = event_of(received.text, received.labels, platform_base())
    except Exception as error:
        log.warning("a message of %s can't be put back: %s", received.key, error)
        return None
    inbox.attach(event, [received])
    # Else Hermes queues it once more while it starts.
    event._hermes_startup_restore_replay = True
    return event
