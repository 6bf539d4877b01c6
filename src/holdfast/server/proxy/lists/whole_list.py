"""News that come alone, made a whole list: a request of the Responses API may name the response, or the
conversation, that it goes on from, and have nothing of it.

What stands before the news is what the session's view shows up to there. So such a request is recorded
as any other list is: what it says again is known, and what the model was not sent, an attempt that was
cut or an answer that somebody went back from, leaves the view.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from holdfast.domain.record.grouping import Shown
from holdfast.formats import registry
from holdfast.runtime.aio import AsyncSession
from holdfast.runtime.live.session_log import SessionLog
from holdfast.runtime.plans.plan import read
from holdfast.runtime.plans.plan_asyncio import arun
from holdfast.server.proxy.dialects import Request
from holdfast.server.proxy.marks import marks_of

RESPONSE = "proxy.response"
"""The label of a message that says the provider's id of it."""


async def made_whole(
    request: Request, session: AsyncSession | None, *, is_open: bool
) -> Request:
    """The request with all that it goes on from; as it is if it has its whole list. `is_open`: the last
    question of the session may be asked again.
    """
    if request.is_whole:
        return request
    known: list[Any] = []
    if session is not None:
        reading = partial(_known, session._log, request, is_open)
        known = await arun(read(reading))
    news = request.news
    lead = len(request.messages) - len(news)
    whole = [*request.messages[:lead], *known, *news]
    return request._replace(messages=whole, goes_on_from=None)


def _known(log: SessionLog, request: Request, is_open: bool) -> list[Any]:
    """What the view shows before the news."""
    labels = log.labels()
    folded = log.log()
    with log.lock:
        shown = log.contexts.shown(folded, registry.get(request.dialect.format))
        before = request.goes_on_from
        named = {id for id, told in labels.items() if told.get(RESPONSE) == before}
    # What nobody has said stands for results that have not come: these may be the news.
    shown = [each for each in shown if each[1]]
    stop = _after(shown, named)
    if stop is None:
        stop = _before_question(shown, request.news) if is_open else len(shown)
    return [payload for payload, _ in shown[:stop]]


def _after(shown: Sequence[Shown], named: set[str]) -> int | None:
    """Where the view goes on after a message; None if it does not show that."""
    for place in reversed(range(len(shown))):
        if not named.isdisjoint(shown[place][1]):
            return place + 1
    return None


def _before_question(shown: Sequence[Shown], news: Sequence[Any]) -> int:
    """Where the view's last question begins, if that is what is asked now; else its end."""
    asked = marks_of(news)
    stop = len(shown)
    while stop and _is_answer(shown[stop - 1]):
        stop -= 1
    for start in reversed(range(stop)):
        found = marks_of(payload for payload, _ in shown[start:stop])
        if found == asked:
            return start
        if len(found) > len(asked):
            break
    return len(shown)


def _is_answer(one: Shown) -> bool:
    payload, _ = one
    kinds = {kind for kind, _ in marks_of([payload])}
    # What has no marks is a thought.
    return kinds <= {"assistant", "call"}
