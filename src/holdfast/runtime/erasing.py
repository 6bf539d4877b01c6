"""Erasing sessions: previewed, whole, and with an audit entry (I-21).

All words of a session go, wherever the store keeps them; its entries stay as tombstones, and the last one says what was
taken and when. What runs in it is stopped first. A fork has its past in common with its parent: it loses what its
parent loses, and keeps what is its own. Copies of its messages in the sessions they were carried along from go too.
"""

from collections.abc import Callable, Iterable
from functools import partial

import msgspec

from holdfast.domain.entry import Erased, opened_of
from holdfast.domain.erasure import tombstone
from holdfast.engine.protocol import Engine, Refused, SessionState, Ticket, Write
from holdfast.runtime.carried import Copies, blanking, copies
from holdfast.runtime.drive import Plan, Read
from holdfast.runtime.recovery import settle, settle_if_dead
from holdfast.runtime.room import PAGE, Room

DAY_MS = 86_400_000
BATCH = 100


class Erasure(msgspec.Struct, frozen=True):
    """What erasing a session takes, or has taken when `done`. `bytes` are those of its entries; `blobs` counts large
    parts that no other session has; `forks` are sessions that share its past and lose that; `copies` are sessions that
    lose the messages they carried along to it, and nothing else.
    """

    session_id: str
    key: str | None
    entries: int
    messages: int
    bytes: int
    blobs: int
    forks: tuple[str, ...]
    copies: tuple[str, ...]
    active_at: int
    done: bool


def erase(room: Room, *, preview: bool, reason: str = "asked for") -> Plan[Erasure]:
    """Takes all words of this session out of the store. Erasing again finds nothing more, and cleans the file again."""
    state = yield from _at_rest(room) if not preview else settle_if_dead(room)
    parents = yield Read(partial(_parents, room))
    if preview:
        return (yield Read(lambda: _weighed(room, state, parents, copies(room, state))))
    while True:
        erasure, ticket = yield Read(partial(_submit, room, state, parents, reason))
        outcome = yield ticket
        if not isinstance(outcome, Refused):
            return msgspec.structs.replace(erasure, done=True)
        state = yield from _at_rest(room)


def retain(
    engine: Engine, tenant: str, room: Callable[[SessionState], Room], *, now: int, days: float, preview: bool
) -> Plan[list[Erasure]]:
    """Erases the sessions that had no news for so many days; never one that is running, nor one whose past a younger
    session shares.
    """
    cutoff = int(now - days * DAY_MS)
    parents = yield Read(partial(_all_parents, engine, tenant))
    young = yield Read(partial(_ancestors_of_young, engine, parents, cutoff))
    found: list[Erasure] = []
    before = (cutoff, "")
    while states := (yield Read(partial(engine.sessions, tenant, before=before, limit=BATCH))):
        before = (states[-1].active_at, states[-1].id)
        old = [state for state in states if _is_over(state, cutoff) and state.id not in young]
        rooms, reason = [room(state) for state in old], f"no news for {days:g} days"
        if preview:
            found += yield Read(partial(_all_weighed, rooms, parents))
        else:
            found += yield from _all_of(rooms, parents, cutoff, reason)
    return found


def _is_over(state: SessionState, cutoff: int) -> bool:
    return not state.erased and state.turn is None and max(state.active_at, state.last_at) < cutoff


def _all_weighed(rooms: list[Room], parents: dict[str, str]) -> list[Erasure]:
    return [_weighed(room, state := room.state(), parents, copies(room, state)) for room in rooms]


def _all_of(rooms: list[Room], parents: dict[str, str], cutoff: int, reason: str) -> Plan[list[Erasure]]:
    """Many at once: they share a transaction, and the file is cleaned once. One that has news meanwhile is kept; that
    another erasure has taken copies out of it is none.
    """
    done: list[Erasure] = []
    while rooms:
        tickets = yield Read(partial(_submit_all, rooms, parents, cutoff, reason))
        rooms = []
        for room, erasure, ticket in tickets:
            if isinstance((yield ticket), Refused):
                rooms.append(room)
            else:
                done.append(msgspec.structs.replace(erasure, done=True))
    return done


def _submit_all(
    rooms: list[Room], parents: dict[str, str], cutoff: int, reason: str
) -> list[tuple[Room, Erasure, Ticket]]:
    states = [(room, room.state()) for room in rooms]
    return [(room, *_submit(room, state, parents, reason)) for room, state in states if _is_over(state, cutoff)]


def _at_rest(room: Room) -> Plan[SessionState]:
    """The session's state, once nothing runs in it."""
    while True:
        state = yield from settle_if_dead(room)
        if state.turn is None:
            return state
        yield from settle(room, state, end="interrupted", reason="stopped: the session is erased")


def _submit(room: Room, state: SessionState, parents: dict[str, str], reason: str) -> tuple[Erasure, Ticket]:
    found = copies(room, state)
    weighed = _weighed(room, state, parents, found)
    note = Erased(weighed.entries, weighed.messages, weighed.bytes, reason)
    erasing = Write(
        room.id,
        drafts=(room.draft("erased", note),),
        head=state.head,
        idle=True,
        ended_too=True,
        close=True,
        erase=tuple(_tombstones(room, state)),
    )
    return weighed, room.engine.submit((erasing, *(blanking(room, each) for each in found)))


def _tombstones(room: Room, state: SessionState) -> Iterable[tuple[int, bytes]]:
    after = state.origin
    while page := room.engine.entries(room.id, after=after, limit=PAGE, bodies=False):
        after = page[-1].seq
        yield from ((entry.seq, tombstone(entry)) for entry in page)


def _weighed(room: Room, state: SessionState, parents: dict[str, str], found: list[Copies]) -> Erasure:
    weight = room.engine.weigh(room.id)
    forks = tuple(sorted(child for child, parent in parents.items() if parent == room.id))
    lose = tuple(sorted(each.state.id for each in found if each.is_news))
    counts = weight.entries, weight.messages, weight.bytes, weight.blobs
    return Erasure(room.id, room.key, *counts, forks, lose, state.active_at, done=False)


def _parents(room: Room) -> dict[str, str]:
    return _all_parents(room.engine, room.tenant)


def _all_parents(engine: Engine, tenant: str) -> dict[str, str]:
    """Each fork and the session whose past it shares."""
    found: dict[str, str] = {}
    for fork in engine.forks(tenant):
        opened = engine.entries(fork.id, after=fork.origin, limit=1)[0]
        parent = opened_of(opened).parent
        if parent is not None:
            found[fork.id] = parent
    return found


def _ancestors_of_young(engine: Engine, parents: dict[str, str], cutoff: int) -> set[str]:
    """The sessions whose past a session with news since then still needs."""
    needed: set[str] = set()
    for fork in parents:
        state = engine.state(fork)
        if state is None or _is_over(state, cutoff) or state.erased:
            continue
        ancestor = parents.get(fork)
        while ancestor is not None and ancestor not in needed:
            needed.add(ancestor)
            ancestor = parents.get(ancestor)
    return needed
