"""What Strands keeps beside messages: the record of a session, of an agent, of a multi-agent system.

Each has a session of its own under a key of its own. A new version of it is a new entry; the last
one that can be read is what it says.
"""

import json
from collections import OrderedDict
from threading import Lock
from typing import Any

from holdfast.adapters.framework import current_of
from holdfast.engine.protocol import Write, Written
from holdfast.errors import InvalidMessage
from holdfast.formats.frameworks.strands import NAME, is_record
from holdfast.runtime.live.session_log import SessionLog, speak
from holdfast.runtime.plans.plan import Plan, run
from holdfast.runtime.session import Session
from holdfast.runtime.store import Store

HANDLES_MAX = 1024
"""So many sessions are remembered, and how far they were read."""


class Handles:
    """The sessions that a repository works with, by key: what it has read is what it writes to, and
    what was begun anew since refuses it.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._known: OrderedDict[str, Session] = OrderedDict()
        self._lock = Lock()

    def find(self, key: str) -> Session | None:
        """The key's session, if it has one; one that is known stays, though it may be over."""
        with self._lock:
            known = self._known.get(key)
            if known is not None:
                self._known.move_to_end(key)
                return known
        found = current_of(self.store, key)
        return None if found is None else self._remember(key, found)

    def open(self, key: str) -> Session:
        """The key's session, made if there is none."""
        return self.find(key) or self._remember(key, self.store.session(key))

    def refresh(self, key: str) -> None:
        """What is over is looked up anew."""
        with self._lock:
            known = self._known.get(key)
        if known is not None and known._log.state().ended:
            self.forget(key)

    def forget(self, *keys: str) -> None:
        """They are looked up when they are asked for again."""
        with self._lock:
            for key in list(self._known):
                if any(key == each or key.startswith(f"{each}:") for each in keys):
                    del self._known[key]

    def _remember(self, key: str, session: Session) -> Session:
        with self._lock:
            known = self._known.setdefault(key, session)
            if len(self._known) > HANDLES_MAX:
                self._known.popitem(last=False)
        return known


class Records:
    """The records of a store, each by its key."""

    def __init__(self, handles: Handles) -> None:
        self._handles = handles

    def read(self, key: str) -> dict[str, Any] | None:
        """What the record says now; None when there is none."""
        session = self._handles.find(key)
        return None if session is None else last_record(session)

    def is_there(self, key: str) -> bool:
        """Whether there is such a record, though it may not be readable."""
        session = self._handles.find(key)
        return session is not None and session.head() > 1

    def create(self, key: str, kind: str, value: dict[str, Any]) -> bool:
        """Begins a record; False when there is one."""
        log = self._handles.open(key)._log
        # The first entry says that the session was opened, and nothing stands after it.
        return run(_written(log, kind, value, head=1))

    def update(self, key: str, kind: str, value: dict[str, Any]) -> None:
        """What a record says from now on."""
        session = self._handles.open(key)
        session.append(_payload(kind, value), format=NAME)


def _written(
    log: SessionLog, kind: str, value: dict[str, Any], *, head: int
) -> Plan[bool]:
    draft = log.message(speak(_payload(kind, value), NAME), turn=None)
    write = Write(log.id, (draft,), head=head)
    return isinstance((yield from log.commit_or_retry(write)), Written)


def last_record(session: Session) -> dict[str, Any] | None:
    """The last version of a record that can be read."""
    seq = session.head()
    while seq:
        for message in session.transcript(after=seq - 1, limit=1):
            payload = message.payload
            if message.seq == seq and is_record(payload):
                value = payload["value"]
                return value if isinstance(value, dict) else None
        seq -= 1
    return None


def _payload(kind: str, value: dict[str, Any]) -> dict[str, Any]:
    return plain({"record": kind, "value": value})


def plain(value: dict[str, Any]) -> dict[str, Any]:
    """This as JSON has it. Strands' own stores take keys that are numbers, and so on: what comes
    back from them is text.
    """
    try:
        speak(value, NAME)
    except InvalidMessage:
        try:
            worded: dict[str, Any] = json.loads(json.dumps(value))
        except (TypeError, ValueError, RecursionError):
            return value  # as it is, it is refused with a sentence that names the place
        return worded
    return value
