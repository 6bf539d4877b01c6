"""A message: who speaks, and the payload exactly as its provider shaped it.

The payload is frozen to JSON bytes before anything waits (I-3) and comes back byte for byte (I-14).
Parts are a neutral reading of a payload, made by its format when somebody asks; they are never
stored in its stead. A few facts that every view needs (role, calls, results) are noted beside the
payload when it is frozen, so that a long session folds without parsing what it only passes on.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import msgspec

from holdfast.domain.arguments import kind_of
from holdfast.errors import Damaged, InvalidMessage

Role = Literal["system", "user", "assistant", "tool"]
Payload = dict[str, Any] | list[Any]
Payloads = Sequence[Payload]

USUAL_FORMAT = "openai.chat"
"""The format a message has unless it says otherwise. Its name is left out of storage when it is
this very object.
"""


# Deeper data may run a reader out of stack, here or at a provider.
DEPTH_MAX = 200
INTEGER_BITS_MAX = 4096


class PartOfMessage(msgspec.Struct, frozen=True, tag=str.lower, tag_field="type"):
    """What all parts share: in JSON, `type` is the name of the class."""


class Text(PartOfMessage, frozen=True):
    """Words."""

    text: str


class Image(PartOfMessage, frozen=True):
    """A picture, by address; a `data:` address carries it along."""

    url: str


class Call(PartOfMessage, frozen=True):
    """A tool call. `id` is the provider's and need not be unique; `arguments` is JSON text as it
    was said.
    """

    id: str
    name: str
    arguments: str


class Result(PartOfMessage, frozen=True, omit_defaults=True):
    """What a tool answered to the call `call_id`."""

    call_id: str
    content: str
    error: bool = False


class Thinking(PartOfMessage, frozen=True, omit_defaults=True):
    """Reasoning the model shared. Replayable only by its own format, from the payload (I-14)."""

    text: str
    signed: bool = False


class Refusal(PartOfMessage, frozen=True):
    """The model declined, in these words."""

    text: str


class Other(PartOfMessage, frozen=True):
    """Something only its own format can express; `kind` is the format's name for it."""

    kind: str


Part = Text | Image | Call | Result | Thinking | Refusal | Other


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens as the provider counted them; `cached` are those of the input that it had in its
    cache, `reasoning` are part of the output.
    """

    input: int = 0
    output: int = 0
    cached: int = 0
    reasoning: int = 0


class Note(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is noted beside a payload or in its stead. Defaults are left out of storage, so the
    common note costs nothing.
    """


class CallNote(Note, frozen=True):
    """A call in a message, noted for pairing. `whole`: its arguments were fully said."""

    id: str
    name: str
    whole: bool = True


class MessageNote(Note, frozen=True):
    """What a log notes beside a payload.

    `plain`: a complete text message that says something and neither calls a tool nor answers one; a
    view passes it on unread. `partial`: its stream was cut. `late`: stored by a turn that had
    already been superseded (I-7). `inbox`: accepted, waiting for a turn to take it (I-4). `failed`:
    a tool's outcome that is an error. `target`: the call that it answers, by message and place,
    where that is known beyond its id (`target_of`). `erased`: its words were taken out of the
    store; it stands nowhere but in the transcript (I-21). `batch`: so many messages came with its
    `event`, if it was not alone.
    """

    role: Role = "user"
    format: str = USUAL_FORMAT
    plain: bool = True
    partial: bool = False
    late: bool = False
    inbox: bool = False
    calls: tuple[CallNote, ...] = ()
    answers: tuple[str, ...] = ()
    target: str | None = None
    failed: bool = False
    event: str | None = None
    reply_to: str | None = None
    finish: str | None = None
    usage: Usage | None = None
    model: str | None = None
    origin: str | None = None
    erased: bool = False
    batch: int = 0


def target_of(message: str, index: int) -> str:
    """The name of a call by the message it stands in and its place there: ids of providers are
    reused (FAULTS E4).
    """
    return f"{message}:{index}"


