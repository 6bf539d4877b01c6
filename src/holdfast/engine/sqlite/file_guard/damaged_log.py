"""A store whose write-ahead log is damaged is not opened: SQLite would drop what was committed behind
the damage, and the next writer would write over it.

Who asks for no more than to survive a killed process has not synced the log: a power cut leaves gaps
in it that look like damage. Such a store is opened, and what is dropped of its log is kept beside it.
"""

import os
import time
import warnings

import apsw

from holdfast.engine.sqlite.file_guard.open_files import unusable
from holdfast.errors import Damaged
from holdfast.write_ahead_log import LogDamage, log_damage

LOOKS = 3
PAUSE_S = 0.02


def refuse_damaged_log(
    connection: apsw.Connection, path: str, *, durability: str
) -> None:
    """Under the fair lock, before anything is written: as far as SQLite has read the log, it is
    whole; what lies behind that is looked at. Raises the driver's errors.
    """
    # it reads the log with the first question
    page_bytes = connection.execute("PRAGMA page_size").get
    connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
    good, _ = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
    if good < 0:
        return  # it has no log yet
    damage = _damage(path, page_bytes=page_bytes, good=good)
    if damage is None:
        return
    if durability == "power":
        raise _refusal(path, damage)
    kept = _kept(path + "-wal")
    warnings.warn(
        f"{damage.place} of the write-ahead log of {path} is damaged, or a power cut has left a "
        f"gap there. The {damage.behind} frames behind it are not read; a copy of the log is kept "
        f"in {kept}.",
        RuntimeWarning,
        stacklevel=2,
    )


def refuse_damaged_log_unlocked(path: str, *, page_bytes: int) -> None:
    """The same for those who only look. Others may be writing the log: what is not so any more at
    a second look was not damage.
    """
    for _ in range(LOOKS):
        before = _stamp(path)
        damage = _damage(path, page_bytes=page_bytes)
        if damage is None:
            return
        # longer than two writes can have one time
        time.sleep(PAUSE_S)
        if before == _stamp(path):
            raise _refusal(path, damage)


def _damage(path: str, *, page_bytes: int, good: int = 0) -> LogDamage | None:
    try:
        return log_damage(path + "-wal", page_bytes=page_bytes, good=good)
    except OSError as error:
        remedy = "Check the files beside it, then try again"
        raise unusable(
            error, path, remedy, "its write-ahead log can't be read"
        ) from error


def _kept(log: str) -> str:
    """A copy of the log, where there is none yet; its rights are those of the log."""
    import shutil  # not before a log is damaged

    number = 1
    while os.path.lexists(kept := f"{log}-damaged-{number}"):
        number += 1
    shutil.copy(log, kept)
    return kept


def _refusal(path: str, damage: LogDamage) -> Damaged:
    problem = (
        f"{damage.place} of its write-ahead log is, and SQLite would drop the {damage.behind} "
        "frames behind it, which hold what was committed last"
    )
    remedy = (
        f"keep a copy of it and of {path}-wal, then run `holdfast doctor {path} --heal OUT`, which "
        "reads them"
    )
    return Damaged(where=path, problem=problem, remedy=remedy)


def _stamp(path: str) -> tuple[int, ...] | None:
    try:
        found = os.stat(path + "-wal")
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
