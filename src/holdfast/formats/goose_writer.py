"""How a dialogue is worded for goose: each message a record of its own, results on the
user's side.
"""

import re
from collections import deque
from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.domain.message import Call, Image, Other, Refusal, Result, Text, thaw
from holdfast.domain.repair import Piece, Read, Step
from holdfast.formats.call_ids import CallNames
from holdfast.formats.shaping import NO_OUTPUT, format_of, is_blank, pieces_of, stand_in

NAME = "goose"
_PAIRED = ("toolRequest", "frontendToolRequest", "toolResponse")
_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,(.+)", re.DOTALL)

Block = dict[str, Any]


class GooseWriter:
    """Writes one dialogue. goose joins neighbours by itself before it asks a model, so they stay as
    they are here.
    """

    name = NAME
    sides: dict[str, str | None] = {
        "user": None,
        "assistant": None,
        "tool": None,
        "system": None,
    }

    def __init__(self, read: Read, used: set[str]) -> None:
        self._read = read
        self._names = CallNames(used, length_max=64)
        self._pending: deque[str] = deque()

    def write(self, step: Step, *, joined: bool) -> dict[str, Any] | None:
        own = format_of(step) == NAME
        blocks = []
        for piece in pieces_of(step, self._read):
            block = self._block(piece, step.role, own=own)
            if block:
                blocks.append(block)
        if all(block["type"] in ("thinking", "redactedThinking") for block in blocks):
            return None
        role = "assistant" if step.role == "assistant" else "user"
        return {**_identity(step, own=own), "role": role, "content": blocks}

    def join(self, payloads: Sequence[Any]) -> dict[str, Any]:
        raise AssertionError("no side of this format joins")

    def _block(self, piece: Piece, role: str, *, own: bool) -> Block | None:
        part = piece.part
        raw = _own_block(piece) if own else None
        if isinstance(part, Call):
            given = self._names.give(part.id)
            self._pending.append(given)
            return {**(raw or _request(part)), "id": given}
        if isinstance(part, Result):
            if role != "tool":
                return None
            return {**(raw or _response(part)), "id": self._pending.popleft()}
        if isinstance(part, Text | Refusal):
            return (
                None
                if is_blank(part.text)
                else raw or {"type": "text", "text": part.text}
            )
        # A call or a result that could not be read as one would stand without its other half.
        if raw is not None and raw["type"] not in _PAIRED:
            return raw
        if isinstance(part, Image | Other):
            return _picture(piece)
        return None


def _own_block(piece: Piece) -> Block | None:
    if isinstance(piece.raw, dict) and isinstance(piece.raw.get("type"), str):
        return piece.raw
    return None


def _picture(piece: Piece) -> Block:
    """goose holds the bytes of an image, never its address; words stand in for all others."""
    data = (
        _DATA_URL.fullmatch(piece.part.url) if isinstance(piece.part, Image) else None
    )
    if data:
        return {"type": "image", "data": data[2], "mimeType": data[1]}
    return {"type": "text", "text": stand_in(piece)}


def _identity(step: Step, *, own: bool) -> dict[str, Any]:
    """Who the message is: as it was stored, or with what Holdfast knows of it."""
    source = step.source
    if source is None:
        return {"id": step.shows[0]} if step.shows else {}
    if own:
        return dict(thaw(source.body))
    metadata = {"userVisible": True, "agentVisible": True}
    return {"id": source.id, "created": source.at // 1000, "metadata": metadata}


def _request(call: Call) -> Block:
    try:
        arguments = msgspec.json.decode(call.arguments)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        arguments = {"arguments": call.arguments} if call.arguments else {}
    value = {
        "name": call.name,
        "arguments": arguments if isinstance(arguments, dict) else {"value": arguments},
    }
    return {
        "type": "toolRequest",
        "id": call.id,
        "toolCall": {"status": "success", "value": value},
    }


def _response(result: Result) -> Block:
    text = NO_OUTPUT if is_blank(result.content) else result.content
    value = {"content": [{"type": "text", "text": text}], "isError": result.error}
    return {
        "type": "toolResponse",
        "id": result.call_id,
        "toolResult": {"status": "success", "value": value},
    }
