"""Times as other programs write them."""

from datetime import UTC, datetime
from typing import Any


def stamp(text: Any) -> int | None:
    """A time in ISO 8601, in milliseconds; SQLite's own shape of it is in UTC."""
    if not isinstance(text, str) or not text:
        return None
    try:
        at = datetime.fromisoformat(text.replace("Z", "+00:00"))
        return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None
