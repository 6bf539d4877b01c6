"""The upkeep of a store: what is in it, what is wrong with it, a copy of it.

These are of the whole store, whichever tenant asks: they are for whoever looks after the file.
"""

import os
from collections.abc import Iterator

import msgspec

from holdfast.engine.open import migrate_store, real_path, vacuum_store
from holdfast.engine.protocol import Engine, SessionState
from holdfast.engine.upkeep import Backup, Problem, StoreInfo
from holdfast.runtime.clock import RealWorld
from holdfast.runtime.damage import readable
from holdfast.runtime.drive import Plan, Read

PAGE = 1000
ENTRIES = 200
"""Whole entries, with their payloads: fewer at a time."""


class Migrated(msgspec.Struct, frozen=True):
    """The number of a store's format, before and after."""

    before: int
    after: int


def migrate(where: str | os.PathLike[str]) -> Migrated:
    """Brings a store of an older release up to date. Opening it does the same."""
    world = RealWorld()
    return Migrated(*migrate_store(where, tick=world.tick, chance=world.chance))


def vacuum(where: str | os.PathLike[str]) -> int:
    """Has a PostgreSQL server write its tables anew, without what was erased; the bytes that this has freed."""
    return vacuum_store(where, tick=RealWorld().tick)


def info(engine: Engine) -> Plan[StoreInfo]:
    """What is in the store and how large it is; cheap."""
    return (yield Read(engine.info))


def check(engine: Engine) -> Plan[list[Problem]]:
    """All that is wrong with it; nothing is written (I-18). It reads the whole store."""
    problems = yield Read(engine.check, slow=True)
    told = {problem.session for problem in problems}
    return problems + (yield Read(lambda: list(_unreadable(engine, told)), slow=True))


def _unreadable(engine: Engine, told: set[str | None]) -> Iterator[Problem]:
    """The entries that can't be read, of sessions that the engine has told nothing of (I-25)."""
    for tenant in engine.tenants():
        before = None
        while states := engine.sessions(tenant, before=before, limit=PAGE):
            before = (states[-1].active_at, states[-1].id)
            for state in states:
                if state.id not in told and not state.erased:
                    yield from _unreadable_in(engine, state)


def _unreadable_in(engine: Engine, state: SessionState) -> Iterator[Problem]:
    after = state.origin
    while after < state.head and (page := engine.entries(state.id, after=after, limit=ENTRIES)):
        after = page[-1].seq
        for entry in page:
            if readable(entry) is not entry:
                yield Problem(
                    rule="unreadable-entry", place=f"session {state.id}, entry {entry.seq}",
                    problem="its note or its payload can't be read", invariant="I-25",
                    remedy="Restore it from a backup; until then a placeholder is shown in its place", session=state.id,
                )  # fmt: skip


def backup(engine: Engine, to: str | os.PathLike[str]) -> Plan[Backup]:
    """A verified copy of one moment of it, while others write, in a new file."""
    place = os.path.abspath(os.fsdecode(to))
    real_path(place)  # refuses what can't be the name of a file; a link is not followed, for it is something already
    return (yield Read(lambda: engine.backup(place), slow=True))
