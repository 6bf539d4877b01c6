"""The route of the three views: what is asked for, and waiting until it is something else.

An answer has a tag, the head and how far the journal had got. Who comes back with it and would
wait (`Prefer: wait=20`, RFC 7240) is answered as soon as there is news, and with 304 if there is
none: so a page is live, whichever process writes.
"""

import asyncio
import re
from collections import OrderedDict
from typing import Any

from starlette.responses import Response
from starlette.routing import Route

from holdfast.engine.protocol import JournalRow, SessionState
from holdfast.errors import BadArgument
from holdfast.formats import registry
from holdfast.runtime.aio import AsyncSession
from holdfast.runtime.catalog.follow_session import SETTLE_S
from holdfast.runtime.live.session_log import SessionLog
from holdfast.runtime.plans.plan import Listen, News, Plan, read
from holdfast.runtime.plans.plan_asyncio import arun
from holdfast.runtime.turns.recovery import journal, settle_to_read
from holdfast.server.operations import Query, WireRequest, answer, route
from holdfast.server.page.read_views import SessionViews, ViewsPage, WantedPage
from holdfast.server.sessions import SESSION
from holdfast.server.waiting import cut_short, insist_still

LIMIT_MAX = 1000
WAIT_MAX_S = 30.0
LOOKED_AT_MAX = 16
"""So many sessions that were looked at last are remembered, read."""
_TAG = re.compile(r'(?:W/)?"(\d{1,18})\.(\d{1,18})"')
_WAIT = re.compile(r"(?:^|[,;\s])wait=(\d{1,4})(?:$|[,;\s])")
Place = tuple[int, int]
"""The head of a log, and the last position of its journal that was read."""


class ViewsQuery(Query):
    format: str | None = None
    before: int | None = None
    after: int | None = None
    limit: int = 200

    def __post_init__(self) -> None:
        if self.before is not None and self.after is not None:
            raise ValueError("give `before` or `after`, not both")
        small = min(self.before or 0, self.after or 0)
        if small < 0 or not 1 <= self.limit <= LIMIT_MAX:
            words = f"`before` and `after` are 0 or more, `limit` from 1 to {LIMIT_MAX}"
            raise ValueError(words)


async def views(request: WireRequest) -> Response:
    """What the user saw, what the model will be sent and what is stored, side by side, with the
    reason for every difference: the last turns, or those before or after an entry.
    """
    query, headers = request.query, request.request.headers
    if query.format is not None and not registry.is_known(query.format):
        takes = "the name of a format"
        raise BadArgument(parameter="format", takes=takes, given="another one")
    looked_at = await _looked_at(request, await request.session())
    known = _place_in(headers.get("if-none-match"))
    if known is not None:
        wait_s = _wait_in(headers.get("prefer"))
        if not await _has_news(request, looked_at.log, known, wait_s):
            return Response(status_code=304, headers={"etag": _tag(known)})
    wanted = WantedPage(query.format, query.before, query.after, query.limit)
    page, place = await arun(_made(looked_at, wanted))
    answered = answer(page)
    answered.headers["etag"] = _tag(place)
    return answered


def _made(looked_at: SessionViews, wanted: WantedPage) -> Plan[tuple[ViewsPage, Place]]:
    session = looked_at.log
    state = yield from settle_to_read(session)
    rows: list[JournalRow] = []
    # The journal before the log: what is finished meanwhile is in both, and is told once.
    if state.turn is not None:
        rows = yield from read(lambda: journal(session, state.journal))
    debts = yield from read(lambda: session.engine.debts(session.id))
    page = yield from read(lambda: looked_at.page(wanted, rows, debts), slow=True)
    return page, (page.head, rows[-1].position if rows else state.journal)


async def _has_news(
    request: WireRequest, session: SessionLog, known: Place, wait_s: float
) -> bool:
    """Whether something was stored since, waited for as long as anybody waits for the answer."""
    waiting = asyncio.ensure_future(arun(_waited(session, known, wait_s)))
    leaving = asyncio.ensure_future(cut_short(request.request))
    try:
        await asyncio.wait({waiting, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            insist_still(request.request)
        # A server that is being stopped answers that there is nothing new: the page
        # asks again.
        return waiting.done() and waiting.result()
    finally:
        waiting.cancel()
        leaving.cancel()


def _waited(session: SessionLog, known: Place, wait_s: float) -> Plan[bool]:
    end = session.world.tick() + wait_s
    with News(session.engine, session.id) as news:
        while True:
            # Before the look: what comes in meanwhile ends the listening at once.
            news.clear()
            state = yield from settle_to_read(session)
            if (yield from _is_other(session, state, known)):
                return True
            left = end - session.world.tick()
            if left <= 0:
                return False
            look_s = session.engine.look_s
            # The owner of a turn may die without a word. Nothing is stored then that
            # could be heard of, so it is looked for.
            if state.turn is not None:
                look_s = min(look_s, SETTLE_S)
            yield Listen(news, min(look_s, left))


def _is_other(session: SessionLog, state: SessionState, known: Place) -> Plan[bool]:
    head, position = known
    if state.head != head:
        return True
    if state.turn is None:
        return False
    after = max(position, state.journal)
    rows = yield from read(
        lambda: session.engine.journal(session.id, after=after, limit=1)
    )
    return bool(rows)


def _tag(place: Place) -> str:
    return f'"{place[0]}.{place[1]}"'


def _place_in(header: str | None) -> Place | None:
    """The place that a tag of ours says; None for any other."""
    found = _TAG.fullmatch((header or "").strip())
    if found is None:
        return None
    return int(found[1]), int(found[2])


def _wait_in(header: str | None) -> float:
    """How long the sender would wait."""
    found = _WAIT.search(header or "")
    return 0.0 if found is None else min(float(found[1]), WAIT_MAX_S)


class LookedAt:
    """The sessions that were looked at last. Their logs are not those that turns and lists are worked
    on with: these remember what their clients have seen, and a look changes nothing.
    """

    def __init__(self) -> None:
        self._views: OrderedDict[str, SessionViews] = OrderedDict()

    def get(self, session: str) -> SessionViews | None:
        """The views of this session."""
        if session in self._views:
            self._views.move_to_end(session)
        return self._views.get(session)

    def keep(self, views: SessionViews) -> SessionViews:
        """Remembers them, and gives those that are known already if there are some."""
        known = self._views.setdefault(views.log.id, views)
        while len(self._views) > LOOKED_AT_MAX:
            self._views.popitem(last=False)
        return known


async def _looked_at(request: WireRequest, session: AsyncSession) -> SessionViews:
    """The views of a session that its sender may see."""
    state: Any = request.request.app.state
    memory: LookedAt | None = getattr(state, "looked_at", None)
    if memory is None:
        memory = state.looked_at = LookedAt()
    known = memory.get(session.id)
    if known is None:
        now = await arun(settle_to_read(session._log))
        known = memory.keep(SessionViews(session._log.other(now)))
    return known


def routes() -> list[Route]:
    """The routes of this module."""
    return [
        route("GET", f"{SESSION}/views", views, scope="read", query=ViewsQuery,
              gives=ViewsPage, takes_tag=True),
    ]  # fmt: skip
