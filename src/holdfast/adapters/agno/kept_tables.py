"""Where `HoldfastDb` keeps its sessions, and which of them is meant."""

from collections.abc import Iterator
from typing import Any

from holdfast.adapters.agno.beside import OtherTables
from holdfast.adapters.agno.kept_session import (
    RECORDS,
    KeptSession,
    MeantIds,
    RecordsRead,
)
from holdfast.adapters.framework import (
    GivenStore,
    KnownSessions,
    names_of,
    sessions_under,
    store_of,
)
from holdfast.errors import SessionEnded
from holdfast.runtime.session import Session

MEANT_MAX = 10_000


class KeptTables(OtherTables):
    """What the tables of sessions and of runs have in common."""

    def __init__(
        self, store: GivenStore, *, beside: Any = None, id: str | None = None
    ) -> None:
        opened = store_of(store)
        super().__init__(id=id)
        self.store = opened
        self.beside = beside
        self._known = KnownSessions()
        self._records_read = RecordsRead()
        self._meant: dict[str, MeantIds] = {}

    def session(self, session_id: str) -> Session:
        """The Holdfast session that has the messages of this one, made if there is none."""
        return self._kept(session_id).words

    def _kept(self, session_id: str) -> KeptSession:
        return KeptSession(self.store, self._known, self._records_read, session_id)

    def _own(self, session_id: str) -> KeptSession:
        """The session to write to: the one that was meant when it was last loaded here."""
        kept = self._kept(session_id)
        known = self._meant.get(session_id)
        # A run that was loaded before the session was deleted must not bring it back: sessions
        # that are over refuse what is written, so those that are known need not be looked up.
        if known is not None and known.words is not None and not kept.mean(known):
            current = kept.holdfast_id
            if known.words != current:
                raise SessionEnded(
                    session_id=known.words, reason="it was deleted", current_id=current
                )
        return kept

    def _remember(self, kept: KeptSession) -> None:
        self._meant[kept.id] = kept.meant_ids()
        if len(self._meant) > MEANT_MAX:
            self._meant.pop(next(iter(self._meant)))

    def _all(self) -> Iterator[KeptSession]:
        for state in sessions_under(self.store, RECORDS):
            yield self._kept(names_of(state.key or "")[1])

    def table_exists(self, table_name: str) -> bool:
        """There is always room for what is kept here."""
        return True

    def get_latest_schema_version(self, table_name: str = "") -> str:
        """That of Agno itself: nothing is migrated here."""
        return str(self.default_schema_version)

    def upsert_schema_version(self, table_name: str = "", version: str = "") -> None:
        """Nothing is migrated here."""
