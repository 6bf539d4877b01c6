"""The tables of a damaged store, row by row in a new file, which the doctor reads in its place.

SQLite finds a row by its indexes. A damaged one hides rows that are whole, or hands out others in
their place, without a word. So the tables are walked by the numbers of their rows, past whatever
can't be read, and all indexes are made anew. A name that no session can have is mended on the way;
where an entry stands is decided in `places`.
"""

import json
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import apsw
import msgspec

from holdfast.doctor.holdfast.places import Places, rows_max, settle_places
from holdfast.domain.entry import Opened, note_of
from holdfast.domain.ids import is_session_id
from holdfast.domain.origin import session_name
from holdfast.engine.sqlite.driver_errors import TROUBLE, translate, translated
from holdfast.engine.sqlite.engine import SqliteEngine
from holdfast.engine.sqlite.queries import UPKEEP
from holdfast.engine.sqlite.row_codec import UNREADABLE
from holdfast.engine.sqlite.spoilt_texts import as_bytes, cells_of, text_in
from holdfast.errors import Damaged
from holdfast.importers.damaged_rows import Lost, Walk, named
from holdfast.importers.values import Row
from holdfast.stepping_connection import SteppingConnection

_NUMBERED = ("blob", "journal_a", "journal_b")
_KEYED = ("blob_use", "inbox", "outbox", "event", "store")
"""Tables without row numbers: their rows lie in the order of their keys."""
_NUMBERS = ("ended", "fence", "journal", "base", "origin", "opened_at", "active_at")


class Mended(msgspec.Struct, frozen=True):
    """What is not in the rebuilt file as it was in the store."""

    session: str
    place: str
    before: str
    after: str


def rebuild(source: str, target: str) -> list[Mended]:
    """Makes a sound file of all that can be read of a damaged one. `Damaged` where it has no
    tables of ours to read.
    """
    with translated(target):
        SqliteEngine(target, durability="process", tick=lambda: 0.0).close()
        with (
            closing(
                SteppingConnection(source, flags=apsw.SQLITE_OPEN_READONLY)
            ) as here,
            closing(SteppingConnection(target)) as there,
        ):
            _insist_on_columns(here, source)
            # A file of our own that nobody needs after a crash; its constraints are those of a
            # store that is whole.
            there.execute(
                "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA temp_store=FILE; "
                "PRAGMA ignore_check_constraints=1"
            ).fetchall()
            return _Rebuilding(here, there).mended


def _insist_on_columns(here: apsw.Connection, source: str) -> None:
    try:
        here.execute(UPKEEP["columns"]).fetchall()
    except apsw.SQLError as error:
        raise translate(error, source) from error
    # What else is wrong is met row by row.
    except apsw.Error:
        pass


