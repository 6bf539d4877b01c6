"""Bringing over: the sessions of a foreign store, into this one.

Each story lands in a session of its own, under an id derived from what it is called where it comes from; one that goes
on from another shares that one's past, as a fork does, without a copy. A key that nobody has here gets the session
that it means there. One that is in use here keeps the session it has: bringing something over never takes a name from
somebody who uses it.
"""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from holdfast.domain.entry import Closed, Draft, Opened, noted
from holdfast.domain.origin import entry_name, session_name
from holdfast.engine.protocol import Opening, SessionState, Write
from holdfast.errors import Conflict
from holdfast.foreign.story import Story
from holdfast.runtime.landing import Landed, Landing, origin_seq, said_in
from holdfast.runtime.room import Room
from holdfast.runtime.store import Store, StoreWork

TRIES = 5


class Brought(msgspec.Struct):
    """What came over: how many sessions were looked at, how many of them are new or have grown, and what was added.
    `empty` sessions have no words, and nothing of them is brought. `notes` say what could not be as it was.
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


def bring(store: Store, stories: Iterable[Story], *, tell: Callable[[Brought], Any] = lambda so_far: None) -> Brought:
    """Brings stories over, parents before what follows from them; `tell` is called after each."""
    return _Bringing(store._work).bring(stories, tell)


class _Bringing:
    def __init__(self, work: StoreWork) -> None:
        self._work, self._engine = work, work.engine
        self._names: dict[tuple[str, str], str] = {}
        self._done = Brought(notes=[])

    def bring(self, stories: Iterable[Story], tell: Callable[[Brought], Any]) -> Brought:
        for story in stories:
            self._one(story)
            tell(self._done)
        return self._done

    def _one(self, story: Story) -> None:
        done = self._done
        done.sessions += 1
        first = next(iter(story.lines), None)
        if first is None:
            done.empty += 1
            return
        id = session_name(story.kind, story.id, said_in(first))
        self._names[story.kind, story.id] = id
        landed, is_new = self._land(story, id)
        done.new += is_new
        done.grown += not is_new and bool(landed.messages or landed.summaries)
        done.messages += landed.messages
        done.labels += landed.labels
        done.summaries += landed.summaries
        done.opaque += landed.opaque

    def _land(self, story: Story, id: str) -> tuple[Landed, bool]:
        for left in reversed(range(TRIES)):
            state = self._engine.state(id)
            try:
                landing = self._landing(story, id) if state is None else self._again(story, state)
                return landing.land(), state is None
            except Conflict:
                if not left:
                    raise
        raise AssertionError("the last try returns or raises")

    def _again(self, story: Story, state: SessionState) -> Landing:
        room = self._work.room(state)
        nothing = Draft("opened", None, b"", 0)
        return Landing(room, story, opened=nothing, opening=None, before=())

    def _landing(self, story: Story, id: str) -> Landing:
        at = story.opened_at or next((line.at for line in story.lines if line.at is not None), 0)
        parent, shared = self._parent(story)
        key, epoch, previous, before = self._key(story)
        head, fence = (shared, parent.state().fence) if parent is not None else (0, 0)
        state = SessionState(
            id=id, tenant=self._work.tenant, key=key, epoch=epoch, ended=False, head=head, fence=fence, turn=None,
            holder=None, lease_left_s=None, opened_at=0, active_at=0, last_at=0, journal=0, origin=head,
        )  # fmt: skip
        past = {"parent": parent.id, "parent_seq": shared} if parent is not None else {}
        note = Opened(key, epoch, previous=previous, **past)  # type: ignore[arg-type]
        opened = Draft("opened", None, entry_name(id, "opened", at), at, noted(note))
        opening = Opening(self._work.tenant, key, epoch, head=head, fence=fence)
        return Landing(self._work.room(state), story, opened=opened, opening=opening, before=before)

    def _parent(self, story: Story) -> tuple[Room | None, int]:
        """The session whose past this one shares, and up to which seq."""
        if story.parent is None or story.lineage not in ("continues", "branch"):
            return None, 0
        state = self._engine.state(self._names.get((story.kind, story.parent), ""))
        if state is None:
            self._done.notes.append(f"session `{story.id}` goes on from `{story.parent}`, which is not in this store")
            return None, 0
        room = self._work.room(state)
        if story.parent_origin is None:
            return room, state.head
        seq = origin_seq(room, story.kind, story.parent_origin)
        return (room, seq) if seq is not None else (room, state.head)

    def _key(self, story: Story) -> tuple[str | None, int, str | None, tuple[Write, ...]]:
        """The key and the epoch this session gets, the session before it, and what ends that one."""
        if story.key is None or not story.current:
            return None, 1, None, ()
        now = self._engine.current(self._work.tenant, story.key)
        if now is None:
            return story.key, 1, None, ()
        if not self._was_brought(now):
            note = f"the key `{story.key}` is in use here, by session `{now.id}`: session `{story.id}` came without it"
            self._done.notes.append(note)
            return None, 1, None, ()
        if now.ended:
            return story.key, now.epoch + 1, now.id, ()
        at = story.opened_at or now.last_at
        closed = Draft("closed", None, entry_name(now.id, "closed", at), at, noted(Closed("replaced")))
        return story.key, now.epoch + 1, now.id, (Write(now.id, (closed,), close=True, head=now.head, idle=True),)

    def _was_brought(self, state: SessionState) -> bool:
        """Whether a session was brought over and nobody has worked in it since: no turn was ever started here."""
        opened = self._engine.entries(state.id, after=state.origin, limit=1)[0]
        return state.fence == 0 and opened.id == entry_name(state.id, "opened", opened.at)
