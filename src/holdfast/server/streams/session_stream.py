"""`GET …/stream`: a session as server-sent events, from a cursor on and then live.

Each event has its cursor as `id`. A reader that takes an event when its empty line has come, and
comes back with the last `id` that it took, has each event once, wherever it was cut off (I-15).
"""

from starlette.responses import Response

from holdfast.runtime.live.session_log import SessionLog
from holdfast.runtime.plans.plan import read
from holdfast.runtime.plans.plan_asyncio import arun
from holdfast.runtime.turns.recovery import settle_to_read
from holdfast.server.operations import Query, WireRequest
from holdfast.server.streams.event_frames import frame, opening, own_frame
from holdfast.server.streams.event_stream import EventSource, EventStream
from holdfast.server.streams.occurrence import (
    Occurrence,
    OccurrenceFollower,
    resumed,
)
from holdfast.server.waiting import Cut


class StreamQuery(Query):
    after: str | None = None


class SessionEvents(EventSource):
    """The events of our own stream. `first`: what was read already; `problem`: what is wrong with
    the reader's cursor.
    """

    def __init__(
        self, start: str, first: list[Occurrence], problem: str | None
    ) -> None:
        super().__init__()
        told = opening(start)
        if problem is not None:
            told += frame("reset", start, {"reason": problem})
        self._cursor = start
        self.first, self.found = told, first

    def written(self, found: list[Occurrence]) -> bytes:
        if found:
            self._cursor = found[-1].cursor
        return b"".join(map(own_frame, found))

    def last(self, cut: Cut | None) -> bytes:
        return frame("end", self._cursor, {}) if cut is None else b""


async def stream(request: WireRequest) -> Response:
    """What happened in a session, and then what happens, as server-sent events without end. It goes
    on after the event with the cursor in `Last-Event-ID`, or in `after`; `after=now` leaves out the
    past. 204: the session is over, and all of it was told.
    """
    session = await request.session()
    # A browser that comes back asks at the address that it began with: its header knows better.
    after = request.request.headers.get("last-event-id") or request.query.after or None
    # A turn whose owner is gone ends before it is told, as for all who read.
    await arun(settle_to_read(session._log))
    follower, source = await arun(read(lambda: begun(session._log, after)))
    if source is None:
        return Response(status_code=204)
    return EventStream(request, follower, source)


def begun(
    session: SessionLog, after: str | None
) -> tuple[OccurrenceFollower, SessionEvents | None]:
    """A reader's place, and what it is told first; nothing to tell if the session is over and all of
    it was told.
    """
    follower, problem = resumed(session, after)
    start = follower.cursor
    first = follower.occurrences()
    if follower.over and not first and problem is None:
        return follower, None
    return follower, SessionEvents(start, first, problem)
