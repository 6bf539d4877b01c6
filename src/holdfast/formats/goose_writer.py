"""How a dialogue is worded for goose: each message a record of its own, results on the
user's side.
"""

import re
from typing import Any

from holdfast.domain.message import Call, Image, Other, Refusal, Result, Role, Text
from holdfast.domain.repair import Piece, Step
from holdfast.formats.reading import NOT_JSON, Block, is_blank, parsed, text_block
from holdfast.formats.shaping import DialogueWriter, output_text, stand_in

NAME = "goose"
_PAIRED = ("toolRequest", "frontendToolRequest", "toolResponse")
_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,(.+)", re.DOTALL)


class GooseWriter(DialogueWriter):
    """Writes one dialogue. goose joins neighbours by itself before it asks a model, so they stay as
    they are here.
    """

    name = NAME
    sides = dict.fromkeys(("user", "assistant", "tool", "system"))

    def write(self, step: Step, *, joined: bool) -> Block | None:
        blocks = self._blocks(step)
        # Thinking alone says nothing. `all` of no blocks is true, so that an empty
        # message is left out as well.
        if all(block["type"] in ("thinking", "redactedThinking") for block in blocks):
            return None
        role = "assistant" if step.role == "assistant" else "user"
        return {**self._identity(step), "role": role, "content": blocks}

    def _identity(self, step: Step) -> Block:
        """Who the message is: as it was stored, or with what Holdfast knows of it."""
        source = step.source
        if source is None:
            return {"id": step.shows[0]} if step.shows else {}
        stored = self._own_payload(step)
        if stored is not None:
            return dict(stored)
        # goose's metadata has both flags, or is damaged. Its times are in seconds.
        metadata = {"userVisible": True, "agentVisible": True}
        return {"id": source.id, "created": source.at // 1000, "metadata": metadata}

    def _block(self, piece: Piece, role: Role, *, own: bool) -> Any:
        part = piece.part
        raw = _own_block(piece) if own else None
        if isinstance(part, Call):
            return {**(raw or _request(part)), "id": self._open_call(part.id)}
        if isinstance(part, Result):
            if role != "tool":
                return None
            return {**(raw or _response(part)), "id": self._pending.popleft()}
        if isinstance(part, Text | Refusal):
            if is_blank(part.text):
                return None
            return raw or text_block(part.text)
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
    if isinstance(piece.part, Image):
        data = _DATA_URL.fullmatch(piece.part.url)
        if data:
            return {"type": "image", "data": data[2], "mimeType": data[1]}
    return text_block(stand_in(piece))


def _request(call: Call) -> Block:
    arguments = parsed(call.arguments)
    if arguments is NOT_JSON:
        arguments = {"arguments": call.arguments} if call.arguments else {}
    elif not isinstance(arguments, dict):
        arguments = {"value": arguments}
    value = {"name": call.name, "arguments": arguments}
    outcome = {"status": "success", "value": value}
    return {"type": "toolRequest", "id": call.id, "toolCall": outcome}


def _response(result: Result) -> Block:
    words = text_block(output_text(result.content))
    value = {"content": [words], "isError": result.error}
    outcome = {"status": "success", "value": value}
    return {"type": "toolResponse", "id": result.call_id, "toolResult": outcome}
