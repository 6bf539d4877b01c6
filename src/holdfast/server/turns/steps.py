"""What is done in a turn that is held: each step is a request, and is done once for each
`Idempotency-Key`.
"""

from typing import Any, Literal

import msgspec
from starlette.responses import Response
from starlette.routing import Route

from holdfast.domain.entry import End
from holdfast.errors import BadArgument, TurnInterrupted
from holdfast.runtime.border import RULES
from holdfast.runtime.changes.compact import Compaction
from holdfast.runtime.plans.plan_asyncio import arun
from holdfast.runtime.turns.end_turn import Ending
from holdfast.runtime.turns.outbox import Receipt
from holdfast.server.operations import Body, MessagesBody, WireRequest, answer, route
from holdfast.server.reading import ContextQuery, InboxRecord
from holdfast.server.records import (
    ContextRecord,
    LeasedTurnRecord,
    TurnEndRecord,
    message_record,
)
from holdfast.server.sessions import (
    NOTHING,
    SESSION,
    Appended,
    CompactBody,
)
from holdfast.server.turns.held import LeasedStream, LeasedTurn
from holdfast.server.turns.line_intake import PushBody, Pushed
from holdfast.server.turns.push import push, push_lines
from holdfast.server.turns.start import (
    KeyedStartBody,
    StartBody,
    held_turn,
    info_of,
    leased_record,
    start,
    start_by_key,
    step,
)

TURN = "/v1/turns/{turn}"


class TurnShown(msgspec.Struct, frozen=True):
    """A turn as the log tells it, and whether this process holds it, for how many seconds yet."""

    id: str
    session_id: str
    number: int
    started_at: int
    ended_at: int | None
    end: End | None
    reason: str | None
    error: str | None
    messages: int
    reply_to: str | None
    lease_left_s: float | None


async def show(request: WireRequest) -> Response:
    """A turn, running or ended. Looking renews nothing."""
    turn_id = request.path["turn"]
    session, info = await info_of(request, turn_id)
    held = request.turns.get(request.identity.tenant, turn_id)
    return answer(
        TurnShown(
            info.id,
            session.id,
            info.number,
            info.started_at,
            info.ended_at,
            info.end,
            info.reason,
            info.error,
            info.messages,
            info.reply_to,
            None if held is None else held.left_s,
        )
    )


class RenewBody(Body):
    lease_s: float | None = None


async def renew(request: WireRequest, held: LeasedTurn) -> LeasedTurnRecord:
    """Renews the turn's lease; every request that works on the turn does the same."""
    await _insist_running(held)
    lease_s = request.body.lease_s
    if lease_s is not None:
        held.renew(RULES["lease_s"]("lease_s", lease_s))
    return leased_record(held)


async def _insist_running(held: LeasedTurn) -> None:
    """Tells a client that its turn is over, where nothing is written that would."""
    if await held.turn.stopped:
        raise await arun(held.work.interrupted())


async def context(request: WireRequest) -> Response:
    """What the model sees now, this turn's messages included."""
    query = request.query
    held = await held_turn(request)
    with held:
        await _insist_running(held)
        made = await held.turn.context(query.format, prefill=query.prefill)
    told = ContextRecord(query.format, made, made.instructions, made.head)
    return answer(told, head=made.head)


class AddBody(MessagesBody):
    format: str | None = None


async def add(request: WireRequest, held: LeasedTurn) -> Appended:
    """Stores a finished message of the agent or of a tool, or several in one commit."""
    body = request.body
    if body.messages is not None:
        return Appended(await held.turn.add_all(body.messages, body.format))
    return Appended([await held.turn.add(body.message, body.format)])


class StreamBody(Body):
    format: str = "text"


class StreamOpened(msgspec.Struct, frozen=True):
    """A message that is about to be spoken: its id, before its first chunk."""

    message_id: str


async def open_stream(request: WireRequest, held: LeasedTurn) -> StreamOpened:
    """Opens a message that is pushed in chunks. One that never gets any leaves nothing behind."""
    await _insist_running(held)
    stream = held.turn.stream(request.body.format)
    held.streams[stream.message_id] = LeasedStream(stream)
    return StreamOpened(stream.message_id)


class CallBody(Body):
    name: str
    arguments: Any = None
    call_id: str | int | None = None
    needs_approval: bool = False


class CallStored(msgspec.Struct, frozen=True):
    """A call that was stored: run the tool now, unless it is `waiting` for approval. `message` and
    `index` say which call it is, where a model has used one id for several.
    """

    call_id: str
    waiting: bool
    message: str | None
    index: int | None


async def call(request: WireRequest, held: LeasedTurn) -> CallStored:
    """Stores that a tool is about to run, before it does (I-22)."""
    body = request.body
    made = await held.turn.call(
        body.name, body.arguments, body.call_id, body.needs_approval
    )
    message, index = made.place or (None, None)
    return CallStored(str(made), made.waiting, message, index)


class RunnableCall(msgspec.Struct, frozen=True):
    """A call that is to be run now."""

    call_id: str
    name: str
    arguments: Any
    message: str
    index: int


class RunnableCalls(msgspec.Struct, frozen=True):
    """The calls that are to be run now."""

    items: list[RunnableCall]


async def calls(request: WireRequest, held: LeasedTurn) -> RunnableCalls:
    """The calls to be run now: made by the model in this turn, or approved; not started, answered,
    waiting or denied.
    """
    items = []
    for each in await held.turn.calls():
        items.append(
            RunnableCall(
                str(each.call_id), each.name, each.arguments, each.message, each.index
            )
        )
    return RunnableCalls(items)


