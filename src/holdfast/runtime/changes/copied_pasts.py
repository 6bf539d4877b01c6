"""Pasts that were copied: what a fork has of its parent's words in a log of its own (I-21).

A fork shares its past with its parent, without a copy. One that was restored when its parent was
not there has brought a copy along. When the parent is erased, that loses its words in the same
commit, as the past that is shared does; what the fork has said itself stays.

    parent   1 ─ 2 ─ 3 ─ 4                    erased
    fork     1'─ 2'─ 3'─ opened (by parent) ─ 5     1', 2' and 3' lose their words
"""

from collections.abc import Iterable, Iterator, Sequence

from holdfast.domain.entry import Entry, opened_of
from holdfast.domain.erasure import tombstone
from holdfast.engine.protocol import Engine, SessionState
from holdfast.runtime.changes.carried_copies import Copies


class Forks:
    """All that come from some sessions, generation by generation: an own fork may share its past
    and have one that has a copy.
    """

    def __init__(self, engine: Engine, tenant: str, sessions: Sequence[str]) -> None:
        self._engine = engine
        self._of: dict[str, list[SessionState]] = {}
        asked: set[str] = set()
        ids = list(sessions)
        while ids := [id for id in ids if id not in asked]:
            asked.update(ids)
            found = engine.forks(tenant, ids)
            for fork in found:
                self._of.setdefault(fork.parent or "", []).append(fork)
            ids = [fork.id for fork in found]

    def ids(self, session: str) -> list[str]:
        """The ids of those that were forked off this session, and off these in turn: all of them
        have its words in their past.
        """
        return sorted(fork.id for fork in self._from(session))

    def copies(self, session: str) -> Iterator[Copies]:
        """The copies of what this session has said, in all that come from it."""
        for fork in self._from(session):
            # Of one that was erased itself nothing is left.
            if fork.copied_from is not None and not fork.erased:
                copied = list(_stretch(self._engine, fork, session))
                if copied:
                    yield _copies(fork, copied)

    def _from(self, session: str) -> Iterator[SessionState]:
        met = {session}
        forks = list(self._of.get(session, ()))
        while forks:
            fork = forks.pop()
            # A crafted store may have a ring of them.
            if fork.id in met:
                continue
            met.add(fork.id)
            forks += self._of.get(fork.id, ())
            yield fork


def _stretch(engine: Engine, fork: SessionState, session: str) -> list[Entry]:
    """The entries of a copied past that are this session's own: those before the one with which
    somebody parted from it.
    """
    held: list[Entry] = []
    after = 0
    while page := engine.entries(fork.id, after=after, bodies=False):
        for entry in page:
            if entry.kind == "opened":
                parent = opened_of(entry).parent
                if parent == session:
                    return held
                # What follows is of the fork itself.
                if parent == fork.parent:
                    return []
                held = []
            held.append(entry)
        after = page[-1].seq
    return []


def _copies(fork: SessionState, copied: Iterable[Entry]) -> Copies:
    notes = []
    is_news = False
    for entry in copied:
        note = tombstone(entry)
        notes.append((entry.seq, note))
        is_news = is_news or note != entry.note
    return Copies(fork, tuple(notes), is_news)


def merged(found: Iterable[Copies]) -> list[Copies]:
    """Those of one session as one: a commit writes to it once."""
    of_session: dict[str, Copies] = {}
    for each in found:
        known = of_session.get(each.state.id)
        if known is not None:
            notes = tuple(sorted({**dict(known.notes), **dict(each.notes)}.items()))
            each = Copies(each.state, notes, known.is_news or each.is_news)
        of_session[each.state.id] = each
    return list(of_session.values())
