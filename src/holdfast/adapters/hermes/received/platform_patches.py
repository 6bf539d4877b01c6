"""Receipts at the platforms' end: taken before anything else, and carried through every join.

Written by a thread that the event loop awaits: an adapter does not read its next update before this
one is durable.
"""

import asyncio
import functools
import logging
from types import ModuleType
from typing import Any

from holdfast.adapters.hermes.received import put_back
from holdfast.adapters.hermes.received.book import overwritten
from holdfast.adapters.hermes.received.event_labels import is_command
from holdfast.adapters.hermes.received.gateway import (
    gateway,
    inbox_for,
    open_inbox,
    set_platform_base,
)
from holdfast.adapters.hermes.received.inbox import (
    GatewayInbox,
    is_received,
    received_on,
)
from holdfast.adapters.hermes.received.queues import Chat, insert_in_order
from holdfast.adapters.hermes.received.refusal import refuse
from holdfast.errors import HoldfastError

log = logging.getLogger("holdfast.hermes")


def patch_platform_base(module: ModuleType) -> None:
    """Takes receipts, carries them through every join, and looks after each chat when it is idle."""
    base: Any = module
    set_platform_base(module)
    adapter = base.BasePlatformAdapter
    adapter.handle_message = _receiving(base, adapter.handle_message)
    adapter._process_message_background = _processing(
        adapter._process_message_background
    )
    adapter._queue_text_debounce = _debouncing(adapter._queue_text_debounce)
    base.merge_pending_message_event = _merging(base.merge_pending_message_event)
    _watch_batches(base, adapter)


def _receiving(base: Any, handle: Any) -> Any:
    @functools.wraps(handle)
    async def handle_message(self: Any, event: Any) -> Any:
        inbox = None
        is_new = True
        try:
            if not event.internal:
                inbox = open_inbox(event.source)
            if inbox is not None:
                is_new = await _is_new(base, self, event, inbox)
        except (HoldfastError, OSError) as error:
            # A command has no words to be lost, and may be what stops a turn.
            if not is_command(event):
                await refuse(self, event, error)
            inbox = None
        if inbox is None:
            return await handle(self, event)
        if not is_new:
            log.info("a message came again, and is not passed on")
            return None
        some = received_on(event)
        try:
            result = await handle(self, event)
        finally:
            inbox.book.leave(some)
        # The turn that it was to wait for may have ended before it was in the queue.
        key = _key_of(base, self, event)
        chat = Chat(key, self, gateway(), inbox)
        await put_back.at_idle(chat)
        return result

    return handle_message


async def _is_new(base: Any, adapter: Any, event: Any, inbox: GatewayInbox) -> bool:
    """Stores a message that came in; False when it came before."""
    if is_received(event):
        _take_in_hand(event, inbox)
        return True
    key = _key_of(base, adapter, event)
    return await asyncio.to_thread(inbox.receive, event, key)


def _take_in_hand(event: Any, inbox: GatewayInbox) -> None:
    """Hermes hands in what was received before: out of a batch, out of a queue, or put back."""
    some = received_on(event)
    inbox.book.enter(some)
    for each in some:
        each.is_held = False


def _key_of(base: Any, adapter: Any, event: Any) -> str:
    extra = adapter.config.extra
    return str(
        base.build_session_key(
            event.source,
            group_sessions_per_user=extra.get("group_sessions_per_user", True),
            thread_sessions_per_user=extra.get("thread_sessions_per_user", False),
        )
    )


def _processing(process: Any) -> Any:
    @functools.wraps(process)
    async def _process_message_background(
        self: Any, event: Any, session_key: str
    ) -> None:
        inbox = inbox_for(event.source)
        runner = gateway()
        if inbox is None:
            await process(self, event, session_key)
            return
        some = inbox.of(event)
        for each in some:
            # Hermes may have found another chat for it than its source says.
            each.key = session_key
            each.was_queued = False
        inbox.book.enter(some)
        try:
            await process(self, event, session_key)
        except asyncio.CancelledError:
            # Stopped by a command: that is the user's answer to it. At a shutdown it waits.
            if not runner._draining and not runner._shutdown_event.is_set():
                inbox.settle(inbox.book.open_of(some))
            raise
        finally:
            inbox.book.leave(some)
        chat = Chat(session_key, self, runner, inbox)
        await put_back.at_idle(chat)

    return _process_message_background


def _debouncing(debounce: Any) -> Any:
    @functools.wraps(debounce)
    async def _queue_text_debounce(self: Any, session_key: str, event: Any) -> None:
        state = self._text_debounce_store().get(session_key)
        inbox = inbox_for(event.source)
        if state is None or inbox is None:
            await debounce(self, session_key, event)
            return
        first = state.event
        text = first.text
        await debounce(self, session_key, event)
        # It joins texts by itself, if they are of one sender.
        if first.text != text and first is not event:
            inbox.join(first, event)

    return _queue_text_debounce


