"""Reading: transcripts, contexts, logs, and what is found in them."""

from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import msgspec
from starlette.responses import Response
from starlette.routing import Route

from holdfast.domain.entry import Entry
from holdfast.domain.turn import ToolCall
from holdfast.exporters.entry_json import EntryRecord
from holdfast.exporters.entry_json import record as entry_record
from holdfast.runtime.live.message import Message
from holdfast.runtime.live.totals import TurnInfo
from holdfast.server.operations import Query, WireRequest, answer, route
from holdfast.server.records import (
    ContextRecord,
    EntryPage,
    Hits,
    MessageRecord,
    TranscriptPage,
    message_record,
)
from holdfast.server.sessions import FORMAT, SESSION

LIMIT_MAX = 1000
PAGE_BYTES_MAX = 8 << 20
"""A page ends early when its payloads come to this much."""
S = TypeVar("S", Message, Entry)
R = TypeVar("R")


class SeqQuery(Query):
    after: int = 0
    limit: int = 100

    def __post_init__(self) -> None:
        if self.after < 0 or not 1 <= self.limit <= LIMIT_MAX:
            words = f"`after` is 0 or more, `limit` from 1 to {LIMIT_MAX}"
            raise ValueError(words)


async def transcript(request: WireRequest) -> Response:
    """The messages after seq `after`, in order, nothing left out. `next` is the `after` of the page
    that follows.
    """
    session = await request.session()
    # Before the messages: a page may have more than its `ETag` says, and never less.
    head = await session.head()
    messages = session.transcript(request.query.after)
    items, next = await _page(request.query, messages, _told_message)
    return answer(TranscriptPage(items, next, head), head=head)


async def entries(request: WireRequest) -> Response:
    """The entries of the log after seq `after`, in order."""
    session = await request.session()
    head = await session.head()
    log = session.entries(request.query.after)
    items, next = await _page(request.query, log, _told_entry)
    return answer(EntryPage(items, next, head), head=head)


def _told_message(message: Message) -> tuple[MessageRecord, int]:
    told = message_record(message)
    return told, len(bytes(told.payload or b""))


def _told_entry(entry: Entry) -> tuple[EntryRecord, int]:
    return entry_record(entry), len(entry.body)


async def _page(
    query: SeqQuery,
    found: AsyncIterator[S],
    told: Callable[[S], tuple[R, int]],
) -> tuple[list[R], int | None]:
    """As many as were asked for, or as are large enough together; and the seq after which the next
    page begins, if there is one.
    """
    items: list[R] = []
    size = last = 0
    async for each in found:
        # One more is read than is told: only that says whether there is a next page.
        if len(items) == query.limit or size > PAGE_BYTES_MAX:
            return items, last
        item, weight = told(each)
        items.append(item)
        size += weight
        last = each.seq
    return items, None


class ContextQuery(Query):
    format: str = FORMAT
    prefill: bool = False


async def context(request: WireRequest) -> Response:
    """What the model sees, ready to send; valid for its format, whatever the log holds."""
    query = request.query
    session = await request.session()
    made = await session.context(query.format, prefill=query.prefill)
    told = ContextRecord(query.format, made, made.instructions, made.head)
    return answer(told, head=made.head)


class InboxRecord(msgspec.Struct, frozen=True):
    """The messages that wait, in the order they were accepted."""

    items: list[MessageRecord]


async def inbox(request: WireRequest) -> Response:
    """The messages in the inbox of a session."""
    session = await request.session()
    items = [message_record(each) for each in await session.pending()]
    return answer(InboxRecord(items))


class Calls(msgspec.Struct, frozen=True):
    """Tool calls, each with its state."""

    items: list[ToolCall]


async def calls(request: WireRequest) -> Response:
    """Every tool call of the session with its state."""
    session = await request.session()
    return answer(Calls(await session.calls()))


class Turns(msgspec.Struct, frozen=True):
    """What became of turns, in order; `next` is the `after` of the page that follows."""

    items: list[TurnInfo]
    next: int | None


async def turns(request: WireRequest) -> Response:
    """The turns with numbers above `after`: how each ended, and the tokens it spent."""
    query = request.query
    session = await request.session()
    found = await session.turns(query.after, query.limit + 1)
    items = found[: query.limit]
    next = items[-1].number if len(found) > len(items) else None
    return answer(Turns(items, next))


class SearchQuery(Query):
    text: str
    limit: int = 20
    role: str | None = None
    tool: str | None = None
    state: str | None = None
    key: str | None = None
    session: str | None = None
    since: int | None = None
    until: int | None = None


async def search(request: WireRequest) -> Response:
    """Messages of all sessions that have all of these words, newest first."""
    query = msgspec.structs.asdict(request.query)
    text: str = query.pop("text")
    return answer(Hits(await request.store.search(text, **query)))


def routes() -> list[Route]:
    """The routes of this module."""
    read: dict[str, Any] = {"scope": "read"}
    return [
        route("GET", f"{SESSION}/transcript", transcript, query=SeqQuery, gives=TranscriptPage,
              **read),
        route("GET", f"{SESSION}/entries", entries, query=SeqQuery, gives=EntryPage, **read),
        route("GET", f"{SESSION}/context", context, query=ContextQuery, gives=ContextRecord,
              **read),
        route("GET", f"{SESSION}/inbox", inbox, gives=InboxRecord, **read),
        route("GET", f"{SESSION}/calls", calls, gives=Calls, **read),
        route("GET", f"{SESSION}/turns", turns, query=SeqQuery, gives=Turns, **read),
        route("GET", "/v1/search", search, query=SearchQuery, gives=Hits, **read),
    ]  # fmt: skip
