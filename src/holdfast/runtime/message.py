"""A message as a reader sees it."""

from typing import Any

from holdfast.domain.message import Part, Refusal, Text, Usage, thaw
from holdfast.domain.repair import Seen
from holdfast.formats import registry


class Message:
    """One message of a transcript: who spoke, what, in which turn, and what became of it.

    `state` is "complete", "partial" (its stream was cut) or "pending" (accepted, no turn has taken it). `late`:
    stored by a turn that had been superseded. `payload` is exactly what was stored, in `format`.
    """

    def __init__(
        self, seen: Seen, *, turn: str | None, pending: bool = False, labels: dict[str, Any] | None = None
    ) -> None:
        self._seen = seen
        self.id = seen.id
        self.seq = seen.seq
        self.at = seen.at
        self.turn = turn
        self.role = seen.note.role
        self.format = seen.note.format
        self.late = seen.note.late
        self.labels = labels or {}
        self.event_id = seen.note.event
        self.reply_to = seen.note.reply_to
        self.finish = seen.note.finish
        self.model = seen.note.model
        self.state = "partial" if seen.note.partial else "pending" if pending else "complete"

    @property
    def payload(self) -> Any:
        return thaw(self._seen.body)

    @property
    def parts(self) -> list[Part]:
        return [piece.part for piece in registry.read(self.format, self._seen.body)]

    @property
    def text(self) -> str:
        """The words of this message that are for people."""
        return text_of(self.parts)

    @property
    def usage(self) -> Usage | None:
        return self._seen.note.usage

    def __repr__(self) -> str:
        text = self.text
        return f"<Message {self.seq} {self.role} {self.state} {text[:40]!r}{'…' if len(text) > 40 else ''}>"


def text_of(parts: list[Part]) -> str:
    """The words in these parts, as they were handed on to be shown."""
    return "".join(part.text for part in parts if isinstance(part, Text | Refusal))
