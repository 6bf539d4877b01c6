"""Cases made of a Hermes store: each session with what the rest of the store knows of it."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter

from holdfast.doctor.hermes.case import HermesCase, Rows
from holdfast.importers.hermes.convert import Context
from holdfast.importers.hermes.database import HermesStore
from holdfast.importers.hermes.lineage import kinship
from holdfast.importers.hermes.reader import HermesSessions
from holdfast.importers.hermes.records import HermesDelivery, HermesSession, words

Deliveries = frozenset[HermesDelivery]
# An answer is stored about when it is sent; one with other words around it counts only
# then.
NEAR_S = 3600.0


class CaseBuilder:
    """The sessions of a store, or of a healed one: `rows` gives a session's rows, `before` what it
    continues, `torn` where rows may be missing that could not be read.
    """

    def __init__(
        self,
        store: HermesStore,
        sessions: Mapping[str, HermesSession],
        *,
        rows: Callable[[str], Rows],
        before: Callable[[HermesSession], Context],
        torn: Callable[[str], tuple[tuple[int, int], ...]] = lambda session: (),
    ) -> None:
        self._store = store
        self._sessions = sessions
        self._rows = rows
        self._before = before
        self._torn = torn
        # What is asked for by every session is worked out once for all of them.
        self._routes = {route.key: route.session for route in store.routes}
        self._keyed: dict[str, list[HermesSession]] = {}
        self._continued: set[str] = set()
        by_start = sorted(sessions.values(), key=lambda one: (one.started_at, one.id))
        for session in by_start:
            if session.key:
                self._keyed.setdefault(session.key, []).append(session)
            if session.parent and is_continuation(session):
                self._continued.add(session.parent)
        self._deliveries: dict[str, list[HermesDelivery]] = {}
        for delivery in store.deliveries:
            if not delivery.is_notice:
                self._deliveries.setdefault(delivery.key, []).append(delivery)
        self._unstored: dict[str, Deliveries] = {}

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

    def _lost(self, key: str) -> Deliveries:
        sent = self._deliveries.get(key)
        # All that was said in a chat is read only where something was sent to it.
        if not sent:
            return frozenset()
        if key not in self._unstored:
            self._unstored[key] = unstored(sent, self._said(key))
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
    if session.branched_from is not None or session.delegate_from is not None:
        return False
    return session.source != "tool"


def unstored(
    sent: Sequence[HermesDelivery], said: Iterator[tuple[float, str]]
) -> Deliveries:
    """The answers that were sent and that no row has. A row stands for one of them: the nearest in
    time whose text is all of what was sent, or a part of it, since footers are put to an answer
    after it was stored.
    """
    # By time; a row that stands for an answer is taken out.
    rows = sorted(set(said))
    found = set()
    for delivery in sent:
        sent_at = delivery.created_at
        first = bisect_left(rows, sent_at - NEAR_S, key=itemgetter(0))
        last = bisect_right(rows, sent_at + NEAR_S, key=itemgetter(0))
        fits = [row for row in rows[first:last] if row[1] in delivery.text]
        if not fits:
            # The very words count at whatever time they were stored.
            text = delivery.text.strip()
            fits = [row for row in rows if row[1] == text]
        if fits:
            rows.remove(min(fits, key=lambda row: abs(row[0] - sent_at)))
        else:
            found.add(delivery)
    return frozenset(found)


def stored_cases(store: HermesStore) -> CaseBuilder:
    """The cases of a store as it is."""
    sessions = HermesSessions(store, store.iterate)
    return CaseBuilder(
        store,
        store.sessions,
        rows=store.rows,
        before=sessions.before,
        torn=store.torn,
    )
