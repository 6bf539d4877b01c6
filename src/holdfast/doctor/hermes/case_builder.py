"""Cases made of a Hermes store: each session with what the rest of the store knows of it."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence

from holdfast.doctor.hermes.case import HermesCase
from holdfast.importers.hermes.convert import Context
from holdfast.importers.hermes.database import HermesStore
from holdfast.importers.hermes.lineage import kinship
from holdfast.importers.hermes.records import (
    HermesDelivery,
    HermesRow,
    HermesSession,
    words,
)

NEAR_S = 3600.0
"""An answer is stored about when it is sent; one with other words around it counts only then."""


class CaseBuilder:
    """The sessions of a store, or of a healed one: `rows` gives a session's rows, `before` what it
    continues, `torn` where rows may be missing that could not be read.
    """

    def __init__(
        self,
        store: HermesStore,
        sessions: Mapping[str, HermesSession],
        *,
        rows: Callable[[str], Sequence[HermesRow]],
        before: Callable[[HermesSession], Context],
        torn: Callable[[str], tuple[tuple[int, int], ...]] = lambda session: (),
    ) -> None:
        self._store = store
        self._sessions = sessions
        self._rows = rows
        self._before = before
        self._torn = torn
        self._routes = {route.key: route.session for route in store.routes}
        self._keyed: dict[str, list[HermesSession]] = {}
        self._continued: set[str] = set()
        for session in sorted(
            sessions.values(), key=lambda one: (one.started_at, one.id)
        ):
            if session.key:
                self._keyed.setdefault(session.key, []).append(session)
            if session.parent and is_continuation(session):
                self._continued.add(session.parent)
        self._deliveries: dict[str, list[HermesDelivery]] = {}
        for delivery in store.deliveries:
            if not delivery.is_notice:
                self._deliveries.setdefault(delivery.key, []).append(delivery)
        self._unstored: dict[str, frozenset[HermesDelivery]] = {}

    def case(self, session: HermesSession) -> HermesCase:
        """One session, with all around it."""
        store = self._store
        rows = self._rows(session.id)
        key = session.key or ""
        return HermesCase(
            session=session,
            rows=rows,
            before=self._before(session),
            has_parent=kinship(session, self._sessions)[0] is not None,
            is_continued=session.id in self._continued,
            route=self.route(session),
            following=self.following(session),
            deliveries=tuple(self._deliveries.get(key, ())),
            unstored=self._lost(key),
            locks=tuple(lock for lock in store.locks if lock.session == session.id),
            known=store.known,
            torn=self._torn(session.id),
            has_stops=store.has_stops,
            newest=store.newest,
            live=store.live,
        )

    def route(self, session: HermesSession) -> HermesSession | None:
        """The session that its chat is in now."""
        return self._sessions.get(self._routes.get(session.key or "") or "")

    def following(self, session: HermesSession) -> HermesSession | None:
        """The next session of its chat."""
        for later in self._keyed.get(session.key or "", ()):
            if later.started_at > session.started_at and later.id != session.id:
                return later
        return None

    def _lost(self, key: str) -> frozenset[HermesDelivery]:
        if key not in self._unstored:
            sent = self._deliveries.get(key, [])
            self._unstored[key] = (
                unstored(sent, self._said(key)) if sent else frozenset()
            )
        return self._unstored[key]

    def _said(self, key: str) -> Iterator[tuple[float, str]]:
        for session in self._keyed.get(key, ()):
            for row in self._store.iterate(session.id):
                if row.role == "assistant" and words(row):
                    yield row.timestamp, words(row)


def is_continuation(session: HermesSession) -> bool:
    """Whether a session with a parent goes on with its history; branches, delegates and tools do
    not.
    """
    return (
        session.branched_from is None
        and session.delegate_from is None
        and session.source != "tool"
    )


def unstored(
    sent: Sequence[HermesDelivery], said: Iterator[tuple[float, str]]
) -> frozenset[HermesDelivery]:
    """The answers that were sent and that no row has. A row stands for one of them: the nearest in
    time whose text is all of what was sent, or a part of it, since footers are put to an answer
    after it was stored.
    """
    rows = sorted(set(said))
    times = [at for at, _ in rows]
    used: set[int] = set()
    found = set()
    for delivery in sent:
        low, high = delivery.created_at - NEAR_S, delivery.created_at + NEAR_S
        near = range(bisect_left(times, low), bisect_right(times, high))
        fits = [
            index
            for index in near
            if index not in used and rows[index][1] in delivery.text
        ]
        if not fits:
            text = delivery.text.strip()
            fits = [
                index
                for index, (_, said_then) in enumerate(rows)
                if index not in used and said_then == text
            ]
        if fits:
            used.add(
                min(fits, key=lambda index: abs(times[index] - delivery.created_at))
            )
        else:
            found.add(delivery)
    return frozenset(found)
