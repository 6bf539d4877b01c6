"""A message that can't be stored is refused: its sender is told, and its platform is not told that it
has arrived.
"""

import logging
from typing import Any, NoReturn

from holdfast.adapters.hermes.received.gateway import gateway, platform_base
from holdfast.adapters.hermes.streams import not_answered

log = logging.getLogger("holdfast.hermes")


class NotReceived(Exception):
    """Raised out of `handle_message`: an adapter that waits for it has nothing to confirm."""


async def refuse(adapter: Any, event: Any, error: Exception) -> NoReturn:
    """Tells the sender that this message is not stored, and the adapter, too."""
    log.error("a message that came in can't be stored: %s", error)
    words = not_answered(error)
    try:
        # Hermes does not speak to others, and to them nothing is said about our files either.
        if gateway()._is_user_authorized(event.source):
            await _tell(adapter, event, words)
    except Exception as trouble:
        log.warning("its sender can't be told: %s", trouble)
    raise NotReceived(words) from error


async def _tell(adapter: Any, event: Any, words: str) -> None:
    base = platform_base()
    source = event.source
    anchor = base._reply_anchor_for_event(event)
    await adapter._send_with_retry(
        chat_id=source.chat_id,
        content=words,
        reply_to=anchor,
        metadata=base._thread_metadata_for_source(source, anchor),
    )
