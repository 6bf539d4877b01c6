"""Stores whose sessions are plain rows of provider messages: what Claude Code, Codex and the Agents
SDK have in common.

An item is one such row as it was found, with what a judge needs to know of it: which calls it
makes, which it answers. Rows that can't be read stand among the items, where they were met.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.importers.foreign_session import (
    HIDDEN,
    ForeignLine,
    ForeignLines,
    ForeignMessage,
    ForeignSession,
)
from holdfast.importers.private_copy import PrivateCopy, is_live
from holdfast.importers.reader import UnreadableRecord
from holdfast.importers.values import JsonObject, name_or_none, wrong_blocks

# The labels of a message on a branch that was left: readers see it, the model does not.
LEFT = {**HIDDEN, "left": True}
_MESSAGE_ROLES = ("user", "assistant", "system", "developer")
_CALLS = ("function_call", "custom_tool_call", "local_shell_call")


class Item(msgspec.Struct, frozen=True):
    """One row. `id` is its own identity, by which a repetition is known; `says`: it goes on with
    the session, where calls, results and what the model thought do not.
    """

    line: ForeignLine
    id: str = ""
    calls: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    says: bool = False


Found = Item | UnreadableRecord
Items = Callable[[], Iterator[Found]]


class ItemSession(msgspec.Struct, frozen=True):
    """A session without lines, and its items, to be gone through as often as need be."""

    session: ForeignSession
    items: Items


def lines_of(
    items: Iterable[Found], unread: Callable[[UnreadableRecord], None]
) -> Iterator[ForeignLine]:
    """The lines of items. An origin that comes again is counted; what can't be read is handed to
    `unread`.
    """
    met: Counter[str] = Counter()
    for item in items:
        if isinstance(item, UnreadableRecord):
            unread(item)
            continue
        origin = item.line.origin
        met[origin] += 1
        if met[origin] == 1:
            yield item.line
        else:
            yield replace(item.line, origin=f"{origin}#{met[origin]}")


class ItemReader:
    """A reader of a store of items."""

    live = False
    """Whether some program has it open."""

    def __init__(self) -> None:
        self._unread: dict[str, UnreadableRecord] = {}
        self.unknown: Counter[str] = Counter()

    def item_sessions(self, session: str | None = None) -> Iterator[ItemSession]:
        """Its sessions, in an order that does not change."""
        raise NotImplementedError

    def sessions(self, session: str | None = None) -> Iterator[ForeignSession]:
        for found in self.item_sessions(session):
            lines = ForeignLines(partial(self._lines, found.items))
            yield replace(found.session, lines=lines)

    def unreadable(self) -> list[UnreadableRecord]:
        return list(self._unread.values())

    def troubles(self) -> list[UnreadableRecord]:
        """What could not be read of the store itself."""
        return []

    def not_examined(self) -> dict[str, int]:
        """How many records there are of each type that no reader here knows; complete once all was
        gone through.
        """
        return dict(sorted(self.unknown.items()))

    def _lines(self, items: Items) -> Iterator[ForeignLine]:
        return lines_of(items(), self._note_unread)

    def _note_unread(self, record: UnreadableRecord) -> None:
        self._unread.setdefault(record.place, record)


class FileReader(ItemReader):
    """One session's file of lines, opened from a private copy."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = str(path)
        self._stem = Path(path).stem
        self.live = is_live(path)
        self._copy = PrivateCopy(path, beside=())

    def close(self) -> None:
        self._copy.close()


def wrong_content(content: Any) -> str:
    """Why this is no content of a message; nothing when it is words, blocks or nothing."""
    if content is None or isinstance(content, str):
        return ""
    if not isinstance(content, list):
        return f"its content is a {type(content).__name__}"
    if wrong_blocks(content):
        return "its content has a block without a type"
    return ""


def wrong_item(item: Any) -> str:
    """Why this is no item of the Responses API."""
    if not isinstance(item, dict):
        return "it is not an object"
    kind = item.get("type")
    if kind is None or kind == "message":
        # Items without a type are messages: the API takes them so.
        if item.get("role") not in _MESSAGE_ROLES:
            return f"its role is {str(item.get('role'))[:40]!r}"
        return wrong_content(item.get("content"))
    return "" if isinstance(kind, str) else "its type is not a word"


# What the Agents SDK puts where an id has to be and its model gave none: it is no
# identity to the SDK either.
NO_IDS = ("__fake_id__",)


def response_item(line: ForeignMessage) -> Item:
    """An item of the Responses API. One that has labels stands on a branch that was left, and says
    nothing any more.
    """
    item = line.payload
    kind = item.get("type") or "message"
    call_id = name_or_none(item.get("call_id"))
    if call_id and kind in _CALLS:
        return Item(line, id=f"{kind}:{call_id}", calls=(call_id,))
    if call_id and kind.endswith("_output"):
        return Item(line, id=f"{kind}:{call_id}", answers=(call_id,))
    own = item.get("id")
    if not isinstance(own, str) or own in NO_IDS:
        own = ""
    says = kind == "message" and not line.labels
    return Item(line, id=f"{kind}:{own}" if own else "", says=says)


def role_of(item: JsonObject) -> str:
    """Who speaks in an item of the Responses API, in Holdfast's words."""
    kind = item.get("type") or "message"
    if kind == "message":
        # Newer models are instructed by the developer, older ones by the system.
        return "system" if item["role"] == "developer" else str(item["role"])
    return "tool" if kind.endswith("_output") else "assistant"
