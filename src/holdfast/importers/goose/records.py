"""What goose keeps, as it was found: sessions, messages, and the ledger of paid model calls.

A message's content and metadata are JSON in a column or a line. What can't be taken apart is kept
as bytes, with a sentence that says why; the record itself is never dropped.
"""

import calendar
import re
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from holdfast.importers.jsonl import parsed
from holdfast.importers.reader import UnreadableRecord
from holdfast.importers.values import JsonObject

# Times from here on can't be seconds: goose counts in seconds, and this is the year
# 2286.
MS_FROM = 10_000_000_000
FLAGS = ("userVisible", "agentVisible")
MISSING = "it is missing"

Source = Literal["database", "legacy", "export", "thread", "stranded"]

_SHALLOW = 190
_decode = msgspec.json.Decoder().decode
_WHEN = re.compile(rb"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)")


class GooseRow(msgspec.Struct, frozen=True):
    """A message. `number` is its row id, its line or its place in the list; `created` is in seconds
    unless somebody wrote milliseconds. `content` is None when it could not be taken apart:
    `content_problem` says why it is not JSON, `problem` why nothing of the record can be used;
    `raw` has the bytes, if there are any. `metadata` is None where there is none, or with
    `metadata_problem` where it is not an object with both flags. `rest` is all else. One that is
    `unfinished` is the end of a file, and perhaps being written.
    """

    number: int
    place: str
    message_id: str | None
    role: str
    content: list[Any] | None
    created: int | None
    metadata: JsonObject | None
    stored_at: str | None = None
    content_problem: str = ""
    metadata_problem: str = ""
    raw_metadata: bytes = b""
    problem: str = ""
    raw: bytes = b""
    rest: JsonObject = {}
    unfinished: bool = False


class GooseSession(msgspec.Struct, frozen=True):
    """A session as its store tells it; `columns` are those of its row, its header or its export, as
    found. `problem` says what of them can't be used.
    """

    id: str
    source: Source
    place: str
    columns: JsonObject
    parent: str | None = None
    problem: str = ""


class Paid(msgspec.Struct, frozen=True):
    """A model call in the usage ledger."""

    created: int | None
    input: int
    output: int
    is_compaction: bool


class GooseStore:
    """A goose store of any of the three shapes, in a private copy; only a database knows more of a
    session than its messages. What could not be read is in `problems`.
    """

    problems: list[UnreadableRecord]

    def sessions(self) -> Iterator[GooseSession]:
        """Sessions, parents before what follows from them."""
        raise NotImplementedError

    def rows(self, session: GooseSession) -> Iterator[GooseRow]:
        """A session's messages in the order in which goose reads them."""
        raise NotImplementedError

    def repeated(self, session: GooseSession) -> set[str] | None:
        """Message ids that the session has more than once; None when that can't be asked."""
        return None

    def usage_rows(self, session: GooseSession) -> tuple[Paid, ...]:
        """The model calls that were paid for in a session."""
        return ()

    def rewritten(self, session: GooseSession) -> str:
        """What shows that a session's rows were all deleted and written anew; empty when nothing
        does.
        """
        return ""

    def close(self) -> None:
        """Lets go of what is held open."""


def shown_to(row: GooseRow, flag: str) -> bool:
    """Whether a flag of a row allows it to be shown. A row whose flags are lost is for readers
    only.
    """
    if row.metadata_problem:
        return flag == "userVisible"
    return row.metadata is None or row.metadata.get(flag) is not False


def content_of(raw: bytes) -> tuple[list[Any] | None, str, str]:
    """Content that was stored as JSON: the blocks, why it is not JSON, why it can't be
    used at all.
    """
    try:
        # Nearly every content is fine, and shallow enough to be sure of it without a look inside.
        quickly = _decode(raw)
        if type(quickly) is list and raw.count(b"[") + raw.count(b"{") < _SHALLOW:
            return quickly, "", ""
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        pass  # why, is told below
    value, problem = parsed(b"[" + raw + b"]")
    if problem.startswith("it is nested"):
        return None, "", problem
    if problem or len(value) != 1:
        return None, problem or "it is not JSON", ""
    if not _is_strict(raw):
        return None, "it holds half of a surrogate pair, which goose can't read", ""
    if not isinstance(value[0], list):
        return None, f"it is not a list of blocks but {_kind(value[0])}", ""
    return value[0], "", ""


def metadata_of(raw: bytes) -> tuple[JsonObject | None, str]:
    """Metadata that was stored as JSON: the object, and what is wrong with it."""
    value, problem = parsed(b"[" + raw + b"]")
    if problem or len(value) != 1:
        return None, problem or "it is not JSON"
    return flagged(value[0])


def flagged(value: Any) -> tuple[JsonObject | None, str]:
    """Metadata, if it is an object with both flags."""
    if not isinstance(value, dict):
        return None, f"it is not an object but {_kind(value)}"
    lacking = [flag for flag in FLAGS if not isinstance(value.get(flag), bool)]
    if lacking:
        return None, f"it lacks {' and '.join(lacking)}"
    return value, ""


def seconds_of(value: Any) -> tuple[int | None, str]:
    """The time of a message as it was stored, and what is wrong with it."""
    if type(value) in (int, float) and 0 <= value < 1 << 62:
        return int(value), ""
    # A list or an object may be as large as a message.
    if not isinstance(value, str | int | float | None):
        value = type(value).__name__
    return None, f"its time is {str(value)[:40]!r}, not a number of seconds"


def milliseconds_of(created: int | None) -> int | None:
    """The time of a message in milliseconds, whichever of the two was stored."""
    if created is None:
        return None
    return created if created >= MS_FROM else created * 1000


def instant_of(value: Any) -> int | None:
    """A date as goose writes it, in milliseconds."""
    if not isinstance(value, str):
        return None
    found = _WHEN.match(value.encode("utf-8", "replace"))
    if found is None:
        return None
    try:
        return calendar.timegm(tuple(map(int, found.groups()))) * 1000
    except ValueError:  # the thirteenth month
        return None


def whole(value: Any) -> int:
    """A count, 0 where there is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def text_of(raw: bytes) -> str:
    """Bytes as text that holds all of them."""
    return raw.decode("utf-8", "surrogateescape")


def _is_strict(raw: bytes) -> bool:
    """Halves of surrogate pairs are let through by `parsed`, and by nothing that is written in
    Rust.
    """
    try:
        _decode(raw)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return False
    return True


def _kind(value: Any) -> str:
    names = {
        dict: "an object",
        list: "a list",
        str: "a text",
        bool: "a truth value",
        type(None): "null",
    }
    return names.get(type(value), "a number")
