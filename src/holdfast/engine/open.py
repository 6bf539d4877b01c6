"""From a place to an engine: a path, `sqlite:///…`, `postgresql://…` or `http://…`.

An engine's modules and its driver are loaded when a store is opened with it: a program that has
only imported Holdfast waits for neither.
"""

import os
from typing import Any

from holdfast.engine.address import Place, is_postgres, is_remote, shown
from holdfast.engine.late_import import loading
from holdfast.engine.protocol import Chance, Engine, Now, Tick, WordsOf
from holdfast.errors import BadArgument, StoreUnavailable


def open_engine(
    where: Place,
    *,
    durability: str,
    tick: Tick,
    now: Now | None = None,
    clock: str = "tick",
    chance: Chance | None = None,
    lock_s: float = 5.0,
    words_of: WordsOf | None = None,
    read_only: bool = False,
    token: str | None = None,
    ca: Place | None = None,
) -> Engine:
    """The engine for this place, made if there is none; one that is `read_only` makes and changes
    nothing.

    `durability` is "power" or "process". Without `words_of` nothing can be searched for. `clock`
    names the clock of `tick`: those that have the same name go alike. `token` and `ca` are for a
    server.
    """
    if durability not in ("power", "process"):
        problem = f"durability {durability!r} is not known"
        raise StoreUnavailable(
            where=shown(where), problem=problem, remedy='Say "power" or "process"'
        )
    if is_remote(where):
        return _remote(where, token, chance, read_only, ca)
    _insist_on_none(token=token, ca=ca)
    if is_postgres(where):
        assert chance is not None, (
            "this engine's stamps must differ from those of other machines"
        )
        made: Engine = _postgres().PostgresEngine(
            os.fsdecode(where),
            durability=durability,
            tick=tick,
            chance=chance,
            words_of=words_of,
            read_only=read_only,
        )
        return made
    if read_only:
        return _reading(where, tick=tick, now=now, clock=clock, words_of=words_of)
    with loading(shown(where)):
        from holdfast.engine.sqlite.engine import SqliteEngine

    return SqliteEngine(
        _place(where),
        durability=durability,
        tick=tick,
        now=now,
        clock=clock,
        lock_s=lock_s,
        words_of=words_of,
    )


def _reading(where: Place, **options: Any) -> Engine:
    # imported here: a program that only writes does not load what only reads
    with loading(shown(where)):
        from holdfast.engine.sqlite.read_only import ReadOnlySqliteEngine

    return ReadOnlySqliteEngine(_place(where), **options)


def _remote(
    where: Place,
    token: str | None,
    chance: Chance | None,
    read_only: bool,
    ca: Place | None,
) -> Engine:
    from holdfast.engine.remote.engine import RemoteEngine

    assert chance is not None, "the ids of its commits must differ from all others"
    return RemoteEngine(where, token=token, chance=chance, read_only=read_only, ca=ca)


def _insist_on_none(**of_servers: object) -> None:
    for name, given in of_servers.items():
        if given is not None:
            takes = "nothing for a store that is not at http://… or https://…"
            raise BadArgument(parameter=name, takes=takes, given=f"a {name}")


def migrate_store(
    where: Place,
    *,
    tick: Tick,
    chance: Chance,
    lock_s: float = 5.0,
) -> tuple[int, int]:
    """Brings the store at this place up to this release's format; the format that it had, and the
    one it has.
    """
    if is_postgres(where):
        versions: tuple[int, int] = _postgres().bring_up(
            os.fsdecode(where), tick=tick, chance=chance
        )
        return versions
    from holdfast.engine.sqlite.engine import bring_up

    return bring_up(_existing(where), lock_s=lock_s)


def vacuum_store(where: Place, *, tick: Tick, lock_s: float = 5.0) -> int:
    """Writes a store anew, without what was erased and without free room; the bytes that this has
    freed.
    """
    if is_postgres(where):
        freed: int = _postgres().vacuum(os.fsdecode(where), tick=tick)
        return freed
    from holdfast.engine.sqlite.engine import vacuum

    return vacuum(_existing(where), lock_s=lock_s)


def is_writable(where: Place) -> bool:
    """Whether this process may write to the store; one that it may only read can be opened
    `read_only`.
    """
    # A server says itself what its token allows.
    if is_remote(where) or is_postgres(where):
        return True
    # The folder counts, too: SQLite makes its log beside the file that a link leads to.
    path = os.path.realpath(os.fsdecode(where).removeprefix("sqlite:///"))
    return os.access(path, os.W_OK) and os.access(os.path.dirname(path), os.W_OK)


def _existing(where: Place) -> str:
    name = _place(where)
    if not os.path.exists(name):
        raise StoreUnavailable(
            where=name, problem="there is no store", remedy="Check the path"
        )
    return name


def _place(where: Place) -> str:
    return real_path(os.fsdecode(where).removeprefix("sqlite:///"))


def _postgres() -> Any:
    """The other engine's module; only who uses it needs its driver."""
    try:
        from holdfast.engine.postgres import engine
    except ImportError as error:
        # another module that is missing is a defect of the installation, and is raised
        # as it is
        if error.name is None or error.name.partition(".")[0] != "psycopg":
            raise
        raise StoreUnavailable(
            where="postgresql",
            problem="its driver is not installed",
            remedy="Run `pip install 'holdfast[postgres]'`",
        ) from error
    return engine


def real_path(name: str) -> str:
    """The one path of a file, whatever it is called: two handles on one store must find the same
    lock and the same log.
    """
    try:
        path = os.path.realpath(name)
        path.encode()
    except ValueError as error:
        problem = f"a file can't have this name ({error})"
        raise StoreUnavailable(
            where=ascii(name),
            problem=problem,
            remedy="Give a path in UTF-8, without NUL",
        ) from None
    return path
