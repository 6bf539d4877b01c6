"""One request and its answer: read from the provider, stored, and then handed on.

An exchange goes on when its client is gone (I-16): what the provider says is stored to its end. One that
breaks off at the provider's side breaks off for the client, too, so that a half answer can't look whole;
and so does one that can't be stored.
"""

import asyncio
import contextlib
import json
import zlib
from collections.abc import AsyncIterator
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.server.proxy.answers import (
    ENCODINGS,
    AnswerReader,
    EventReader,
    EventTooLarge,
    looks_like_events,
    plain_body,
    whole_chunks,
)
from holdfast.server.proxy.dialects import Request, error_body
from holdfast.server.proxy.recording import AnswerRecording
from holdfast.server.proxy.relay import BrokenOff, Head, Relay
from holdfast.server.proxy.upstream import (
    ProviderAnswer,
    ProviderRequest,
    Upstream,
    UpstreamFailed,
    end_to_end,
)

WHOLE_MAX = 64 << 20
"""An answer that is not streamed is held until it is stored; one that is larger breaks off."""
_AGAIN = (408, 409, 425, 429)
"""What clients try again, beside the 500s."""


_DEFECT = "A bug in Holdfast; its log tells more."


class Unreadable(Exception):
    """The answer can't be read, and so not be stored."""


async def pass_on(upstream: Upstream, asked: ProviderRequest, relay: Relay) -> None:
    """What asks for no answer of a model passes as it is, and nothing of it is stored."""
    try:
        answer = await upstream.ask(asked)
    except UpstreamFailed as error:
        await relay.fail(502, error_body(None, _words(error), "bad_gateway"))
        return
    try:
        await relay.put(Head(answer.status, end_to_end(answer.headers)))
        async for piece in answer.pieces():
            await relay.put(piece)
        await relay.put(None)
    except UpstreamFailed:
        await relay.put(BrokenOff())
        answer.close()
    # Cancelled, or a defect of ours: a connection in the middle of an answer can't be
    # used again.
    except BaseException:
        relay.leave()
        answer.close()
        raise


async def exchange(
    upstream: Upstream,
    asked: ProviderRequest,
    request: Request,
    recording: AnswerRecording,
    relay: Relay,
) -> None:
    """Asks the provider, and stores and hands on what it answers."""
    answer: ProviderAnswer | None = None
    try:
        answer = await upstream.ask(asked)
        if answer.header(b"content-encoding") not in ("", *ENCODINGS):
            raise Unreadable("the answer has an encoding that was not asked for")
        body = AnswerBody(answer)
        if answer.status < 300 and await _is_stream(answer, request, body):
            await _stream(answer, body, request, recording, relay)
        else:
            await _whole(answer, body, request, recording, relay)
    except (UpstreamFailed, Unreadable, EventTooLarge, zlib.error) as error:
        await recording.break_off(str(error))
        if recording.has_end:
            # Nothing is missing of it: its client is not to take it for a half.
            await relay.put(None)
        else:
            words = error_body(request.dialect, _words(error), "bad_gateway")
            await relay.fail(502, words)
    except HoldfastError as error:
        # What can't be stored is not shown.
        await recording.fail(f"it could not be stored ({error.code})", again=False)
        told = f"Holdfast could not store the answer ({error.code})."
        await relay.fail(503, error_body(request.dialect, told, error.code))
    except asyncio.CancelledError as cut:
        # Why it was cut is the message of the cancellation (`Proxy.cut`,
        # `AnswerRecording.stop`).
        relay.leave()
        await recording.leave(str(cut))
        raise
    except Exception:
        # A defect of ours: the client is not left waiting.
        await recording.fail("a bug in Holdfast", again=False)
        await relay.fail(500, error_body(request.dialect, _DEFECT, "internal"))
        raise
    finally:
        # One that was read to its end has given its connection back already.
        if answer is not None and not answer.is_read:
            answer.close()


