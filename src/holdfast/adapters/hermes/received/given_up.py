"""Messages that came to nothing as often as they were put back: given up, and nobody is left in doubt.

The user is told in the chat, in a sentence that quotes the message. It stands in the transcript of the
session that its chat is in, as a turn that has failed, with that sentence as its answer: Hermes' rows
are filled from there when the session is loaded next, so the model of the next turn knows of it. A
session of its own counts all that were given up, for `holdfast hermes status`.
"""

import contextlib
import logging
from collections.abc import Sequence
from typing import Any

from holdfast import Session, Store
from holdfast.adapters.hermes.received.book import Received
from holdfast.adapters.hermes.received.event_labels import event_of
from holdfast.adapters.hermes.received.gateway import platform_base
from holdfast.adapters.hermes.received.queues import Chat
from holdfast.adapters.hermes.serving import CONVERSATION
from holdfast.errors import AlreadyAccepted, HoldfastError, NotFound, SessionBusy

log = logging.getLogger("holdfast.hermes")

KEY = "hermes-given-up"
QUOTED = 60
"""So many characters of a message are quoted."""


def notice_of(some: Sequence[Received]) -> str:
    """What the user is told."""
    quotes = []
    for each in some:
        words = " ".join(each.text.split())
        if len(words) > QUOTED:
            words = words[:QUOTED].rstrip() + "…"
        quotes.append(f"“{words}”" if words else "one without text")
    return (
        f"⚠️ Handed in again and again and never answered, so given up now: your message "
        f"{', '.join(quotes)}; please send it again."
    )


def store(chat: Chat, some: Sequence[Received], notice: str) -> bool:
    """Stores that these are given up; False where somebody else has them by now, or it can't be
    stored: then they wait.
    """
    opened = chat.inbox.book.close(some)
    if not opened:
        return False
    try:
        _count(chat.inbox.store, opened, notice)
        _end(chat, opened, notice)
    except (HoldfastError, OSError) as error:
        log.error("messages are not given up, and wait for the next start: %s", error)
        return False
    return True


def _count(store: Store, some: Sequence[Received], notice: str) -> None:
    session = store.session(KEY)
    for each in some:
        # Where it is done again after a kill, it is counted already.
        with contextlib.suppress(AlreadyAccepted):
            session.append({"role": "system", "content": notice}, event_id=each.id)


def _end(chat: Chat, some: Sequence[Received], notice: str) -> None:
    """A turn takes them and says so; in their inbox, where their chat has no session yet, or another
    process is at work in it.
    """
    receipts = []
    for each in some:
        receipts.append(each.receipt)
    inbox = chat.inbox.store.get(receipts[0].session_id)
    for session in (_conversation(chat), inbox):
        if session is None:
            continue
        with contextlib.suppress(SessionBusy):
            with session.turn(take=receipts, on_busy="refuse") as turn:
                turn.say(notice)
                turn.fail("given up")
            return


def _conversation(chat: Chat) -> Session | None:
    """The session that this chat is in."""
    session_id = chat.runner.session_store.peek_session_id(chat.key)
    if session_id is None:
        return None
    return chat.inbox.store.session(CONVERSATION + session_id)


async def tell(chat: Chat, received: Received, notice: str) -> None:
    """Sends the notice to the chat that the message came from."""
    try:
        source = event_of("", received.labels, platform_base()).source
        await chat.adapter._send_with_retry(
            chat_id=source.chat_id,
            content=notice,
            metadata=chat.runner._thread_metadata_for_source(source),
        )
    # Whatever a platform raises: the others have to be put back all the same.
    except Exception as error:
        log.error("%s can't be told what was given up: %s", chat.key, error)


def count_of(store: Any) -> int:
    """How many messages this store tells of as given up."""
    try:
        session = store.session(KEY, create=False)
    except NotFound:
        return 0
    return sum(1 for _ in session.transcript())
