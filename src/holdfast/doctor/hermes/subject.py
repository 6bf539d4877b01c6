"""Hermes Agent's `state.db` in the doctor's hands."""

from collections.abc import Iterator
from pathlib import Path

from holdfast.doctor.finding import Finding, Findings
from holdfast.doctor.hermes.case_builder import stored_cases
from holdfast.doctor.hermes.detect.all import findings_of
from holdfast.doctor.hermes.heal.store import HealedHermes
from holdfast.doctor.hermes.rules import RULE, RULES
from holdfast.doctor.subject import Accepts, Examined, Subject
from holdfast.errors import StoreUnavailable
from holdfast.importers.hermes.database import HermesStore
from holdfast.importers.hermes.lineage import in_order
from holdfast.importers.reader import UnreadableRecord


class HermesSubject(Subject):
    """A Hermes store, opened from a private copy. One that can't be opened at all is a finding."""

    kind = "hermes"
    rules = RULES

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._store: HermesStore | None = None
        self._trouble: StoreUnavailable | None = None
        try:
            self._store = HermesStore(path)
        except StoreUnavailable as error:
            self._trouble = error

    def examine(self, session: str | None = None) -> Iterator[Examined]:
        store = self._store
        if store is None:
            rule = RULE["hermes/unreadable-store"]
            unreadable = Finding(rule, "", self.path, str(self._trouble))
            yield Examined("", 0, (unreadable,))
            return
        cases = stored_cases(store)
        for one in in_order(store.sessions):
            if session is None or one.id == session:
                # So that a damaged row is told, whatever of it is needed.
                store.facts(one.id)
                found = [*findings_of(cases.case(one))]
                found += map(_finding, store.file.problems_of(one.id))
                yield Examined(one.id, store.size(one.id), tuple(found))
        # After the sessions: reading them shows which records can't be read.
        of_the_store = tuple(_of_the_store(store, session))
        if session is None or of_the_store:
            yield Examined("", 0, of_the_store)

    def healed(self, accepts: Accepts) -> "HealedHermes":
        if self._store is None:
            assert self._trouble is not None
            raise self._trouble
        return HealedHermes(self._store, accepts)

    def close(self) -> None:
        if self._store is not None:
            self._store.close()


def _of_the_store(store: HermesStore, session: str | None) -> Findings:
    """What is wrong with no session that is there; of that, what concerns one of them, or its chat,
    if asked.
    """
    asked = store.sessions.get(session or "")
    for route in store.routes:
        concerns = session in (None, route.session) or (
            asked is not None and asked.key == route.key
        )
        if concerns and route.session not in store.sessions:
            measured = f"{route.key} leads to session {route.session}, which is not in this store."
            place = f"gateway_routing.session_key={route.key}"
            yield Finding(RULE["hermes/ghost-route"], "", place, measured)
    for lock in store.locks:
        # A lock on a session that is there is told with that.
        if session not in (None, lock.session) or lock.session in store.sessions:
            continue
        if lock.expires_at < store.newest:
            measured = (
                f"The lock on {lock.session}, which is not there, ran out before the "
                "newest row of the store."
            )
            place = f"compression_locks.session_id={lock.session}"
            yield Finding(RULE["hermes/stale-compression-lock"], "", place, measured)
    for problem in store.file.problems if session is None else ():
        if problem.session is None or problem.session not in store.sessions:
            yield _finding(problem)


def _finding(problem: UnreadableRecord) -> Finding:
    measured = f"It can't be read: {problem.problem}."
    return Finding(
        RULE["hermes/unreadable-record"], problem.session or "", problem.place, measured
    )
