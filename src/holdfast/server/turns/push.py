"""Chunks of a message: a batch in a request, or a line for each batch in a request that is held open.

    request   {"index":0,"chunks":["Casa "]}⏎        {"index":1,"chunks":["Lola "]}⏎{"index":2,…}⏎
    answer                      {"text":"Casa ","index":1}⏎                 {"text":"Lola has","index":3}⏎

A batch is stored in one commit and answered once that is durable (I-5). Lines that come while
another commit is under way are stored together, and answered together. An open request is no sign
of life: each of its lines is.
"""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from holdfast.errors import BadArgument, InvalidMessage, TurnInterrupted
from holdfast.exporters.entry_json import encoded
from holdfast.server.limits import BodyLimit
from holdfast.server.operations import LINES, Body, WireRequest, read_body
from holdfast.server.problems import (
    ServerStopping,
    WireProblem,
    problem_body,
    problem_of,
)
from holdfast.server.turns.held import LeasedStream, LeasedTurn
from holdfast.server.turns.start import held_turn, info_of
from holdfast.server.waiting import ENDLESS, STRAIGHT, insist_still, token_revoked


class PushBody(Body):
    index: int
    chunks: list[Any] = []
    close: bool = False


class Pushed(msgspec.Struct, frozen=True):
    """The text of these chunks, to be shown: it is durable. `index` is that of the next chunk."""

    text: str
    index: int


async def push(request: WireRequest, held: LeasedTurn) -> Pushed:
    """Stores chunks in one commit, and gives their text once it is durable. `index` is the number of
    the first of them, from 0: what came before is left out, and what leaves a gap is refused. With
    `close`, the message ends here. With the media type `application/x-ndjson` each line is such a
    batch, and is answered with a line.
    """
    return await _stored(_stream_in(request, held), [request.body])


def _stream_in(request: WireRequest, held: LeasedTurn) -> LeasedStream:
    message_id = request.path["message"]
    stream = held.streams.get(message_id)
    if stream is None:
        detail = f"No message `{message_id}` is being spoken in this turn."
        raise WireProblem("not_found", detail, what="stream", name=message_id)
    return stream


async def _stored(stream: LeasedStream, batches: list[PushBody]) -> Pushed:
    """Stores these batches, one after the other, in one commit."""
    async with stream.lock:
        first, new = batches[0].index, fitting(stream, batches)
        text = stream.text_from(first, batches[-1].index + len(batches[-1].chunks))
        if new:
            said = await stream.stream._push_all(new)
            stream.note(len(new), said)
            text += said
        if batches[-1].close and not stream.closed:
            await stream.stream.close()
            stream.closed = True
        return Pushed(text, stream.taken)


def fitting(stream: LeasedStream, batches: list[PushBody]) -> list[Any]:
    """What is new in these batches; refused where a chunk is missing before one of them."""
    new: list[Any] = []
    for batch in batches:
        known = stream.taken + len(new)
        if not 0 <= batch.index <= known:
            id = stream.stream.message_id
            detail = f"The next chunk of message `{id}` is number {stream.taken}."
            raise WireProblem("conflict", detail, index=stream.taken)
        new += batch.chunks[known - batch.index :]
    return new


async def push_lines(request: WireRequest) -> Response:
    """The same in a request that is held open, a batch for each line."""
    if request.key is not None:
        takes = "a request that is not held open"
        raise BadArgument(parameter="Idempotency-Key", takes=takes, given="one")
    held = await held_turn(request)
    return LinesPushed(request, held, _stream_in(request, held))


