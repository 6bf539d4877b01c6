"""The upkeep of a store: what is in it, what is wrong with it, a copy of it.

These are of the whole store, whichever tenant asks: they are for whoever looks after the file.
"""

import os
from collections.abc import Iterator, Sequence
from itertools import islice

import msgspec

from holdfast.domain.entry import KINDS, Entry, opened_of
from holdfast.domain.log.references import References
from holdfast.engine.open import migrate_store, real_path, vacuum_store
from holdfast.engine.protocol import Engine, SessionState
from holdfast.engine.store_info import PROBLEMS_MAX, Backup, Problem, StoreInfo
from holdfast.errors import Damaged
from holdfast.runtime.clock import RealWorld
from holdfast.runtime.live.damage import readable
from holdfast.runtime.live.lineage import Lineages
from holdfast.runtime.live.session_batches import portions
from holdfast.runtime.plans.plan import Plan, read

PAGE = 500
"""So many sessions are asked about at once,"""
ENTRIES_MAX = 2000
"""as long as they have no more entries together."""
ENTRIES = 200
"""Of one session so many are read at a time: whole entries, with their payloads."""


class Migrated(msgspec.Struct, frozen=True):
    """The number of a store's format, before and after."""

    before: int
    after: int


def migrate(where: str | os.PathLike[str]) -> Migrated:
    """Brings a store of an older release up to date. Opening it does the same."""
    world = RealWorld()
    return Migrated(*migrate_store(where, tick=world.tick, chance=world.chance))


def vacuum(where: str | os.PathLike[str]) -> int:
    """Writes a store anew, without what was erased and without free room; the bytes that this has
    freed.
    """
    return vacuum_store(where, tick=RealWorld().tick)


def info(engine: Engine) -> Plan[StoreInfo]:
    """What is in the store and how large it is; cheap."""
    return (yield from read(engine.info))


def check(engine: Engine) -> Plan[list[Problem]]:
    """All that is wrong with it; nothing is written (I-18). It reads the whole store."""
    problems = yield from read(engine.check, slow=True)
    told = {problem.place for problem in problems}
    # The limit is for both together: what the engine has found comes first.
    left = max(PROBLEMS_MAX - len(problems), 0)
    return problems + (
        yield from read(
            lambda: list(islice(_unreadable(engine, told), left)), slow=True
        )
    )


def _unreadable(engine: Engine, told: set[str]) -> Iterator[Problem]:
    """The entries that can't be read, without those that the engine has told of (I-25). Many
    sessions are read at once: one question for each would take a server with many of them minutes.
    """
    for tenant in engine.tenants():
        before, more = None, True
        while more:
            states = engine.sessions(tenant, before=before, limit=PAGE)
            before, more = (
                (states[-1].active_at, states[-1].id) if states else None,
                len(states) == PAGE,
            )
            asked = [state for state in states if not state.erased]
            for some in portions(asked, entries_max=ENTRIES_MAX):
                pages = _beginnings(engine, some)
                for state in some:
                    # Taken out, so that a page is let go of as soon as it was looked at
                    # (I-24).
                    found = _unreadable_in(engine, state, pages.pop(state.id, []))
                    yield from (
                        problem for problem in found if problem.place not in told
                    )


def _beginnings(
    engine: Engine, states: Sequence[SessionState]
) -> dict[str, list[Entry]]:
    try:
        return engine.beginnings([state.id for state in states], limit=ENTRIES)
    except Damaged:
        return {}  # each is read by itself: those that lie on sound pages have to be looked at


def _unreadable_in(
    engine: Engine, state: SessionState, page: list[Entry]
) -> Iterator[Problem]:
    """What is wrong with one session, whose first page may have been read. What lies on a damaged
    page of the file is the engine's to tell, and it has: by page, with the entries that it hits.
    """
    try:
        yield from _unreadable_entries(engine, state, page)
    except Damaged:
        return


def _unreadable_entries(
    engine: Engine, state: SessionState, page: list[Entry]
) -> Iterator[Problem]:
    after, references = state.origin, References()
    while after < state.head and (
        page := page or engine.entries(state.id, after=after, limit=ENTRIES)
    ):
        problems = {
            entry.seq: problem
            for entry in page
            if (problem := _problem(state, entry)) is not None
        }
        yield from problems.values()
        references.add(page, unreadable=problems)
        after, page = page[-1].seq, []
    # Rare: only then is the log read once more, and the past that it shares.
    if references.missing:
        yield from _names_nobody(engine, state, references)


def _names_nobody(
    engine: Engine, state: SessionState, references: References
) -> Iterator[Problem]:
    """Notes that name a message which is neither in the log nor in the past that it shares."""
    try:
        stretches = Lineages(engine).of(
            state.id, tenant=state.tenant, origin=state.origin
        )
    except Damaged:
        return  # that its past is missing is told by itself
    for session, after, end in stretches:
        upto = state.head if end is None else end
        while after < upto and (
            page := engine.entries(session, after=after, limit=PAGE, bodies=False)
        ):
            references.discharge(entry for entry in page if entry.seq <= upto)
            after = page[-1].seq
    for seq, lost in references.dangling():
        yield Problem(
            rule="names-no-message",
            place=f"session {state.id}, entry {seq}",
            problem=lost,
            invariant="I-1",
            remedy="Nothing else is lost with it; restore the message from a backup",
            session=state.id,
        )


def _problem(state: SessionState, entry: Entry) -> Problem | None:
    place = f"session {state.id}, entry {entry.seq}"
    if entry.kind not in KINDS:
        return Problem(
            rule="unreadable-entry", place=place, session=state.id, invariant="I-25",
            problem=f"it is of a kind that this release does not know ({entry.kind!r:.40})",
            remedy="Open the store with the release that wrote it; until then it is left out",
        )  # fmt: skip
    # It gives the very entry back if that can be read, and a placeholder if not.
    if readable(entry) is not entry:
        return Problem(
            rule="unreadable-entry",
            place=place,
            problem="its note or its payload can't be read",
            invariant="I-25",
            remedy="Restore it from a backup; until then a placeholder is shown in its place",
            session=state.id,
        )
    if (
        entry.kind == "opened"
        and entry.seq == state.origin + 1
        and state.copied_from is None
        and opened_of(entry).parent != state.parent
    ):
        return Problem(
            rule="wrong-parent",
            place=place,
            problem=f"it shares the past of another session than {state.parent}",
            invariant="I-1",
            remedy="Keep a copy of the store and report this; it is a defect",
            session=state.id,
        )
    return None


def backup(engine: Engine, to: str | os.PathLike[str]) -> Plan[Backup]:
    """A verified copy of one moment of it, while others write, in a new file."""
    place = os.path.abspath(os.fsdecode(to))
    # refuses what can't be the name of a file; a link is not followed, for it is something already
    real_path(place)
    return (yield from read(lambda: engine.backup(place), slow=True))
