"""Listing sessions: pages of any size over any number of them, newest activity first (FAULTS C7,
C10, J6).

A list is a question to the store, not an index beside it: it can't drift. A page says where the
next one begins; a session that has news meanwhile moves to the front.
"""

from typing import Annotated, Any

import msgspec

from holdfast.domain.arguments import INTEGER_MAX
from holdfast.domain.entry import Entry
from holdfast.domain.search.query import SearchScope, asked
from holdfast.engine.protocol import SessionState
from holdfast.errors import BadArgument
from holdfast.runtime.catalog.page import Page, read_cursor, write_cursor
from holdfast.runtime.live.session_log import SessionLog
from holdfast.runtime.live.totals import OPENING, state_of, title
from holdfast.runtime.open_store import OpenStore
from holdfast.runtime.plans.plan import Plan, read

LIMIT_MAX = 1000
MATCHING_MAX = 100_000
"""In so many sessions, newest first, a text is looked for; ids alone are remembered of them."""
_Moment = Annotated[int, msgspec.Meta(ge=0, le=INTEGER_MAX)]
# A cursor may have been made up by a stranger: engines get no place that can't be one.
_Id = Annotated[str, msgspec.Meta(pattern="^[0-9a-zA-Z-]{1,64}$")]
Place = tuple[_Moment, _Id]
"""When a session had its last news, and its id: where it stands in the list."""


class Listed(msgspec.Struct, frozen=True):
    """A session in a list. `state` is "open", "running" or "ended"; `title` is its first words;
    `head` is the number of its entries. Times are in milliseconds since 1970.
    """

    id: str
    key: str | None
    epoch: int
    tenant: str
    state: str
    title: str
    head: int
    opened_at: int
    active_at: int


class Wanted(msgspec.Struct, frozen=True):
    """Which sessions to list, and after which place."""

    key: str | None
    state: Any
    limit: int
    after: Place | None


def sessions(
    store: OpenStore,
    *,
    key: str | None,
    state: str | None,
    text: str | None,
    after: str | None,
    limit: int,
) -> Plan[Page[Listed]]:
    """A page of the sessions, of those only that have this text if one is given."""
    # Read here and not in the generator: a cursor of somebody else's is told at the call.
    place = _place_of(after) if after is not None else None
    return _sessions(store, Wanted(key, state, limit, place), text)


def _sessions(store: OpenStore, wanted: Wanted, text: str | None) -> Plan[Page[Listed]]:
    matching: set[str] | None = None
    if text is not None:
        scope = SearchScope(
            store.tenant, asked(text), key=wanted.key, state=wanted.state
        )
        found = yield from read(
            lambda: store.engine.matching(scope, limit=MATCHING_MAX), slow=True
        )
        matching = set(found)
    return (yield from read(lambda: _page(store, wanted, matching)))


def _found(
    store: OpenStore, wanted: Wanted, matching: set[str] | None
) -> list[SessionState]:
    """The sessions of a page, and of the next one at least the first, if there is one."""
    found: list[SessionState] = []
    place = wanted.after
    # One more than is shown: it tells whether there is a page after this one.
    size = wanted.limit + 1 if matching is None else LIMIT_MAX
    # With a text: as far as the last one that has it, and not at all if none has.
    more = matching is None or bool(matching)
    unseen = set(matching or ())
    while more and len(found) <= wanted.limit:
        states = store.engine.sessions(
            store.tenant, key=wanted.key, state=wanted.state, before=place, limit=size
        )
        for state in states:
            place = (state.active_at, state.id)
            if matching is None or state.id in matching:
                found.append(state)
        unseen.difference_update(state.id for state in states)
        more = len(states) == size and (matching is None or bool(unseen))
    return found


def _page(store: OpenStore, wanted: Wanted, matching: set[str] | None) -> Page[Listed]:
    found = _found(store, wanted, matching)
    # With a text, a page of sessions may give few matches or more than are wanted: what
    # is too many is found again by the next page.
    shown = found[: wanted.limit]
    next = None
    if len(found) > len(shown):
        next = write_cursor((shown[-1].active_at, shown[-1].id))
    # One question for all of them; what a fork begins with is in the log of another.
    known = store.engine.beginnings(
        [state.id for state in shown if not state.origin and not state.erased],
        limit=OPENING,
    )
    items = []
    for state in shown:
        items.append(_listed(state, store.session_log(state), known.get(state.id)))
    return Page(items, next)


def _listed(
    state: SessionState, session: SessionLog, beginning: list[Entry] | None
) -> Listed:
    named, active_at = "", state.active_at
    if not state.erased:
        named = title(session, beginning)
        # Exact for people; the order of the list, and the cursor, go by the coarser
        # time that has an index.
        active_at = max(active_at, state.last_at)
    return Listed(
        id=state.id,
        key=state.key,
        epoch=state.epoch,
        tenant=state.tenant,
        state=state_of(state),
        title=named,
        head=state.head,
        opened_at=state.opened_at,
        active_at=active_at,
    )


def _place_of(after: str) -> Place:
    try:
        place: Place = read_cursor(after, Place)
        return place
    except ValueError:
        takes = "the `next` of the page before"
        raise BadArgument(
            parameter="after", takes=takes, given="what no page has given"
        ) from None
