"""Hermes Agent's `state.db` as foreign sessions: schema 22, and those before it that have the
same tables.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from holdfast.importers.foreign_session import ForeignLine, ForeignLines, ForeignSession
from holdfast.importers.hermes.compaction_copies import fold
from holdfast.importers.hermes.convert import (
    FOLDED,
    Context,
    branched_from,
    foreign_session,
    line,
    lines_of,
    shared,
)
from holdfast.importers.hermes.database import HermesStore, recognises
from holdfast.importers.hermes.lineage import ancestors, current, in_order, kinship
from holdfast.importers.hermes.records import HermesRow, HermesSession
from holdfast.importers.reader import ForeignReader, UnreadableRecord
from holdfast.importers.values import text_or_none

# Sessions come in order of their start: a continuation is mostly near its parent.
_REMEMBERED = 16

__all__ = ["HermesReader", "HermesSessions", "recognises"]


class HermesReader(ForeignReader):
    """A Hermes store, opened from a private copy."""

    kind = "hermes"

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._store = HermesStore(path)
        self._sessions = HermesSessions(self._store, self._store.iterate)

    def sessions(self, session: str | None = None) -> Iterator[ForeignSession]:
        for one in in_order(self._store.sessions):
            if session is None or one.id == session:
                yield self._sessions.session(one)

    def unreadable(self) -> list[UnreadableRecord]:
        return list(self._store.file.problems)

    def close(self) -> None:
        self._store.close()


class HermesSessions:
    """The sessions of a store, whose rows come from `rows`: as they are, or healed. What the last
    few sessions hand on to those that continue them is remembered.
    """

    def __init__(
        self,
        store: HermesStore,
        rows: Callable[[str], Iterable[HermesRow]],
        sessions: dict[str, HermesSession] | None = None,
    ) -> None:
        self._store = store
        self._rows = rows
        self._sessions = store.sessions if sessions is None else sessions
        self._current = current(store.routes, self._sessions)
        self._contexts: dict[str, Context] = {}

    def session(self, session: HermesSession) -> ForeignSession:
        """One session, converted."""
        parent, lineage = kinship(session, self._sessions)
        facts = self._store.facts(session.id)
        model = text_or_none(facts.get("model"))
        first = 0
        parent_origin = None
        if parent is not None and lineage == "branch":
            first, parent_origin = self._shared(session, self._sessions[parent])
            if not first:
                # It shares nothing with the session that it is said to come from.
                parent = None
                lineage = None
        before = self.before(session)

        def lines() -> Iterator[ForeignLine]:
            rows = self._rows(session.id)
            # Copies that a compaction made can only be found with all rows in memory.
            if first or before or self._store.has_summaries(session.id):
                yield from lines_of(list(rows)[first:], before, model)
                return
            for row in rows:
                if FOLDED not in row.labels:
                    yield line(row, model)

        return foreign_session(
            session,
            facts,
            ForeignLines(lines),
            parent=parent,
            lineage=lineage,
            parent_origin=parent_origin,
            current=session.key is None or self._current.get(session.key) == session.id,
        )

    def before(self, session: HermesSession) -> Context:
        """What the session that this one continues had in its context; nothing when it continues
        none.
        """
        context: Context = ()
        unknown: list[HermesSession] = []
        for one in reversed(ancestors(session, self._sessions)[:-1]):
            if one.id in self._contexts:
                context = self._contexts[one.id]
                break
            unknown.append(one)
        for one in reversed(unknown):
            context = fold(list(self._rows(one.id)), context).context()
            while len(self._contexts) >= _REMEMBERED:
                self._contexts.pop(next(iter(self._contexts)))
            self._contexts[one.id] = context
        return context

    def _shared(
        self, session: HermesSession, parent: HermesSession
    ) -> tuple[int, str | None]:
        before = branched_from(list(self._rows(parent.id)), self.before(parent))
        return shared(self._rows(session.id), before)
