"""What the adapters for frameworks share: the store they were given, keys made of several names, and
what stands in a session.

Frameworks call their stores from several event loops and threads. An adapter holds a `Store`, whose
calls may come from any thread, and for asyncio drives the same plans on the loop that runs
(`asynchronous`): nothing here belongs to a loop.
"""

import os
import threading
import weakref
from collections.abc import Iterator
from urllib.parse import quote, unquote

from holdfast.domain.arguments import kind_of
from holdfast.engine.protocol import SessionState
from holdfast.errors import BadArgument
from holdfast.runtime.aio import AsyncSession, AsyncStore
from holdfast.runtime.live.message import Message
from holdfast.runtime.open_store import open_at
from holdfast.runtime.session import Session
from holdfast.runtime.store import Store

GivenStore = Store | AsyncStore | str | os.PathLike[str]
"""What an adapter takes as its store: an open one, a path or an address."""

PAGE = 200

_opening = threading.Lock()
_opened: weakref.WeakValueDictionary[tuple[int, str], Store] = (
    weakref.WeakValueDictionary()
)


def store_of(given: GivenStore) -> Store:
    """The store that an adapter works on. One that is given by its place is opened once in a
    process, is shared by all adapters that name it, and is closed when the last of them is gone.
    """
    if isinstance(given, Store):
        return given
    if isinstance(given, AsyncStore):
        return Store(given._work)
    if not isinstance(given, (str, os.PathLike)):
        takes = "a Store, a path or an address"
        raise BadArgument(parameter="store", takes=takes, given=kind_of(given))
    place = os.fspath(given)
    if not isinstance(place, str):
        takes = "a Store, a path or an address"
        raise BadArgument(parameter="store", takes=takes, given=kind_of(place))
    # A fork has none of its parent's threads: its stores are its own.
    name = (os.getpid(), place if "://" in place else os.path.abspath(place))
    with _opening:
        known = _opened.get(name)
        if known is None:
            known = _opened[name] = Store(open_at(place, tenant="default"))
        return known


def key_of(*names: str) -> str:
    """One key for several names, none of which can pass for two: `adk:app:user:session`."""
    return ":".join(quote(name, safe="") for name in names)


def names_of(key: str) -> list[str]:
    """The names that a key was made of."""
    return [unquote(name) for name in key.split(":")]


def sessions_under(store: Store, *names: str) -> Iterator[SessionState]:
    """The current sessions of all keys whose first names are these, by key. What has ended is left
    out.
    """
    prefix, after = key_of(*names) + ":", ""
    while page := store._work.engine.under(
        store.tenant, prefix, after=after, limit=PAGE
    ):
        yield from page
        assert page[-1].key is not None
        after = page[-1].key


def standing(session: Session) -> list[Message]:
    """What stands in a session, as it was stored and in the order of the view: what was taken back,
    rewound or compacted away is not in it, and nothing is repaired.
    """
    log = session._log
    folded = log.log()
    with log.lock:
        seen = [log.with_payload(each) for each in folded.visible]
    labels = log.labels()
    found = []
    for each in seen:
        name = log.turn_name(each.turn)
        found.append(Message(each, turn=name, labels={**labels.get(each.id, {})}))
    return found


def asynchronous(session: Session) -> AsyncSession:
    """The same session for asyncio: it knows what the other has read."""
    return AsyncSession(session._log)
