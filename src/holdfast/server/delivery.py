"""What comes in and what is owed: messages accepted for a key, and replies to be sent.

A receipt is given once a message is durable (I-4). A reply is owed until its sending is confirmed;
whoever claims some has each of them alone for a while (I-23).
"""

from typing import Any

from starlette.responses import Response
from starlette.routing import Route

from holdfast.errors import BadArgument, NotFound
from holdfast.runtime.border import RULES
from holdfast.runtime.plans.plan_asyncio import arun
from holdfast.runtime.turns.outbox import NEVER_OWED, OwedWork, Receipt, owed_by
from holdfast.server.operations import Body, Query, WireRequest, answer, route
from holdfast.server.records import (
    Owes,
    PendingPage,
    owed_record,
    pending_records,
)
from holdfast.server.sessions import FORMAT, NOTHING, SESSION
from holdfast.server.turns.asked_again import event_of, insist_same

OUTBOX_MAX = 1000


class AcceptBody(Body):
    key: str
    message: Any
    format: str = FORMAT
    event_id: str | int | None = None
    reply_to: str | int | None = None
    labels: dict[str, Any] | None = None


async def accept(request: WireRequest) -> Response:
    """Stores a message in the inbox of the key's current session, and nothing more: the next turn
    takes it. An `event_id`, or an `Idempotency-Key`, that came before gives the receipt of that
    time.
    """
    body = request.body
    event = body.event_id if body.event_id is not None else event_of(request.key)
    receipt = await request.store.accept(
        body.key,
        body.message,
        format=body.format,
        event_id=event,
        reply_to=body.reply_to,
        labels=body.labels,
    )
    # An event id names what happened: the same event is the same, however it is worded.
    # An `Idempotency-Key` names a request, and must not be used for another.
    if receipt.again and body.event_id is None:
        place = (receipt.session_id, receipt.message_id)
        await insist_same(request, place, [body.message], body.format)
    return answer(receipt, status=201, again=receipt.again)


class PendingQuery(Query):
    after: str | None = None
    limit: int = 50


async def pending(request: WireRequest) -> Response:
    """What waits in the inboxes of all sessions, oldest first: what a gateway asks after a
    restart.
    """
    query = request.query
    page = await request.store.pending(after=query.after, limit=query.limit)
    return answer(PendingPage(pending_records(page.items), page.next))


class OutboxQuery(Query):
    limit: int = 50


async def outbox(request: WireRequest) -> Response:
    """Replies to send, oldest first; those that another sender has are among them."""
    limit = _limit(request.query.limit)
    owed = await request.store.outbox(limit)
    return answer(Owes([owed_record(each) for each in owed]))


class ClaimBody(Body):
    claim_s: float
    limit: int = 50


async def claim(request: WireRequest) -> Response:
    """Replies that no other sender has, each for this one alone for so many seconds."""
    body = request.body
    limit = _limit(body.limit)
    owed = await request.store.outbox(limit, claim_s=body.claim_s)
    return answer(Owes([owed_record(each) for each in owed]))


def _limit(limit: int) -> int:
    if not 1 <= limit <= OUTBOX_MAX:
        takes = f"a number from 1 to {OUTBOX_MAX}"
        raise BadArgument(parameter="limit", takes=takes, given=str(limit))
    return limit


class ReplySentBody(Body):
    platform_id: str | int | None = None


async def sent(request: WireRequest) -> Response:
    """Confirms that a reply has arrived: it is owed no more. Confirming it again changes nothing."""
    given = RULES["platform_id"]
    platform_id = request.body.platform_id
    if platform_id is not None:
        platform_id = given("platform_id", platform_id)
    work = await _owed(request, None)
    if work is not None:
        await arun(work.sent(platform_id))
    return answer(NOTHING)


class FailedBody(Body):
    reason: str
    claim: str | None = None


async def failed(request: WireRequest) -> Response:
    """Records that a try did not go through: the reply stays owed. With its `claim`, it is given
    back, and another sender may have it.
    """
    body = request.body
    work = await _owed(request, body.claim)
    if work is not None:
        await arun(work.failed(body.reason))
    return answer(NOTHING)


async def _owed(request: WireRequest, claim: str | None) -> OwedWork | None:
    """The reply in the address; None when its session does not owe it any more. One that it has
    never owed is not there.
    """
    session = await request.session()
    name = request.path["reply"]
    try:
        reply = bytes.fromhex(name)
    except ValueError:
        # No reply has such an id.
        raise NotFound(what="reply", name=name, hint=NEVER_OWED) from None
    try:
        token = None if claim is None else bytes.fromhex(claim)
    except ValueError:
        takes = "what the reply was claimed with"
        raise BadArgument(parameter="claim", takes=takes, given="other text") from None
    return await arun(owed_by(session._log, reply, token))


def routes() -> list[Route]:
    """The routes of this module."""
    write: dict[str, Any] = {"scope": "write"}
    reply = f"{SESSION}/outbox/{{reply}}"
    return [
        route("POST", "/v1/inbox", accept, body=AcceptBody, gives=Receipt, status=201,
              takes_key=True, **write),
        route("GET", "/v1/inbox", pending, query=PendingQuery, gives=PendingPage, scope="read"),
        route("GET", "/v1/outbox", outbox, query=OutboxQuery, gives=Owes, scope="read"),
        route("POST", "/v1/outbox/claim", claim, body=ClaimBody, gives=Owes, **write),
        route("POST", f"{reply}/sent", sent, body=ReplySentBody, **write),
        route("POST", f"{reply}/failed", failed, body=FailedBody, **write),
    ]  # fmt: skip
