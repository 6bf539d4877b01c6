"""A chunk: a piece of a message still being spoken, as the journal keeps it.

A provider's chunk is read into deltas by its format; a message, whole or cut off, is what its
deltas fold to. The journal stores deltas, not provider chunks, so that a message rebuilt after a
crash comes from the same fold as one that ended well (I-5, I-6).

A delta is a triple `(kind, index, value)`:

    text | refusal | thinking | signature | arguments    value: str, grows the part at `index`
    call        value: {"id": …, "name": …}, opens a call at `index`
    part        value: the provider's own block, verbatim, opened or complete at `index`
    meta        value: facts about the message (finish, usage, model, id), later ones win
    done        value: the provider's own final payload, or None; the stream has said its end
    acp         value: an update of the Agent Client Protocol, without the words it brought
    raw         value: a chunk that its format could not read, as JSON data or as its repr; it takes no part in the fold
"""

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from holdfast.domain.message import copied, freeze, thaw

Delta = tuple[str, int, Any]

GROWING = frozenset({"text", "refusal", "thinking", "signature", "arguments"})
_PLACES = 1 << 62
SHOWN = frozenset({"text", "refusal"})

_HALVES = re.compile("[\ud800-\udfff]")
_SECOND_HALVES = re.compile("[\udc00-\udfff]+")
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[Delta]).decode


def squeeze(deltas: Iterable[Delta]) -> list[Delta]:
    """Neighbours that grow the same part become one: the fold is the same, the row smaller."""
    out: list[Delta] = []
    kind, index, held = "", -1, []
    for delta in deltas:
        if delta[0] == kind and delta[1] == index:
            held.append(delta[2])
            continue
        if held:
            out.append((kind, index, "".join(held)))
        if delta[0] in GROWING:
            kind, index, value = delta
            held = [value]
        else:
            kind, index, held = "", -1, []
            # Other deltas are never joined, so nothing may go on from one.
            out.append(delta)
    if held:
        out.append((kind, index, "".join(held)))
    return out


def pack(deltas: Iterable[Delta]) -> bytes:
    """Deltas as one journal row."""
    squeezed = squeeze(deltas)
    try:
        return _encode(squeezed)
    except (UnicodeEncodeError, TypeError):
        # lone surrogates; strings and numbers of somebody's own type
        return freeze(squeezed)


def unpack(row: bytes) -> list[Delta]:
    """The deltas of a journal row."""
    try:
        return _decode(row)
    except msgspec.DecodeError:
        # Halves of characters, which `pack` wrote as escapes: msgspec reads none.
        return [tuple(delta) for delta in thaw(row)]


def shown(deltas: Iterable[Delta]) -> str:
    """The text of these deltas that is handed on to be shown."""
    return "".join([delta[2] for delta in deltas if delta[0] in SHOWN])


def characters(text: str) -> int:
    """How many characters this is, when halves that came apart have been joined: servers that cut
    text by UTF-16 units send an emoji in two chunks, and in JSON its halves are one character.
    """
    return len(text) if text.isascii() else len(_SECOND_HALVES.sub("", text))


def joined(text: str) -> str:
    """This text with halves of characters that came apart joined, as JSON gives it back."""
    if text.isascii() or _HALVES.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode(
        "utf-16-le", "surrogatepass"
    )


def units(text: str) -> int:
    """How long this is in UTF-16 units: the same whether halves of a character came apart or not, so
    what was counted of a text while it was spoken is a place in it when it is whole.
    """
    if text.isascii():
        return len(text)
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def beyond(text: str, seen: int) -> str:
    """What follows after so many units. Who has seen half of a character is given the other one."""
    if seen <= 0:
        return text
    if text.isascii():
        return text[seen:]
    rest = text.encode("utf-16-le", "surrogatepass")[2 * seen :]
    return rest.decode("utf-16-le", "surrogatepass")


def owned(deltas: list[Delta]) -> list[Delta]:
    """These deltas, if each has a place that the journal can hold. What has none could be shown, and
    then be put into no message: a chunk that makes one is no chunk of its format. What they have of
    the caller's own objects is copied, for a caller may go on with them (I-3).
    """
    for number, (kind, index, value) in enumerate(deltas):
        if type(index) is not int or not -_PLACES <= index < _PLACES:
            raise ValueError("a delta without a place")
        if type(value) is not str and value is not None:
            deltas[number] = kind, index, copied(value)
    return deltas


def sound(deltas: Iterable[Delta]) -> list[Delta]:
    """These deltas with each that the journal can't hold turned into a `raw` one: words that are no
    string, values that are no JSON.
    """
    return [delta if _is_sound(delta) else ("raw", 0, raw(delta)) for delta in deltas]


def raw(value: Any) -> Any:
    """The value as JSON data, or as its repr where it can't be that; of what has none, its type."""
    try:
        return thaw(freeze(value))
    except Exception:
        try:
            return str.__str__(repr(value))
        except Exception:
            # an object of the caller's, and anything may be wrong with it
            return f"<{type(value).__name__}>"


def _is_sound(delta: Delta) -> bool:
    try:
        kind, index, value = delta
        freeze(value)
    except Exception:
        return False
    return (
        isinstance(kind, str)
        and isinstance(index, int)
        and (kind not in GROWING or isinstance(value, str))
    )
