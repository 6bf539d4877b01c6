"""What a format is: how one provider or framework shapes a message.

A format reads payloads into neutral parts, shapes a repaired dialogue into payloads, and assembles
a streamed message from its chunks. Formats are stateless; an `Assembly` holds the state of one
stream.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from holdfast.domain.chunk import Delta
from holdfast.domain.message import MessageNote, Payload, Role, Spoken
from holdfast.domain.repair import Piece, Read, Step
from holdfast.formats.reading import is_blank

Shaped = tuple[Payload, tuple[str, ...]]
"""A payload, and the ids of the messages it shows; no ids when repair made it."""


class Format(Protocol):
    """One way to shape messages."""

    name: str

    def say(self, role: Role, text: str) -> Payload:
        """The payload of a message that is only words."""
        ...

    def note(self, payload: Payload) -> MessageNote:
        """What the log notes beside this payload; `InvalidMessage` when it isn't a message of this
        format.
        """
        ...

    def read(self, payload: Payload) -> list[Piece]:
        """The payload as neutral parts, each with its own raw block. Never raises for a payload
        that was noted.
        """
        ...

    def shape(
        self,
        steps: Sequence[Step],
        *,
        used: set[str],
        first: bool,
        goes_on: bool = False,
    ) -> list[Shaped]:
        """Steps as payloads, each with the ids of the stored messages it shows.

        Shaping can be done in pieces, cut where `repair.may_cut` allows it: `used` carries the call
        ids given out so far and is added to, `first` tells whether these are the first steps of the
        dialogue. `goes_on`: the model is to go on with the last message, if that is its own, so it
        is sent as it was left.
        """
        ...

    def close(self, payloads: list[Payload], instructions: str | None) -> list[Payload]:
        """The finished list: instructions put where the format wants them, a last message of the
        model's, which it is to go on with, in a shape that the provider takes there.
        """
        ...

    def assembly(self) -> "Assembly":
        """A fresh assembly for one streamed message."""
        ...


class Assembly(Protocol):
    """A message being put together from a stream."""

    ends_with_source: bool
    """Whether the end of its source is its end: nothing in the stream says it."""

    def take(self, chunk: Any) -> list[Delta]:
        """A provider chunk, as a dict or as an SDK object, as deltas. Does not change the
        assembly's message.
        """
        ...

    def fold(self, deltas: Sequence[Delta]) -> None:
        """Adds deltas to the message: those just taken, or those read back from the journal."""
        ...

    @property
    def complete(self) -> bool:
        """Whether the stream has said its end."""
        ...

    def message(self) -> Spoken | None:
        """The message so far, marked partial unless complete; None when nothing was said at all."""
        ...


class Shaper(Protocol):
    """Words one dialogue."""

    def shape(self, steps: Sequence[Step]) -> list[Shaped]:
        """Steps as payloads, each with the ids of the stored messages it shows."""
        ...


class BuiltInFormat:
    """What the formats of this package do alike. Each adds `note` and `read`, and names the classes
    of its writer and its assembly.
    """

    name: str
    # Classes: a function would be bound as a method, and be given `self` first.
    _writer: Callable[[Read, set[str]], Shaper]
    _assembly: Callable[[Callable[[Payload], MessageNote]], Assembly]

    def __init__(self, read: Read) -> None:
        # Handed in, since a dialogue may hold messages of any format and the registry,
        # which knows them all, imports this module.
        self._read_any = read

    def say(self, role: Role, text: str) -> Payload:
        # OpenAI's two APIs and Anthropic's agree on this; other formats override it.
        return {"role": role, "content": text}

    def note(self, payload: Payload) -> MessageNote:
        raise NotImplementedError

    def shape(
        self,
        steps: Sequence[Step],
        *,
        used: set[str],
        first: bool,
        goes_on: bool = False,
    ) -> list[Shaped]:
        # `first` and `goes_on` make a difference to Anthropic's API only.
        return self._writer(self._read_any, used).shape(steps)

    def close(self, payloads: list[Payload], instructions: str | None) -> list[Payload]:
        # A context is closed twice, for its instructions with an empty list and for its
        # last messages without instructions: nothing here may depend on both at once.
        if instructions is None or is_blank(instructions):
            return payloads
        return [self.say("system", instructions), *payloads]

    def assembly(self) -> Assembly:
        return self._assembly(self.note)
