"""A message as a reader sees it."""

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from holdfast.domain.message import (
    Call,
    MessageNote,
    Part,
    Refusal,
    Result,
    Text,
    Usage,
    thaw,
)
from holdfast.domain.repair import StoredMessage
from holdfast.formats import registry

T = TypeVar("T")


class MessageCall(msgspec.Struct, frozen=True):
    """A tool call in a message. `arguments` is JSON text, or a custom tool's input, as the model
    said it.
    """

    call_id: str
    name: str
    arguments: str


class Message:
    """One message of a transcript: who spoke, what, in which turn, and what became of it.

    `state` is "complete", "partial" (its stream was cut), "pending" (accepted, no turn has taken
    it), "elsewhere" (it waited when this session was forked off: it is answered in the one that it
    was accepted in) or "erased" (its words are gone). `late`: stored by a turn that had been superseded.
    `payload` is exactly what was stored, in `format`; None when it is erased or damaged, and `text`
    says so then. `at` is in milliseconds since 1970; `event_id` and `reply_to` are those it came in
    with. One that a turn took from another session has no `event_id` here: it is known there.
    `finish` is why the model stopped, as the provider said it. `labels` are a copy of its own.
    """

    id: str
    seq: int
    role: str
    state: str
    turn: str | None
    format: str
    at: int
    labels: dict[str, Any]
    late: bool
    event_id: str | None
    reply_to: str | None
    finish: str | None
    model: str | None

    def __init__(
        self,
        seen: StoredMessage,
        *,
        turn: str | None,
        pending: bool = False,
        elsewhere: bool = False,
        labels: dict[str, Any] | None = None,
    ) -> None:
        self._seen = seen
        self.id = seen.id
        self.seq = seen.seq
        self.at = seen.at
        self.turn = turn
        self.role = seen.note.role
        self.format = seen.note.format
        self.late = seen.note.late
        # The values are those of a handle's cache, and a reader may change what it is given.
        self.labels = _copied(dict(labels)) if labels else {}
        self.event_id = seen.note.event
        self.reply_to = seen.note.reply_to
        self.finish = seen.note.finish
        self.model = seen.note.model
        self.state = _state(seen.note, pending, elsewhere)

    @property
    def payload(self) -> Any:
        """The message exactly as it was stored; a copy of its own at every look."""
        return payload_of(self._seen)

    @property
    def parts(self) -> list[Part]:
        """A reading of the payload that is the same for all formats: texts, calls, results, images,
        thinking.
        """
        return self._read(
            lambda body: parts_of(self._seen.note, body), [Text(unreadable(self.seq))]
        )

    def _read(self, work: Callable[[bytes], T], otherwise: T) -> T:
        """What this makes of the payload. One that can't be read takes away nothing but itself
        (I-25).
        """
        try:
            return work(self._seen.body)
        except Exception:  # whatever it is that damaged bytes cause
            return otherwise

    @property
    def text(self) -> str:
        """The words of this message; of a tool's message, what the tool answered. Calls are in
        `calls`.
        """
        return text_of(self.parts)

    @property
    def calls(self) -> list[MessageCall]:
        """The tool calls that this message makes, in order; `Session.calls` tells what became of
        them.
        """
        return [
            MessageCall(part.id, part.name, part.arguments)
            for part in self.parts
            if isinstance(part, Call)
        ]

    @property
    def usage(self) -> Usage | None:
        """The tokens that the provider counted for this message; None when it did not say."""
        return self._seen.note.usage

    def __repr__(self) -> str:
        said = []
        if text := self.text:
            said.append(repr(_cut(text, 40)))
        for call in self.calls:
            said.append(f"{call.name}({_cut(call.arguments, 40)})")
        return f"<Message {self.seq} {self.role} {self.state} {' '.join(said) or repr('')}>"


def payload_of(seen: StoredMessage) -> Any:
    """The payload of a message as it was stored; None when it was erased or can't be read."""
    return payload_in(seen.note, seen.body)


def payload_in(note: MessageNote, body: bytes) -> Any:
    """As `payload_of`, from what an entry has."""
    # What stands for an entry that can't be read was never stored.
    if note.erased or note.origin == "unreadable":
        return None
    try:
        return thaw(body)
    except Exception:  # whatever it is that damaged bytes cause
        return None


def stored_payload(message: Message) -> bytes | None:
    """The bytes of a message's payload as they are stored (I-14); None as in `payload_of`."""
    if message.payload is None:
        return None
    return message._seen.body


def unreadable(seq: int) -> str:
    """What is shown in the place of an entry that can't be read."""
    return f"[Entry {seq} can't be read: it is damaged in the store.]"


def _copied(value: Any) -> Any:
    """JSON data, copied as deep as it goes."""
    if type(value) is dict:
        return {key: _copied(item) for key, item in value.items()}
    if type(value) is list:
        return [_copied(item) for item in value]
    return value


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[:length] + "…"


def _state(note: MessageNote, pending: bool, elsewhere: bool) -> str:
    if note.erased:
        return "erased"
    if note.partial:
        return "partial"
    if elsewhere:
        return "elsewhere"
    return "pending" if pending else "complete"


def parts_of(note: MessageNote, body: bytes) -> list[Part]:
    """A neutral reading of this payload; nothing of one that was erased."""
    if note.erased:
        return []
    return [piece.part for piece in registry.read(note.format, body)]


def text_of(parts: list[Part]) -> str:
    """The words in these parts. What a tool answered begins on a line of its own."""
    out = ""
    after_result = False
    for part in parts:
        if isinstance(part, Result):
            out += f"\n{part.content}" if out else part.content
            after_result = True
        elif isinstance(part, Text | Refusal):
            out += f"\n{part.text}" if after_result and part.text else part.text
            after_result = after_result and not part.text
    return out


def shown_text_of(parts: list[Part]) -> str:
    """The words in these parts that are handed on to be shown while the message is spoken."""
    return "".join(part.text for part in parts if isinstance(part, Text | Refusal))
