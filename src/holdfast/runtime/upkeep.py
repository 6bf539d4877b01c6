"""The upkeep of a store: what is in it, what is wrong with it, a copy of it.

These are of the whole store, whichever tenant asks: they are for whoever looks after the file.
"""

import os

import msgspec

from holdfast.engine.open import migrate_store, real_path, vacuum_store
from holdfast.engine.protocol import Engine
from holdfast.engine.upkeep import Backup, Problem, StoreInfo
from holdfast.runtime.clock import RealWorld
from holdfast.runtime.drive import Plan, Read


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
    return (yield Read(engine.check, slow=True))


def backup(engine: Engine, to: str | os.PathLike[str]) -> Plan[Backup]:
    """A verified copy of one moment of it, while others write, in a new file."""
    place = os.path.abspath(os.fsdecode(to))
    real_path(place)  # refuses what can't be the name of a file; a link is not followed, for it is something already
    return (yield Read(lambda: engine.backup(place), slow=True))
