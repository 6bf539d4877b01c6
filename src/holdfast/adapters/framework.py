"""What the adapters for frameworks share: the store they were given, keys made of several names, and
what stands in a session.

Frameworks call their stores from several event loops and threads. An adapter holds a `Store`, whose
calls may come from any thread, and for asyncio drives the same plans on the loop that runs
(`asynchronous`): nothing here belongs to a loop.
"""

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from holdfast.domain.arguments import kind_of
from holdfast.domain.entry import Labelled, note_of
from holdfast.domain.message import Spoken
from holdfast.domain.repair import StoredMessage
from holdfast.engine.protocol import Commit, Refused, SessionState, Write
from holdfast.errors import BadArgument
from holdfast.runtime.aio import AsyncSession, AsyncStore
from holdfast.runtime.changes.open_session import current_state, open_session
from holdfast.runtime.live.message import Message, payload_in
from holdfast.runtime.live.session_log import SessionLog, speak
from holdfast.runtime.open_store import open_at
from holdfast.runtime.plans.plan import Plan, read, run, wait_for
from holdfast.runtime.plans.plan_asyncio import arun
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
    One that was closed by hand is opened again.
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
        if known is None or known._work.is_closed:
            known = _opened[name] = Store(open_at(place, tenant="default"))
        return known


def key_of(*names: str) -> str:
    """One key for several names, none of which can pass for two: `adk:app:user:session`."""
    try:
        return ":".join(quote(name, safe="") for name in names)
    except UnicodeEncodeError as error:
        takes, given = "a text of valid Unicode", kind_of(error.object)
        raise BadArgument(parameter="name", takes=takes, given=given) from None


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
    labels = log.labels()
    found = []
    for seen in stored(session):
        name = log.turn_name(seen.turn)
        found.append(Message(seen, turn=name, labels={**labels.get(seen.id, {})}))
    return found


def stored(session: Session) -> list[StoredMessage]:
    """What `standing` gives, without labels: for those who load long histories often."""
    log = session._log
    folded = log.log()
    with log.lock:
        return [log.with_payload(seen) for seen in folded.visible]


def bodies_of(found: Sequence[StoredMessage], format: str) -> list[bytes] | None:
    """The payloads of these messages as they are stored, for those who read all at once; None where
    one is in another format or can't be read any more: then each has to be looked at by itself.
    """
    bodies = []
    for seen in found:
        note = seen.note
        if note.format != format or note.erased or note.origin == "unreadable":
            return None
        bodies.append(seen.body)
    return bodies


def records_after(session: Session, seq: int) -> Iterator[tuple[int, Any]]:
    """The payloads of what was said in a session after this entry, each with its seq: for records,
    of which nothing else is asked. One that can't be read is None.
    """
    log = session._log
    is_last = False
    while not is_last:
        found, seq, is_last = log.reading(_records, log, seq)
        yield from found


def _records(log: SessionLog, after: int) -> tuple[list[tuple[int, Any]], int, bool]:
    """Those of the next page, where it ends, and whether no page follows it."""
    page = log.page(after)
    found = []
    for entry in page:
        if entry.kind == "message":
            note = note_of("message", entry.note)
            found.append((entry.seq, payload_in(note, entry.body)))
    is_last = not page or log.is_last(page)
    return found, page[-1].seq if page else after, is_last


def asynchronous(session: Session) -> AsyncSession:
    """The same session for asyncio: it knows what the other has read."""
    return AsyncSession(session._log)


async def session_of(store: Store, key: str) -> Session:
    """The key's current session, made if there is none, for asyncio."""
    return Session(await arun(open_session(store._work, key)))


def current_of(store: Store, key: str) -> Session | None:
    """The key's current session, if it has one that has not ended. One question to the store: on a
    server, each is a round trip.
    """
    state = run(current_state(store._work, key))
    if state is None or state.ended:
        return None
    return Session(store._work.session_log(state))


