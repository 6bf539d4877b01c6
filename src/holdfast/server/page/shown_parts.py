"""Parts of messages as a person is shown them: one shape for all, and no text longer than a screen can
take.
"""

from collections.abc import Iterable
from typing import Literal

import msgspec

from holdfast.domain.message import (
    Call,
    Image,
    Part,
    Refusal,
    Result,
    Text,
    Thinking,
)

TEXT_MAX = 20_000
"""So many characters of a part are shown. The entry itself has all of them."""
Kind = Literal["text", "call", "result", "thinking", "refusal", "image", "other"]


class ShownPart(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part of a message. `text` are its words: of a call its arguments, of a result what the tool
    answered, of an image its address; `left_out` counts the characters that it is too long by.
    """

    kind: Kind
    text: str
    name: str = ""
    call_id: str = ""
    error: bool = False
    left_out: int = 0


def shown_parts(parts: Iterable[Part]) -> list[ShownPart]:
    """These parts, for a person."""
    return [_shown(part) for part in parts]


def _shown(part: Part) -> ShownPart:
    match part:
        case Text(text=text):
            return _cut("text", text)
        case Call(id=id, name=name, arguments=said):
            return _cut("call", said, name=name, call_id=id)
        case Result(call_id=id, content=content, error=error):
            return _cut("result", content, call_id=id, error=error)
        case Thinking(text=text):
            return _cut("thinking", text)
        case Refusal(text=text):
            return _cut("refusal", text)
        case Image(url=url):
            # The image itself is no use to a reader.
            address = url.partition(",")[0] if url.startswith("data:") else url
            return _cut("image", address)
        case other:
            return _cut("other", other.kind)


def _cut(
    kind: Kind, text: str, *, name: str = "", call_id: str = "", error: bool = False
) -> ShownPart:
    left_out = max(0, len(text) - TEXT_MAX)
    return ShownPart(kind, text[:TEXT_MAX], name, call_id, error, left_out)


def without_words(parts: Iterable[Part]) -> bool:
    """Whether these say nothing to a reader."""
    for part in parts:
        if not isinstance(part, Text | Refusal) or part.text.strip():
            return False
    return True
