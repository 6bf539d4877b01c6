"""A cursor: an opaque, ordered position from which a reader resumes (I-15).

It names the session, the last entry seen, and for each message then being spoken how much of its
text had been seen: a journal row or a process may be gone when the reader comes back, the text of a
message is not.
"""

import binascii

import msgspec

from holdfast.errors import CursorExpired


class Cursor(msgspec.Struct, frozen=True, array_like=True):
    """After entry `seq`; `open` maps ids of unfinished messages to the characters of theirs that
    were seen, in UTF-16 units.
    """

    session: str
    seq: int
    open: dict[str, int] = {}


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Cursor).decode
_URL_SAFE = bytes.maketrans(b"+/", b"-_")


def write(cursor: Cursor) -> str:
    """The cursor as a string to hand out."""
    # Not by `base64`, which is four calls more: each chunk that is followed has a cursor.
    written = binascii.b2a_base64(_encode(cursor), newline=False)
    return written.translate(_URL_SAFE).rstrip(b"=").decode()


def read(text: str, *, session_id: str, head: int) -> Cursor:
    """The position in this session; `CursorExpired` says what is wrong with one that can't be
    served.
    """
    import base64  # for those who come back

    def refuse(problem: str) -> CursorExpired:
        resume = "without a cursor to read all of it"
        return CursorExpired(
            cursor=text, session_id=session_id, problem=problem, resume=resume
        )

    try:
        # `write` leaves the padding out.
        padded = text.encode("ascii") + b"=" * (-len(text) % 4)
        # Strict: characters outside the alphabet would be skipped, and many texts be
        # one cursor.
        cursor = _decode(base64.b64decode(padded, altchars=b"-_", validate=True))
    # All else that these raise are ValueErrors.
    except (ValueError, RecursionError):
        raise refuse("it is not a cursor of Holdfast") from None
    if cursor.session != session_id:
        raise refuse(f"it belongs to session `{cursor.session}`")
    if cursor.seq < 0 or cursor.seq > head:
        raise refuse(f"it stands at entry {cursor.seq} and the session ends at {head}")
    if any(seen < 0 for seen in cursor.open.values()):
        raise refuse("it counts characters below zero")
    return cursor
