"""How a dialogue is worded for goose: each message a record of its own, results on the
user's side.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from holdfast.domain.message import (
    Call,
    Image,
    Other,
    Refusal,
    Result,
    Role,
    Text,
    Thinking,
)
from holdfast.domain.repair import Piece, Step
from holdfast.formats.reading import (
    NOT_JSON,
    Block,
    fields,
    is_blank,
    parsed,
    text,
    text_block,
)
from holdfast.formats.shaping import DialogueWriter, output_text, stand_in

NAME = "goose"
_PAIRED = ("toolRequest", "frontendToolRequest", "toolResponse")
_THINKING = ("thinking", "redactedThinking")
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
        if all(block["type"] in _THINKING for block in blocks):
            return None
        if not self._is_own(step):
            blocks = _with_whole_thinking(blocks, self._pieces(step))
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
            return {**(raw or _response(piece)), "id": self._pending.popleft()}
        if isinstance(part, Text | Refusal):
            if is_blank(part.text):
                return None
            return raw or text_block(part.text)
        # A call or a result that could not be read as one would stand without its other half.
        if raw is not None and raw["type"] not in _PAIRED:
            return raw
        if isinstance(part, Image | Other):
            return _picture(piece)
        if isinstance(part, Thinking) and part.signed:
            return _signed_thinking(fields(piece.raw))
        return None


def _own_block(piece: Piece) -> Block | None:
    if isinstance(piece.raw, dict) and isinstance(piece.raw.get("type"), str):
        return piece.raw
    return None


def _signed_thinking(raw: Block) -> Block | None:
    """What the Messages API signed, under goose's names for it; goose sends it back as it is."""
    if raw.get("type") == "thinking" and not is_blank(raw.get("signature")):
        words = text(raw.get("thinking"))
        return {"type": "thinking", "thinking": words, "signature": raw["signature"]}
    if raw.get("type") == "redacted_thinking":
        return {"type": "redactedThinking", "data": raw.get("data")}
    return None


def _with_whole_thinking(blocks: list[Block], pieces: Sequence[Piece]) -> list[Block]:
    """The blocks, without thinking unless there is a block for all that was thought (I-14)."""
    thought = [piece for piece in pieces if isinstance(piece.part, Thinking)]
    said = [block for block in blocks if block["type"] in _THINKING]
    if len(said) == len(thought):
        return blocks
    return [block for block in blocks if block["type"] not in _THINKING]


def _picture(piece: Piece) -> Block:
    """goose holds the bytes of an image, never its address; words stand in for all others."""
    image = _image(piece.part.url) if isinstance(piece.part, Image) else None
    return image or text_block(stand_in(piece))


def _image(url: str) -> Block | None:
    data = _DATA_URL.fullmatch(url)
    if data is None:
        return None
    return {"type": "image", "data": data[2], "mimeType": data[1]}


def _request(call: Call) -> Block:
    arguments = parsed(call.arguments)
    if arguments is NOT_JSON:
        arguments = {"arguments": call.arguments} if call.arguments else {}
    elif not isinstance(arguments, dict):
        arguments = {"value": arguments}
    value = {"name": call.name, "arguments": arguments}
    outcome = {"status": "success", "value": value}
    return {"type": "toolRequest", "id": call.id, "toolCall": outcome}


def _response(piece: Piece) -> Block:
    result = piece.part
    assert isinstance(result, Result)
    words = text_block(output_text(result.content))
    value = {"content": [words, *_images_in(piece.raw)], "isError": result.error}
    outcome = {"status": "success", "value": value}
    return {"type": "toolResponse", "id": result.call_id, "toolResult": outcome}


def _images_in(raw: Any) -> Iterator[Block]:
    """The images in a tool's answer, as the Messages API and the Responses API hold them."""
    answer = fields(raw)
    # `content` in a result of the one, `output` in one of the other.
    parts = answer.get("content") or answer.get("output")
    if not isinstance(parts, list):
        return
    for part in parts:
        block = fields(part)
        url = text(block.get("image_url"))
        source = fields(block.get("source"))
        if source.get("type") == "base64":
            url = f"data:{source.get('media_type')};base64,{source.get('data')}"
        image = _image(url)
        if image is not None:
            yield image
