"""The running turn of a session, in the words of other programs' pages: the AI SDK's and AG-UI's.

Both are told the turn from its start, whenever they come: a page that was reloaded has nothing of
it. What they are sent is the same whether it is read from the log, from the journal, or live.
"""

from typing import Any, Protocol

import msgspec
from starlette.responses import Response

from holdfast.runtime.aio import AsyncSession
from holdfast.runtime.live.message import Message
from holdfast.runtime.live.session_log import SessionLog
from holdfast.runtime.plans.plan import Plan, read
from holdfast.runtime.plans.plan_asyncio import arun
from holdfast.runtime.turns.recovery import settle_to_read
from holdfast.server.operations import WireRequest, answer
from holdfast.server.streams import ui_messages
from holdfast.server.streams.ag_ui import AgUiRun, snapshot
from holdfast.server.streams.event_frames import plain_frames
from holdfast.server.streams.event_stream import EventSource, EventStream
from holdfast.server.streams.occurrence import Occurrence, from_seq
from holdfast.server.streams.spoken_turn import SpokenPart, SpokenTurn
from holdfast.server.streams.ui_history import ui_history
from holdfast.server.streams.ui_messages import UiMessageStream
from holdfast.server.waiting import Cut

PAGE = 500
SNAPSHOT_ENTRIES = 2000
"""So many entries are looked through for the messages that a page begins with."""
Json = dict[str, Any]


class PageDialect(Protocol):
    """How a program's page is told of a turn."""

    def take(self, part: SpokenPart) -> list[Json]:
        """What is sent for this."""

    def cut(self, why: Cut) -> list[Json]:
        """What is sent when no more of it is told."""


class TurnEvents(EventSource):
    """One turn, to its end."""

    def __init__(
        self,
        number: int,
        dialect: PageDialect,
        *,
        first: bytes = b"",
        close: bytes = b"",
    ) -> None:
        super().__init__()
        self.first, self._close = first, close
        self._turn, self._dialect = SpokenTurn(number), dialect

    def written(self, found: list[Occurrence]) -> bytes:
        made = bytearray()
        for occurrence in found:
            if not self.enough:
                told: list[Json] = []
                for part in self._turn.take(occurrence):
                    told += self._dialect.take(part)
                made += plain_frames(told, occurrence.cursor)
        return bytes(made)

    @property
    def enough(self) -> bool:
        return self._turn.ended

    def last(self, cut: Cut | None) -> bytes:
        if cut is not None:
            return plain_frames(self._dialect.cut(cut)) + self._close
        return self._close if self.enough else b""


async def ui_message_stream(request: WireRequest) -> Response:
    """The running turn as a UI message stream of the AI SDK, from its first part on. 204: no turn
    is running.
    """
    session = await request.session()
    running = await arun(_running(session._log))
    if running is None:
        return Response(status_code=204)
    number, start = running
    follower = await arun(read(lambda: from_seq(session._log, start - 1)))
    source = TurnEvents(number, UiMessageStream(), close=ui_messages.DONE)
    headers = {ui_messages.HEADER: ui_messages.VERSION}
    return EventStream(request, follower, source, headers=headers)


async def ag_ui_run(request: WireRequest) -> Response:
    """The messages of a session, and its running turn as a run of AG-UI, from its start on. If no
    turn is running, the run ends with the messages. What is posted is not looked at: it runs
    nothing.
    """
    session = await request.session()
    log = session._log
    running = await arun(_running(log))
    if running is None:
        state = await arun(read(log.state))
        run = AgUiRun(session=session.id, turn=f"{session.id}:{state.fence}")
        messages = await _messages(session, state.head)
        told = run.start(snapshot(messages))
        told += run.finished()
        return EventStream(request, None, TurnEvents(0, run, first=plain_frames(told)))
    number, start = running
    run = AgUiRun(session=session.id, turn=log.turn_name(number) or "")
    messages = await _messages(session, start)
    first = plain_frames(run.start(snapshot(messages)))
    follower = await arun(read(lambda: from_seq(log, start)))
    return EventStream(request, follower, TurnEvents(number, run, first=first))


def _running(session: SessionLog) -> Plan[tuple[int, int] | None]:
    """The number of the running turn and the seq at which it began; None if there is none. One
    whose owner is gone is settled, and runs no more.
    """
    state = yield from settle_to_read(session)
    if state.turn is None:
        return None
    number, head = state.turn, state.head
    return number, (yield from read(lambda: _start(session, head)))


def _start(session: SessionLog, head: int) -> int:
    """The seq at which the last turn up to `head` began."""
    # Backwards: the running turn is the last one, and began near the end of the log.
    while head:
        after = max(0, head - PAGE)
        for entry in reversed(session.page(after, head - after, bodies=False)):
            if entry.kind == "turn":
                return entry.seq
        head = after
    return 1


class UiMessages(msgspec.Struct, frozen=True):
    """The messages of a session as UI messages of the AI SDK."""

    messages: list[Json]


async def ui_message_list(request: WireRequest) -> Response:
    """The messages of a session for a page of the AI SDK: what it begins with, before it resumes."""
    session = await request.session()
    head = await session.head()
    messages = ui_history(await _messages(session, head))
    return answer(UiMessages(messages), head=head)


async def _messages(session: AsyncSession, upto: int) -> list[Message]:
    """The last messages up to this entry."""
    found = []
    async for message in session.transcript(max(0, upto - SNAPSHOT_ENTRIES)):
        if message.seq > upto:
            break
        found.append(message)
    return found
