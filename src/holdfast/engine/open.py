"""From a place to an engine: a path, `sqlite:///…` or `postgresql://…`."""

import os
from collections.abc import Callable

from holdfast.engine.protocol import Engine
from holdfast.engine.sqlite.engine import SqliteEngine
from holdfast.errors import StoreUnavailable


def open_engine(
    where: str | os.PathLike[str], *, durability: str, tick: Callable[[], float], lock_s: float = 5.0
) -> Engine:
    """The engine for this place, made if there is none. `durability` is "power" or "process"."""
    name = os.fspath(where)
    if durability not in ("power", "process"):
        problem = f"durability {durability!r} is not known"
        raise StoreUnavailable(where=name, problem=problem, remedy='Say "power" or "process"')
    if name.startswith(("postgresql://", "postgres://")):
        problem = "this release keeps stores in SQLite only"
        raise StoreUnavailable(where=name, problem=problem, remedy="Give a path")
    if name.startswith("sqlite:///"):
        name = name.removeprefix("sqlite:///")
    return SqliteEngine(os.path.abspath(name), durability=durability, tick=tick, lock_s=lock_s)
