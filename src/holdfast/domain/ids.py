"""Names of things.

A session id is a random UUID: a short prefix names it, and it spreads evenly over shards. A message
id is minted before its first chunk (I-2); it is sixteen bytes in the log and 32 hex digits outside.
A turn is named by its session and its number, the fence it was started with.
"""

from typing import NewType

TurnId = NewType("TurnId", str)


def turn_id(session_id: str, number: int) -> TurnId:
    """The name of turn `number` of a session."""
    return TurnId(f"{session_id}:{number}")
