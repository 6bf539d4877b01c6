"""What can be found in a message.

The words of people and models can be found, the names and arguments of tool calls, and what tools
answered; reasoning, instructions and summaries can't.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from holdfast.domain.entry import note_of
from holdfast.domain.message import Call, MessageNote, Part, Refusal, Result, Text, thaw
from holdfast.domain.search.query import TEXT_MAX, SearchableText
from holdfast.formats import registry

EarlierNotes = Callable[[bytes], Iterable[bytes]]
"""Gives the notes of messages before an entry that have these bytes in them."""


def words_of(
    kind: str, note: bytes, body: bytes, earlier: EarlierNotes
) -> SearchableText | None:
    """What can be found in an entry; None when that is nothing."""
    if kind != "message" or not body:
        return None
    try:
        return _words_of(note, body, earlier)
    except Exception:
        # One that can't be read has no words; the others are found (I-25).
        return None


def _words_of(note: bytes, body: bytes, earlier: EarlierNotes) -> SearchableText:
    said: MessageNote = note_of("message", note)
    tools = dict.fromkeys(call.name for call in said.calls)
    for id in said.answers:
        tools |= dict.fromkeys(_callers(id, earlier))
    return SearchableText(
        _text(said.format, body)[:TEXT_MAX], said.role, said.partial, tuple(tools)
    )


def _callers(id: str, earlier: EarlierNotes) -> Iterator[str]:
    """The name of the tool that was called under this id, last before its answer."""
    # As it stands in the JSON of a note. msgspec can't encode half of a character.
    needle = msgspec.json.encode(id.encode("utf-8", "replace").decode())[1:-1]
    for note in earlier(needle):
        for call in note_of("message", note).calls:
            if call.id == id:
                yield call.name
                return


def _text(format: str, body: bytes) -> str:
    # Of a later release, or of a program with a format of its own.
    if not registry.is_known(format):
        return "\n".join(_strings(thaw(body)))
    pieces = registry.read(format, body)
    return "\n".join(text for piece in pieces if (text := _said(piece.part)))


def _said(part: Part) -> str:
    match part:
        case Text(text) | Refusal(text):
            return text
        case Call(_, name, arguments):
            return f"{name} {_readable(arguments)}"
        case Result(_, content):
            return _readable(content)
        case _:
            return ""


def _readable(said: str) -> str:
    """What a program said as people would look for it: JSON that has escapes in it without them."""
    if "\\" in said and said.lstrip()[:1] in ("{", "["):
        try:
            return " ".join(_strings(thaw(said.encode("utf-8", "surrogatepass"))))
        except (ValueError, RecursionError):
            # Not JSON, or not all of it, or nothing that anybody would read.
            pass
    return said


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield f"{name}:"
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
    elif value is not None:
        yield str(value)