class Spoken(msgspec.Struct, frozen=True, gc=False):
    """A message ready to be stored: the note and the frozen payload."""

    note: MessageNote
    body: bytes


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def freeze(payload: Any, *, flat: bool = False) -> bytes:
    """The payload as JSON bytes that `thaw` turns back into an equal value; `InvalidMessage` where
    JSON can't hold it. `flat`: it is known to be.

    Any Unicode passes, lone surrogates included: those are kept as JSON escapes (FAULTS H7).
    """
    # msgspec would write what `thaw` can't give back: bytes, dates, infinities.
    try:
        if not flat and not is_plain(payload):
            check(payload)
        return _encode(payload)
    except RuntimeError as error:
        if not is_changing(error):
            raise
        raise changed_meanwhile("") from error
    except (UnicodeEncodeError, TypeError):
        # Lone surrogates; strings and numbers of somebody's own type. For these alone it is
        # loaded: that takes longer than this package.
        import json

        return json.dumps(exact(payload), separators=(",", ":")).encode()


def too_deep(place: str) -> InvalidMessage:
    """The error for data that a reader could run out of stack with."""
    return _refusal(f"it is nested more than {DEPTH_MAX} deep", place)


def is_changing(error: RuntimeError) -> bool:
    """Whether this was raised because another thread changed the data that was looked at."""
    return "during iteration" in str(error)


def changed_meanwhile(place: str) -> InvalidMessage:
    """The error for data that another thread has changed while it was looked at."""
    return _refusal("another thread changed it during the call; give a copy", place)


def thaw(body: bytes) -> Any:
    """The value that was frozen; `Damaged` when these are not its bytes any more (I-18)."""
    try:
        return _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        # it reads numbers that msgspec does not
        import json

        try:
            return json.loads(body)
        except (ValueError, RecursionError) as error:
            problem = f"it is no longer JSON ({error})"
            raise Damaged(where="a payload", problem=problem) from error
    except RecursionError as error:
        problem = "it is nested deeper than can be read"
        raise Damaged(where="a payload", problem=problem) from error


def thaw_all(bodies: list[bytes]) -> list[Any]:
    """The values that were frozen, in one go, as they can be sent."""
    try:
        return [_decode(body) for body in bodies]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # One of them is odd: by itself it is read another way, or named. It may have halves.
        return [without_halves(thaw(body)) for body in bodies]


def may_have_halves(body: bytes) -> bool:
    """Whether halves of characters may be in what was frozen: they are escaped there."""
    return b"\\u" in body


def without_halves(value: Any) -> Any:
    """The value with U+FFFD for each half of a surrogate pair: JSON may hold one, and no request
    can be sent with it.
    """
    if type(value) is str:
        try:
            value.encode()
        except UnicodeEncodeError:
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return value
    if type(value) is dict:
        return {
            without_halves(name): without_halves(each) for name, each in value.items()
        }
    if type(value) is list:
        return [without_halves(each) for each in value]
    return value


def copied(value: Any) -> Any:
    """A payload that nobody else can change: dicts and lists are new, all else in JSON can't
    change.
    """
    # Not `copy.deepcopy`, which is several times slower: this is done for every payload that a
    # caller looks at.
    # Most values are text: these are not worth a call each.
    if type(value) is dict:
        return {
            key: copied(item) if type(item) in (dict, list) else item
            for key, item in value.items()
        }
    if type(value) is list:
        return [copied(item) if type(item) in (dict, list) else item for item in value]
    return value


def is_flat(payload: Any) -> bool:
    """A dict of strings needs no walk: nothing in it can be outside JSON."""
    return all_flat((payload,))


def all_flat(payloads: Iterable[Any]) -> bool:
    """Whether all of these are flat. Long lists are recorded after every message, and a call for
    each would cost more than the look at it.
    """
    for payload in payloads:
        if type(payload) is not dict:
            return False
        for key, value in payload.items():
            if type(key) is not str or type(value) is not str:
                return False
    return True


