"""Values as other programs write them: where one is not what it should be, it counts as not there."""

import os
from datetime import UTC, datetime
from typing import Any

StrPath = str | os.PathLike[str]
JsonObject = dict[str, Any]
# A row of a table: what stands in a column may be of any of SQLite's types.
Row = tuple[Any, ...]


def text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def name_or_none(value: Any) -> str | None:
    """A text that can name something: an empty one names nothing."""
    return value if isinstance(value, str) and value else None


def object_or_empty(value: Any) -> JsonObject:
    return value if isinstance(value, dict) else {}


def wrong_blocks(blocks: list[Any]) -> bool:
    """Whether something among the blocks of a message is none: each is an object with a type."""
    return not all(
        isinstance(block, dict) and isinstance(block.get("type"), str)
        for block in blocks
    )


def count_or_zero(value: Any) -> int:
    """A count of something. True and False are whole numbers to Python, and count nothing."""
    if type(value) is int and value >= 0:
        return value
    return 0


def milliseconds(text: Any) -> int | None:
    """A time in ISO 8601, in milliseconds; SQLite's own shape of it is in UTC."""
    if not isinstance(text, str) or not text:
        return None
    try:
        at = datetime.fromisoformat(text.replace("Z", "+00:00"))
        if at.tzinfo is None:
            at = at.replace(tzinfo=UTC)
        return int(at.timestamp() * 1000)
    except (ValueError, OverflowError):
        return None