def _merging(merge: Any) -> Any:
    @functools.wraps(merge)
    def merge_pending_message_event(
        pending_messages: Any, session_key: str, event: Any, **named: Any
    ) -> None:
        before = pending_messages.get(session_key)
        inbox = inbox_for(event.source)
        if inbox is None or before is None or before is event:
            merge(pending_messages, session_key, event, **named)
            return
        queued = gateway()._queued_events.get(session_key, [])
        last = queued[-1] if queued else before
        if _put_in_order(pending_messages, session_key, event, last, inbox):
            return
        # With the last of all that waits, not with the next: else it would pass those between.
        place = {session_key: last}
        merge(place, session_key, event, **named)
        if place[session_key] is last:
            inbox.join(last, event)
        elif queued:
            queued.append(event)
        else:
            pending_messages[session_key] = event
            _keep_overwritten(pending_messages, session_key, before, event, inbox)

    return merge_pending_message_event


def _put_in_order(
    pending: Any, key: str, event: Any, last: Any, inbox: GatewayInbox
) -> bool:
    """Puts an event that came in before something that waits at its place, by itself: joined to what
    came after it, its words would stand behind those. Whether it did.
    """
    came = inbox.arrival(event)
    if not came or came >= inbox.arrival(last):
        return False
    events = [pending[key], *gateway()._queued_events.get(key, ())]
    insert_in_order(inbox, events, event)
    pending[key] = events[0]
    gateway()._queued_events[key] = events[1:]
    return True


def _keep_overwritten(
    pending: Any, key: str, before: Any, event: Any, inbox: GatewayInbox
) -> None:
    """The slot held another event (#93871): both are kept, the one that came first in the slot."""
    was_there = inbox.of(before)
    is_there = inbox.of(event)
    is_kept, is_first = overwritten(was_there, is_there)
    if not is_kept:
        return
    later = before
    if is_first:
        pending[key] = before
        later = event
    overflow = gateway()._queued_events.setdefault(key, [])
    overflow.insert(0, later)


def _watch_batches(base: Any, adapter: Any) -> None:
    """Some platforms join the pieces of a long text before anything else: a receipt for each piece."""
    make = adapter.__init_subclass__

    @classmethod  # type: ignore[misc]
    def __init_subclass__(cls: Any, **named: Any) -> None:
        make(**named)
        enqueue = vars(cls).get("_enqueue_text_event")
        if enqueue is None:
            return
        is_awaited = asyncio.iscoroutinefunction(enqueue)
        batching = _batching_awaited if is_awaited else _batching
        cls._enqueue_text_event = batching(base, enqueue)

    adapter.__init_subclass__ = __init_subclass__


def _batching(base: Any, enqueue: Any) -> Any:
    @functools.wraps(enqueue)
    def _enqueue_text_event(self: Any, event: Any) -> None:
        inbox = _inbox_of_piece(event)
        # On the event loop: the platform's callback can't wait here, and must not go on before.
        if inbox is not None and not _is_new_piece(base, self, event, inbox):
            return
        before = _batched_texts(self)
        enqueue(self, event)
        if inbox is not None:
            _join_batched(self, event, before, inbox)

    return _enqueue_text_event


def _batching_awaited(base: Any, enqueue: Any) -> Any:
    @functools.wraps(enqueue)
    async def _enqueue_text_event(self: Any, event: Any) -> None:
        inbox = _inbox_of_piece(event)
        if inbox is not None:
            is_new = await asyncio.to_thread(_is_new_piece, base, self, event, inbox)
            if not is_new:
                return
        before = _batched_texts(self)
        await enqueue(self, event)
        if inbox is not None:
            _join_batched(self, event, before, inbox)

    return _enqueue_text_event


def _inbox_of_piece(event: Any) -> GatewayInbox | None:
    """Where a piece is to be received; None where it was, or there is nothing to receive it."""
    if event.internal or is_received(event):
        return None
    return inbox_for(event.source)


def _is_new_piece(base: Any, adapter: Any, event: Any, inbox: GatewayInbox) -> bool:
    """Stores a piece; False when it came before. One that can't be stored is passed on."""
    try:
        key = _key_of(base, adapter, event)
        is_new = inbox.receive(event, key)
    except (HoldfastError, OSError) as error:
        log.error("a message that came in can't be stored: %s", error)
        return True
    some = received_on(event)
    # Until its batch is handed in: a platform may take that out and wait for something else first.
    for each in some:
        each.is_held = True
    inbox.book.leave(some)
    return is_new


def _batched_texts(adapter: Any) -> dict[int, str]:
    texts = {}
    for batch in adapter._pending_text_batches.values():
        texts[id(batch)] = batch.text
    return texts


def _join_batched(
    adapter: Any, event: Any, before: dict[int, str], inbox: GatewayInbox
) -> None:
    """The batch whose text has changed has this piece in it."""
    for batch in adapter._pending_text_batches.values():
        text = before.get(id(batch))
        if batch is not event and batch.text != text:
            inbox.join(batch, event)
