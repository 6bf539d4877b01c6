"""Importing the sessions of a foreign store into this one.

Each becomes a session of its own, under an id derived from whose it is, where it comes from and
what it is called there; one that goes on from another shares that one's past, as a fork does,
without a copy. Two that would get the same id and do not agree on what was said are two sessions.
A key that nobody has here gets the session that it means there. One that is in use here keeps the
session it has: an import never takes a name from somebody who uses it.
"""

from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.domain.entry import Closed, Draft, Entry, Opened, note_of, noted
from holdfast.domain.origin import entry_name, session_name
from holdfast.engine.protocol import Opening, SessionState, Write, state_after
from holdfast.errors import Conflict, Damaged
from holdfast.importers.foreign_session import ForeignSession
from holdfast.runtime.live.session_log import SessionLog
from holdfast.runtime.live.tenancy import owned
from holdfast.runtime.store import Store
from holdfast.runtime.transfer.import_session import (
    ImportedSession,
    SessionImport,
    agrees,
    entries_after,
    label_name,
    origin_seq,
    said_in,
    view_name,
)
from holdfast.runtime.transfer.resemblance import Resemblance

TRIES = 5
# The kinds of entries that an import writes.
_BROUGHT = (
    "opened",
    "message",
    "label",
    "instructions",
    "compaction",
    "view",
    "closed",
)


class ImportedStore(msgspec.Struct):
    """What came over: how many sessions were looked at, how many of them are new or have grown, and
    what was added. `empty` sessions have no words, and nothing of them is brought. `notes` say what
    could not be as it was.
    """

    sessions: int = 0
    new: int = 0
    grown: int = 0
    empty: int = 0
    messages: int = 0
    labels: int = 0
    summaries: int = 0
    opaque: int = 0
    notes: list[str] = []


def bring(
    store: Store,
    sessions: Iterable[ForeignSession],
    *,
    source: str = "",
    tell: Callable[[ImportedStore], Any] = lambda so_far: None,
) -> ImportedStore:
    """Imports sessions, parents before what follows from them; `tell` is called after each.
    `source` names the store that they come from: the same one, if it has grown since, or another
    that calls its sessions alike.
    """
    work = _StoreImport(store, source)
    for foreign in sessions:
        work.add(foreign)
        tell(work.done)
    return work.done


