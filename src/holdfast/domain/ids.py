"""Names of things.

A session id is a random UUID: a short prefix names it, and it spreads evenly over shards. A message
id is minted before its first chunk (I-2); it is sixteen bytes in the log and 32 hex digits outside.
A turn is named by its session and its number, the fence it was started with.
"""

import re
from typing import Any, NewType

TurnId = NewType("TurnId", str)
_SESSION = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def is_session_id(text: Any) -> bool:
    """Whether this is what a session can be called."""
    return isinstance(text, str) and _SESSION.fullmatch(text) is not None


def turn_id(session_id: str, number: int) -> TurnId:
    """The name of turn `number` of a session."""
    return TurnId(f"{session_id}:{number}")
