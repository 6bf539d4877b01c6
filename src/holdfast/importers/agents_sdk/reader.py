"""Sessions of the OpenAI Agents SDK: the tables `agent_sessions` and `agent_messages`, with an item
in each row.
"""

from array import array
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.errors import StoreUnavailable
from holdfast.importers.damaged_rows import TROUBLE, Lost, named
from holdfast.importers.foreign_session import ForeignMessage, ForeignSession
from holdfast.importers.item_store import (
    LEFT,
    Found,
    Item,
    ItemReader,
    ItemSession,
    response_item,
    role_of,
    wrong_content,
    wrong_item,
)
from holdfast.importers.jsonl import parsed
from holdfast.importers.private_copy import NoRoom, PrivateCopy, is_sqlite, read_start
from holdfast.importers.reader import UnreadableRecord
from holdfast.importers.sqlite_file import (
    RECOVER,
    UNREADABLE,
    SqliteFile,
    has_columns,
    opening,
)
from holdfast.importers.values import JsonObject, milliseconds

_ROLES_OF_MESSAGES = {"tool": "tool", "function": "tool", "assistant": "assistant"}
SESSIONS, MESSAGES, BRANCHES = "agent_sessions", "agent_messages", "message_structure"
MAIN = "main"
# The definitions of tables begin on the first page, and no page of SQLite is larger.
_START = 1 << 16
_NEEDED = {MESSAGES: {"session_id", "message_data"}}
_MARKS = (b"agent_sessions", b"agent_messages", b"message_data")


def recognises(path: Path) -> bool:
    """Whether this is a SQLite file with the SDK's tables in it."""
    if not path.is_file() or not is_sqlite(path):
        return False
    try:
        return has_columns(path, _NEEDED)
    except NoRoom:
        # An `OSError`, but one that says nothing of this file.
        raise
    except (StoreUnavailable, *TROUBLE, OSError):
        return _has_marks(path)


def _has_marks(path: Path) -> bool:
    """Whether the beginning of a file that can't be opened holds the definitions of the SDK's
    tables.
    """
    try:
        start = read_start(path, _START)
    except OSError:
        return False
    return all(mark in start for mark in _MARKS)


class AgentsReader(ItemReader):
    """A file of the SDK's, opened from a private copy."""

    kind = "agents"

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = str(path)
        self._copy = PrivateCopy(path)
        with opening(self._copy, problem=UNREADABLE, remedy=RECOVER):
            self._file = SqliteFile.of_copy(self._copy)
            columns = set(self._file.columns(MESSAGES))
        self._has_table = _NEEDED[MESSAGES] <= columns
        if not self._has_table:
            self._file.note_problem(None, MESSAGES, "there is no such table")

    def item_sessions(self, session: str | None = None) -> Iterator[ItemSession]:
        """Sessions as the SDK lists them, and then those that have messages and no row of their
        own.
        """
        opened: dict[str, Any] = {}
        rows: dict[str, array[int]] = {}
        for _, id, at in self._file.scan(SESSIONS, ("session_id", "created_at")):
            if isinstance(id, str | bytes):
                opened[named(id)] = at
                rows[named(id)] = array("q")
        if self._has_table:
            self._read_index(rows)
        branches = self._branches()
        for name, own in rows.items():
            if session in (None, name):
                found = ForeignSession(
                    kind=self.kind,
                    id=name,
                    place=f"{self.path}: {name}",
                    lines=(),
                    opened_at=milliseconds(opened.get(name)),
                )
                # Rows that were found past a damaged page may come last.
                items = partial(self._items, name, sorted(own), branches)
                yield ItemSession(found, items)

    def _read_index(self, rows: "dict[str, array[int]]") -> None:
        """Adds the ids of the messages of each session."""
        for rowid, id in self._file.scan(MESSAGES, ("session_id",)):
            if isinstance(id, str | bytes):
                rows.setdefault(named(id), array("q")).append(rowid)
            else:
                place = f"{MESSAGES}.id={rowid}"
                self._file.note_problem(None, place, "it names no session")

    def troubles(self) -> list[UnreadableRecord]:
        # A table is scanned for each list of sessions, and meets the same rows again.
        return list({one.place: one for one in self._file.problems}.values())

    def unreadable(self) -> list[UnreadableRecord]:
        return [*super().unreadable(), *self.troubles()]

    def close(self) -> None:
        self._file.close()
        self._copy.close()

    def _branches(self) -> dict[int, set[str]]:
        """By row, the branches it stands on; only the SDK's advanced sessions have any."""
        found: dict[int, set[str]] = {}
        wanted = ("message_id", "branch_id")
        for _, message, branch in self._file.scan(BRANCHES, wanted):
            found.setdefault(message, set()).add(branch)
        return found

    def _items(
        self, session: str, rows: Iterable[int], branches: dict[int, set[str]]
    ) -> Iterator[Found]:
        for rowid in rows:
            place = f"{MESSAGES}.id={rowid}"
            row = self._file.row(MESSAGES, rowid)
            if isinstance(row, str):
                yield UnreadableRecord(session, place, row)
                continue
            raw, item, problem = _taken_apart(row["message_data"])
            if problem or (problem := _wrong_with(item)):
                yield UnreadableRecord(session, place, problem, raw)
                continue
            # Rows without an entry in that table are of sessions that know no branches.
            is_left = rowid in branches and MAIN not in branches[rowid]
            at = milliseconds(row.get("created_at"))
            yield _item(item, place, at, LEFT if is_left else {})


def _taken_apart(data: Any) -> tuple[bytes, Any, str]:
    """The bytes of an item, what they say, and what is wrong with them."""
    if isinstance(data, str):
        data = data.encode("utf-8", "surrogatepass")
    if isinstance(data, bytes):
        return data, *parsed(data)
    if isinstance(data, Lost):
        return b"", None, data.problem
    return b"", None, f"it is a {type(data).__name__}"


def _is_chat(item: Any) -> bool:
    return (
        isinstance(item, dict)
        and "type" not in item
        and (item.get("role") in ("tool", "function") or "tool_calls" in item)
    )


def _wrong_with(item: Any) -> str:
    if not _is_chat(item):
        return wrong_item(item)
    if item.get("role") not in tuple(_ROLES_OF_MESSAGES):
        return f"its role is {str(item.get('role'))[:40]!r}"
    calls = item.get("tool_calls")
    if calls is not None and not (
        isinstance(calls, list) and all(_is_call(call) for call in calls)
    ):
        return "its calls are not calls"
    return wrong_content(item.get("content"))


def _is_call(call: Any) -> bool:
    return (
        isinstance(call, dict)
        and isinstance(call.get("id"), str)
        and isinstance(call.get("function"), dict)
    )


def _item(item: JsonObject, place: str, at: int | None, labels: JsonObject) -> Item:
    if not _is_chat(item):
        line = ForeignMessage(
            place, place, role_of(item), item, "openai.responses", at, labels
        )
        return response_item(line)
    role = _ROLES_OF_MESSAGES[item["role"]]
    line = ForeignMessage(place, place, role, item, "openai.chat", at, labels)
    if role != "assistant":
        call_id = item.get("tool_call_id")
        if not isinstance(call_id, str):
            return Item(line)
        return Item(line, id=f"tool:{call_id}", answers=(call_id,))
    calls = tuple(call["id"] for call in item.get("tool_calls") or ())
    return Item(line, calls=calls, says=not calls and not labels)
