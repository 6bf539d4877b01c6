"""Searching: what can be found in a message, and what a finder is shown of it.

The words of people and models can be found, the names and arguments of tool calls, and what tools
answered; reasoning, instructions and summaries can't. A message belongs to the session whose log
holds it: a fork's past is found in its parent.

Answers are newest first, in the order of arrival: that is stable, and the same for every page.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any

import msgspec

from holdfast.domain.entry import note_of
from holdfast.domain.message import Call, MessageNote, Part, Refusal, Result, Text, thaw
from holdfast.domain.search.query import (
    TEXT_MAX,
    Found,
    SearchableText,
    SearchScope,
    asked,
    snippet,
)
from holdfast.engine.protocol import Engine
from holdfast.errors import InvalidMessage
from holdfast.formats import registry
from holdfast.runtime.plans.plan import Plan, read

_OF_SESSIONS = ("open", "running", "ended")
_OF_MESSAGES = ("complete", "partial")


class Hit(msgspec.Struct, frozen=True):
    """A message that was found. `snippet` is the text around the first place, in one line, `marks`
    are the places in it, from and up to; `at` is in milliseconds since 1970.
    """

    session_id: str
    key: str | None
    seq: int
    message_id: str
    role: str
    at: int
    snippet: str
    marks: tuple[tuple[int, int], ...]


def sought(
    tenant: str,
    text: str,
    *,
    role: str | None = None,
    tool: str | None = None,
    state: str | None = None,
    key: str | None = None,
    session: str | None = None,
    since: int | datetime | None = None,
    until: int | datetime | None = None,
) -> SearchScope:
    """What the caller asks for."""
    return SearchScope(
        tenant, asked(text), role=role, tool=tool, key=key, session=session,
        partial=state == "partial" if state in _OF_MESSAGES else None,
        state=state if state in _OF_SESSIONS else None,
        since=_time(since), until=_time(until),
    )  # fmt: skip


def search(engine: Engine, question: SearchScope, limit: int) -> Plan[list[Hit]]:
    """The newest messages that answer."""
    return [
        _hit(found)
        for found in (
            yield from read(lambda: engine.search(question, limit=limit), slow=True)
        )
    ]


def _hit(found: Found) -> Hit:
    shown, marks = snippet(found.words.text, found.places)
    entry = found.entry
    return Hit(
        found.session,
        found.key,
        entry.seq,
        entry.id.hex(),
        found.words.role,
        entry.at,
        shown,
        marks,
    )


def words_of(
    kind: str, note: bytes, body: bytes, earlier: Callable[[bytes], Iterable[bytes]]
) -> SearchableText | None:
    """What can be found in an entry. `earlier` gives the notes of messages before it that have
    these bytes in them.
    """
    if kind != "message" or not body:
        return None
    try:
        return _words_of(note, body, earlier)
    except (
        Exception
    ):  # one that can't be read has no words; the others are found (I-25)
        return None


def _words_of(
    note: bytes, body: bytes, earlier: Callable[[bytes], Iterable[bytes]]
) -> SearchableText:
    said: MessageNote = note_of("message", note)
    tools = dict.fromkeys(call.name for call in said.calls)
    for id in said.answers:
        tools |= dict.fromkeys(_callers(id, earlier))
    return SearchableText(
        _text(said.format, body)[:TEXT_MAX], said.role, said.partial, tuple(tools)
    )


def _callers(id: str, earlier: Callable[[bytes], Iterable[bytes]]) -> Iterator[str]:
    """The name of the tool that was called under this id, last before its answer."""
    needle = msgspec.json.encode(id.encode("utf-8", "replace").decode())[1:-1]
    for note in earlier(needle):
        for call in note_of("message", note).calls:
            if call.id == id:
                yield call.name
                return


def _text(format: str, body: bytes) -> str:
    try:
        pieces = registry.read(format, body)
    except InvalidMessage:  # of a format that is not known here
        return "\n".join(_strings(thaw(body)))
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
        except (
            ValueError,
            RecursionError,
        ):  # not JSON, or not all of it, or nothing that anybody would read
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


def _time(given: int | datetime | None) -> int | None:
    return int(given.timestamp() * 1000) if isinstance(given, datetime) else given
