"""A healed Holdfast store: every session laid down in a new file."""

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from holdfast.doctor.finding import Change
from holdfast.doctor.holdfast.heal import Healthy, drafts_of, healed
from holdfast.doctor.holdfast.records import HoldfastRecords, SessionRecord
from holdfast.engine.protocol import Engine, Laid, Opening, Refused, SessionState, Write
from holdfast.engine.sqlite.engine import SqliteEngine

# Entries of one commit: a session is as long as it likes, and memory is not.
PAGE = 500


class Place(msgspec.Struct, frozen=True):
    """Where a session stands among the others: after its parent, and after the one its key meant
    before.
    """

    epoch: int
    is_last: bool
    parent: str | None
    before: str | None


def write_store(records: HoldfastRecords, out: str) -> list[Change]:
    """Lays all sessions down, each after those it depends on; what was changed."""
    rule = "holdfast/damaged-page"
    changes = [
        Change(rule, one.session, one.place, one.before, one.after)
        for one in records.mended
    ]
    # No clock: the same store gives the same bytes whenever it is healed.
    target = SqliteEngine(out, durability="power", tick=lambda: 0.0)
    try:
        states = {state.id: state for state in records.states()}
        places = _places(records, states)
        for id in _ordered(places):
            record = records.record(states[id])
            if not record.entries and not record.lost:
                rule = "holdfast/no-entries"
                place = f"session {id}"
                changes.append(Change(rule, id, place, "no entries", "left out"))
                continue
            changes += _lay(target, record, places[id])
    finally:
        target.close()
    return changes


def _places(
    records: HoldfastRecords, states: dict[str, SessionState]
) -> dict[str, Place]:
    by_key: dict[tuple[str, str], list[SessionState]] = {}
    for state in states.values():
        if state.key is not None:
            by_key.setdefault((state.tenant, state.key), []).append(state)
    found = {}
    for state in states.values():
        line = [state]
        if state.key is not None:
            line = by_key[state.tenant, state.key]
            line.sort(key=lambda each: (each.epoch, each.id))
        at = line.index(state)
        before = line[at - 1].id if at else None
        is_last = at == len(line) - 1
        # Epochs are counted again: two sessions of a damaged store can have one.
        found[state.id] = Place(at + 1, is_last, _parent(records, state), before)
    return found


def _parent(records: HoldfastRecords, state: SessionState) -> str | None:
    """The session that this one shares its past with, if that has all of it."""
    parent = records.parent(state)
    if parent is None or parent.head < state.origin:
        return None
    return parent.id


def _ordered(places: dict[str, Place]) -> Iterable[str]:
    """Those that others depend on first; a ring of them is broken where it is met."""
    # A session without a parent, or the first of its key, waits for nobody.
    done: set[str | None] = {None}
    waiting = sorted(places)
    while waiting:
        ready = []
        for id in waiting:
            if {places[id].parent, places[id].before} <= done:
                ready.append(id)
        ready = ready or waiting[:1]
        yield from ready
        done.update(ready)
        waiting = [id for id in waiting if id not in done]


def _lay(target: Engine, record: SessionRecord, place: Place) -> list[Change]:
    state = record.state
    session = healed(
        record,
        ended=not place.is_last,
        rooted=bool(state.origin) and place.parent is None,
    )
    opening = Opening(
        state.tenant,
        state.key,
        place.epoch,
        head=session.origin,
        fence=session.laid.fence,
        parent=place.parent or state.copied_from,
    )
    head = session.origin
    # Only the last page says how the session stands: to one that has ended nothing is added.
    for at in range(0, len(session.entries), PAGE):
        page = session.entries[at : at + PAGE]
        is_last = at + PAGE >= len(session.entries)
        write = Write(
            state.id,
            drafts_of(page),
            open=None if at else opening,
            head=head,
            idle=True,
            ended_too=True,
            lay=session.laid if is_last else _under_way(session),
        )
        [outcome] = target.commit([(write,)])
        assert not isinstance(outcome, Refused), (
            f"nobody else writes here, and yet it is {outcome.why}"
        )
        head += len(page)
    return session.changes


def _under_way(session: Healthy) -> Laid:
    """How a session stands before its last page."""
    return replace(
        session.laid, base=0, ended=False, erased=False, inbox=(), outbox=(), events=()
    )
