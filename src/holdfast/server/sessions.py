"""Sessions: found by key or id, listed, and changed outside a turn."""

from typing import Any

import msgspec
from starlette.responses import Response
from starlette.routing import Route

from holdfast.domain.arguments import State
from holdfast.domain.reset_policy import Daily, Idle, Policy
from holdfast.errors import AlreadyAccepted
from holdfast.runtime.aio import AsyncSession
from holdfast.runtime.border import RULES
from holdfast.runtime.changes.append import append_all
from holdfast.runtime.changes.append import label as append_label
from holdfast.runtime.changes.compact import Compaction
from holdfast.runtime.changes.erase import Erasure
from holdfast.runtime.changes.fork_rewind import fork as fork_of
from holdfast.runtime.changes.open_session import reset_key as reset
from holdfast.runtime.changes.record import Recorded
from holdfast.runtime.live.totals import SessionInfo
from holdfast.runtime.plans.plan_asyncio import arun
from holdfast.server.head_guard import guarded
from holdfast.server.operations import (
    Body,
    MessagesBody,
    Query,
    WireRequest,
    answer,
    head_in,
    route,
)
from holdfast.server.records import SessionName, SessionPage, session_name
from holdfast.server.turns.asked_again import event_of, insist_same, made_once
from holdfast.server.waiting import attended

FORMAT = "openai.chat"
SESSION = "/v1/sessions/{session}"


class ResetPolicy(Body):
    """When a key gets a new session: whichever of these is due first."""

    idle: Idle | None = None
    daily: Daily | None = None


def policy_of(reset: ResetPolicy | None) -> Policy | None:
    """A policy as the library has it."""
    if reset is None:
        return None
    if reset.idle is not None and reset.daily is not None:
        return reset.idle | reset.daily
    return reset.idle or reset.daily


class ListQuery(Query):
    key: str | None = None
    state: State | None = None
    text: str | None = None
    after: str | None = None
    limit: int = 50


async def list_sessions(request: WireRequest) -> Response:
    """A page of sessions, newest activity first: those of a key, in a state, in which a text was
    said. `after` is the `next` of the page before.
    """
    query = request.query
    page = await request.store.sessions(
        key=query.key,
        state=query.state,
        text=query.text,
        after=query.after,
        limit=query.limit,
    )
    return answer(SessionPage(page.items, page.next))


class OpenBody(Body):
    key: str
    reset: ResetPolicy | None = None
    create: bool = True


async def open_session(request: WireRequest) -> Response:
    """The key's current session, made if there is none and reset if that is due."""
    body = request.body
    session = await request.store.session(
        body.key, reset=policy_of(body.reset), create=body.create
    )
    return answer(session_name(request.tenants.keep(session)))


class ResetBody(Body):
    key: str
    reason: str = "command"


async def reset_key(request: WireRequest) -> Response:
    """Ends the key's current session and gives it a new one, whose epoch is one higher."""
    key = RULES["key"]("key", request.body.key)
    reason = RULES["reason"]("reason", request.body.reason)
    # Not by `Store.reset`, which takes no name for what is asked again: so its
    # arguments are checked here. `fork` does the same.
    work = request.store._work
    made = await made_once(request, reset(work, key, reason=reason, name=request.key))
    return answer(session_name(made))


async def show(request: WireRequest) -> Response:
    """The session at a glance. The `ETag` is its head; with `If-None-Match`, 304 while that is
    still so.
    """
    session = await request.session()
    known = request.request.headers.get("if-none-match")
    if known is not None:
        head = await session.head()
        if head_in("If-None-Match", known) == head:
            return Response(status_code=304, headers={"etag": f'"{head}"'})
    info = await session.info()
    return answer(info, head=info.head)


class AppendBody(MessagesBody):
    format: str = FORMAT
    event_id: str | int | None = None


class Appended(msgspec.Struct, frozen=True):
    """The ids of the messages that were stored."""

    message_ids: list[str]


async def append(request: WireRequest) -> Response:
    """Stores one message, or several in one commit, outside a turn. With an `event_id` or an
    `Idempotency-Key` they are stored once.
    """
    body, key = request.body, request.key
    async with guarded(await request.session(), request.match) as session:
        event = body.event_id if body.event_id is not None else event_of(key)
        messages = [body.message] if body.messages is None else body.messages
        try:
            if body.messages is None:
                given = {"format": body.format, "event_id": event}
                ids = [await session.append(body.message, **given)]
            else:
                ids = await _all(session, body, event)
        except AlreadyAccepted as known:
            # Its sender did not get the answer: this is the same one.
            if key is None or body.event_id is not None:
                raise
            ids = await insist_same(
                request, (known.session_id, known.message_id), messages, body.format
            )
            return answer(Appended(ids), status=201, again=True)
        return answer(Appended(ids), status=201)


async def _all(session: AsyncSession, body: AppendBody, event: Any) -> list[str]:
    messages = RULES["messages"]("messages", body.messages)
    format = RULES["format"]("format", body.format)
    event = None if event is None else RULES["event_id"]("event_id", event)
    return await arun(append_all(session._log, messages, format=format, event_id=event))


class RecordBody(Body):
    messages: list[Any]
    format: str = FORMAT


async def record(request: WireRequest) -> Response:
    """For agents that keep their own list: stores what is new in it, and keeps its shape as the
    context. Recording it again changes nothing.
    """
    body = request.body
    async with guarded(await request.session(), request.match) as session:
        # A handle of its own: what one remembers of its last list is one caller's.
        own = AsyncSession(session._log)
        done = await own.record(body.messages, format=body.format)
    return answer(done, head=done.head)


class InstructionsBody(Body):
    text: str


