"""Sessions of the OpenAI Agents SDK: the tables `agent_sessions` and `agent_messages`, with an item
in each row.
"""

from array import array
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import msgspec

from holdfast.errors import StoreUnavailable
from holdfast.importers.damaged_rows import Lost, named
from holdfast.importers.foreign_session import HIDDEN, ForeignMessage, ForeignSession
from holdfast.importers.item_store import (
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
from holdfast.importers.sqlite_file import SqliteFile
from holdfast.importers.values import JsonObject, milliseconds

_ROLES_OF_MESSAGES = {"tool": "tool", "function": "tool", "assistant": "assistant"}
SESSIONS, MESSAGES, BRANCHES = "agent_sessions", "agent_messages", "message_structure"
MAIN = "main"
_START = 1 << 16
_MARKS = (b"agent_sessions", b"agent_messages", b"message_data")


def recognises(path: Path) -> bool:
    """Whether this is a SQLite file with the SDK's tables in it."""
    if not path.is_file() or not is_sqlite(path):
        return False
    try:
        reader = AgentsReader(path)
    except NoRoom:
        raise
    except (StoreUnavailable, apsw.Error, OSError):
        return _has_marks(path)
    try:
        return reader.has_tables
    finally:
        reader.close()


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
        try:
            self._file = SqliteFile(self._copy.path)
            self._file.note_if_cut(self._copy.path)
            for one in self._copy.left_out:
                self._file.note_problem(None, one.place, one.problem)
            tables = {
                name: set(self._file.columns(name))
                for name in (SESSIONS, MESSAGES, BRANCHES)
            }
        except (apsw.Error, ZeroDivisionError) as error:
            self._copy.close()
            problem = f"it can't be read ({error})"
            remedy = "Look for a backup; `sqlite3 .recover` may find rows that are left"
            raise StoreUnavailable(
                where=self.path, problem=problem, remedy=remedy
            ) from error
        self.has_tables = {"session_id", "message_data"} <= tables[MESSAGES]
        if not self.has_tables:
            self._file.note_problem(None, MESSAGES, "there is no such table")

    def item_sessions(self, session: str | None = None) -> Iterator[ItemSession]:
        """Sessions as the SDK lists them, and then those that have messages and no row of their
        own.
        """
        listed = self._file.scan(SESSIONS, ("session_id", "created_at"))
        opened = {named(id): at for _, id, at in listed if isinstance(id, str | bytes)}
        rows: dict[str, array[int]] = {id: array("q") for id in opened}
        for rowid, id in (
            self._file.scan(MESSAGES, ("session_id",)) if self.has_tables else ()
        ):
            if isinstance(id, str | bytes):
                rows.setdefault(named(id), array("q")).append(rowid)
            else:
                self._file.note_problem(
                    None, f"{MESSAGES}.id={rowid}", "it names no session"
                )
        branches = self._branches()
        for name, own in rows.items():
            if session in (None, name):
                place = f"{self.path}: {name}"
                found = ForeignSession(
                    kind=self.kind,
                    id=name,
                    place=place,
                    lines=(),
                    opened_at=milliseconds(opened.get(name)),
                )
                yield ItemSession(
                    found, partial(self._items, name, sorted(own), branches)
                )

    def troubles(self) -> list[UnreadableRecord]:
        return list({one.place: one for one in self._file.problems}.values())

    def unreadable(self) -> list[UnreadableRecord]:
        return [*super().unreadable(), *self.troubles()]

    def close(self) -> None:
        self._file.close()
        self._copy.close()

    def _branches(self) -> dict[int, set[str]]:
        """By row, the branches it stands on; only the SDK's advanced sessions have any."""
        found: dict[int, set[str]] = {}
        for _, message, branch in self._file.scan(
            BRANCHES, ("message_id", "branch_id")
        ):
            found.setdefault(message, set()).add(branch)
        return found

    def _items(
        self, session: str, rows: Iterable[int], branches: dict[int, set[str]]
    ) -> Iterator[Item | UnreadableRecord]:
        for rowid in rows:
            place = f"{MESSAGES}.id={rowid}"
            row = self._file.row(MESSAGES, rowid)
            if isinstance(row, str):
                yield UnreadableRecord(session, place, row)
                continue
            data = row["message_data"]
            raw = (
                data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
            )
            read: tuple[Any, str] = (
                None,
                data.problem
                if isinstance(data, Lost)
                else f"it is a {type(data).__name__}",
            )
            item, problem = parsed(raw) if isinstance(raw, bytes) else read
            if problem or (problem := _wrong_with(item)):
                yield UnreadableRecord(
                    session, place, problem, raw if isinstance(raw, bytes) else b""
                )
                continue
            left = rowid in branches and MAIN not in branches[rowid]
            yield _item(item, place, row.get("created_at"), hidden=left)


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


def _item(item: JsonObject, place: str, at: Any, *, hidden: bool) -> Item:
    chat = _is_chat(item)
    line = ForeignMessage(
        origin=place,
        place=place,
        role=_ROLES_OF_MESSAGES[item["role"]] if chat else role_of(item),
        payload=item,
        format="openai.chat" if chat else "openai.responses",
        at=milliseconds(at),
        labels={**HIDDEN, "left": True} if hidden else {},
    )
    made = _as_item(item, line) if chat else response_item(item, line)
    return msgspec.structs.replace(made, says=False) if hidden else made


def _as_item(item: JsonObject, line: ForeignMessage) -> Item:
    if item["role"] != "assistant":
        call_id = item.get("tool_call_id")
        return (
            Item(line, id=f"tool:{call_id}", answers=(call_id,))
            if isinstance(call_id, str)
            else Item(line)
        )
    calls = tuple(call["id"] for call in item.get("tool_calls") or ())
    return Item(line, calls=calls, says=not calls)
