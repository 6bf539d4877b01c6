"""The states of apps, users and sessions: each a session of its own, beside those of the kit.

A change of state is a message that says what was set. Now and then one says all of it instead, so
that reading a state costs what is in it and not what it has been through; each message names the
entry with which a reader may begin.
"""

import copy
import threading
from collections import OrderedDict
from typing import Any

from pydantic_core import to_jsonable_python

from holdfast.domain.arguments import text
from holdfast.domain.entry import Entry
from holdfast.domain.message import thaw
from holdfast.engine.protocol import SessionState, Write
from holdfast.formats.frameworks.adk import NAME
from holdfast.formats.reading import fields
from holdfast.runtime.changes.open_session import successor
from holdfast.runtime.live.session_log import SessionLog, speak
from holdfast.runtime.store import Store

KNOWN_MAX = 4096
CHANGES_MIN = 64
"""So many changes are stored before one of them says all of the state."""
PREFIXES = {"app:": "app", "user:": "user", "temp:": "temp"}

Values = dict[str, Any]


def scoped(state: Values) -> dict[str, Values]:
    """What is set in each scope, its prefix taken off; what is temporary is left out. Values are as
    JSON has them: one that JSON can't hold is its repr.
    """
    found: dict[str, Values] = {"app": {}, "user": {}, "session": {}, "temp": {}}
    for name, value in state.items():
        name = text("state", name)
        scope = "session"
        for prefix, kind in PREFIXES.items():
            if name.startswith(prefix):
                scope, name = kind, name.removeprefix(prefix)
                break  # What follows is a name, though it looks like a prefix.
        found[scope][name] = value
    del found["temp"]
    return {scope: jsonable(values) for scope, values in found.items()}


def jsonable(values: Values) -> Values:
    """These values as JSON has them."""
    made: Values = to_jsonable_python(
        values, serialize_unknown=True, inf_nan_mode="null"
    )
    return made


class _KnownState:
    """A state as far as it was read."""

    def __init__(self, log: SessionLog) -> None:
        self.log = log
        self.head = self.since = self.changes = 0
        self.values: Values = {}

    def take(self, entries: list[Entry]) -> None:
        for entry in entries:
            self.head = entry.seq
            if entry.kind != "message":
                continue
            payload = _said(entry)
            delta = fields(fields(payload.get("actions")).get("state_delta"))
            if fields(payload.get("custom_metadata")).get("whole"):
                self.values, self.since, self.changes = {}, entry.seq, 0
            self.values.update(delta)
            self.changes += 1


def _said(entry: Entry) -> Values:
    try:
        return fields(thaw(entry.body))
    except Exception:
        # One that can't be read takes away what it has set, and nothing else.
        return {}


class ScopedStates:
    """All states of a store. Safe to use from many threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: OrderedDict[str, _KnownState] = OrderedDict()
        self._lock = threading.Lock()

    def values(self, key: str, state: SessionState | None = None) -> Values:
        """What is set in this state, a copy; `state` is that of its session where it is known."""
        work = self._store._work
        # Before the lock: nobody waits for a server while another asks it.
        state = state or work.engine.current(work.tenant, key)
        with self._lock:
            known = None if state is None else self._up_to_date(key, state)
            return {} if known is None else copy.deepcopy(known.values)

    def forget(self, key: str) -> None:
        with self._lock:
            self._known.pop(key, None)

    def writes(self, changes: dict[str, Values]) -> list[Write]:
        """What stores these changes, by the key of the state; empty ones cost nothing."""
        made: list[Write] = []
        for key, delta in changes.items():
            if delta:
                with self._lock:
                    made += self._writes(key, delta)
        return made

    def _writes(self, key: str, delta: Values) -> list[Write]:
        known = self._known.get(key) or self._up_to_date(key, None)
        if known is None:
            return self._opening(key, delta)
        # About as many changes as there are values: what a state costs to read, and how
        # often it is told whole, depends on its size and not on its past.
        if known.changes < CHANGES_MIN + len(known.values):
            draft = known.log.message(
                speak(_change(delta, known.since), NAME), turn=None
            )
            return [Write(known.log.id, (draft,))]
        # What is told whole has to be all of it: what others have set since is read
        # first.
        known = self._up_to_date(key, None)
        if known is None:
            return self._opening(key, delta)
        whole = _change({**known.values, **delta}, 0, whole=True)
        draft = known.log.message(speak(whole, NAME), turn=None)
        # Refused if anything was set meanwhile: that would be undone.
        return [Write(known.log.id, (draft,), head=known.head)]

    def _opening(self, key: str, delta: Values) -> list[Write]:
        work = self._store._work
        made = None
        while made is None:
            last = work.engine.current(work.tenant, key)
            made = successor(work, last, key, "replaced")
        spoken = speak(_change(delta, 0), NAME)
        drafts = (*made.opening.drafts, made.session.message(spoken, turn=None))
        opening = made.opening
        first = Write(opening.session, drafts, open=opening.open, admits=opening.admits)
        return [*made.closing, first]

    def _up_to_date(self, key: str, state: SessionState | None) -> _KnownState | None:
        work = self._store._work
        state = state or work.engine.current(work.tenant, key)
        known = self._known.get(key)
        if state is None or state.ended:
            self._known.pop(key, None)
            return None
        if known is None or known.log.id != state.id:
            known = _KnownState(work.session_log(state))
            known.head = self._beginning(known.log, state.head)
            self._known[key] = known
        self._known.move_to_end(key)
        if len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)
        while known.head < state.head:
            page = known.log.page(known.head)
            if not page:
                break
            known.take(page)
        return known

    def _beginning(self, log: SessionLog, head: int) -> int:
        """The seq after which a reader may begin."""
        # The last entry says where to begin. Without it, reading begins with the first.
        for entry in log.page(head - 1, 1):
            beside = fields(_said(entry).get("custom_metadata"))
            if beside.get("whole"):
                return entry.seq - 1
            since = beside.get("since")
            if isinstance(since, int) and 0 < since <= head:
                return since - 1
        return 0


def _change(delta: Values, since: int, *, whole: bool = False) -> Values:
    """A change of state, as an event of the kit."""
    said: Values = {"author": "state", "actions": {"state_delta": delta}}
    if whole:
        return {**said, "custom_metadata": {"whole": True}}
    return {**said, "custom_metadata": {"since": since}} if since else said