class _Rebuilding:
    def __init__(self, here: apsw.Connection, there: apsw.Connection) -> None:
        self._here = here
        self._there = there
        self.mended: list[Mended] = []
        indexes: list[Any] = there.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql NOT NULL"
        ).fetchall()
        for name, _ in indexes:
            there.execute(f"DROP INDEX {name}")
        for table in (*_NUMBERED, *_KEYED):
            self._copy(table)
        sessions = self._sessions()
        self._copy_entries()
        moved = self._mend_origins(sessions)
        moved += settle_places(here, there, _origins(sessions))
        # After that: an entry that only seems to be of no session has found its own.
        if self._revive(sessions):
            moved += self._mend_origins(sessions)
            moved += settle_places(here, there, _origins(sessions))
        there.execute(
            "DELETE FROM entry WHERE session NOT IN (SELECT value FROM json_each(?))",
            (json.dumps(list(sessions)),),
        )
        names = _Names(here, there, sessions)
        for n, row in sessions.items():
            self.mended += names.mend(n)
            self._insert("session", {"n": n, **row})
        self._tell(moved, sessions)
        for _, sql in indexes:
            # Two sessions of a damaged store can have one epoch.
            there.execute(sql.replace("UNIQUE INDEX session_by", "INDEX session_by"))

    def _tell(self, moved: Places, sessions: dict[int, dict[str, Any]]) -> None:
        for session, place, before, after in moved:
            id = sessions[session]["id"] if session in sessions else ""
            self.mended.append(Mended(id, place, before, after))

    def _columns(self, table: str) -> list[str]:
        rows: list[Any] = self._there.execute(f"PRAGMA table_info({table})").fetchall()
        return [row[1] for row in rows]

    def _copy(self, table: str) -> None:
        columns = self._columns(table)
        rows = self._walked if table in _NUMBERED else self._from_both_ends
        for row in rows(table, columns):
            if not any(isinstance(cell, Lost) for cell in row):
                self._insert(table, dict(zip(columns, row, strict=True)))

    def _insert(self, table: str, row: dict[str, Any]) -> None:
        marks = ", ".join("?" * len(row))
        # A row that no table of ours can have is left out.
        with suppress(apsw.ConstraintError):
            self._there.execute(
                f"INSERT OR REPLACE INTO {table} ({', '.join(row)}) VALUES ({marks})",
                tuple(row.values()),
            )

    def _walked(self, table: str, columns: list[str]) -> Iterator[Row]:
        walk = Walk(self._here, table, as_bytes(columns), lambda gap: None)
        for _, *cells in walk.rows():
            yield cells_of(cells)

    def _from_both_ends(self, table: str, columns: list[str]) -> Iterator[Row]:
        """All rows before the first that can't be read, and behind the last."""
        keys = [
            row[1]
            for row in self._there.execute(f"PRAGMA table_info({table})").fetchall()
            if row[5]
        ]
        for order in ("ASC", "DESC"):
            place = ", ".join(f"{key} {order}" for key in keys)
            sql = f"SELECT {', '.join(as_bytes(columns))} FROM {table} ORDER BY {place}"
            try:
                for row in self._here.execute(sql):
                    yield cells_of(row)
            except TROUBLE:
                continue
            return

    def _sessions(self) -> dict[int, dict[str, Any]]:
        columns = self._columns("session")
        found = {}
        for row in self._walked("session", columns):
            values = dict(zip(columns, row, strict=True))
            for name, value in values.items():
                if isinstance(value, Lost):
                    values[name] = None
            for name in _NUMBERS:
                if type(values[name]) is not int:
                    values[name] = 0
            if type(values["epoch"]) is not int or values["epoch"] < 1:
                values["epoch"] = 1
            found[values.pop("n")] = values
        return found

    def _mend_origins(self, sessions: dict[int, dict[str, Any]]) -> Places:
        """A past that is longer than the file can hold is none: where a session begins is told by
        its first entry then.
        """
        most = rows_max(self._here)
        firsts: dict[int, int] = dict(
            self._there.execute(
                "SELECT session, min(seq) FROM entry WHERE seq > 0 GROUP BY session"
            )
        )
        mended = []
        for n, row in sessions.items():
            origin = row["origin"]
            if 0 <= origin <= most:
                continue
            first = firsts.get(n, 1)
            row["origin"] = first - 1 if first <= most else 0
            told, found = f"begins behind entry {origin}", row["origin"]
            mended.append((n, "its row", told, f"begins behind entry {found}"))
        return mended

    def _revive(self, sessions: dict[int, dict[str, Any]]) -> bool:
        """A session whose row is lost is known by its entries; whether there is one."""
        count = len(sessions)
        rows: list[Any] = self._there.execute(
            "SELECT session, min(seq) - 1, max(turn), min(at), max(at), max(kind = 'erased'), "
            "max(kind = 'closed') FROM entry WHERE session > 0 GROUP BY session"
        ).fetchall()
        for n, origin, fence, opened_at, active_at, erased, closed in rows:
            if n not in sessions:
                sessions[n] = dict.fromkeys(self._columns("session")[1:]) | {
                    "epoch": 1,
                    "ended": 2 if erased else int(closed),
                    "fence": fence if type(fence) is int else 0,
                    "journal": 0,
                    "base": 0,
                    "origin": max(origin, 0),
                    "opened_at": opened_at,
                    "active_at": active_at,
                    "key": Lost("its row is lost"),
                }
        return len(sessions) > count

    def _copy_entries(self) -> None:
        """An entry of which anything can't be read says nothing but its place."""
        columns = self._columns("entry")
        for row in self._walked("entry", columns):
            entry = dict(zip(columns, row, strict=True))
            whole = type(entry["kind"]) is str and type(entry["id"]) is bytes
            whole = whole and type(entry["at"]) is int
            if not whole or any(isinstance(cell, Lost) for cell in row):
                entry |= {"kind": "", "turn": None, "id": b"", "at": 0}
                entry |= {"note": UNREADABLE, "body": UNREADABLE}
            for place in ("session", "seq"):
                if type(entry[place]) is not int:
                    entry[place] = 0
            self._insert("entry", entry)


