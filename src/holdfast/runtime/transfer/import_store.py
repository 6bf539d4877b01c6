"""Bringing over: the sessions of a foreign store, into this one.

Each story lands in a session of its own, under an id derived from whose it is, where it comes from
and what it is called there; one that goes on from another shares that one's past, as a fork does,
without a copy. Two stories that would get the same id and do not agree on what was said are two
sessions. A key that nobody has here gets the session that it means there. One that is in use here
keeps the session it has: bringing something over never takes a name from somebody who uses it.
"""

from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

import msgspec

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
    label_name,
    origin_seq,
    said_in,
    view_name,
)
from holdfast.runtime.transfer.resemblance import Resemblance

TRIES = 5
# The kinds of entries that a landing writes.
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
    stories: Iterable[ForeignSession],
    *,
    source: str = "",
    tell: Callable[[ImportedStore], Any] = lambda so_far: None,
) -> ImportedStore:
    """Brings stories over, parents before what follows from them; `tell` is called after each.
    `source` names the store that they come from: the same one, if it has grown since, or another
    that calls its sessions alike.
    """
    return _StoreImport(store, source).bring(stories, tell)


class _StoreImport:
    def __init__(self, store: Store, source: str) -> None:
        self._work, self._engine, self._source = store._work, store._work.engine, source
        self._resemblance = Resemblance(store)
        self._names: dict[tuple[str, str], str] = {}
        self._done = ImportedStore(notes=[])

    def bring(
        self, stories: Iterable[ForeignSession], tell: Callable[[ImportedStore], Any]
    ) -> ImportedStore:
        for story in stories:
            self._one(story)
            tell(self._done)
        return self._done

    def _one(self, story: ForeignSession) -> None:
        done = self._done
        done.sessions += 1
        first = next(iter(story.lines), None)
        if first is None:
            done.empty += 1
            return
        id, known = self._place(story, said_in(first))
        self._names[story.kind, story.id] = id
        if known is not None and known.erased:
            done.notes.append(
                f"session `{story.id}` was erased here, as session `{id}`: it was not brought back"
            )
            return
        if known is None and (hint := self._resemblance.hint(story, first)) is not None:
            done.notes.append(hint)
        landed, is_new = self._land(story, id)
        done.new += is_new
        done.grown += not is_new and bool(landed.messages or landed.summaries)
        done.messages += landed.messages
        done.labels += landed.labels
        done.summaries += landed.summaries
        done.opaque += landed.opaque

    def _place(
        self, story: ForeignSession, first: list[str]
    ) -> tuple[str, SessionState | None]:
        """The session in which this story goes on, or the id of one that is to be made."""
        tenant = self._work.tenant
        for number in count():
            id = session_name(
                tenant, story.kind, story.id, first, source=self._source, number=number
            )
            state = owned(self._engine, tenant, id)
            if (
                state is None
                or state.erased
                or agrees(self._work.session_log(state), story)
            ):
                return id, state
        raise AssertionError("there is always a next number")

    def _land(self, story: ForeignSession, id: str) -> tuple[ImportedSession, bool]:
        for left in reversed(range(TRIES)):
            state = owned(self._engine, self._work.tenant, id)
            try:
                landing = (
                    self._session_import(story, id)
                    if state is None
                    else self._again(story, state)
                )
                return landing.land(), state is None
            except Conflict:
                if not left:
                    raise
        raise AssertionError("the last try returns or raises")

    def _again(self, story: ForeignSession, state: SessionState) -> SessionImport:
        room = self._work.session_log(state)
        nothing = Draft("opened", None, b"", 0)
        return SessionImport(room, story, opened=nothing, opening=None, before=())

    def _session_import(self, story: ForeignSession, id: str) -> SessionImport:
        at = story.opened_at or next(
            (line.at for line in story.lines if line.at is not None), 0
        )
        parent, shared = self._parent(story)
        key, epoch, previous, before = self._key(story)
        head, fence = (shared, parent.state().fence) if parent is not None else (0, 0)
        opening = Opening(
            self._work.tenant,
            key,
            epoch,
            head=head,
            fence=fence,
            parent=parent.id if parent is not None else None,
        )
        past = {"parent": parent.id, "parent_seq": shared} if parent is not None else {}
        note = Opened(key, epoch, previous=previous, **past)  # type: ignore[arg-type]
        opened = Draft("opened", None, entry_name(id, "opened", at), at, noted(note))
        return SessionImport(
            self._work.session_log(state_after(id, opening)),
            story,
            opened=opened,
            opening=opening,
            before=before,
        )

    def _parent(self, story: ForeignSession) -> tuple[SessionLog | None, int]:
        """The session whose past this one shares, and up to which seq."""
        if story.parent is None or story.lineage not in ("continues", "branch"):
            return None, 0
        state = owned(
            self._engine, self._work.tenant, self._names.get((story.kind, story.parent))
        )
        if state is None:
            self._done.notes.append(
                f"session `{story.id}` goes on from `{story.parent}`, which is not in this store"
            )
            return None, 0
        room = self._work.session_log(state)
        if story.parent_origin is None:
            return room, state.head
        seq = origin_seq(room, story.kind, story.parent_origin)
        return (room, seq) if seq is not None else (room, state.head)

    def _key(
        self, story: ForeignSession
    ) -> tuple[str | None, int, str | None, tuple[Write, ...]]:
        """The key and the epoch this session gets, the session before it, and what ends
        that one.
        """
        if story.key is None or not story.current:
            return None, 1, None, ()
        now = self._engine.current(self._work.tenant, story.key)
        if now is None:
            return story.key, 1, None, ()
        if not self._was_brought(now):
            note = (
                f"the key `{story.key}` is in use here, by session `{now.id}`: session "
                f"`{story.id}` came without it"
            )
            self._done.notes.append(note)
            return None, 1, None, ()
        if now.ended:
            return story.key, now.epoch + 1, now.id, ()
        at = story.opened_at or now.last_at
        closed = Draft(
            "closed",
            None,
            entry_name(now.id, "closed", at),
            at,
            noted(Closed("replaced")),
        )
        return (
            story.key,
            now.epoch + 1,
            now.id,
            (Write(now.id, (closed,), close=True, head=now.head, idle=True),),
        )

    def _was_brought(self, state: SessionState) -> bool:
        """Whether a session was brought over and nobody has worked in it since: all that is in it
        came over.
        """
        if state.fence or state.turn is not None:
            return False
        after = state.origin
        while page := self._engine.entries(state.id, after=after, bodies=False):
            if not all(_came_over(state.id, entry) for entry in page):
                return False
            after = page[-1].seq
        return True


def _came_over(session: str, entry: Entry) -> bool:
    """Whether a landing wrote this entry, as far as its name tells."""
    if entry.kind not in _BROUGHT:
        return False
    if entry.kind in ("instructions", "compaction"):
        return True
    try:
        note: Any = note_of(entry.kind, entry.note)
    except Damaged:
        return False
    if entry.kind == "message":
        return note.origin is not None and entry.id == entry_name(
            session, note.origin.partition(":")[2], entry.at
        )
    if entry.kind == "label":
        return entry.id == label_name(session, note.message, entry.seq, entry.at)
    if entry.kind == "view":
        return entry.id == view_name(session, entry.seq, entry.at)
    return entry.id == entry_name(session, entry.kind, entry.at)
