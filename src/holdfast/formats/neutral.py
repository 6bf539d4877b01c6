"""`holdfast`: the neutral format, for messages that no provider shaped and readers that know no
provider.

A payload is `{"role": …, "parts": […]}`; the parts are those of `domain/message`, tagged by `type`.
A streamed message's chunks are deltas.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.domain.message import (
    Call,
    Image,
    MessageNote,
    Other,
    Part,
    Payload,
    Refusal,
    Result,
    Role,
    Text,
    Thinking,
)
from holdfast.domain.repair import Piece, Step
from holdfast.errors import InvalidMessage
from holdfast.formats.assembling import Assembling, Deltas
from holdfast.formats.call_ids import function_name
from holdfast.formats.format import BuiltInFormat
from holdfast.formats.notes import check_block, check_role, is_words, note_of
from holdfast.formats.reading import Block, is_blank, text_block
from holdfast.formats.shaping import DialogueWriter, output_text, public, stand_in

NAME = "holdfast"
_ROLES: dict[str, Role] = {
    "system": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}
_KEYS = frozenset({"role", "parts"})
# Parts that grew at one index stand in this order: a model thinks before it speaks.
_GROWN = {"thinking": Thinking, "text": Text, "refusal": Refusal}


class NeutralWriter(DialogueWriter):
    """Writes one dialogue."""

    name = NAME

    def write(self, step: Step, *, joined: bool) -> Block | None:
        parts = self._blocks(step)
        # Left out, it would bring two messages of the user's together, so what `_block`
        # can't say for the model is named. `all` of no parts is true, as it should be.
        if step.role == "assistant" and all(
            part["type"] == "thinking" for part in parts
        ):
            for piece in self._pieces(step):
                if isinstance(piece.part, Image | Other):
                    parts.append(text_block(stand_in(piece)))
        if not parts:
            return None
        base = self._own_payload(step)
        if base is None:
            return {"role": step.role, "parts": parts}
        return {**public(base), "role": step.role, "parts": parts}

    def join(self, payloads: Sequence[Any]) -> Block:
        parts: list[Block] = []
        for payload in payloads:
            parts += payload["parts"]
        return {**payloads[0], "parts": parts}

    def _block(self, piece: Piece, role: Role, *, own: bool) -> Block | None:
        part = piece.part
        raw: Block
        if own and piece.raw is not None:
            raw = piece.raw
        else:
            raw = msgspec.to_builtins(part)
        if isinstance(part, Text | Refusal):
            return None if is_blank(part.text) else raw
        if isinstance(part, Call):
            name = function_name(part.name)
            return {**raw, "id": self._open_call(part.id), "name": name}
        if isinstance(part, Result):
            call_id = self._pending.popleft()
            return {**raw, "call_id": call_id, "content": output_text(part.content)}
        if own or (isinstance(part, Image) and role == "user"):
            return raw
        if isinstance(part, Image | Other) and role != "assistant":
            return text_block(stand_in(piece))
        return None


class NeutralAssembly(Assembling):
    """A message put together from deltas; complete when one of them is `done`."""

    def take(self, chunk: Any) -> Deltas:
        kind, index, value = chunk
        return [(kind, index, value)]

    def _payload(self) -> Payload | None:
        parts: list[Block] = []
        for index in self._indexes():
            if index in self._parts:
                parts.append(self._parts[index])
            for kind, part in _GROWN.items():
                grown = self._joined(index, kind)
                if grown is not None:
                    parts.append(msgspec.to_builtins(part(grown)))
            call = self._calls.get(index)
            if call is not None:
                said = Call(call["id"], call["name"], self._arguments(index))
                parts.append(msgspec.to_builtins(said))
        if not parts:
            return None
        return {"role": "assistant", "parts": parts}


class Neutral(BuiltInFormat):
    """Neutral messages."""

    name = NAME
    _writer: Any = NeutralWriter
    _assembly: Any = NeutralAssembly

    def say(self, role: Role, text: str) -> Payload:
        return {"role": role, "parts": [text_block(text)]}

    def note(self, payload: Payload) -> MessageNote:
        role = check_role(payload, _ROLES)
        assert isinstance(payload, dict)
        parts = payload.get("parts")
        if not isinstance(parts, list):
            raise InvalidMessage(problem="`parts` is a list", place="parts")
        for index, part in enumerate(parts):
            check_block(part, f"parts[{index}]")
        # A plain payload is sent unread. So it is never a result, which must be paired
        # with its call, and has no other keys: those may be private.
        if role != "tool" and payload.keys() <= _KEYS and is_words(parts, ("text",)):
            return MessageNote(role=role, format=self.name)
        return note_of(self.name, role, self.read(payload))

    def read(self, payload: Payload) -> list[Piece]:
        assert isinstance(payload, dict)
        return [Piece(_part(part), part) for part in payload["parts"]]


def _part(part: Block) -> Part:
    try:
        read: Part = msgspec.convert(part, Part)
    except msgspec.ValidationError:
        # Of a later release, or not as its type says: `read` never raises, and the raw
        # part is carried along.
        return Other(part["type"])
    return read