class KnownSessions:
    """Handles that have read their sessions before: what was read once is not read again."""

    def __init__(self, most: int = 256) -> None:
        self._most = most
        self._handles: OrderedDict[str, Session] = OrderedDict()
        self._by_key: dict[str | None, Session] = {}
        self._lock = threading.Lock()

    def remember(self, found: Session) -> Session:
        """The handle that has read this session before, if there is one."""
        with self._lock:
            known = self._handles.setdefault(found.id, found)
            self._handles.move_to_end(found.id)
            self._by_key[known.key] = known
            if len(self._handles) > self._most:
                _, dropped = self._handles.popitem(last=False)
                if self._by_key.get(dropped.key) is dropped:
                    del self._by_key[dropped.key]
        return known

    def last_of(self, key: str) -> Session | None:
        """The session that this key had when it was last looked up. It may be over: then it refuses
        with `SessionEnded` what is written to it.
        """
        with self._lock:
            known = self._by_key.get(key)
            if known is not None:
                self._handles.move_to_end(known.id)
            return known


class Named(NamedTuple):
    """A message that is to be stored once: under this name, with these labels from the start."""

    payload: Any
    name: str | None = None
    labels: dict[str, Any] | None = None


def append_once(
    session: Session, messages: Sequence[Named], *, format: str, also: Commit = ()
) -> Plan[bool]:
    """Stores those of these messages whose names are new in the session, and `also`, in one commit.
    A name is known in its session only: what was erased may come again under the same key. False
    when a guard of `also` has refused it, and nothing was written.
    """
    # Before the plan begins: what can't be stored is refused before anything is waited
    # for.
    spoken = [speak(each.payload, format) for each in messages]
    return _append_once(session._log, list(zip(messages, spoken, strict=True)), also)


def _append_once(
    log: SessionLog, offered: list[tuple[Named, Spoken]], also: Commit
) -> Plan[bool]:
    named: dict[str, tuple[Named, Spoken]] = {}
    for number, (message, spoken) in enumerate(offered):
        # What has no name is never the same as another.
        named.setdefault(message.name or f"\0{number}", (message, spoken))
    while True:
        writes = [_once(log, *each) for each in named.values()]
        if not writes and not also:
            return True
        outcome = yield from wait_for(log.engine.submit((*writes, *also)))
        if not isinstance(outcome, Refused):
            return True
        if outcome.why == "ended":
            raise (yield from read(log.ended))
        if outcome.why != "accepted":
            return False
        # Rare, after a retry: only now is it asked which of them are known.
        for name, (message, _) in list(named.items()):
            event = _event(log, message.name)
            if event is not None and (yield from read(partial(_known, log, event))):
                del named[name]


def _once(log: SessionLog, message: Named, spoken: Spoken) -> Write:
    drafts = [log.message(spoken, turn=None)]
    if message.labels:
        note = Labelled(drafts[0].id.hex(), message.labels)
        drafts.append(log.draft("label", note))
    return Write(log.id, tuple(drafts), event=_event(log, message.name))


def _event(log: SessionLog, name: str | None) -> tuple[str, str] | None:
    return None if name is None else log.event(f"{log.epoch}/{name}")


def _known(log: SessionLog, event: tuple[str, str]) -> bool:
    return log.engine.accepted(*event) is not None


def is_named(session: Session, name: str) -> bool:
    """Whether `append_once` has stored something under this name in the session."""
    event = _event(session._log, name)
    assert event is not None
    return _known(session._log, event)


def uuid_of(raw: bytes) -> str:
    """The first sixteen of these bytes, as a uuid is written."""
    words = raw[:16].hex()
    # The marks of a random uuid, which some readers look for.
    words = f"{words[:12]}4{words[13:16]}8{words[17:]}"
    parts = words[:8], words[8:12], words[12:16], words[16:20], words[20:]
    return "-".join(parts)


def missing(module: str, extra: str) -> ImportError:
    """The error for a framework that is not there: how it is installed."""
    line = f"pip install 'holdfast[{extra}]'"
    return ImportError(f"{module} is not there. Install it with: {line}", name=module)
