"""A Hermes store after healing, session by session: parents first, so that a child is healed beside
a healed parent.
"""

from collections.abc import Iterator

from holdfast.doctor.finding import Change
from holdfast.doctor.hermes.case import HermesCase, Rows
from holdfast.doctor.hermes.case_builder import CaseBuilder, stored_cases
from holdfast.doctor.hermes.heal.lineage import AFTER_END, NO_CHILD, between
from holdfast.doctor.hermes.heal.session import heal
from holdfast.doctor.hermes.rules import RULE
from holdfast.doctor.hermes.write import write_hermes
from holdfast.doctor.subject import Accepts
from holdfast.importers.foreign_session import ForeignSession
from holdfast.importers.hermes.database import HermesStore
from holdfast.importers.hermes.lineage import in_order
from holdfast.importers.hermes.reader import HermesSessions
from holdfast.importers.hermes.records import CompactionLock

# A child is healed beside its parent, so a few of those that were healed last are kept.
_REMEMBERED = 4


class HealedHermes:
    """Healed when it is asked for; only a few sessions are in memory at a time."""

    def __init__(self, store: HermesStore, accepts: Accepts) -> None:
        self._store = store
        self._accepts = accepts
        self._kin = between(
            store.sessions,
            stored_cases(store).case,
            lineage=accepts(RULE[NO_CHILD]),
            places=accepts(RULE[AFTER_END]),
        )
        # What lies between sessions comes first: a turn is healed in the session it belongs to.
        sessions = self._kin.sessions
        self._sessions = HermesSessions(store, self._rows, sessions)
        self._builder = CaseBuilder(
            store, sessions, rows=self._moved, before=self._sessions.before
        )
        self._cases: dict[str, HermesCase] = {}
        self._changes: dict[str, list[Change]] = {}

    def sessions(self) -> Iterator[ForeignSession]:
        for session in in_order(self._kin.sessions):
            yield self._sessions.session(self._case(session.id).session)

    def changes(self) -> list[Change]:
        found: list[Change] = []
        for session in in_order(self._kin.sessions):
            found += self._changes.get(session.id, ())
        return [*found, *self._changes.get("", ())]

    def write(self, out: str) -> None:
        cases = (self._case(session.id) for session in in_order(self._kin.sessions))
        write_hermes(self._store, cases, out, drops=self._drops)

    def _drops(self, lock: CompactionLock) -> bool:
        """Whether a lock on a session that is not there is left out."""
        rule = RULE["hermes/stale-compression-lock"]
        # By the newest row, not by a clock: a copy is the same whenever it is made.
        if lock.expires_at >= self._store.newest or not self._accepts(rule):
            return False
        place = f"compression_locks.session_id={lock.session}"
        self._changes[""] = [Change(rule.name, "", place, "locked", "not locked")]
        return True

    def _case(self, session: str) -> HermesCase:
        if session not in self._cases:
            raw = self._builder.case(self._kin.sessions[session])
            case, changes = heal(raw, self._accepts)
            # Set, and not added to: a session that was dropped from memory is healed
            # again, with the same changes.
            self._changes[session] = [*self._kin.changes.get(session, ()), *changes]
            while len(self._cases) >= _REMEMBERED:
                self._cases.pop(next(iter(self._cases)))
            self._cases[session] = case
        return self._cases[session]

    def _rows(self, session: str) -> Rows:
        return self._case(session).rows

    def _moved(self, session: str) -> Rows:
        return self._kin.rows(session, self._store.rows(session))
