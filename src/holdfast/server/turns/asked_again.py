"""A request that comes again under its `Idempotency-Key`, after a restart or at another server: the
store knows the key as an event, and what it was for by the message that it brought.
"""

from functools import partial
from typing import Any

from holdfast.domain.entry import Entry, note_of
from holdfast.errors import NotFound
from holdfast.runtime.aio import AsyncSession
from holdfast.runtime.changes.open_session import NameReused
from holdfast.runtime.live.session_log import SessionLog, speak
from holdfast.runtime.live.transcript import find
from holdfast.runtime.plans.plan import Plan, read
from holdfast.runtime.plans.plan_asyncio import arun
from holdfast.server.operations import WireRequest
from holdfast.server.problems import WireProblem


def event_of(key: str | None) -> str | None:
    """The event that a request with this `Idempotency-Key` is, where it names none itself."""
    return None if key is None else f"idempotency-key:{key}"


def reused(key: str) -> WireProblem:
    """The refusal of another request with a key that was used before."""
    detail = f"The Idempotency-Key `{key}` came before, with another request."
    return WireProblem("key_reused", detail)


async def made_once(request: WireRequest, plan: Plan[SessionLog]) -> AsyncSession:
    """The session that this plan makes, or has made before; refused if what has the request's key
    was another request.
    """
    try:
        return AsyncSession(await arun(plan))
    except NameReused:
        raise reused(request.key or "") from None


async def insist_same(
    request: WireRequest, place: tuple[str, str], messages: list[Any], format: str
) -> list[str]:
    """The ids of the messages that this request has brought before, from the one at `place` on, a
    session and a message; refused if it brings others.
    """
    session_id, message_id = place
    session = await _where(request, session_id)
    stored: list[Entry] = []
    if session is not None:
        look = partial(_stored, session._log, message_id, len(messages))
        stored = await arun(read(look))
    # Erased, or gone to where this store can't look: nobody can tell any more.
    if not stored or not stored[0].body:
        return [message_id]
    given = [speak(each, format).body for each in messages]
    count = note_of("message", stored[0].note).batch or 1
    if count != len(given) or [entry.body for entry in stored] != given:
        raise reused(request.key or "")
    return [entry.id.hex() for entry in stored]


async def _where(request: WireRequest, session_id: str) -> AsyncSession | None:
    try:
        found: AsyncSession = await request.tenants.session(
            request.identity.tenant, session_id
        )
    except NotFound:
        return None
    return found


def _stored(session: SessionLog, message_id: str, count: int) -> list[Entry]:
    """A message, and those that were stored with it, which stand behind it."""
    first = find(session, message_id)
    if first is None:
        return []
    return list(session.page(first.seq - 1, count))
