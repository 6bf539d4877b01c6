"""The stores of all tenants on one engine, and the sessions that were asked for lately.

A handle knows the log that it has read, so the next context of a session costs what is new in it. A
session is looked for in the store of the tenant who asks, and nowhere else (I-19).
"""

from collections import OrderedDict

from holdfast.errors import NotFound
from holdfast.runtime.aio import AsyncSession, AsyncStore
from holdfast.runtime.clock import World

HANDLES_MAX = 256
"""So many sessions are remembered."""


class Tenants:
    """One store for each tenant that asks; the engine, its connections and threads are shared."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        self._stores: dict[str, AsyncStore] = {}
        self._handles: OrderedDict[tuple[str, str], AsyncSession] = OrderedDict()

    @property
    def world(self) -> World:
        """The clock and the randomness of the store."""
        return self._store._work.world

    @property
    def all(self) -> AsyncStore:
        """The store that was opened: for what is no tenant's."""
        return self._store

    def store(self, tenant: str) -> AsyncStore:
        """The sessions of this tenant."""
        known = self._stores.get(tenant)
        if known is None:
            known = self._stores[tenant] = self._store.for_tenant(tenant)
        return known

    async def session(self, tenant: str, session_id: str) -> AsyncSession:
        """A session of this tenant, by its id or an unambiguous beginning of it."""
        # By whole ids alone. A beginning of one is looked up each time: by now several
        # sessions may begin with it.
        known = self._handles.get((tenant, session_id))
        if known is None:
            known = await self.store(tenant).get(session_id)
        return self.keep(known)

    def keep(self, session: AsyncSession) -> AsyncSession:
        """Remembers a handle, and gives the one that is known already if there is one."""
        place = (session.tenant, session.id)
        known = self._handles.setdefault(place, session)
        self._handles.move_to_end(place)
        while len(self._handles) > HANDLES_MAX:
            self._handles.popitem(last=False)
        return known


def no_turn(turn: str) -> NotFound:
    """The error for a turn that is not there, or somebody else's."""
    return NotFound(what="turn", name=turn, hint="ids are those of `Turn.id`")
