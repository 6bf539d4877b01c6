"""Whose sessions there are: from an account, a user and a session's name to the session.

Each user of each account is a tenant of the store (I-19): what belongs to another is not there. A
name is the key of a session; one that was deleted and made again is another session.
"""

import logging
import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.adapters.openviking.server.sessions.session_handle import SessionHandle
from holdfast.engine.protocol import SessionState
from holdfast.errors import StoreUnavailable
from holdfast.runtime.changes.erase import erase
from holdfast.runtime.changes.open_session import open_session
from holdfast.runtime.live.session_log import SessionLog
from holdfast.runtime.open_store import OpenStore
from holdfast.runtime.plans.plan import run

_log = logging.getLogger("holdfast.openviking")
PREFIX = "openviking:"
HANDLES_MAX = 512
PAGE = 200


class Requester(NamedTuple):
    """Who asks, as OpenViking names people."""

    account: str = "default"
    user: str = "default"


class Directory:
    """The sessions of all who may ask. `tenant` is where those of the default user are."""

    def __init__(self, store: OpenStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._stores: dict[Requester, OpenStore] = {Requester(): store}
        # The ones used last, by session id: what they have read is not read again.
        self._handles: OrderedDict[str, SessionHandle] = OrderedDict()

    def find(self, requester: Requester, name: str) -> SessionHandle | None:
        """The session of this name; None when there is none, or it was deleted."""
        store = self._store_of(requester)
        # Asked each time: another process may have deleted it, or made it anew.
        state = store.engine.current(store.tenant, PREFIX + name)
        if state is None or state.ended:
            return None
        return self._handle(requester, name, store.session_log(state))

    def find_id(
        self, requester: Requester, id: str
    ) -> tuple[str, SessionHandle] | None:
        """The session of this id with its name, if it is this user's."""
        store = self._store_of(requester)
        state = store.engine.state(id)
        # An id is not a credential (I-19).
        if state is None or state.tenant != store.tenant or state.ended:
            return None
        name = _name_of(state)
        if name is None:
            return None
        return name, self._handle(requester, name, store.session_log(state))

    def make(self, requester: Requester, name: str) -> SessionHandle:
        """The session of this name, made if there is none."""
        found = self.find(requester, name)
        if found is not None:
            return found
        store = self._store_of(requester)
        log = run(open_session(store, PREFIX + name))
        return self._handle(requester, name, log)

    def delete(self, handle: SessionHandle) -> None:
        """Takes all words of a session out of the store."""
        id = handle.log.id
        store = self._store.for_tenant(handle.log.tenant)
        try:
            run(erase(store, id, preview=False))
        except StoreUnavailable as error:
            state = store.engine.state(id)
            if state is None or not state.erased:
                raise
            # It is gone, and a reader elsewhere keeps its old pages in the file for now. The next
            # erasure clears them; the client can't do anything about it.
            _log.warning("a deleted session: %s", error.code)
        with self._lock:
            self._handles.pop(id, None)

    def names(self, requester: Requester) -> Iterator[tuple[str, int]]:
        """The names of this user's sessions and when each was last used, the latest first."""
        for state in self._states(requester):
            name = _name_of(state)
            if name is not None:
                yield name, state.active_at

    def unfinished(self, requester: Requester) -> Iterator[str]:
        """The names of this user's sessions in which an archive waits for its extraction."""
        store = self._store_of(requester)
        for state in self._states(requester):
            name = _name_of(state)
            # Not kept: a start would push out what is in use.
            if name is None:
                continue
            handle = SessionHandle(
                store.session_log(state),
                uri_of(requester, name),
            )
            if handle.has_unfinished():
                yield name

    def _states(self, requester: Requester) -> Iterator[SessionState]:
        store = self._store_of(requester)
        before: tuple[int, str] | None = None
        while page := store.engine.sessions(
            store.tenant, state="open", before=before, limit=PAGE
        ):
            yield from page
            before = page[-1].active_at, page[-1].id

    def _store_of(self, requester: Requester) -> OpenStore:
        with self._lock:
            store = self._stores.get(requester)
            if store is None:
                # A slash is in no name of an account or a user: no two make one tenant.
                tenant = f"{requester.account}/{requester.user}"
                store = self._stores[requester] = self._store.for_tenant(tenant)
            return store

    def _handle(
        self, requester: Requester, name: str, log: SessionLog
    ) -> SessionHandle:
        with self._lock:
            handle = self._handles.get(log.id)
            if handle is None:
                handle = SessionHandle(log, uri_of(requester, name))
                self._handles[log.id] = handle
            self._handles.move_to_end(log.id)
            # One that is in use and pushed out goes on by itself: what it writes is guarded in the
            # store.
            if len(self._handles) > HANDLES_MAX:
                self._handles.popitem(last=False)
            return handle


def uri_of(requester: Requester, name: str) -> str:
    """The address that OpenViking has for a session."""
    return f"viking://user/{requester.user}/sessions/{name}"


def _name_of(state: SessionState) -> str | None:
    if state.key is None or not state.key.startswith(PREFIX):
        return None
    return state.key.removeprefix(PREFIX)
