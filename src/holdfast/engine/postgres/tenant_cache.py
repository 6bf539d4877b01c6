"""Cache: session id → tenant. The mapping never changes, so entries never go stale."""

from collections.abc import Callable, Iterable

from holdfast.engine.named_sql import Rows
from holdfast.engine.postgres.server.binary_arrays import Ids
from holdfast.engine.postgres.server.text_as_bytes import is_id


class TenantCache:
    """Tenants by session, shared by all threads of an engine."""

    SESSIONS_MAX = 100_000

    def __init__(self) -> None:
        self._known: dict[str, bytes] = {}

    def get(self, session: str) -> bytes | None:
        return self._known.get(session)

    def known(self, sessions: Iterable[str]) -> dict[str, bytes]:
        """The tenants of those of these sessions that are known here."""
        return self.find(sessions, lambda ids: [])

    def find(
        self, sessions: Iterable[str], ask: Callable[[Ids], Rows]
    ) -> dict[str, bytes]:
        """The tenants of those of these sessions that are there; `ask` finds the unknown ones."""
        tenants: dict[str, bytes] = {}
        unknown: list[str] = []
        for id in sessions:
            tenant = self._known.get(id)
            if tenant is not None:
                tenants[id] = tenant
            # what is no id is in no store, and the server would refuse it as a UUID
            elif is_id(id):
                unknown.append(id)
        if unknown:
            found = ask(Ids(unknown))
            self.learn(found)
            tenants.update(found)
        return tenants

    def learn(self, rows: Iterable[tuple[str, bytes]]) -> None:
        # a new dict: another thread may be reading the old one
        if len(self._known) > self.SESSIONS_MAX:
            self._known = {}
        self._known.update(rows)
