"""Receipts in the gateway: carried to the turns of their events, and put back at a start."""

import asyncio
import functools
from types import ModuleType
from typing import Any

from holdfast.adapters.hermes.received import put_back
from holdfast.adapters.hermes.received.book import Received
from holdfast.adapters.hermes.received.gateway import (
    current,
    inbox_for,
    inboxes,
    set_gateway,
    settle_unqueued,
)
from holdfast.adapters.hermes.received.queues import Chat, queued_ids

ASKED_FOR = ("session_reset", "resume")
"""Why Hermes lets go of what is queued, where a user has asked for it."""


def patch_gateway_run(module: ModuleType) -> None:
    """Carries receipts to their turns, keeps queues in order, and puts back what is left at a start."""
    runner: Any = module.GatewayRunner
    runner.__init__ = _making(runner.__init__)
    runner._handle_message = _handling(runner._handle_message)
    runner._handle_active_session_busy_message = _meeting_busy(
        runner._handle_active_session_busy_message
    )
    runner._prepare_profile_scoped_inbound_message_text = _preparing(
        runner._prepare_profile_scoped_inbound_message_text
    )
    runner._queue_or_replace_pending_event = _queueing(
        runner._queue_or_replace_pending_event
    )
    runner._enqueue_fifo = _enqueueing(runner._enqueue_fifo)
    runner._promote_queued_event = _promoting(runner._promote_queued_event)
    runner._clear_conversation_scope = _clearing(runner._clear_conversation_scope)
    runner._drain_startup_restore_queue = _draining(runner._drain_startup_restore_queue)


def _making(make: Any) -> Any:
    @functools.wraps(make)
    def __init__(self: Any, *given: Any, **named: Any) -> None:
        make(self, *given, **named)
        set_gateway(self)

    return __init__


def _handling(handle: Any) -> Any:
    @functools.wraps(handle)
    async def _handle_message(self: Any, event: Any) -> Any:
        inbox = inbox_for(event.source)
        some: list[Received] = []
        if inbox is not None:
            some = inbox.of(event)
        token = current.set(tuple(some))
        try:
            result = await handle(self, event)
        except Exception:
            # The user is told, and has to ask again.
            await _settle_handled(self, event, some)
            raise
        finally:
            current.reset(token)
        await _settle_handled(self, event, some)
        return result

    return _handle_message


async def _settle_handled(runner: Any, event: Any, some: list[Received]) -> None:
    """Hermes has this event behind it: it is answered, queued, or dealt with otherwise."""
    inbox = inbox_for(event.source)
    adapter = runner._adapter_for_source(event.source)
    if inbox is not None and adapter is not None:
        await settle_unqueued(some, adapter=adapter, runner=runner, inbox=inbox)


def _meeting_busy(busy: Any) -> Any:
    @functools.wraps(busy)
    async def _handle_active_session_busy_message(
        self: Any, event: Any, session_key: str
    ) -> bool:
        inbox = inbox_for(event.source)
        some: list[Received] = []
        if inbox is not None:
            some = inbox.of(event)
        for each in some:
            # Hermes may have found another chat for it than its source says.
            each.key = session_key
        token = current.set(tuple(some))
        try:
            is_done = bool(await busy(self, event, session_key))
        finally:
            current.reset(token)
        if is_done:
            await _settle_handled(self, event, some)
        return is_done

    return _handle_active_session_busy_message


def _preparing(prepare: Any) -> Any:
    @functools.wraps(prepare)
    async def _prepare_profile_scoped_inbound_message_text(
        self: Any, *, event: Any, **named: Any
    ) -> Any:
        inbox = inbox_for(event.source)
        if inbox is not None:
            # Stays set in this task: what comes next is this event's turn.
            current.set(tuple(inbox.of(event)))
        return await prepare(self, event=event, **named)

    return _prepare_profile_scoped_inbound_message_text


def _queueing(queue: Any) -> Any:
    @functools.wraps(queue)
    def _queue_or_replace_pending_event(
        self: Any, session_key: str, event: Any
    ) -> None:
        queue(self, session_key, event)
        inbox = inbox_for(event.source)
        adapter = self._adapter_for_source(event.source)
        if inbox is None or adapter is None:
            return
        queued = queued_ids(adapter, self, inbox)
        for each in inbox.of(event):
            each.was_queued = True
            # More than Hermes holds in memory: the inbox has it, and it is put back.
            each.is_wanted = each.id not in queued

    return _queue_or_replace_pending_event


def _enqueueing(enqueue: Any) -> Any:
    @functools.wraps(enqueue)
    def _enqueue_fifo(
        self: Any, session_key: str, queued_event: Any, adapter: Any
    ) -> None:
        inbox = inbox_for(queued_event.source)
        if inbox is None or adapter is None:
            enqueue(self, session_key, queued_event, adapter)
            return
        for each in inbox.of(queued_event):
            each.was_queued = True
        # Not into a free slot: it would pass those that wait in the list behind it.
        chat = Chat(session_key, adapter, self, inbox)
        waiting = chat.take_waiting()
        chat.insert(waiting, queued_event)
        chat.put_waiting(waiting)

    return _enqueue_fifo


def _promoting(promote: Any) -> Any:
    @functools.wraps(promote)
    def _promote_queued_event(
        self: Any, session_key: str, adapter: Any, pending_event: Any
    ) -> Any:
        source = None
        if pending_event is not None:
            source = pending_event.source
        inbox = inbox_for(source)
        if inbox is None or adapter is None:
            return promote(self, session_key, adapter, pending_event)
        chat = Chat(session_key, adapter, self, inbox)
        return put_back.between_turns(chat, pending_event)

    return _promote_queued_event


def _clearing(clear: Any) -> Any:
    @functools.wraps(clear)
    def _clear_conversation_scope(self: Any, session_key: str, *, reason: str) -> None:
        queued = list(self._queued_events.get(session_key, ()))
        clear(self, session_key, reason=reason)
        for event in queued:
            inbox = inbox_for(event.source)
            # Else it was nobody's wish: they are lost, and put back.
            if inbox is not None and reason in ASKED_FOR:
                inbox.settle(inbox.of(event))

    return _clear_conversation_scope


def _draining(drain: Any) -> Any:
    @functools.wraps(drain)
    async def _drain_startup_restore_queue(self: Any) -> int:
        # First, while what comes in now is held back: that came after it.
        for inbox in inboxes():
            await asyncio.to_thread(inbox.load)
            await put_back.at_start(self, inbox)
        return int(await drain(self))

    return _drain_startup_restore_queue
