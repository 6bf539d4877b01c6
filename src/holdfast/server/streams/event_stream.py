"""An answer that goes on: events as they happen, and a sign of life when nothing does.

It ends when its source does, when its reader goes or its token counts no more, and at once when the
server is told to end. A reader that takes nothing is dropped (`serving.slow_clients`) and comes back with its cursor.
"""

import asyncio
from collections.abc import Iterator

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from holdfast.server.operations import EVENTS, WireRequest
from holdfast.server.serving.straight_body import StraightBody, straight_body
from holdfast.server.streams.event_frames import HEARTBEAT
from holdfast.server.streams.occurrence import Occurrence, OccurrenceFollower
from holdfast.server.streams.shared_follower import (
    BATCH_BYTES,
    SharedFollowers,
    StreamReader,
)
from holdfast.server.waiting import ENDLESS, Cut, cut_short, why_cut

HEARTBEAT_S = 15.0
HEADERS = {
    "content-type": f"{EVENTS}; charset=utf-8",
    # Proxies that gather an answer before they pass it on would gather for ever.
    "x-accel-buffering": "no",
}


class EventSource:
    """Where the bytes of a stream come from: what is told first, what occurrences become, and when
    that is enough.
    """

    first: bytes = b""

    def __init__(self) -> None:
        self.found: list[Occurrence] = []
        """What was found already, and comes next."""

    def written(self, found: list[Occurrence]) -> bytes:
        """These occurrences."""
        raise NotImplementedError

    @property
    def enough(self) -> bool:
        """Whether all was told that is to be told."""
        return False

    def last(self, cut: Cut | None) -> bytes:
        """What is told at the end. `cut`: why there is no more, if there would be some."""
        return b""


def in_batches(found: list[Occurrence]) -> Iterator[list[Occurrence]]:
    """Takes some at a time out of this: for a reader that is slow, no more than that is written
    before it listens, and what was written is kept no longer.
    """
    found.reverse()
    while found:
        some: list[Occurrence] = []
        weight = 0
        while found and weight <= BATCH_BYTES:
            some.append(found.pop())
            weight += some[-1].weight
        yield some


class EventStream(Response):
    """Server-sent events from a source, followed from a place on; without a follower, what is told
    first is all.
    """

    def __init__(
        self,
        request: WireRequest,
        follower: OccurrenceFollower | None,
        source: EventSource,
        *,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(headers={**HEADERS, **(headers or {})})
        # Its length is not known.
        del self.headers["content-length"]
        self._request, self._follower, self._source = request.request, follower, source

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[ENDLESS] = True
        start = {"type": "http.response.start", "status": 200}
        await send({**start, "headers": self.raw_headers})
        if scope["method"] != "HEAD":
            # By itself: each event would wake all who stand around the routes.
            await asyncio.ensure_future(self._tell(straight_body(scope)))
        await send({"type": "http.response.body"})

    async def _tell(self, body: StraightBody) -> None:
        source = self._source
        await body.send(source.first)
        for some in in_batches(source.found):
            await body.send(source.written(some))
        if self._follower is not None:
            await self._follow(body, self._follower)

    async def _follow(self, body: StraightBody, follower: OccurrenceFollower) -> None:
        request, source = self._request, self._source

        def take(found: list[Occurrence]) -> bool:
            if not body.is_free:
                return False
            told = source.written(found)
            if told:
                body.write(told)
            if source.enough:
                reader.leave()
            return True

        reader = StreamReader(followers_of(request), follower, take)
        leaving = asyncio.ensure_future(cut_short(request))
        leaving.add_done_callback(lambda _: reader.leave())
        try:
            with reader:
                while not reader.over and not source.enough:
                    found = await reader.next(HEARTBEAT_S)
                    if not found and not reader.over:
                        await body.send(HEARTBEAT)
                    for some in in_batches(found):
                        await body.send(source.written(some))
            await body.send(source.last(None if source.enough else why_cut(request)))
        finally:
            leaving.cancel()


def followers_of(request: Request) -> SharedFollowers:
    """One for each application: all that is followed."""
    state = request.app.state
    known: SharedFollowers | None = getattr(state, "followers", None)
    if known is None:
        known = state.followers = SharedFollowers()
    return known