def _origins(sessions: dict[int, dict[str, Any]]) -> dict[int, int]:
    return {n: row["origin"] for n, row in sessions.items()}


class _Names:
    """The names of sessions: their ids, tenants and keys. One that can't be read is taken from an
    index that still has it, or from what else is known; else it is made up from what is left.
    """

    def __init__(
        self,
        here: apsw.Connection,
        there: apsw.Connection,
        sessions: dict[int, dict[str, Any]],
    ) -> None:
        self._here = here
        self._there = there
        self._sessions = sessions
        self._used: set[str] = set()
        self._tenants = {
            row["tenant"]
            for row in sessions.values()
            if type(row["tenant"]) is str and row["tenant"]
        }

    def mend(self, n: int) -> Iterator[Mended]:
        """Gives a session names that it can have; tells those that it had not."""
        row = self._sessions[n]
        before = {name: row[name] for name in ("id", "tenant", "key")}
        if not self._is_id(row["id"]):
            row["id"] = self._id(n, row["id"])
        self._used.add(row["id"])
        if type(row["tenant"]) is not str or not row["tenant"]:
            row["tenant"] = self._tenant(n, row["tenant"])
        if isinstance(row["key"], Lost):
            row["epoch"] = self._epoch(n)
        if type(row["key"]) not in (str, type(None)):
            row["key"] = self._key(n, row["key"])
        for name, was in before.items():
            if was != row[name]:
                place = f"the {name} of session {row['id']}"
                is_lost = was is None or isinstance(was, Lost)
                said = "none that can be read" if is_lost else named(was)
                yield Mended(row["id"], place, said, str(row[name]))

    def _is_id(self, id: Any) -> bool:
        return is_session_id(id) and id not in self._used

    def _id(self, n: int, was: Any) -> str:
        told = self._told(n, "id", "sqlite_autoindex_session_1")
        for id in (text_in(was), told):
            if self._is_id(id) and id is not None and not self._is_anothers(n, id):
                return id
        number = 0
        while True:
            id = session_name("", "holdfast", named(was), [str(n)], number=number)
            if not self._is_anothers(n, id) and self._is_id(id):
                return id
            number += 1

    def _is_anothers(self, n: int, id: str) -> bool:
        return any(row["id"] == id for m, row in self._sessions.items() if m != n)

    def _tenant(self, n: int, was: Any) -> str:
        told = text_in(was) or self._told(n, "tenant", "session_by_key")
        if told:
            return told
        near = [one for one in self._tenants if _is_one_bit_away(one.encode(), was)]
        if len(near) == 1:
            return near[0]
        if isinstance(was, bytes) and was:
            return was.decode(errors="replace")
        return next(iter(self._tenants)) if len(self._tenants) == 1 else "default"

    def _key(self, n: int, was: Any) -> str | None:
        told = text_in(was) or self._told(n, "key", "session_by_key")
        if told is not None:
            return told
        opened = self._opened(n)
        if opened is not None:
            return opened.key
        return was.decode(errors="replace") if isinstance(was, bytes) else None

    def _epoch(self, n: int) -> int:
        opened = self._opened(n)
        return max(opened.epoch or 1, 1) if opened is not None else 1

    def _opened(self, n: int) -> Opened | None:
        """What its first entry says of a session."""
        with suppress(Damaged, ValueError, TypeError):
            note = self._there.execute(
                "SELECT note FROM entry WHERE session = ? AND kind = 'opened' ORDER BY n",
                (n,),
            ).get
            opened: Opened = note_of("opened", note)
            return opened
        return None

    def _told(self, n: int, column: str, index: str) -> str | None:
        """What an index of the damaged file says of a session; None where it can't be read."""
        try:
            rows: Any = self._here.execute(
                f"SELECT CAST({column} AS BLOB), n FROM session INDEXED BY {index}"
            )
            for value, number in rows:
                if number == n:
                    return text_in(value)
        except TROUBLE:
            pass
        return None


def _is_one_bit_away(one: bytes, other: Any) -> bool:
    if not isinstance(other, bytes) or len(one) != len(other):
        return False
    apart = int.from_bytes(one, "big") ^ int.from_bytes(other, "big")
    return apart.bit_count() == 1