class ResultBody(Body):
    call_id: str
    content: Any = None
    error: bool = False
    message: str | None = None
    index: int | None = None


async def result(request: WireRequest, held: LeasedTurn) -> Appended:
    """Stores what a tool answered. Where several calls have this id, `message` and `index` say
    which one is meant.
    """
    body = request.body
    id = await held.turn.result(
        body.call_id, body.content, body.error, message=body.message, index=body.index
    )
    return Appended([id])


class TakeBody(Body):
    take: list[str | Receipt] | None = None


async def take(request: WireRequest, held: LeasedTurn) -> InboxRecord:
    """Takes the messages that came in meanwhile into this turn."""
    taken = await held.turn.inbox(take=request.body.take)
    return InboxRecord([message_record(each) for each in taken])


class SentBody(Body):
    platform_id: str | int | None = None


async def sent(request: WireRequest, held: LeasedTurn) -> Any:
    """Confirms that what this turn has said so far has arrived: the outbox will not have it."""
    await held.turn.sent(request.body.platform_id)
    return NOTHING


class RetractBody(Body):
    reason: str = "retried"


async def retract(request: WireRequest, held: LeasedTurn) -> Any:
    """Takes what this turn has answered so far out of the model's view, to try again."""
    await held.turn.retract(request.body.reason)
    return NOTHING


async def compact(request: WireRequest, held: LeasedTurn) -> Compaction | None:
    """Compacts inside the running turn: what lies before its open calls is covered."""
    body = request.body
    return await held.session.compact(body.summary, keep_turns=body.keep_turns)


class EndTurnBody(Body):
    end: Literal["completed", "interrupted", "failed"] = "completed"
    reason: str | None = None
    error: str | None = None


async def end(request: WireRequest) -> Response:
    """Ends the turn. One that is completed while a message of it is still open ends as interrupted:
    that message was cut off. Ending it again in the same way is answered in the same way.
    """
    body = request.body
    try:
        held = await held_turn(request)
    except TurnInterrupted:
        return await _ended_before(request)
    with held:
        ending = _ending(body, held)
        held.is_ending = True
        try:
            await arun(held.work.leave(ending))
        except TurnInterrupted:
            request.turns.set_aside(held)
            raise
        finally:
            request.turns.let_go(held)
    told = TurnEndRecord(held.id, ending.end, ending.reason, ending.error)
    return answer(told)


def _ending(body: EndTurnBody, held: LeasedTurn) -> Ending:
    if body.end == "completed":
        if body.reason is not None or body.error is not None:
            takes = "a turn that is interrupted or failed"
            raise BadArgument(parameter="end", takes=takes, given="completed")
        return held.work.clean_end
    if body.end == "interrupted":
        return Ending("interrupted", body.reason or "interrupted")
    return Ending("failed", body.reason, body.error or "")


async def _ended_before(request: WireRequest) -> Response:
    """The answer to an end that was stored, and whose answer was lost."""
    _, info = await info_of(request, request.path["turn"])
    if info.end is None or info.end != request.body.end:
        reason = info.reason or info.error or str(info.end)
        raise TurnInterrupted(turn_id=info.id, reason=reason)
    return answer(TurnEndRecord(info.id, info.end, info.reason, info.error))


def routes() -> list[Route]:
    """The routes of this module."""
    write: dict[str, Any] = {"scope": "write"}
    keyed: dict[str, Any] = {"scope": "write", "takes_key": True}
    leased: dict[str, Any] = {"gives": LeasedTurnRecord, "status": 201, **keyed}
    return [
        # First: it is asked for each batch of chunks.
        route("POST", f"{TURN}/streams/{{message}}", step(push), body=PushBody, gives=Pushed,
              lines=push_lines, **keyed),
        route("POST", "/v1/turns", start_by_key, body=KeyedStartBody, **leased),
        route("POST", f"{SESSION}/turns", start, body=StartBody, takes_match=True, **leased),
        route("GET", TURN, show, gives=TurnShown, scope="read"),
        route("POST", f"{TURN}/renew", step(renew), body=RenewBody, gives=LeasedTurnRecord,
              **write),
        route("GET", f"{TURN}/context", context, query=ContextQuery, gives=ContextRecord, **write),
        route("POST", f"{TURN}/messages", step(add, status=201, is_late_too=True), body=AddBody,
              gives=Appended, status=201, **keyed),
        route("POST", f"{TURN}/streams", step(open_stream, status=201), body=StreamBody,
              gives=StreamOpened, status=201, **keyed),
        route("POST", f"{TURN}/calls", step(call, status=201), body=CallBody, gives=CallStored,
              status=201, **keyed),
        route("GET", f"{TURN}/calls", step(calls), gives=RunnableCalls, **write),
        route("POST", f"{TURN}/results", step(result, status=201, is_late_too=True),
              body=ResultBody, gives=Appended, status=201, **keyed),
        route("POST", f"{TURN}/inbox", step(take), body=TakeBody, gives=InboxRecord, **keyed),
        route("POST", f"{TURN}/sent", step(sent), body=SentBody, **keyed),
        route("POST", f"{TURN}/retract", step(retract), body=RetractBody, **keyed),
        route("POST", f"{TURN}/compact", step(compact), body=CompactBody,
              gives=Compaction | None, **keyed),
        route("POST", f"{TURN}/end", end, body=EndTurnBody, gives=TurnEndRecord, **write),
    ]  # fmt: skip
