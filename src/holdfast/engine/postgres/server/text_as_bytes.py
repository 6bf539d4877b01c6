"""Names on their way into the database and back: callers' texts are bytes there, and ids of
sessions are UUIDs.
"""

from holdfast.domain.ids import is_session_id
from holdfast.errors import InvalidMessage

NAME_BYTES_MAX = 1000
"""A tenant or a key is found by an index, which holds no more than so much of it."""

FIRST = "00000000-0000-0000-0000-000000000000"


def raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogatepass")


def raw_or_none(text: str | None) -> bytes | None:
    return None if text is None else raw(text)


def text_or_none(kept: bytes | None) -> str | None:
    return None if kept is None else text(kept)


def name(text: str, place: str) -> bytes:
    """A tenant or a key as the database knows it."""
    encoded = raw(text)
    if len(encoded) > NAME_BYTES_MAX:
        raise InvalidMessage(
            problem=f"in PostgreSQL it may have {NAME_BYTES_MAX} bytes at most",
            place=place,
        )
    return encoded


def is_id(session: str) -> bool:
    """Whether a session can have this id."""
    return is_session_id(session)


def span(prefix: str) -> tuple[str, str] | None:
    """The first and the last id that can begin so; None when none can."""
    first = prefix + FIRST[len(prefix) :]
    last = prefix + FIRST.replace("0", "f")[len(prefix) :]
    return (first, last) if is_id(first) else None
