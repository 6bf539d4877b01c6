"""A message being put together: the fold of deltas that every streamed format shares.

A format's assembly adds `take`, which reads its provider's chunks, and `_payload`, which words the
parts so far. Whether the deltas come from a live stream or from the journal, the message is the
same (I-5, I-6).
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from holdfast.domain.chunk import GROWING, Delta
from holdfast.domain.message import MessageNote, Payload, Spoken, Usage, freeze
from holdfast.formats.sdk_objects import field

Deltas = list[Delta]


class Assembling:
    """The state of one stream, by part index. `note` is the format's own."""

    # Most providers mark the end of a message: one that stops without the mark was cut off.
    ends_with_source = False

    def __init__(self, note: Callable[[Payload], MessageNote]) -> None:
        self._note = note
        # Pieces are joined only when the message is asked for: a text that grew by `+=`
        # would be copied with every delta.
        self._grown: dict[int, dict[str, list[str]]] = {}
        self._calls: dict[int, dict[str, str]] = {}
        self._parts: dict[int, Any] = {}
        self._meta: dict[str, Any] = {}
        self._usage: dict[str, int] = {}
        self._final: Payload | None = None
        self._complete = False

    @property
    def complete(self) -> bool:
        """Whether the stream has said its end."""
        return self._complete

    def take(self, chunk: Any) -> Deltas:
        """A chunk as deltas."""
        raise NotImplementedError

    def fold(self, deltas: Sequence[Delta]) -> None:
        """Adds deltas to the message."""
        # A `raw` delta matches nothing here: a chunk that could not be read is kept in
        # the journal alone.
        for kind, index, value in deltas:
            if kind in GROWING:
                self._grown.setdefault(index, {}).setdefault(kind, []).append(value)
            elif kind == "call":
                self._calls[index] = value
            elif kind == "part":
                self._put(index, value)
            elif kind == "meta":
                # Counts come in several events, each with some of them; other facts are replaced.
                self._usage.update(value.get("usage") or {})
                self._meta.update(value)
            elif kind == "done":
                self._complete = True
                self._final = value

    def message(self) -> Spoken | None:
        """The message so far, marked partial unless complete; None when nothing was said at all."""
        payload = self._payload()
        if payload is None:
            return None
        # The note is the format's own, made from the payload, as for a message that came whole.
        note = self._note(payload)
        usage = None
        if self._usage:
            usage = Usage(**self._usage)
        # A partial message is never plain: repair has to choose what of it is shown.
        note = msgspec.structs.replace(
            note,
            partial=not self._complete,
            plain=note.plain and self._complete,
            finish=self._meta.get("finish"),
            usage=usage,
            model=self._meta.get("model"),
        )
        return Spoken(note, freeze(payload))

    def _put(self, index: int, block: Any) -> None:
        self._parts[index] = block

    def _joined(self, index: int, kind: str) -> str | None:
        """What a part has grown to; None when it never began."""
        grown = self._grown.get(index, {}).get(kind)
        if grown is None:
            return None
        return "".join(grown)

    def _arguments(self, index: int) -> str:
        return self._joined(index, "arguments") or ""

    def _indexes(self) -> list[int]:
        return sorted({*self._grown, *self._calls, *self._parts})

    def _payload(self) -> Payload | None:
        raise NotImplementedError


def counts(usage: Any, **paths: str) -> dict[str, int]:
    """The counts a provider gave, each found by its path of fields; those it left out stay
    unknown.
    """
    found = {}
    for name, path in paths.items():
        number = usage
        for step in path.split("."):
            number = field(number, step)
        # `True` is an int to Python, and would count as one token.
        if isinstance(number, int) and not isinstance(number, bool):
            found[name] = number
    return found


def name_of(value: Any, field_name: str) -> str | None:
    """A name that a provider gave something, as text."""
    name = field(value, field_name)
    if name is None:
        return None
    # The note's fields are text: with anything else it could not be decoded (I-25).
    return str(name)
