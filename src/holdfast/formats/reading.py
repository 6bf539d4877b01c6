"""How a payload is read that may not be as its API says.

A value of the wrong type counts as one that is not there. Nothing here raises: what was stored
once can be read for ever, whichever server or release wrote it.
"""

from collections.abc import Callable, Container, Iterable
from typing import Any

import msgspec

from holdfast.domain.message import DEPTH_MAX, Image, Other, check, freeze
from holdfast.errors import InvalidMessage

Block = dict[str, Any]
"""A JSON object as a format words it: a message, or a block or an item of one."""

# A format nests what it reads in its messages, and these are not to be too deep to store.
_DEPTH_AROUND = 20
# Shorter text has no depth and no number that would have to be looked at.
_SHORT = DEPTH_MAX - _DEPTH_AROUND
# None and "" are JSON values too, so what could not be read needs a value of its own.
NOT_JSON = object()
_decode = msgspec.json.decode


def text(value: Any) -> str:
    """The value, if it is a text."""
    if isinstance(value, str):
        return value
    return ""


def fields(value: Any) -> Block:
    """The value, if it is an object."""
    if isinstance(value, dict):
        return value
    return {}


def is_blank(value: Any) -> bool:
    """Whether this says nothing."""
    return not isinstance(value, str) or not value or value.isspace()


def texts_of(content: Any) -> str:
    """The words of a content that is a text or a list of blocks; a block of another kind is named
    in their midst.
    """
    if not isinstance(content, list):
        return text(content)
    return texts_in(content, lambda block: str(block.get("type")))


def texts_in(blocks: Iterable[Any], name: Callable[[Block], str]) -> str:
    """The words of these blocks; one of another kind stands in their midst by this name."""
    words = []
    for block in blocks:
        if not isinstance(block, dict):
            continue
        if block.get("type") == "text":
            words.append(text(block.get("text")))
        else:
            words.append(f"[{name(block)}]")
    return "\n".join(words)


def image(url: Any) -> Image | Other:
    """An image by its address; without one, no other provider can find it."""
    if isinstance(url, str) and url:
        return Image(url)
    return Other("image")


def text_block(words: str) -> Block:
    """Words as a block, which most formats write alike."""
    return {"type": "text", "text": words}


def without(block: Block, keys: Container[str]) -> Block:
    """A copy of the object without these keys."""
    return {key: value for key, value in block.items() if key not in keys}


def without_nulls(block: Block) -> Block:
    """A copy of the object without what is null: nulls say nothing."""
    return {key: value for key, value in block.items() if value is not None}


def is_json(words: str) -> bool:
    """Whether this is JSON text; it is not while it is not whole yet."""
    return _decoded(words) is not NOT_JSON


def parsed(words: str) -> Any:
    """The value that JSON text stands for; `NOT_JSON` where it is none, or not whole yet, or where
    the value could not be stored inside a message.
    """
    value = _decoded(words)
    if value is not NOT_JSON and len(words) > _SHORT:
        try:
            check(value, depth=_DEPTH_AROUND)
        except InvalidMessage:
            return NOT_JSON
    return value


def _decoded(words: str) -> Any:
    try:
        return _decode(words)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        # Lone surrogates fail before msgspec gets to read them, and deep nesting may
        # exhaust the stack.
        return NOT_JSON


def dumped(value: Any) -> str:
    """A value as JSON text."""
    # Unlike msgspec's encoder, `freeze` takes lone surrogates (FAULTS H7).
    return freeze(value).decode()
