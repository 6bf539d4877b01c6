"""Chunks of a message: a batch in a request, or a line for each batch in a request that is held open.

    request   {"index":0,"chunks":["Casa "]}⏎        {"index":1,"chunks":["Lola "]}⏎{"index":2,…}⏎
    answer                      {"text":"Casa ","index":1}⏎                 {"text":"Lola has","index":3}⏎

A batch is stored in one commit and answered once that is durable (I-5). Lines that come while
another commit is under way are stored together, and answered together. An open request is no sign
of life: each of its lines is.
"""

import asyncio
from contextlib import suppress
from functools import partial
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from holdfast.errors import BadArgument, TurnInterrupted
from holdfast.exporters.entry_json import encoded
from holdfast.server.limits import BodyLimit
from holdfast.server.operations import LINES, WireRequest
from holdfast.server.problems import (
    ServerStopping,
    WireProblem,
    problem_body,
    problem_of,
)
from holdfast.server.serving.straight_body import straight_body
from holdfast.server.turns.held import LeasedStream, LeasedTurn, ended_elsewhere
from holdfast.server.turns.line_intake import LineIntake, Pushed, stored
from holdfast.server.turns.start import held_turn, info_of
from holdfast.server.waiting import ENDLESS, insist_still, token_revoked


async def push(request: WireRequest, held: LeasedTurn) -> Pushed:
    """Stores chunks in one commit, and gives their text once it is durable. `index` is the number of
    the first of them, from 0: what came before is left out, and what leaves a gap is refused. With
    `close`, the message ends here. With the media type `application/x-ndjson` each line is such a
    batch, and is answered with a line.
    """
    return await stored(_stream_in(request, held), [request.body])


def _stream_in(request: WireRequest, held: LeasedTurn) -> LeasedStream:
    message_id = request.path["message"]
    stream = held.streams.get(message_id)
    if stream is None:
        detail = f"No message `{message_id}` is being spoken in this turn."
        raise WireProblem("not_found", detail, what="stream", name=message_id)
    return stream


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
        self._is_over = self._is_behind = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[ENDLESS] = True
        start = {"type": "http.response.start", "status": self.status_code}
        await send({**start, "headers": self.raw_headers})
        body = self._body = straight_body(scope)
        answering = asyncio.ensure_future(self._answer())
        try:
            await self._take()
            await self._answered(answering)
        except ClientDisconnect:
            return  # what was answered is stored, and nothing else is known of it
        except Exception as error:
            await self._answered(answering)
            await body.send(
                encoded({"problem": problem_body(problem_of(error))}) + b"\n"
            )
        finally:
            answering.cancel()
        await send({"type": "http.response.body"})

    async def _take(self) -> None:
        """Takes lines until their end, or until nothing more is to be read: the turn is over, the
        client's token counts no more, the server is told to end, or a line was refused.
        """
        held, request = self._held, self._request.request
        limit: BodyLimit = request.state.body_limit
        limit.by_line()
        intake = LineIntake(held, self._stream, self._body, limit, self._tell)
        closing: asyncio.Event = request.app.state.closing
        waits = (
            held.over.wait(),
            ended_elsewhere(held),
            closing.wait(),
            token_revoked(request),
            intake.refused(),
        )
        over = [asyncio.ensure_future(each) for each in waits]
        try:
            async with asyncio.timeout(None) as reading:
                for each in over:
                    each.add_done_callback(partial(_end, reading))
                # The turn is this request's for as long as it lasts.
                with held:
                    self._body.listen(intake.hear)
                async for data in request.stream():
                    await intake.take(data)
                await intake.end()
        except TimeoutError:
            # What is being stored is told; whoever goes on talking is not heard.
            intake.stop()
            await intake.rest()
            if intake.problem is not None:
                raise intake.problem from None
            if closing.is_set():
                raise ServerStopping from None
            insist_still(request)
            raise await _why_over(self._request) from None
        finally:
            intake.stop()
            self._body.listen(None)
            for each in over:
                each.cancel()

    def _tell(self, pushed: Pushed) -> None:
        # What waits for a client that does not listen goes first.
        if not self._is_behind and self._body.is_free:
            self._body.write(encoded(pushed) + b"\n")
            return
        self._is_behind = True
        self._told.append(pushed)
        self._news.set()

    async def _answer(self) -> None:
        """Answers what could not be answered at once; while a client does not listen, all that it is
        to be told is put into one line. So a client that first says everything and then listens
        stops nothing.
        """
        while self._told or not self._is_over:
            if self._told:
                told, self._told = self._told, []
                text = "".join(each.text for each in told)
                await self._body.send(encoded(Pushed(text, told[-1].index)) + b"\n")
            else:
                self._is_behind = False
                self._news.clear()
                await self._news.wait()

    async def _answered(self, answering: "asyncio.Future[None]") -> None:
        """All that is durable is answered."""
        self._is_over = True
        self._news.set()
        await answering


def _end(reading: asyncio.Timeout, why: asyncio.Future[Any]) -> None:
    # What ends it and its own end may come at the same moment, and then it is over already.
    if not why.cancelled():
        with suppress(RuntimeError):
            reading.reschedule(0)


async def _why_over(request: WireRequest) -> Exception:
    # That it is over is told before how it ended: the two are two commits.
    await request.turns.settled(request.identity.tenant, request.path["turn"])
    _, info = await info_of(request, request.path["turn"])
    reason = info.reason or info.error or info.end or "it is held no more"
    return TurnInterrupted(turn_id=info.id, reason=reason)
