"""What waits in all inboxes of a store: what a gateway asks after a restart (I-4).

Found by age, through an index, a page at a time: it costs what waits, not how many sessions there
are. A turn whose process has died gives back what it had not used before the first page is read.
"""

import base64
import binascii
from collections.abc import Callable

import msgspec

from holdfast.domain.arguments import kind_of
from holdfast.domain.entry import note_of
from holdfast.domain.repair import StoredMessage
from holdfast.engine.protocol import PAGE_BYTES_MAX, Engine, Pending, SessionState
from holdfast.errors import BadArgument
from holdfast.runtime.catalog.list_sessions import Page
from holdfast.runtime.live.damage import readable
from holdfast.runtime.live.message import Message
from holdfast.runtime.live.session_log import SessionLog
from holdfast.runtime.plans.plan import Plan, read
from holdfast.runtime.turns.recovery import settle_if_dead

Mark = tuple[bytes, str, int]
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(tuple[str, str, int]).decode


class PendingMessage(Message):
    """A message that waits, with the session it waits in and that session's key."""

    key: str | None
    session_id: str

    def __init__(self, pending: Pending) -> None:
        entry = readable(pending.entry)
        note = note_of("message", entry.note)
        super().__init__(
            StoredMessage(
                entry.id.hex(), entry.seq, None, note, entry.body, False, (), entry.at
            ),
            turn=None,
            pending=True,
        )
        self.key, self.session_id = pending.key, pending.session


def pending(
    engine: Engine,
    tenant: str,
    session: Callable[[SessionState], SessionLog],
    *,
    after: str | None,
    limit: int,
) -> Plan[Page[PendingMessage]]:
    """A page of what waits, oldest first; `after` is the `next` of the page before."""
    mark = _read(after) if after is not None else None
    if mark is None:
        running = yield from read(
            lambda: [engine.state(id) for id in engine.running(tenant)]
        )
        for state in running:
            if state is not None:
                yield from settle_if_dead(session(state))
    found: list[Pending] = yield from read(
        lambda: engine.pending(tenant, after=mark, limit=limit + 1)
    )
    shown = found[:limit]
    is_cut = sum(len(each.entry.body) for each in found) >= PAGE_BYTES_MAX
    next = _write(shown[-1]) if shown and (len(found) > limit or is_cut) else None
    return Page([PendingMessage(each) for each in shown], next)


def _write(last: Pending) -> str:
    mark = (last.entry.id.hex(), last.session, last.entry.seq)
    return base64.urlsafe_b64encode(_encode(mark)).decode().rstrip("=")


def _read(after: str) -> Mark:
    try:
        padded = after.encode("ascii") + b"=" * (-len(after) % 4)
        message, session, seq = _decode(
            base64.b64decode(padded, altchars=b"-_", validate=True)
        )
        if not 0 <= seq < 1 << 62 or len(message) > 64:
            raise ValueError("no such place")
        return bytes.fromhex(message), session, seq
    except (
        binascii.Error,
        UnicodeEncodeError,
        AttributeError,
        TypeError,
        msgspec.DecodeError,
        ValueError,
    ):
        takes = "the `next` of a page of `Store.pending`"
        raise BadArgument(
            parameter="after", takes=takes, given=kind_of(after)
        ) from None
