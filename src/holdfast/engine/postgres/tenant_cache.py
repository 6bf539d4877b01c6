"""Whose sessions are: a session has one tenant for life, so whoever knows it need not ask again."""

from collections.abc import Iterable


class TenantCache:
    """Tenants by session, shared by all threads of an engine."""

    SESSIONS_MAX = 100_000

    def __init__(self) -> None:
        self._known: dict[str, bytes] = {}

    def get(self, session: str) -> bytes | None:
        return self._known.get(session)

    def learn(self, rows: Iterable[tuple[str, bytes]]) -> None:
        if len(self._known) > self.SESSIONS_MAX:
            self._known = {}
        self._known.update(rows)