class Instructions(msgspec.Struct, frozen=True):
    """The system prompt; null where there is none."""

    text: str | None


async def read_instructions(request: WireRequest) -> Response:
    """The system prompt."""
    session = await request.session()
    return answer(Instructions(await session.instructions()))


async def set_instructions(request: WireRequest) -> Response:
    """Sets a new version of the system prompt."""
    async with guarded(await request.session(), request.match) as session:
        return answer(Instructions(await session.instructions(request.body.text)))


class LabelBody(Body):
    message_id: str
    labels: dict[str, Any]


async def label(request: WireRequest) -> Response:
    """Puts labels on a message; `visible_to_model: false` takes it out of the context."""
    body = request.body
    # Not as keyword arguments: a label may have the name of a parameter.
    message = RULES["message_id"]("message_id", body.message_id)
    labels = RULES["labels"]("labels", body.labels)
    async with guarded(await request.session(), request.match) as session:
        await arun(append_label(session._log, message, labels))
    return answer(NOTHING)


NOTHING: dict[str, Any] = {}
"""What is answered where there is nothing to say."""


class DecideBody(Body):
    call_id: str
    approved: bool
    by: str
    message: str | None = None
    index: int | None = None


async def decide(request: WireRequest) -> Response:
    """Answers a call that waits for approval: for its exact arguments, once."""
    body = request.body
    session = await request.session()
    await session.decide(
        body.call_id,
        body.approved,
        by=body.by,
        message=body.message,
        index=body.index,
    )
    return answer(NOTHING)


class CompactBody(Body):
    summary: str
    keep_turns: int = 4


async def compact(request: WireRequest) -> Response:
    """Puts a summary in the place of all but the last turns. Null when there is nothing to cover;
    waits for a running turn.
    """
    body = request.body
    async with guarded(await request.session(), request.match) as session:
        compacting = session.compact(body.summary, keep_turns=body.keep_turns)
        # A turn may run for hours: whoever has gone, or may not ask any more, waits no more.
        return answer(await attended(request.request, compacting))


class RewindBody(Body):
    to_message: str


async def rewind(request: WireRequest) -> Response:
    """Lets the model's view end with this message; the transcript keeps what came after."""
    async with guarded(await request.session(), request.match) as session:
        await session.rewind(request.body.to_message)
    return answer(NOTHING)


class ForkBody(Body):
    at: str | None = None
    key: str | None = None


async def fork(request: WireRequest) -> Response:
    """Makes a new session that shares the past of this one."""
    body = request.body
    session = await request.session()
    at = None if body.at is None else RULES["at"]("at", body.at)
    key = None if body.key is None else RULES["key"]("key", body.key)
    plan = fork_of(session._log, at=at, key=key, name=request.key)
    made = await made_once(request, plan)
    return answer(session_name(made), status=201)


class StopBody(Body):
    reason: str = "user"


class Stopped(msgspec.Struct, frozen=True):
    """Whether a turn was running."""

    stopped: bool


async def stop(request: WireRequest) -> Response:
    """Ends the running turn as interrupted, wherever it runs."""
    session = await request.session()
    return answer(Stopped(await session.stop(request.body.reason)))


class EndBody(Body):
    reason: str


async def end(request: WireRequest) -> Response:
    """Ends the session: no more turns. Ending it again changes nothing."""
    async with guarded(await request.session(), request.match) as session:
        await session.end(request.body.reason)
    return answer(NOTHING)


class EraseBody(Body):
    preview: bool


async def erase(request: WireRequest) -> Response:
    """Takes all words of a session out of the store; an audit entry stays. With `preview`, tells
    what that would take. `preview` has to be said, either way.
    """
    session = await request.session()
    done = await request.store.erase(session.id, preview=request.body.preview)
    return answer(done)


def routes() -> list[Route]:
    """The routes of this module."""
    read: dict[str, Any] = {"scope": "read"}
    write: dict[str, Any] = {"scope": "write"}
    match: dict[str, Any] = {"scope": "write", "takes_match": True}
    return [
        route("GET", "/v1/sessions", list_sessions, query=ListQuery, gives=SessionPage, **read),
        route("POST", "/v1/sessions", open_session, body=OpenBody, gives=SessionName, **write),
        route("POST", "/v1/reset", reset_key, body=ResetBody, gives=SessionName, takes_key=True,
              **write),
        route("GET", SESSION, show, gives=SessionInfo, takes_tag=True, **read),
        route("POST", f"{SESSION}/messages", append, body=AppendBody, gives=Appended,
              status=201, takes_key=True, **match),
        route("POST", f"{SESSION}/record", record, body=RecordBody, gives=Recorded, **match),
        route("GET", f"{SESSION}/instructions", read_instructions, gives=Instructions, **read),
        route("PUT", f"{SESSION}/instructions", set_instructions, body=InstructionsBody,
              gives=Instructions, **match),
        route("POST", f"{SESSION}/label", label, body=LabelBody, **match),
        route("POST", f"{SESSION}/decide", decide, body=DecideBody, **write),
        route("POST", f"{SESSION}/compact", compact, body=CompactBody,
              gives=Compaction | None, **match),
        route("POST", f"{SESSION}/rewind", rewind, body=RewindBody, **match),
        route("POST", f"{SESSION}/fork", fork, body=ForkBody, gives=SessionName, status=201,
              takes_key=True, **write),
        route("POST", f"{SESSION}/stop", stop, body=StopBody, gives=Stopped, **write),
        route("POST", f"{SESSION}/end", end, body=EndBody, **match),
        route("POST", f"{SESSION}/erase", erase, body=EraseBody, gives=Erasure, scope="admin"),
    ]  # fmt: skip
