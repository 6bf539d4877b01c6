"""goose's stores: `sessions.db`, the JSON lines of its first releases, and what it exports.

All three are one kind to whoever reads them. A store is copied, opened in the copy, and told
session by session.
"""

import os
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path

from holdfast.errors import StoreUnavailable
from holdfast.importers.damaged_rows import TROUBLE
from holdfast.importers.foreign_session import (
    ForeignLines,
    ForeignMessage,
    ForeignSession,
)
from holdfast.importers.goose.convert import foreign_session, lines_of
from holdfast.importers.goose.database import GooseDatabase
from holdfast.importers.goose.files import (
    GooseExport,
    GooseLegacy,
    is_export,
    is_header,
    is_message,
)
from holdfast.importers.goose.records import GooseRow, GooseSession, GooseStore
from holdfast.importers.jsonl import first_values, parsed
from holdfast.importers.private_copy import PrivateCopy, is_live, is_sqlite, read_start
from holdfast.importers.reader import ForeignReader, UnreadableRecord
from holdfast.importers.sqlite_file import RECOVER, UNREADABLE, has_columns, opening
from holdfast.importers.values import JsonObject

_START = 1 << 20
_RAW_MAX = 1 << 16
# So many lines are looked at where the header is not one.
_FIRST = 5
_NEEDED = {"messages": {"session_id", "content_json", "created_timestamp"}}
_TABLE_WORDS = (b"content_json", b"created_timestamp")


def recognises(path: Path) -> bool:
    """Whether a path is a store of goose, by what is in it."""
    try:
        return path.is_file() and (
            _is_database(path) or _is_export(path) or _is_legacy(path)
        )
    except OSError:
        return False


class GooseReader(ForeignReader):
    """A store of goose. `live`: some process has it open, and what is last in it may be
    under way.
    """

    kind = "goose"

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.live = is_live(path)
        self._copy = PrivateCopy(path)
        # By place: rows may be read more than once, and each is reported once.
        self._unread: dict[tuple[str, str], UnreadableRecord] = {}
        with opening(self._copy, problem=UNREADABLE, remedy=RECOVER):
            self.store = _opened(self._copy.path, path.name)
        self.store.problems += self._copy.left_out

    def sessions(self, session: str | None = None) -> Iterator[ForeignSession]:
        """Its sessions; lines are read from the copy whenever they are gone through."""
        for found in self.store.sessions():
            if session is None or found.id == session:
                lines = ForeignLines(partial(self._lines, found))
                yield foreign_session(found, lines, self._facts(found))

    def unreadable(self) -> list[UnreadableRecord]:
        return [*self.store.problems, *self._unread.values()]

    def close(self) -> None:
        self.store.close()
        self._copy.close()

    def _lines(self, session: GooseSession) -> Iterator[ForeignMessage]:
        return lines_of(self._rows(session), session.id, self.store.repeated(session))

    def _rows(self, session: GooseSession) -> Iterator[GooseRow]:
        for row in self.store.rows(session):
            problem = row.problem or row.content_problem
            # One whose time alone can't be read is told like any other, in its place.
            if problem and row.content is None:
                unread = UnreadableRecord(
                    session.id, row.place, problem, row.raw[:_RAW_MAX]
                )
                self._unread[session.id, row.place] = unread
            # Not a message yet: taken for one, it would be another when it is written.
            if not row.unfinished:
                yield row

    def _facts(self, session: GooseSession) -> JsonObject:
        """The ledger in a few sums: it knows of calls whose replies are lost."""
        paid = self.store.usage_rows(session)
        if not paid:
            return {}
        spent = {
            "calls": len(paid),
            "input": sum(call.input for call in paid),
            "output": sum(call.output for call in paid),
        }
        return {"usage_ledger": spent}


def _opened(path: Path, name: str) -> GooseStore:
    # A database whose pages are all in its log still is an empty file.
    if is_sqlite(path) or Path(f"{path}-wal").exists():
        return GooseDatabase(path)
    if _is_export(path):
        return GooseExport(path, name)
    return GooseLegacy(path, name)


def _is_database(path: Path) -> bool:
    """The tables are looked for in the first pages of the file and of its log, and asked for if
    they are not there.
    """
    log = f"{path}-wal"
    if not is_sqlite(path):
        return False
    start = read_start(path, _START)
    if os.path.isfile(log):
        start += read_start(log, _START)
    # A copy is spared where the definitions of the tables can be seen.
    if all(word in start for word in _TABLE_WORDS):
        return True
    try:
        return has_columns(path, _NEEDED)
    except (StoreUnavailable, *TROUBLE):
        return False


def _is_export(path: Path) -> bool:
    start = read_start(path, _START).lstrip()
    first = parsed(start.split(b"\n", 1)[0])[0]
    if isinstance(first, dict):
        return is_export(first)
    # An indented export has nothing but a bracket on its first line.
    return (
        start.startswith(b"{")
        and b'"conversation"' in start
        and b'"working_dir"' in start
    )


def _is_legacy(path: Path) -> bool:
    """By its header, or by the first messages where that is broken."""
    first = parsed(read_start(path, _START).split(b"\n", 1)[0])[0]
    if isinstance(first, dict):
        return is_header(first) or is_message(first)
    begins = islice(first_values(path, (b'"role"', b'"working_dir"')), _FIRST)
    return any(is_header(value) or is_message(value) for value in begins)
