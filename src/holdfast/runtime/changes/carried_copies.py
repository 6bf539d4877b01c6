"""Messages that were carried along: the copies that they left behind (I-21).

A message that waits when its session is reset goes on to the key's next session, under its id; one
that a turn of another session takes goes there. It belongs where it went last: that is where it is
answered. The logs it came from only grow, so each keeps a copy. When the session that a message
belongs to is erased, the copies lose their words in the same commit, in every session that the
message came through; all else that these sessions hold stays.

    session     1 ──reset──────────► 2 ──taken────────► 3
    log         m, closed (m moved)  m, take (m to 3)   m, answered      erased: m goes in 1, 2 and 3
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from holdfast.domain.entry import Blanked, Draft, Entry, noted
from holdfast.domain.erasure import tombstone
from holdfast.engine.protocol import SessionState, Write
from holdfast.runtime.clock import mint
from holdfast.runtime.live.session_log import SessionLog
from holdfast.runtime.turns.journey import trace


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
    """What becomes of the copies of messages that came to this session and belong to it. `log`
    reads its own entries.
    """
    found = []
    for left in trace(session, state, log):
        notes = []
        is_news = False
        for entry in left.entries:
            note = tombstone(entry)
            notes.append((entry.seq, note))
            is_news = is_news or note != entry.note
        found.append(Copies(left.state, tuple(notes), is_news))
    return found


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
    # `ended_too`: a session that has passed messages on may be over.
    return Write(state.id, drafts, head=state.head, ended_too=True, blank=copies.notes)
