"""Listing sessions: pages of any size over any number of them, newest activity first (FAULTS C7,
C10, J6).

A list is a question to the store, not an index beside it: it can't drift. A page says where the
next one begins; a session that has news meanwhile moves to the front.
"""

import base64
import binascii
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Generic, TypeVar

import msgspec

from holdfast.domain.arguments import INTEGER_MAX
from holdfast.domain.entry import Entry
from holdfast.engine.protocol import Engine, SessionState
from holdfast.errors import BadArgument
from holdfast.runtime.live.session_log import SessionLog
from holdfast.runtime.live.totals import OPENING, state_of, title
from holdfast.runtime.plans.plan import Plan, read

T = TypeVar("T")
LIMIT_MAX = 1000
MATCHING_MAX = 100_000
"""In so many sessions, newest first, a text is looked for; ids alone are remembered of them."""
_Moment = Annotated[int, msgspec.Meta(ge=0, le=INTEGER_MAX)]
_Id = Annotated[str, msgspec.Meta(pattern="^[0-9a-zA-Z-]{1,64}$")]
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(tuple[_Moment, _Id]).decode


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


class Page(Generic[T]):
    """Some of many: a sequence, with `next`, the cursor to ask for the page after it; None when
    this is the last.
    """

    items: list[T]
    next: str | None

    def __init__(self, items: list[T], next: str | None) -> None:
        self.items = items
        self.next = next

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> T:
        return self.items[index]

    def __repr__(self) -> str:
        more = ", more follow" if self.next else ""
        return f"<Page of {len(self.items)}{more}>"


class Wanted(msgspec.Struct, frozen=True):
    """Which sessions to list, and after which one."""

    key: str | None = None
    state: Any = None
    limit: int = 50
    before: tuple[int, str] | None = None


def wanted(
    *, key: str | None, state: str | None, after: str | None, limit: int
) -> Wanted:
    """What the caller asks for, with the place that the cursor names."""
    return Wanted(key, state, limit, _read(after) if after is not None else None)


def listing(
    engine: Engine,
    tenant: str,
    session: Callable[[SessionState], SessionLog],
    asked: Wanted,
    matching: set[str] | None = None,
) -> Plan[Page[Listed]]:
    """A page of the sessions that were asked for; of these ids only, if any are given."""
    return (yield from read(lambda: _page(engine, tenant, session, asked, matching)))


def _page(
    engine: Engine,
    tenant: str,
    session: Callable[[SessionState], SessionLog],
    asked: Wanted,
    matching: set[str] | None,
) -> Page[Listed]:
    found: list[SessionState] = []
    before = asked.before
    more = True
    while more and len(found) <= asked.limit:
        size = asked.limit + 1 if matching is None else LIMIT_MAX
        states = engine.sessions(
            tenant, key=asked.key, state=asked.state, before=before, limit=size
        )
        found += [state for state in states if matching is None or state.id in matching]
        more = len(states) == size
        before = _mark(states[-1]) if states else before
    shown = found[: asked.limit]
    next = _write(_mark(shown[-1])) if len(found) > len(shown) else None
    # One question for all of them; what a fork begins with is in the log of another.
    known = engine.beginnings(
        [s.id for s in shown if not s.origin and not s.erased], limit=OPENING
    )
    return Page(
        [_listed(state, session(state), known.get(state.id)) for state in shown], next
    )


def _listed(
    state: SessionState, session: SessionLog, beginning: list[Entry] | None
) -> Listed:
    return Listed(
        id=state.id,
        key=state.key,
        epoch=state.epoch,
        tenant=state.tenant,
        state=state_of(state),
        title="" if state.erased else title(session, beginning),
        head=state.head,
        opened_at=state.opened_at,
        active_at=max(state.active_at, state.last_at if not state.erased else 0),
    )


def _mark(state: SessionState) -> tuple[int, str]:
    return state.active_at, state.id


def _write(mark: tuple[int, str]) -> str:
    return base64.urlsafe_b64encode(_encode(mark)).decode().rstrip("=")


def _read(after: str) -> tuple[int, str]:
    try:
        padded = after.encode("ascii") + b"=" * (-len(after) % 4)
        return _decode(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (binascii.Error, UnicodeEncodeError, msgspec.DecodeError, ValueError):
        takes = "the `next` of the page before"
        raise BadArgument(
            parameter="after", takes=takes, given="what no page has given"
        ) from None