class _StoreImport:
    def __init__(self, store: Store, source: str) -> None:
        self._work = store._work
        self._engine = store._work.engine
        self._source = source
        self._resemblance = Resemblance(store)
        self._ids: dict[tuple[str, str], str] = {}
        self.done = ImportedStore(notes=[])

    def add(self, foreign: ForeignSession) -> None:
        done = self.done
        done.sessions += 1
        # Lines can be gone through again: this reads the first one alone.
        first = next(iter(foreign.lines), None)
        if first is None:
            done.empty += 1
            return
        id, known = self._place(foreign, said_in(first))
        self._ids[foreign.kind, foreign.id] = id
        if known is not None and known.erased:
            done.notes.append(
                f"session `{foreign.id}` was erased here, as session `{id}`: it was not brought "
                "back"
            )
            return
        if known is None:
            hint = self._resemblance.hint(foreign, first)
            if hint is not None:
                done.notes.append(hint)
        imported, is_new = self._import(foreign, id)
        if is_new:
            done.new += 1
        elif imported.messages or imported.summaries:
            done.grown += 1
        done.messages += imported.messages
        done.labels += imported.labels
        done.summaries += imported.summaries
        done.opaque += imported.opaque

    def _owned(self, id: str | None) -> SessionState | None:
        return owned(self._engine, self._work.tenant, id)

    def _place(
        self, foreign: ForeignSession, first: list[str]
    ) -> tuple[str, SessionState | None]:
        """The session in which this one goes on, or the id of one that is to be made."""
        tenant = self._work.tenant
        for number in count():
            id = session_name(
                tenant,
                foreign.kind,
                foreign.id,
                first,
                source=self._source,
                number=number,
            )
            state = self._owned(id)
            if state is None or state.erased:
                return id, state
            if agrees(self._work.session_log(state), foreign):
                return id, state
        raise AssertionError("there is always a next number")

    def _import(self, foreign: ForeignSession, id: str) -> tuple[ImportedSession, bool]:
        for left in reversed(range(TRIES)):
            state = self._owned(id)
            if state is None:
                work = self._new(foreign, id)
            else:
                work = SessionImport(self._work.session_log(state), foreign)
            try:
                return work.land(), state is None
            except Conflict:
                # What is there by now is found by its names; nothing comes in twice.
                if not left:
                    raise
        raise AssertionError("the last try returns or raises")

    def _new(self, foreign: ForeignSession, id: str) -> SessionImport:
        at = foreign.opened_at or _first_time(foreign)
        note, before = self._key(foreign)
        opening = Opening(self._work.tenant, note.key, note.epoch)
        parent, shared = self._parent(foreign)
        if parent is not None:
            fence = parent.state().fence
            opening = replace(opening, head=shared, fence=fence, parent=parent.id)
            note = replace(note, parent=parent.id, parent_seq=shared)
        return SessionImport(
            self._work.session_log(state_after(id, opening)),
            foreign,
            opening=opening,
            opened=Draft("opened", None, entry_name(id, "opened", at), at, noted(note)),
            before=before,
        )

    def _parent(self, foreign: ForeignSession) -> tuple[SessionLog | None, int]:
        """The session whose past this one shares, and up to which seq."""
        if foreign.parent is None or foreign.lineage not in ("continues", "branch"):
            return None, 0
        state = self._owned(self._ids.get((foreign.kind, foreign.parent)))
        if state is None:
            self.done.notes.append(
                f"session `{foreign.id}` goes on from `{foreign.parent}`, which is not in this "
                "store"
            )
            return None, 0
        log = self._work.session_log(state)
        seq = None
        if foreign.parent_origin is not None:
            seq = origin_seq(log, foreign.kind, foreign.parent_origin)
        return log, state.head if seq is None else seq

    def _key(self, foreign: ForeignSession) -> tuple[Opened, tuple[Write, ...]]:
        """The key that this session gets, with its epoch and the session before it; and what ends
        that one.
        """
        if foreign.key is None or not foreign.current:
            return Opened(), ()
        now = self._engine.current(self._work.tenant, foreign.key)
        if now is None:
            return Opened(foreign.key), ()
        if not self._was_brought(now):
            self.done.notes.append(
                f"the key `{foreign.key}` is in use here, by session `{now.id}`: session "
                f"`{foreign.id}` came without it"
            )
            return Opened(), ()
        note = Opened(foreign.key, now.epoch + 1, previous=now.id)
        if now.ended:
            return note, ()
        at = foreign.opened_at or now.last_at
        name = entry_name(now.id, "closed", at)
        closed = Draft("closed", None, name, at, noted(Closed("replaced")))
        return note, (Write(now.id, (closed,), close=True, head=now.head, idle=True),)

    def _was_brought(self, state: SessionState) -> bool:
        """Whether a session was brought over and nobody has worked in it since: all that is in it
        came over.
        """
        # A turn was started here, so it is used here.
        if state.fence or state.turn is not None:
            return False
        entries = entries_after(self._engine, state.id, state.origin, bodies=False)
        return all(_came_over(state.id, entry) for entry in entries)


def _first_time(foreign: ForeignSession) -> int:
    for line in foreign.lines:
        if line.at is not None:
            return line.at
    return 0


def _came_over(session: str, entry: Entry) -> bool:
    """Whether an import wrote this entry, as far as its name tells."""
    if entry.kind not in _BROUGHT:
        return False
    # Their ids are not derived from what can be told from the entry.
    if entry.kind in ("instructions", "compaction"):
        return True
    try:
        note: Any = note_of(entry.kind, entry.note)
    except Damaged:
        return False
    if entry.kind == "message":
        if note.origin is None:
            return False
        origin = note.origin.partition(":")[2]
        return entry.id == entry_name(session, origin, entry.at)
    if entry.kind == "label":
        return entry.id == label_name(session, note.message, entry.seq, entry.at)
    if entry.kind == "view":
        return entry.id == view_name(session, entry.seq, entry.at)
    return entry.id == entry_name(session, entry.kind, entry.at)
