"""`holdfast`: the neutral format, for messages that no provider shaped and readers that know no
provider.

A payload is `{"role": …, "parts": […]}`; the parts are those of `domain/message`, tagged by `type`.
A streamed message's chunks are deltas.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.domain.chunk import Delta
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
    thaw,
)
from holdfast.domain.repair import Piece, Read, Step
from holdfast.errors import InvalidMessage
from holdfast.formats.assembling import Assembling
from holdfast.formats.call_ids import CallNames, function_name
from holdfast.formats.format import Assembly, Shaped
from holdfast.formats.notes import check_block, check_role, is_words, note_of
from holdfast.formats.shaping import (
    NO_OUTPUT,
    dialogue,
    format_of,
    is_blank,
    pieces_of,
    public,
    stand_in,
)

NAME = "holdfast"
_ROLES: dict[str, Role] = {
    "system": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}
_KEYS = frozenset({"role", "parts"})


class Neutral:
    """Neutral messages."""

    name = NAME

    def __init__(self, read: Read) -> None:
        self._read_any = read

    def say(self, role: Role, text: str) -> Payload:
        return {"role": role, "parts": [{"type": "text", "text": text}]}

    def note(self, payload: Payload) -> MessageNote:
        role = check_role(payload, _ROLES)
        assert isinstance(payload, dict)
        parts = payload.get("parts")
        if not isinstance(parts, list):
            raise InvalidMessage(problem="`parts` is a list", place="parts")
        for index, part in enumerate(parts):
            check_block(part, f"parts[{index}]")
        if role != "tool" and payload.keys() <= _KEYS and is_words(parts, ("text",)):
            return MessageNote(role=role, format=NAME)
        return note_of(NAME, role, self.read(payload))

    def read(self, payload: Payload) -> list[Piece]:
        assert isinstance(payload, dict)
        return [Piece(_part(part), part) for part in payload["parts"]]

    def shape(
        self,
        steps: Sequence[Step],
        *,
        used: set[str],
        first: bool,
        goes_on: bool = False,
    ) -> list[Shaped]:
        return dialogue(steps, _NeutralWriter(self._read_any, used))

    def close(self, payloads: list[Payload], instructions: str | None) -> list[Payload]:
        if instructions is None or is_blank(instructions):
            return payloads
        return [self.say("system", instructions), *payloads]

    def assembly(self) -> Assembly:
        return NeutralAssembly(self.note)


def _part(part: dict[str, Any]) -> Part:
    try:
        read: Part = msgspec.convert(part, Part)
    except msgspec.ValidationError:
        return Other(part["type"])
    return read


class _NeutralWriter:
    """Writes one dialogue."""

    name = NAME
    sides: dict[str, str | None] = {
        "user": "user",
        "assistant": "assistant",
        "tool": None,
        "system": None,
    }

    def __init__(self, read: Read, used: set[str]) -> None:
        self._read = read
        self._names = CallNames(used, length_max=64)
        self._pending: deque[str] = deque()

    def write(self, step: Step, *, joined: bool) -> dict[str, Any] | None:
        pieces = pieces_of(step, self._read)
        own = format_of(step) == NAME
        parts = [
            part for piece in pieces if (part := self._part(piece, step.role, own=own))
        ]
        if step.role == "assistant" and not any(
            part["type"] != "thinking" for part in parts
        ):
            parts.extend(
                {"type": "text", "text": stand_in(piece)}
                for piece in pieces
                if _is_foreign(piece)
            )
        if not parts:
            return None
        base = public(thaw(step.source.body)) if step.source is not None and own else {}
        return {**base, "role": step.role, "parts": parts}

    def join(self, payloads: Sequence[Any]) -> dict[str, Any]:
        return {
            **payloads[0],
            "parts": [part for payload in payloads for part in payload["parts"]],
        }

    def _part(self, piece: Piece, role: Role, *, own: bool) -> dict[str, Any] | None:
        part = piece.part
        raw: dict[str, Any] = (
            piece.raw if own and piece.raw is not None else msgspec.to_builtins(part)
        )
        if isinstance(part, Text | Refusal):
            return None if is_blank(part.text) else raw
        if isinstance(part, Call):
            given = self._names.give(part.id)
            self._pending.append(given)
            return {**raw, "id": given, "name": function_name(part.name)}
        if isinstance(part, Result):
            content = NO_OUTPUT if is_blank(part.content) else part.content
            return {**raw, "call_id": self._pending.popleft(), "content": content}
        if own or (isinstance(part, Image) and role == "user"):
            return raw
        if _is_foreign(piece) and role != "assistant":
            return {"type": "text", "text": stand_in(piece)}
        return None


def _is_foreign(piece: Piece) -> bool:
    return isinstance(piece.part, Image | Other)


class NeutralAssembly(Assembling):
    """A message put together from deltas; complete when one of them is `done`."""

    def take(self, chunk: Any) -> list[Delta]:
        kind, index, value = chunk
        return [(kind, index, value)]

    def _payload(self) -> Payload | None:
        parts = [part for index in self._indexes() for part in self._parts_at(index)]
        return {"role": "assistant", "parts": parts} if parts else None

    def _parts_at(self, index: int) -> list[dict[str, Any]]:
        parts = [self._parts[index]] if index in self._parts else []
        for kind, words in (
            ("thinking", Thinking),
            ("text", Text),
            ("refusal", Refusal),
        ):
            grown = self._joined(index, kind)
            if grown is not None:
                parts.append(msgspec.to_builtins(words(grown)))
        call = self._calls.get(index)
        if call is not None:
            arguments = self._joined(index, "arguments") or ""
            parts.append(msgspec.to_builtins(Call(call["id"], call["name"], arguments)))
        return parts
