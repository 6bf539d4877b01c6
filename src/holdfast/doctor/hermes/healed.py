"""A Hermes store after healing, session by session: parents first, so that a child is healed beside a healed parent."""

from collections.abc import Iterator, Sequence

from holdfast.doctor.finding import Change
from holdfast.doctor.hermes.case import Case
from holdfast.doctor.hermes.healing import heal
from holdfast.doctor.hermes.healing_kin import AFTER_END, NO_CHILD, between
from holdfast.doctor.hermes.rules import RULE
from holdfast.doctor.hermes.ward import Ward
from holdfast.doctor.hermes.writing import write_hermes
from holdfast.doctor.patient import Accepts
from holdfast.foreign.hermes.family import in_order
from holdfast.foreign.hermes.records import Lock, Row
from holdfast.foreign.hermes.shelf import Teller
from holdfast.foreign.hermes.store import HermesStore
from holdfast.foreign.story import Story

_REMEMBERED = 4


class HealedHermes:
    """Healed when it is asked for; only a few sessions are in memory at a time."""

    def __init__(self, store: HermesStore, accepts: Accepts) -> None:
        self._store = store
        self._accepts = accepts
        raw = Ward(store, store.sessions, rows=store.rows, before=Teller(store, store.rows, store.iterate).before)
        self._kin = between(store.sessions, raw.case, lineage=accepts(RULE[NO_CHILD]), places=accepts(RULE[AFTER_END]))
        sessions = self._kin.sessions
        self._teller = Teller(store, self._rows, lambda session: iter(self._rows(session)), sessions)
        self._ward = Ward(store, sessions, rows=self._moved, before=self._teller.before)
        self._cases: dict[str, Case] = {}
        self._changes: dict[str, list[Change]] = {}

    def sessions(self) -> Iterator[Story]:
        for session in in_order(self._kin.sessions):
            yield self._teller.session(self._case(session.id).session)

    def changes(self) -> list[Change]:
        found = [change for session in in_order(self._kin.sessions) for change in self._changes.get(session.id, ())]
        return [*found, *self._changes.get("", ())]

    def write(self, out: str) -> None:
        cases = (self._case(session.id) for session in in_order(self._kin.sessions))
        write_hermes(self._store, cases, out, drops=self._drops)

    def _drops(self, lock: Lock) -> bool:
        """Whether a lock on a session that is not there is left out."""
        rule = RULE["hermes/stale-compression-lock"]
        if lock.expires_at >= self._store.newest or not self._accepts(rule):
            return False
        place = f"compression_locks.session_id={lock.session}"
        self._changes[""] = [Change(rule.name, "", place, "locked", "not locked")]
        return True

    def _case(self, session: str) -> Case:
        if session not in self._cases:
            case, changes = heal(self._ward.case(self._kin.sessions[session]), self._accepts)
            self._changes[session] = [*self._kin.changes.get(session, ()), *changes]
            while len(self._cases) >= _REMEMBERED:
                self._cases.pop(next(iter(self._cases)))
            self._cases[session] = case
        return self._cases[session]

    def _rows(self, session: str) -> Sequence[Row]:
        return self._case(session).rows

    def _moved(self, session: str) -> Sequence[Row]:
        return self._kin.rows(session, self._store.rows(session))
