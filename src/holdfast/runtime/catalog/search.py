"""Searching: which messages have these words, and what a finder is shown of them.

A message belongs to the session whose log holds it: a fork's past is found in its parent. Answers
are newest first, in the order of arrival: that is stable, and the same for every page.
"""

from datetime import datetime

import msgspec

from holdfast.domain.search.query import Found, SearchScope, asked, snippet
from holdfast.runtime.changes.open_session import find_session
from holdfast.runtime.open_store import OpenStore
from holdfast.runtime.plans.plan import Plan, read

_OF_SESSIONS = ("open", "running", "ended")


class Hit(msgspec.Struct, frozen=True):
    """A message that was found. `snippet` is the text around the first place, in one line, `marks`
    are the places in it, from and up to; `at` is in milliseconds since 1970.
    """

    session_id: str
    key: str | None
    seq: int
    message_id: str
    role: str
    at: int
    snippet: str
    marks: tuple[tuple[int, int], ...]


def search(
    store: OpenStore,
    text: str,
    *,
    limit: int,
    role: str | None,
    tool: str | None,
    state: str | None,
    key: str | None,
    session: str | None,
    since: int | datetime | None,
    until: int | datetime | None,
) -> Plan[list[Hit]]:
    """The newest messages that have all of these words. `state` is that of the message, or of its
    session.
    """
    words = asked(text)
    if session is not None:
        session = (yield from find_session(store, session)).id
    of_session, is_partial = None, None
    if state in _OF_SESSIONS:
        of_session = state
    elif state is not None:
        is_partial = state == "partial"
    scope = SearchScope(
        store.tenant,
        words,
        role=role,
        tool=tool,
        key=key,
        session=session,
        partial=is_partial,
        state=of_session,
        since=_time(since),
        until=_time(until),
    )
    found = yield from read(lambda: store.engine.search(scope, limit=limit), slow=True)
    return [_hit(each) for each in found]


def _hit(found: Found) -> Hit:
    shown, marks = snippet(found.words.text, found.places)
    entry = found.entry
    return Hit(
        found.session,
        found.key,
        entry.seq,
        entry.id.hex(),
        found.words.role,
        entry.at,
        shown,
        marks,
    )


def _time(given: int | datetime | None) -> int | None:
    if isinstance(given, datetime):
        return int(given.timestamp() * 1000)
    return given