class AnswerBody:
    """The body of an answer, whose beginning may be looked at before it is read."""

    def __init__(self, answer: ProviderAnswer) -> None:
        self._pieces = answer.pieces()
        self._begun: list[bytes] = []

    async def look(self) -> bytes | None:
        """The next piece, which is still to be read; None at the end."""
        async for piece in self._pieces:
            self._begun.append(piece)
            return piece
        return None

    async def pieces(self) -> AsyncIterator[bytes]:
        """All of it, as it comes."""
        for piece in self._begun:
            yield piece
        self._begun.clear()
        async for piece in self._pieces:
            yield piece


async def _is_stream(
    answer: ProviderAnswer, request: Request, body: AnswerBody
) -> bool:
    """Whether the answer is a stream of events. Not all servers say so: what was asked for as one, and
    looks like one to its client, is one.
    """
    if answer.header(b"content-type").startswith("text/event-stream"):
        return True
    if not request.streams:
        return False
    begun, told = b"", None
    while told is None:
        piece = await body.look()
        if piece is None:
            return False
        begun += piece
        told = looks_like_events(plain_body(answer.header(b"content-encoding"), begun))
    return told


async def _stream(
    answer: ProviderAnswer,
    body: AnswerBody,
    request: Request,
    recording: AnswerRecording,
    relay: Relay,
) -> None:
    head = [each for each in end_to_end(answer.headers) if each[0] != b"content-length"]
    await relay.put(Head(answer.status, [*head, *recording.headers()]))
    events = EventReader(answer.header(b"content-encoding"))
    told = AnswerReader(request.dialect)
    async for piece in body.pieces():
        data, passed = events.feed(piece)
        chunks = told.read(data)
        # Nothing that comes after its end is a part of it.
        if chunks and not recording.is_closed:
            await recording.push(chunks)
        # Before `hear`, which notes whose response this is.
        recording.response_id = told.response_id
        recording.has_end = told.is_ended and told.error is None
        if told.is_over and told.error is None:
            # Its client may go on from it as soon as it has the end.
            recording.hear()
            await recording.close()
        if passed:
            await relay.put(passed)
    if not told.is_ended:
        # The connection ended as it should, but the answer did not.
        raise UpstreamFailed("the answer broke off")
    if told.error is not None:
        await recording.fail(f"the provider answered: {told.error}", again=True)
    else:
        await recording.finish()
    # After the end is stored: a client that has the end of its answer may go on from it
    # at once, in another request.
    rest = events.rest()
    if rest:
        await relay.put(rest)
    await relay.put(None)


async def _whole(
    answer: ProviderAnswer,
    body: AnswerBody,
    request: Request,
    recording: AnswerRecording,
    relay: Relay,
) -> None:
    raw = bytearray()
    async for piece in body.pieces():
        raw += piece
        if len(raw) > WHOLE_MAX:
            raise Unreadable("the answer is too large")
    if answer.status < 300:
        chunks, response_id = _read_whole(answer, request, bytes(raw))
        recording.response_id = response_id
        if chunks:
            await recording.push(chunks)
            await recording.finish()
        else:
            await recording.fail("the answer is no message", again=False)
    else:
        again = answer.status in _AGAIN or answer.status >= 500
        await recording.fail(f"the provider answered {answer.status}", again=again)
    head = [*end_to_end(answer.headers), *recording.headers()]
    await relay.put(Head(answer.status, head))
    if raw:
        await relay.put(bytes(raw))
    await relay.put(None)


def _read_whole(
    answer: ProviderAnswer, request: Request, raw: bytes
) -> tuple[list[Any], str | None]:
    """The answer as chunks, and the provider's id of it."""
    body = None
    with contextlib.suppress(ValueError, RecursionError):
        body = json.loads(plain_body(answer.header(b"content-encoding"), raw))
    if not isinstance(body, dict):
        return [], None
    id = body.get("id")
    return whole_chunks(request.dialect, body), id if isinstance(id, str) else None


def _words(error: Exception) -> str:
    return f"The provider has not answered: {error}."
