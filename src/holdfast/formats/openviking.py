"""`openviking`: messages as OpenViking's session files hold them, one JSON object each.

A payload is `{"id": …, "role": …, "parts": […], "created_at": …}`; lines of older releases have
`content`, a text, in the place of `parts`. A tool's call and its result are one part: it is read as
both. A user's line that is nothing but such parts only carries them; what is called there the agent
has called.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.domain.message import (
    Call,
    Image,
    MessageNote,
    Other,
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
from holdfast.formats.call_ids import CallNames
from holdfast.formats.format import Assembly, Shaped
from holdfast.formats.notes import check_role, is_words, note_of
from holdfast.formats.shaping import (
    dumped,
    format_of,
    is_blank,
    is_json,
    pieces_of,
    stand_in,
)
from holdfast.formats.text import TextAssembly

NAME = "openviking"
_ROLES: dict[str, Role] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "tool": "assistant",
}
_OPEN = ("pending", "running")


class OpenViking:
    """Lines of OpenViking's `messages.jsonl`."""

    name = NAME

    def __init__(self, read: Read) -> None:
        self._read_any = read

    def say(self, role: Role, text: str) -> Payload:
        return {"role": role, "parts": [{"type": "text", "text": text}]}

    def note(self, payload: Payload) -> MessageNote:
        role = check_role(payload, _ROLES)
        assert isinstance(payload, dict)
        parts = payload.get("parts")
        if not isinstance(parts, list) and not isinstance(payload.get("content"), str):
            raise InvalidMessage(
                problem="a line has a list of `parts`, or a text as `content`",
                place="parts",
            )
        if role != "system" and _is_plain(payload):
            return MessageNote(role=role, format=NAME)
        return note_of(
            NAME, "assistant" if _carries_tools(payload) else role, self.read(payload)
        )

    def read(self, payload: Payload) -> list[Piece]:
        assert isinstance(payload, dict)
        parts = payload.get("parts")
        if not isinstance(parts, list):
            return [Piece(Text(_text(payload.get("content"))))]
        calls = payload.get("role") in ("assistant", "tool") or _carries_tools(payload)
        return [piece for part in parts for piece in _pieces(part, calls=calls)]

    def shape(
        self,
        steps: Sequence[Step],
        *,
        used: set[str],
        first: bool,
        goes_on: bool = False,
    ) -> list[Shaped]:
        return _OpenVikingWriter(self._read_any, used).shape(steps)

    def close(self, payloads: list[Payload], instructions: str | None) -> list[Payload]:
        return (
            payloads  # OpenViking keeps no instructions among the messages of a session
        )

    def assembly(self) -> Assembly:
        return TextAssembly(self)


def _is_plain(payload: dict[str, Any]) -> bool:
    parts = payload.get("parts")
    if not isinstance(parts, list):
        return is_words(payload.get("content"), ())
    return all(isinstance(part, dict) for part in parts) and is_words(parts, ("text",))


def _carries_tools(payload: dict[str, Any]) -> bool:
    parts = payload.get("parts")
    return (
        isinstance(parts, list)
        and bool(parts)
        and all(_kind(part) == "tool" for part in parts)
    )


def _kind(part: Any) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    return kind if isinstance(kind, str) and kind else "part"


def _pieces(part: Any, *, calls: bool) -> list[Piece]:
    kind = _kind(part)
    if kind == "text":
        return [Piece(Text(_text(part.get("text"))), part)]
    if kind == "tool":
        return _tool(part) if calls else [Piece(Text(_told(part)), part)]
    if kind == "image_url":
        picture = part.get("image_url")
        url = picture.get("url") if isinstance(picture, dict) else picture
        return [
            Piece(Image(url) if isinstance(url, str) and url else Other("image"), part)
        ]
    if kind == "context" and not is_blank(part.get("abstract")):
        return [Piece(Text(part["abstract"]), part)]
    return [Piece(Other(kind), part)]


def _tool(part: dict[str, Any]) -> list[Piece]:
    call_id, arguments = _text(part.get("tool_id")), part.get("tool_input")
    call = Call(
        call_id,
        _text(part.get("tool_name")),
        dumped({} if arguments is None else arguments),
    )
    status = part.get("tool_status")
    if status in _OPEN or (status is None and part.get("tool_output") is None):
        return [Piece(call, part)]
    result = Result(call_id, _output(part), error=status == "error")
    return [Piece(call, part), Piece(result, part)]


def _told(part: dict[str, Any]) -> str:
    """A tool's part in words, where a user says something beside it."""
    return f"[{_text(part.get('tool_name')) or 'tool'}] {_output(part)}".rstrip()


def _output(part: dict[str, Any]) -> str:
    output = part.get("tool_output")
    return (
        output if isinstance(output, str) else "" if output is None else dumped(output)
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


class _OpenVikingWriter:
    """Writes one dialogue: results go into the part of their call."""

    def __init__(self, read: Read, used: set[str]) -> None:
        self._read = read
        self._names = CallNames(used, length_max=256)
        self._open: deque[tuple[int, dict[str, Any]]] = deque()
        self._out: list[Shaped] = []

    def shape(self, steps: Sequence[Step]) -> list[Shaped]:
        for step in steps:
            if step.role == "tool":
                self._answer(step)
                continue
            payload = self._write(step)
            if payload is not None:
                self._out.append((payload, self._ids(step)))
        return self._out

    def _ids(self, step: Step) -> tuple[str, ...]:
        return step.shows if step.source is None else (step.source.id,)

    def _write(self, step: Step) -> Payload | None:
        own = format_of(step) == NAME
        if own and step.source is not None and step.source.note.plain:
            payload: Payload = thaw(step.source.body)
            return payload
        pieces = pieces_of(step, self._read)
        parts = [
            part for piece in pieces if (part := self._part(piece, own=own)) is not None
        ]
        if not parts:
            return None
        base = thaw(step.source.body) if own and step.source is not None else {}
        return {**base, "role": base.get("role", step.role), "parts": parts}

    def _part(self, piece: Piece, *, own: bool) -> Any:
        part = piece.part
        if isinstance(part, Call):
            made = dict(piece.raw) if own else self._call(part)
            self._open.append((len(self._out), made))
            return made
        if own and piece.raw is not None:
            return piece.raw
        if isinstance(part, Text | Refusal):
            return None if is_blank(part.text) else {"type": "text", "text": part.text}
        if isinstance(part, Image):
            return {"type": "image_url", "image_url": {"url": part.url}}
        return (
            None
            if isinstance(part, Thinking | Result)
            else {"type": "text", "text": stand_in(piece)}
        )

    def _call(self, call: Call) -> dict[str, Any]:
        given = self._names.give(call.id)
        said = (
            msgspec.json.decode(call.arguments)
            if is_json(call.arguments)
            else call.arguments
        )
        return {
            "type": "tool",
            "tool_id": given,
            "tool_name": call.name,
            "tool_input": said,
            "tool_status": "pending",
        }

    def _answer(self, step: Step) -> None:
        place, made = self._open.popleft()
        [piece] = [
            piece
            for piece in pieces_of(step, self._read)
            if isinstance(piece.part, Result)
        ][:1]
        assert isinstance(piece.part, Result)
        status = "error" if piece.part.error else "completed"
        made.update(tool_status=status, tool_output=piece.part.content)
        payload, ids = self._out[place]
        self._out[place] = payload, tuple(dict.fromkeys((*ids, *self._ids(step))))
