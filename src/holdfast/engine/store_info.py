"""What can be said of a store as a whole: its size, what is wrong with it, and that it
was copied.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import msgspec

RESTORE = "Keep a copy of the store, then take what is lost from a backup"
REPORT = "Keep a copy of the store and report this; it is a defect"
PROBLEMS_MAX = 1000
"""So many are told of a store, and no more: the first thousand say enough."""


class StoreInfo(msgspec.Struct, frozen=True):
    """What is in a store and how large it is, told without reading it through.

    `sessions` and `entries` are exact, unless the numbers are `estimated`: a large store on a
    server is not counted, its statistics tell. `free_pages` are used again before the file grows;
    `log_pages` wait in the log to be brought into the database. `active_at` is the time of the last
    entry, None in an empty store; `file_system` is None where the system does not tell.
    `replication` is what a server says of its standbys, None for a file.
    """

    where: str
    bytes: int
    files: dict[str, int]
    sessions: int
    entries: int
    tenants: int
    journal_rows: int
    active_at: int | None
    version: int
    engine: str
    page_bytes: int
    pages: int
    free_pages: int
    log_pages: int
    file_system: str | None
    replication: str | None = None
    estimated: bool = False


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is wrong with a store: where, what, which invariant it breaks, and what to do.
    `rule` is its stable name; `session` that of its session, if it has one.
    """

    rule: str
    place: str
    problem: str
    invariant: str | None
    remedy: str
    session: str | None = None

    def __str__(self) -> str:
        broken = f" ({self.invariant})" if self.invariant else ""
        return f"{self.place}: {self.problem}{broken}. {self.remedy}."


class Law(NamedTuple):
    """What must hold in a store. Its query finds where it does not; the first column of a row says
    whose it is, and all of them are words of the sentence.
    """

    query: str
    sentence: str
    invariant: str
    remedy: str = REPORT
    place: Literal["session", "tenant"] = "session"

    def broken(self, row: Sequence[Any]) -> Problem:
        whose = str(row[0])
        return Problem(
            rule=self.query.replace("_", "-"),
            place=f"{self.place} {whose}",
            problem=self.sentence.format(*row),
            invariant=self.invariant,
            remedy=self.remedy,
            session=whose if self.place == "session" else None,
        )


BrokenPart = Literal["missing", "altered"]
"""What is wrong with a large part: it is not there, or not what it was stored as."""


class Backup(msgspec.Struct, frozen=True):
    """A backup that was made and verified: where it is, its size, and how many sessions and entries
    are in it.
    """

    path: str
    bytes: int
    sessions: int
    entries: int
