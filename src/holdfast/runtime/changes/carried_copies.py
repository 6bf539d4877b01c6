"""Messages that were carried along: the copies that they left behind (I-21).

A message that waits when its session is reset goes on to the key's next session, under its id, and
belongs there: that is where it is answered. The log it came from only grows, so it keeps a copy.
When the session that a message belongs to is erased, the copies lose their words in the same
commit, in every session that the message came through; all else that these sessions hold stays.

    key     session 1 ──reset──► session 2 ──reset──► session 3
    log     m, closed (m moved)  m, closed (m moved)  m, answered      erased: m goes in 1, 2 and 3

So do the copies of messages that a turn brought along from the inbox of another session.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

from holdfast.domain.entry import Blanked, Draft, Entry, noted, opened_of
from holdfast.domain.erasure import (
    brought_in,
    carried_in,
    entries_about,
    passed_on,
    tombstone,
)
from holdfast.engine.protocol import SessionState, Write
from holdfast.runtime.clock import mint
from holdfast.runtime.live.session_log import PAGE, SessionLog
from holdfast.runtime.live.tenancy import owned


class Copies(NamedTuple):
    """What a session still tells of messages that it passed on, as the entries will be. `is_news`
    unless they have lost their words before.
    """

    state: SessionState
    notes: tuple[tuple[int, bytes], ...]
    is_news: bool


def copies(
    session: SessionLog, state: SessionState, log: Callable[[], Iterator[Entry]]
) -> list[Copies]:
    """The copies of messages that were carried into this session, nearest first. `log` reads its
    own entries.
    """
    seen = {state.id}
    found = _brought_copies(session, log, seen)
    ids = carried_in(log())
    if ids:
        # What it has passed on itself belongs to a later session.
        ids -= passed_on(log(), ids)
    # The log is read several times rather than held: only notes are read, and it may be
    # long (I-24).
    while ids:
        first = next(log(), None)
        previous = opened_of(first).previous if first is not None else None
        before = owned(session.engine, session.tenant, previous)
        # A damaged note may name a session that was met: no walk goes in a circle.
        if before is None or before.id in seen:
            break
        seen.add(before.id)
        log = partial(_own, session, before)
        ids = passed_on(log(), ids)
        if not before.erased:
            found += _copies_in(before, entries_about(log(), ids))
        ids &= carried_in(log())
    return found


def _brought_copies(
    session: SessionLog, log: Callable[[], Iterator[Entry]], seen: set[str]
) -> list[Copies]:
    """The copies of messages that turns of this session brought along from elsewhere."""
    found: list[Copies] = []
    for place, ids in brought_in(log()).items():
        state = owned(session.engine, session.tenant, place)
        if state is not None and not state.erased and state.id not in seen:
            found += _copies_in(state, entries_about(_own(session, state), ids))
    return found


def _copies_in(state: SessionState, entries: Iterable[Entry]) -> list[Copies]:
    """What becomes of these entries, if there are any."""
    notes = []
    is_news = False
    for entry in entries:
        note = tombstone(entry)
        notes.append((entry.seq, note))
        is_news = is_news or note != entry.note
    return [Copies(state, tuple(notes), is_news)] if notes else []


def blanking(session: SessionLog, copies: Copies) -> Write:
    """The write that takes them out of their session, which says so. It is no news of that session:
    it has the time of what happened there last, and is not kept from retention.
    """
    state = copies.state
    note = Blanked(tuple(seq for seq, _ in copies.notes))
    audit = Draft(
        "blanked", None, mint(session.world, state.last_at), state.last_at, noted(note)
    )
    # An erasure that is done again meets the tombstones of the first time: writing them
    # once more cleans the file again, and is no news to be audited.
    drafts = (audit,) if copies.is_news else ()
    # `ended_too`: a session that has passed messages on is over.
    return Write(state.id, drafts, head=state.head, ended_too=True, blank=copies.notes)


def _own(session: SessionLog, state: SessionState) -> Iterator[Entry]:
    after = state.origin
    while page := session.engine.entries(
        state.id, after=after, limit=PAGE, bodies=False
    ):
        after = page[-1].seq
        yield from page
