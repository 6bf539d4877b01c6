"""What was said, as the GenAI conventions put it on a span: JSON, with what looks like a secret left
out. Used only where content was asked for.
"""

from typing import Any

from holdfast.domain.approval import read_arguments
from holdfast.domain.message import (
    Call,
    MessageNote,
    Part,
    Refusal,
    Result,
    Text,
    Thinking,
)
from holdfast.formats import registry
from holdfast.formats.reading import dumped
from holdfast.formats.secret_shapes import redacted_value

CONTENT_MAX = 100_000
"""A span has at most so many characters of content; what comes after that is left out whole."""


class Content:
    """The messages of one span, until they are too many."""

    def __init__(self) -> None:
        self._messages: list[str] = []
        self._left = CONTENT_MAX

    def add(self, note: MessageNote, body: bytes) -> None:
        """Adds a message, if there is room for it."""
        text = dumped(message_content(note, body))
        # Counted even if it is left out: then what comes after it is, too, and nothing
        # is missing in the middle.
        self._left -= len(text)
        if self._left >= 0:
            self._messages.append(text)

    def json(self) -> str | None:
        """All of them; None when nothing was said."""
        if not self._messages:
            return None
        return "[" + ",".join(self._messages) + "]"


def message_content(note: MessageNote, body: bytes) -> dict[str, Any]:
    """A stored message in the words of the conventions."""
    parts = []
    for piece in registry.read(note.format, body):
        part = _part(piece.part)
        if part is not None:
            parts.append(part)
    found: dict[str, Any] = {"role": note.role, "parts": parts}
    if note.role == "assistant":
        found["finish_reason"] = note.finish or ("error" if note.partial else "stop")
    return found


def list_content(messages: list[Any], format: str) -> str | None:
    """A caller's own list of messages, before it is stored; those that are none are left out."""
    content = Content()
    shape = registry.get(format)
    for message in messages:
        try:
            content.add(shape.note(message), dumped(message).encode())
        # A list of a client's may hold anything; its provider says what is wrong with it.
        except Exception:
            continue
    return content.json()


def _part(part: Part) -> dict[str, Any] | None:
    match part:
        case Text(text=text) | Refusal(text=text):
            return {"type": "text", "content": redacted_value(text)}
        case Thinking(text=text):
            return {"type": "reasoning", "content": redacted_value(text)}
        case Call(id=id, name=name, arguments=arguments):
            given = redacted_value(read_arguments(arguments))
            return {"type": "tool_call", "id": id, "name": name, "arguments": given}
        case Result(call_id=id, content=content):
            said = redacted_value(content)
            return {"type": "tool_call_response", "id": id, "response": said}
    # A picture, or something that only its own format can say.
    return None


def arguments_of(call_id: str, format: str, body: bytes) -> str | None:
    """The arguments of a call in a message."""
    for piece in registry.read(format, body):
        if isinstance(piece.part, Call) and piece.part.id == call_id:
            arguments: str = redacted_value(piece.part.arguments)
            return arguments[:CONTENT_MAX]
    return None


def result_of(call_id: str, format: str, body: bytes) -> str | None:
    """The outcome of a call in a message."""
    for piece in registry.read(format, body):
        if isinstance(piece.part, Result) and piece.part.call_id == call_id:
            content: str = redacted_value(piece.part.content)
            return content[:CONTENT_MAX]
    return None
