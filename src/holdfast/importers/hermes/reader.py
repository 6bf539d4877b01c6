"""Hermes Agent's `state.db` as foreign sessions: schema 22, and those before it that have the
same tables.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from holdfast.importers.foreign_session import ForeignMessage, ForeignSession, Summary
from holdfast.importers.hermes.convert import (
    FOLDED,
    Context,
    HermesMessages,
    branched_from,
    context_of,
    foreign_session,
    line,
    lines_of,
    shared,
)
from holdfast.importers.hermes.database import HermesStore, recognises
from holdfast.importers.hermes.lineage import ancestors, current, in_order, kinship
from holdfast.importers.hermes.records import HermesRow, HermesSession
from holdfast.importers.reader import UnreadableRecord

_REMEMBERED = 16

__all__ = ["HermesReader", "HermesSessions", "recognises"]


class HermesReader:
    """A Hermes store, opened from a private copy."""

    kind = "hermes"

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._store = HermesStore(path)
        self._teller = HermesSessions(
            self._store, self._store.rows, self._store.iterate
        )

    def sessions(self, session: str | None = None) -> Iterator[ForeignSession]:
        for one in in_order(self._store.sessions):
            if session is None or one.id == session:
                yield self._teller.session(one)

    def unreadable(self) -> list[UnreadableRecord]:
        return list(self._store.file.problems)

    def not_examined(self) -> dict[str, int]:
        return {}

    def close(self) -> None:
        self._store.close()


class HermesSessions:
    """The sessions of a store whose rows come from `rows`: as they are, or healed. It
    remembers what the last few sessions hand on to those that continue them.
    """

    def __init__(
        self,
        store: HermesStore,
        rows: Callable[[str], Sequence[HermesRow]],
        iterate: Callable[[str], Iterator[HermesRow]],
        sessions: dict[str, HermesSession] | None = None,
    ) -> None:
        self._store = store
        self._rows = rows
        self._iterate = iterate
        self._sessions = store.sessions if sessions is None else sessions
        self._current = current(store.routes, self._sessions)
        self._contexts: dict[str, Context] = {}

    def session(self, session: HermesSession) -> ForeignSession:
        """One session, converted."""
        parent, lineage = kinship(session, self._sessions)
        facts = self._store.facts(session.id)
        model = facts.get("model") if isinstance(facts.get("model"), str) else None
        first, parent_origin = 0, None
        if parent is not None and lineage == "branch":
            first, parent_origin = self._shared(session, self._sessions[parent])
            if not first:
                parent, lineage = None, None
        before = self.before(session)

        def lines() -> Iterator[ForeignMessage | Summary]:
            if first or before or self._store.has_summaries(session.id):
                return lines_of(self._rows(session.id)[first:], before, model)
            return (
                line(row, model)
                for row in self._iterate(session.id)
                if FOLDED not in row.labels
            )

        return foreign_session(
            session,
            facts,
            HermesMessages(lines),
            parent=parent,
            lineage=lineage,
            parent_origin=parent_origin,
            current=session.key is None or self._current.get(session.key) == session.id,
        )

    def before(self, session: HermesSession) -> Context:
        """What the session that this one continues had in its context; nothing when it continues
        none.
        """
        line = ancestors(session, self._sessions)[:-1]
        known = max(
            (place for place, one in enumerate(line, 1) if one.id in self._contexts),
            default=0,
        )
        context: Context = self._contexts[line[known - 1].id] if known else ()
        for one in line[known:]:
            context = context_of(self._rows(one.id), context)
            while len(self._contexts) >= _REMEMBERED:
                self._contexts.pop(next(iter(self._contexts)))
            self._contexts[one.id] = context
        return context

    def _shared(
        self, session: HermesSession, parent: HermesSession
    ) -> tuple[int, str | None]:
        return shared(
            self._rows(session.id),
            branched_from(self._rows(parent.id), self.before(parent)),
        )
