"""`openviking`: messages as OpenViking's session files hold them, one JSON object each.

A payload is `{"id": …, "role": …, "parts": […], "created_at": …}`; lines of older releases have
`content`, a text, in the place of `parts`. A tool's call and its result are one part: it is read as
both. A user's line that is nothing but such parts only carries them; what is called there the agent
has called.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any

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
)
from holdfast.domain.repair import Piece, Read, Step
from holdfast.errors import InvalidMessage
from holdfast.formats.format import Assembly, BuiltInFormat, Shaped
from holdfast.formats.notes import check_role, is_words, note_of
from holdfast.formats.reading import (
    NOT_JSON,
    Block,
    dumped,
    fields,
    image,
    is_blank,
    parsed,
    text,
    text_block,
)
from holdfast.formats.shaping import DialogueWriter, stand_in
from holdfast.formats.text import TextAssembly

NAME = "openviking"
_ROLES: dict[str, Role] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    # Such a line holds calls with their results, and only the agent makes calls.
    "tool": "assistant",
}
_OPEN = ("pending", "running")


class _OpenVikingWriter(DialogueWriter):
    """Writes one dialogue: results go into the part of their call."""

    name = NAME
    id_length_max = 256

    def __init__(self, read: Read, used: set[str]) -> None:
        super().__init__(read, used)
        # Parts of calls that are not answered yet, each with the place of its message.
        self._open: deque[tuple[int, Block]] = deque()
        self._out: list[Shaped] = []

    def shape(self, steps: Sequence[Step]) -> list[Shaped]:
        for step in steps:
            ids = step.shows if step.source is None else (step.source.id,)
            if step.role == "tool":
                self._answer(step, ids)
                continue
            payload = self._worded(step)
            if payload is not None:
                self._out.append((payload, ids))
        return self._out

    def _worded(self, step: Step) -> Payload | None:
        base: Any = self._own_payload(step) or {}
        if base and step.source is not None and step.source.note.plain:
            plain: Payload = base
            return plain
        parts = self._blocks(step)
        if not parts:
            return None
        # The stored role stays: a line that only carries tools counts as the agent's
        # here, but in OpenViking's own file it may be the user's.
        return {**base, "role": base.get("role", step.role), "parts": parts}

    def _block(self, piece: Piece, role: Role, *, own: bool) -> Any:
        part = piece.part
        if isinstance(part, Call):
            # A copy: the result is going to be written into it.
            made = dict(piece.raw) if own else self._call(part)
            # Its message comes after its blocks, and is going to stand at this place.
            self._open.append((len(self._out), made))
            return made
        if own and piece.raw is not None:
            return piece.raw
        if isinstance(part, Text | Refusal):
            return None if is_blank(part.text) else text_block(part.text)
        if isinstance(part, Image):
            return {"type": "image_url", "image_url": {"url": part.url}}
        if isinstance(part, Other):
            return text_block(stand_in(piece))
        return None

    def _call(self, call: Call) -> Block:
        said = parsed(call.arguments)
        if said is NOT_JSON:
            said = call.arguments
        return {
            "type": "tool",
            "tool_id": self._names.give(call.id),
            "tool_name": call.name,
            "tool_input": said,
            "tool_status": "pending",
        }

    def _answer(self, step: Step, ids: tuple[str, ...]) -> None:
        place, made = self._open.popleft()
        parts = [piece.part for piece in self._pieces(step)]
        result = next(part for part in parts if isinstance(part, Result))
        made["tool_status"] = "error" if result.error else "completed"
        made["tool_output"] = result.content
        payload, shown = self._out[place]
        # Call and result may have been one line, whose id must not be named twice.
        self._out[place] = payload, tuple(dict.fromkeys((*shown, *ids)))


class OpenViking(BuiltInFormat):
    """Lines of OpenViking's `messages.jsonl`."""

    name = NAME
    _writer = _OpenVikingWriter

    def say(self, role: Role, text: str) -> Payload:
        return {"role": role, "parts": [text_block(text)]}

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
        if _carries_tools(payload):
            role = "assistant"
        return note_of(NAME, role, self.read(payload))

    def read(self, payload: Payload) -> list[Piece]:
        assert isinstance(payload, dict)
        parts = payload.get("parts")
        if not isinstance(parts, list):
            return [Piece(Text(text(payload.get("content"))))]
        calls = payload.get("role") in ("assistant", "tool") or _carries_tools(payload)
        pieces: list[Piece] = []
        for part in parts:
            pieces += _pieces(part, calls=calls)
        return pieces

    def close(self, payloads: list[Payload], instructions: str | None) -> list[Payload]:
        # OpenViking keeps no instructions among the messages of a session.
        return payloads

    def assembly(self) -> Assembly:
        return TextAssembly(self)


def _is_plain(payload: Block) -> bool:
    parts = payload.get("parts")
    if not isinstance(parts, list):
        return is_words(payload.get("content"), ())
    return all(isinstance(part, dict) for part in parts) and is_words(parts, ("text",))


def _carries_tools(payload: Block) -> bool:
    parts = payload.get("parts")
    if not isinstance(parts, list) or not parts:
        return False
    return all(_kind(part) == "tool" for part in parts)


def _kind(part: Any) -> str:
    return text(fields(part).get("type")) or "part"


def _pieces(part: Any, *, calls: bool) -> list[Piece]:
    kind = _kind(part)
    if kind == "text":
        return [Piece(Text(text(part.get("text"))), part)]
    if kind == "tool":
        return _tool(part) if calls else [Piece(Text(_tool_in_words(part)), part)]
    if kind == "image_url":
        url = part.get("image_url")
        if isinstance(url, dict):
            url = url.get("url")
        return [Piece(image(url), part)]
    if kind == "context" and not is_blank(part.get("abstract")):
        return [Piece(Text(part["abstract"]), part)]
    return [Piece(Other(kind), part)]


def _tool(part: Block) -> list[Piece]:
    call_id = text(part.get("tool_id"))
    arguments = part.get("tool_input")
    if arguments is None:
        arguments = {}
    call = Call(call_id, text(part.get("tool_name")), dumped(arguments))
    status = part.get("tool_status")
    # Where no status is kept, an output tells that the call is done.
    if status in _OPEN or (status is None and part.get("tool_output") is None):
        return [Piece(call, part)]
    result = Result(call_id, _output(part), error=status == "error")
    return [Piece(call, part), Piece(result, part)]


def _tool_in_words(part: Block) -> str:
    """A tool's part in words, where a user says something beside it."""
    return f"[{text(part.get('tool_name')) or 'tool'}] {_output(part)}".rstrip()


def _output(part: Block) -> str:
    output = part.get("tool_output")
    if output is None or isinstance(output, str):
        return output or ""
    return dumped(output)