class LinesPushed(Response):
    """Stores what comes and answers what is durable, until the request ends, its client goes, a line
    is refused, or the turn is over.
    """

    def __init__(
        self, request: WireRequest, held: LeasedTurn, stream: LeasedStream
    ) -> None:
        # Proxies that gather an answer before they pass it on would gather for ever.
        super().__init__(media_type=LINES, headers={"x-accel-buffering": "no"})
        # Its length is not known.
        del self.headers["content-length"]
        self._request, self._held, self._stream = request, held, stream
        self._told: list[Pushed] = []
        self._news = asyncio.Event()
        self._is_over = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[ENDLESS] = True
        start = {"type": "http.response.start", "status": self.status_code}
        await send({**start, "headers": self.raw_headers})
        answering = asyncio.ensure_future(self._answer(scope[STRAIGHT]))
        try:
            await self._take()
            self._is_over = True
            self._news.set()
            await answering
        except ClientDisconnect:
            return  # what was answered is stored, and nothing else is known of it
        except Exception as error:
            self._is_over = True
            self._news.set()
            await answering
            last = encoded({"problem": problem_body(problem_of(error))}) + b"\n"
            await send({"type": "http.response.body", "body": last, "more_body": True})
        finally:
            answering.cancel()
        await send({"type": "http.response.body"})

    async def _take(self) -> None:
        held, request = self._held, self._request.request
        closing: asyncio.Event = request.app.state.closing
        waits = (held.over.wait(), closing.wait(), token_revoked(request))
        over = [asyncio.ensure_future(each) for each in waits]
        try:
            # Nothing more is read when the turn is over, its client's token counts no more, or the
            # server is told to end.
            async with asyncio.timeout(None) as reading:
                for each in over:
                    each.add_done_callback(partial(_end, reading))
                async for lines in _lines(self._request):
                    await self._store(lines)
        except TimeoutError:
            if closing.is_set():
                raise ServerStopping from None
            insist_still(request)
            raise await _why_over(self._request) from None
        finally:
            for each in over:
                each.cancel()

    async def _store(self, lines: list[bytes]) -> None:
        batches, unread = _batches(lines)
        with self._held:
            for together in _until_closed(batches):
                try:
                    self._tell(await _stored(self._stream, together))
                except (InvalidMessage, WireProblem):
                    # Those before the one that can't be stored are stored.
                    for batch in together:
                        self._tell(await _stored(self._stream, [batch]))
        if unread is not None:
            raise unread

    def _tell(self, pushed: Pushed) -> None:
        self._told.append(pushed)
        self._news.set()

    async def _answer(self, send: Send) -> None:
        """Answers what is durable; while a client does not listen, all that it is to be told is put
        into one line. So a client that first says everything and then listens stops nothing.
        """
        while self._told or not self._is_over:
            if self._told:
                told, self._told = self._told, []
                text = "".join(each.text for each in told)
                line = encoded(Pushed(text, told[-1].index)) + b"\n"
                body = {"type": "http.response.body", "more_body": True}
                await send({**body, "body": line})
            else:
                self._news.clear()
                await self._news.wait()


def _end(reading: asyncio.Timeout, why: asyncio.Future[Any]) -> None:
    if not why.cancelled():
        reading.reschedule(0)


def _batches(lines: list[bytes]) -> tuple[list[PushBody], Exception | None]:
    """The batches in these lines, up to the first that can't be read, and why it can't."""
    found: list[PushBody] = []
    for line in lines:
        # One with nothing in it says that somebody is there.
        if not line.strip():
            continue
        try:
            batch: Any = read_body(line, PushBody)
            found.append(batch)
        except (BadArgument, WireProblem) as error:
            return found, error
    return found, None


def _until_closed(batches: list[PushBody]) -> list[list[PushBody]]:
    """The batches that are stored together: none follows one that closes the message."""
    found: list[list[PushBody]] = []
    for batch in batches:
        if found and not found[-1][-1].close:
            found[-1].append(batch)
        else:
            found.append([batch])
    return found


async def _lines(request: WireRequest) -> AsyncIterator[list[bytes]]:
    """The lines of a request as they come, and what is left at its end."""
    limit: BodyLimit = request.request.state.body_limit
    limit.by_line()
    rest = b""
    async for data in request.request.stream():
        *lines, rest = (rest + data).split(b"\n")
        limit.line(len(rest))
        if lines:
            yield lines
    if rest:
        yield [rest]


async def _why_over(request: WireRequest) -> Exception:
    _, info = await info_of(request, request.path["turn"])
    reason = info.reason or info.error or info.end or "it is held no more"
    return TurnInterrupted(turn_id=info.id, reason=reason)
