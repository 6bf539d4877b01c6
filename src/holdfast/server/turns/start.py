"""Turns over HTTP: started, spoken in, and ended by requests that name them.

A start with an `Idempotency-Key` can be sent again until it is answered: it is one turn. The key
stands for an event, so that holds over a restart of the server, too. Chunks come in batches with
the number of the first: a batch that comes again is stored once.
"""

import hashlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from holdfast.domain.arguments import OnBusy
from holdfast.errors import AlreadyAccepted, NotFound, TurnInterrupted
from holdfast.runtime.aio import AsyncSession
from holdfast.runtime.live.totals import TurnInfo
from holdfast.runtime.turn_async import AsyncTurn
from holdfast.runtime.turns.outbox import Receipt
from holdfast.server.head_guard import guarded
from holdfast.server.operations import Body, WireRequest, answer
from holdfast.server.problems import WireProblem
from holdfast.server.records import LeasedTurnRecord
from holdfast.server.sessions import FORMAT, ResetPolicy, policy_of
from holdfast.server.tenants import no_turn
from holdfast.server.turns.asked_again import event_of, insist_same
from holdfast.server.turns.held import LeasedTurn
from holdfast.server.waiting import attended

LEASE_S = 30.0


class StartBody(Body, kw_only=True):
    message: Any = None
    format: str = FORMAT
    event_id: str | int | None = None
    on_busy: OnBusy = "wait"
    reply_to: str | int | None = None
    lease_s: float = LEASE_S
    take: list[str | Receipt] | None = None


class KeyedStartBody(StartBody, kw_only=True):
    key: str
    reset: ResetPolicy | None = None


async def start_by_key(request: WireRequest) -> Response:
    """Starts a turn in the key's current session, which is made if there is none and reset if that
    is due, all in one transaction. The message is durable when this is answered.
    """
    body = request.body
    reset = policy_of(body.reset)
    begin = partial(request.store.turn, body.key, reset=reset)
    return await _once(request, partial(_begun, request, begin))


async def start(request: WireRequest) -> Response:
    """Starts a turn in this session; as the start by key."""
    session = await request.session()

    async def begun() -> AsyncTurn:
        async with guarded(session, request.match) as own:
            return await _begun(request, own.turn)

    return await _once(request, begun)


async def _once(
    request: WireRequest, begin: Callable[[], Awaitable[AsyncTurn]]
) -> Response:
    """Starts, or answers what was answered to this `Idempotency-Key` before."""

    async def work() -> Response:
        # Whoever waits for a running turn may go away: then it waits no more, and its message
        # stays in the inbox.
        turn = await attended(request.request, begin())
        held = request.turns.hold(
            turn, AsyncSession(turn._work.session), lease_s=request.body.lease_s
        )
        held.start_key = request.key
        return answer(leased_record(held), status=201)

    said = await said_by(request.request)
    starts = request.turns.starts(request.identity.tenant)
    response: Response = await starts.once(request.key, said, work)
    return response


async def _begun(request: WireRequest, begin: Callable[..., Any]) -> AsyncTurn:
    body, key = request.body, request.key
    event = body.event_id if body.event_id is not None else event_of(key)
    options: dict[str, Any] = {
        "format": body.format,
        "on_busy": body.on_busy,
        "reply_to": body.reply_to,
        "lease_s": body.lease_s,
    }
    try:
        turn: AsyncTurn = await begin(
            body.message, event_id=event, take=body.take, **options
        )
        return turn
    except AlreadyAccepted as known:
        if key is None:
            raise
        if body.event_id is None:
            brought = [] if body.message is None else [body.message]
            place = (known.session_id, known.message_id)
            await insist_same(request, place, brought, body.format)
        # Its sender asks again: if the message still waits, it waits for just this turn.
        if known.turn_id is not None:
            raise
        waiting = Receipt(known.session_id, known.message_id)
        try:
            again: AsyncTurn = await begin(take=[waiting], **options)
            return again
        except NotFound:
            raise known from None


async def said_by(request: Request) -> bytes:
    """What a request says, to tell it from another one."""
    words = f"{request.method} {request.scope['path']}\n".encode()
    return hashlib.sha256(words + await request.body()).digest()


def leased_record(held: LeasedTurn) -> LeasedTurnRecord:
    session = held.session
    return LeasedTurnRecord(
        held.id, session.id, session.key, session.epoch, held.lease_s
    )


async def info_of(request: WireRequest, turn_id: str) -> tuple[AsyncSession, TurnInfo]:
    """What the log says of a turn of the sender's tenant."""
    session_id, _, digits = turn_id.rpartition(":")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 16):
        raise no_turn(turn_id)
    try:
        session = await request.tenants.session(request.identity.tenant, session_id)
    except NotFound:
        raise no_turn(turn_id) from None
    number = int(digits)
    for info in await session.turns(number - 1 if number else 0, 1):
        # By its whole id: the beginning of one is not taken here.
        if info.number == number and info.id == turn_id:
            return session, info
    raise no_turn(turn_id)


async def held_turn(request: WireRequest) -> LeasedTurn:
    """The turn in the address, which this process holds for the sender's tenant."""
    turn_id = request.path["turn"]
    held: LeasedTurn | None = request.turns.get(request.identity.tenant, turn_id)
    if held is not None:
        return held
    await request.turns.settled(request.identity.tenant, turn_id)
    _, info = await info_of(request, turn_id)
    if info.end is not None:
        reason = info.reason or info.error or info.end
        raise TurnInterrupted(turn_id=turn_id, reason=reason)
    detail = f"Turn `{turn_id}` runs, and another process holds it: ask there."
    raise WireProblem("held_elsewhere", detail, turn_id=turn_id)


def _overtaken(request: WireRequest) -> LeasedTurn | None:
    found: LeasedTurn | None = request.turns.overtaken(
        request.identity.tenant, request.path["turn"]
    )
    return found


Step = Callable[[WireRequest, LeasedTurn], Awaitable[Any]]


def step(
    work: Step, *, status: int = 200, is_late_too: bool = False
) -> Callable[[WireRequest], Any]:
    """A handler for what is done in a turn: it renews the turn's lease, and with an
    `Idempotency-Key` it is done once. With `is_late_too`, also in a turn that others have ended: it
    stores what its client has finished, and tells it that the turn is over.
    """

    async def handler(request: WireRequest) -> Response:
        held = _overtaken(request) if is_late_too else None
        if held is None:
            held = await held_turn(request)

        async def done() -> Response:
            return answer(await work(request, held), status=status)

        with held:
            if request.key is None:
                return await done()
            said = await said_by(request.request)
            return await held.answers.once(request.key, said, done)

    handler.__name__, handler.__doc__ = work.__name__, work.__doc__
    return handler
