"""How bytes are kept apart: large parts of a payload lie once in the store, by their content, and
bodies refer to them.

A picture or a long tool output is one long JSON string. It is cut out of the frozen payload between
its quotes, byte for byte, and put back the same way, so nothing here has to understand the payload,
and what comes back is what was given (I-14). A body with parts cut out is a *skeleton*: a zero byte
(no JSON begins so), the places and names of its parts, a line feed, and what is left.

A part's name is the beginning of the SHA-256 of its bytes: equal parts are one (FAULTS J5).
"""

import hashlib
from collections.abc import Callable
from operator import methodcaller
from typing import Any

import msgspec

PART_BYTES_MIN = 32 * 1024
_MARK = b"\0"
_MISSING = b"[a part of this message is missing from the store: %016x]"

_encode = msgspec.json.Encoder().encode
_places = msgspec.json.Decoder(list[tuple[int, int]])


def name_of(part: bytes) -> int:
    """The name of a part: 63 bits of its SHA-256, so that it can be a row number. Whoever keeps
    parts compares bytes before taking two for one.
    """
    # 63 bits: SQLite and PostgreSQL have signed integers
    return int.from_bytes(hashlib.sha256(part).digest()[:8], "big") >> 1


def address(reply_to: str) -> str | bytes:
    """Where a reply is to go, as it can be kept: text with lone surrogates is not UTF-8, and is
    kept as bytes (H7).
    """
    try:
        reply_to.encode()
    except UnicodeEncodeError:
        return reply_to.encode("utf-8", "surrogatepass")
    return reply_to


def address_of(kept: str | bytes) -> str:
    """The address that was kept; one that was damaged is an address that nobody has."""
    if isinstance(kept, str):
        return kept
    try:
        return kept.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return kept.decode("utf-8", "surrogateescape")


def text_of(kept: Any) -> Any:
    """A caller's text that was kept; None stays None."""
    return kept if kept is None else address_of(kept)


def split(body: bytes) -> tuple[bytes, dict[int, bytes]]:
    """The skeleton of a body and its large parts by name; the body itself when it has none."""
    # a body that is shorter can have no long string in it; nearly all are
    if len(body) < PART_BYTES_MIN:
        return body, {}
    places: list[tuple[int, int]] = []
    parts: dict[int, bytes] = {}
    left: list[bytes] = []
    done = gone = 0
    for start, end in _long_strings(body):
        part = body[start:end]
        name = name_of(part)
        if parts.setdefault(name, part) != part:
            continue  # two parts of one name: the second stays where it is
        # a place counts in what is left, so that parts are put back from the front
        places.append((start - gone, name))
        left.append(body[done:start])
        gone += end - start
        done = end
    if not parts:
        return body, {}
    left.append(body[done:])
    return b"".join((_MARK, _encode(places), b"\n", *left)), parts


is_skeleton: Callable[[bytes], bool] = methodcaller("startswith", _MARK)
"""Whether this body has parts elsewhere."""


def names_in(skeleton: bytes) -> list[int]:
    """The names of the parts that this body refers to."""
    try:
        return [name for _, name in _head(skeleton)[0]] if is_skeleton(skeleton) else []
    except (ValueError, msgspec.DecodeError):
        return []


def join(skeleton: bytes, read: Callable[[int], bytes | None]) -> bytes:
    """The body that was split. A part that is not there any more is said to be missing, in its
    place.
    """
    if not is_skeleton(skeleton):
        return skeleton
    try:
        places, rest = _head(skeleton)
    except (ValueError, msgspec.DecodeError):
        return skeleton  # damaged: whoever reads the body finds out, for this entry alone (I-25)
    whole: list[bytes] = []
    done = 0
    for place, name in places:
        part = read(name)
        whole += (rest[done:place], _MISSING % name if part is None else part)
        done = place
    whole.append(rest[done:])
    return b"".join(whole)


def _head(skeleton: bytes) -> tuple[list[tuple[int, int]], bytes]:
    end = skeleton.index(b"\n")
    return _places.decode(skeleton[1:end]), skeleton[end + 1 :]


def _long_strings(body: bytes) -> list[tuple[int, int]]:
    """Where long strings lie in this JSON, without their quotes. Short ones are skipped at the
    speed of `find`.
    """
    found: list[tuple[int, int]] = []
    start = body.find(b'"')
    while start >= 0:
        end = _end_of_string(body, start + 1)
        if end - start - 1 >= PART_BYTES_MIN:
            found.append((start + 1, end))
        start = body.find(b'"', end + 1)
    return found


def _end_of_string(body: bytes, start: int) -> int:
    end = body.find(b'"', start)
    while end >= 0:
        slashes = end
        while slashes > start and body[slashes - 1] == 0x5C:
            slashes -= 1
        # an even number of backslashes escape each other, and the quote ends the string
        if (end - slashes) % 2 == 0:
            return end
        end = body.find(b'"', end + 1)
    return len(body)