_INTEGER_MAX = 1 << 63
_TEXT = frozenset({str})


def is_plain(value: Any, depth: int = 0) -> bool:
    """Whether JSON can hold this value, quickly: False where `check` has to be asked, which tells what
    is wrong and where. Most values have no class of somebody's own and no integer beyond 64 bits.
    """
    kind = type(value)
    if kind is dict:
        if not _TEXT.issuperset(map(type, value)):
            return False
        value = value.values()
    elif kind is not list:
        return False
    if depth >= DEPTH_MAX:
        return False
    for item in value:
        kind = type(item)
        if kind in _WHOLE:
            continue
        if kind is dict or kind is list:
            # An empty one needs no call.
            if item and not is_plain(item, depth + 1):
                return False
        elif not _is_number(kind, item):
            return False
    return True


def _is_number(kind: Any, item: Any) -> bool:
    if kind is int:
        return bool(-_INTEGER_MAX <= item < _INTEGER_MAX)
    return kind is float and math.isfinite(item)


_PLACE_MAX = 120
_WHOLE = frozenset({str, bool, type(None)})


def check(value: Any, place: str = "", depth: int = 0) -> None:
    """`InvalidMessage` where JSON can't hold this value, with the place. Classes are asked and not
    the values: what a stranger's object answers about itself may be wrong, or raise.
    """
    kind = type(value)
    if depth > DEPTH_MAX:
        raise too_deep(place)
    # Most values are these, and are done with after one look.
    if kind in _WHOLE or issubclass(kind, str):
        return
    if issubclass(kind, int):
        if int.bit_length(value) > INTEGER_BITS_MAX:
            limit = f"no integer of more than {INTEGER_BITS_MAX:,} bits"
            raise _refusal(f"JSON readers take {limit}", place)
    elif issubclass(kind, float):
        if not math.isfinite(value):
            raise _refusal(f"{float.__repr__(value)} is not a JSON number", place)
    elif issubclass(kind, dict):
        for key, item in dict.items(value):
            if not issubclass(type(key), str):
                raise _refusal(f"a key is a string, not {kind_of(key)}", place)
            name = str.__str__(key)
            check(item, f"{place}.{name}" if place else name, depth + 1)
    elif issubclass(kind, list | tuple):
        for index, item in enumerate(_items(value)):
            check(item, f"{place}[{index}]", depth + 1)
    else:
        raise _refusal(f"{kind_of(value)} is not JSON data", place)


def _items(value: Any) -> Iterator[Any]:
    """The items of a list or a tuple, whatever a class of the caller's own would give."""
    if issubclass(type(value), list):
        return list.__iter__(value)
    return tuple.__iter__(value)


def _refusal(problem: str, place: str) -> InvalidMessage:
    # It may be made of the caller's own keys, which may be long.
    if len(place) > _PLACE_MAX:
        place = f"{place[:_PLACE_MAX]}…"
    return InvalidMessage(problem=problem, place=place or "the message")


def exact(value: Any) -> Any:
    """JSON data of exactly JSON's types: an enum that is a string becomes its string, a named tuple
    a list. What has only such types comes back as it is, and so does an object that JSON has no
    type for.
    """
    kind = type(value)
    if kind in _EXACT:
        return value
    if issubclass(kind, dict):
        return {_bare(key): exact(item) for key, item in dict.items(value)}
    if issubclass(kind, list | tuple):
        return [exact(item) for item in _items(value)]
    return _bare(value)


_EXACT = frozenset({str, int, float, bool, type(None)})


def _bare(value: Any) -> Any:
    """A string or a number of somebody's own class, without the class."""
    kind = type(value)
    if kind in _EXACT:
        return value
    if issubclass(kind, str):
        return str.__str__(value)
    if issubclass(kind, int):
        return int.__int__(value)
    if issubclass(kind, float):
        return float.__float__(value)
    return value
