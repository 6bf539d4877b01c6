"""How a dialogue is worded for the Messages API: blocks, call ids, images, thinking."""

import re
from collections import deque
from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.domain.message import (
    Call,
    Image,
    Other,
    Part,
    Refusal,
    Result,
    Text,
    thaw,
)
from holdfast.domain.repair import Piece, Read, Step
from holdfast.formats.call_ids import CallNames, function_name
from holdfast.formats.shaping import (
    NO_OUTPUT,
    format_of,
    is_blank,
    pieces_of,
    stand_in,
    stand_ins,
)

NAME = "anthropic"
NAME_LENGTH_MAX = 128
MEDIA = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})

_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,(.+)", re.DOTALL)
_THINKING = frozenset({"thinking", "redacted_thinking"})

Block = dict[str, Any]


class AnthropicWriter:
    """Writes one dialogue: results, user text and system text are all said from the user's side."""

    name = NAME
    sides: dict[str, str | None] = {
        "user": "user",
        "assistant": "assistant",
        "tool": "user",
        "system": "user",
    }

    def __init__(self, read: Read, used: set[str]) -> None:
        self._read = read
        self._names = CallNames(used, length_max=64, strict=True)
        self._pending: deque[str] = deque()

    def write(self, step: Step, *, joined: bool) -> dict[str, Any] | None:
        role = "assistant" if step.role == "assistant" else "user"
        content = _own_content(step)
        if isinstance(content, str):
            return {"role": role, "content": content} if not is_blank(content) else None
        blocks = content if content is not None else self._blocks(step)
        blocks = _without_blanks(blocks)
        if step.role == "assistant":
            blocks = _with_sendable_thinking(blocks, joined=joined)
            blocks = [
                self._call(block) if block["type"] == "tool_use" else _as_served(block)
                for block in blocks
            ]
        elif step.role == "tool":
            blocks = [
                self._result(block)
                for block in blocks
                if block["type"] == "tool_result"
            ]
        return {"role": role, "content": blocks} if blocks else None

    def join(self, payloads: Sequence[Any]) -> dict[str, Any]:
        blocks: list[Block] = []
        for payload in payloads:
            content = payload["content"]
            if isinstance(content, str):
                blocks.append({"type": "text", "text": content})
            else:
                blocks.extend(content)
        return {"role": payloads[0]["role"], "content": blocks}

    def _blocks(self, step: Step) -> list[Block]:
        pieces = pieces_of(step, self._read)
        if format_of(step) == NAME:
            return [
                piece.raw if piece.raw is not None else _block(piece, step.role)
                for piece in pieces
            ]
        blocks = [block for piece in pieces if (block := _block(piece, step.role))]
        if step.role == "assistant" and not any(
            block["type"] != "text" or block["text"].strip() for block in blocks
        ):
            words = stand_ins(pieces)
            return [{"type": "text", "text": words}] if words else []
        return blocks

    def _call(self, block: Block) -> Block:
        given = self._names.give(
            block["id"] if isinstance(block.get("id"), str) else ""
        )
        self._pending.append(given)
        name = function_name(
            block["name"] if isinstance(block.get("name"), str) else "",
            length_max=NAME_LENGTH_MAX,
        )
        said = block.get("input")
        if "partial_json" in block:
            said = _input(block["partial_json"])
        elif not isinstance(said, dict):
            said = {"arguments": said}
        elif (block.get("id"), block.get("name")) == (given, name):
            return block
        return {**_as_served(block), "id": given, "name": name, "input": said}

    def _result(self, block: Block) -> Block:
        given = self._pending.popleft()
        content = block.get("content")
        if isinstance(content, list):
            content = _without_blanks(content)
        if not content or (isinstance(content, str) and is_blank(content)):
            content = NO_OUTPUT
        return {**block, "tool_use_id": given, "content": content}


def _without_blanks(blocks: list[Block]) -> list[Block]:
    """The API refuses a block of text that is empty or only white space."""
    return [
        block
        for block in blocks
        if block.get("type") != "text" or not is_blank(block.get("text"))
    ]


def paired(blocks: list[Block]) -> list[Block]:
    """The blocks of an assistant message without half of what the provider's own tools did.

    A turn that paused, or was cut, ends in a use of such a tool without its result; that is valid
    only as the very end of a request, where the provider goes on with it. Whatever is left says
    something: words stand in for a message of nothing but such a use.
    """
    used = {block.get("id") for block in blocks if is_served_use(block)}
    answered = {
        block.get("tool_use_id") for block in blocks if _is_served_result(block)
    }
    if used == answered:
        return blocks
    kept = [
        block
        for block in blocks
        if not (is_served_use(block) and block.get("id") not in answered)
        and not (_is_served_result(block) and block.get("tool_use_id") not in used)
    ]
    while kept and kept[-1]["type"] in _THINKING:
        kept.pop()  # it led to what is gone
    return kept or [
        {
            "type": "text",
            "text": f"[{blocks[-1].get('name') or blocks[-1]['type']}: interrupted]",
        }
    ]


def is_served_use(block: Block) -> bool:
    """Whether this is the use of a tool that the provider runs itself."""
    return block["type"] in ("server_tool_use", "mcp_tool_use")


def _is_served_result(block: Block) -> bool:
    kind: str = block["type"]
    return kind.endswith("_tool_result")


def _as_served(block: Block) -> Block:
    """The block as the API takes it back: without what clients add, and what only a cut
    stream has.
    """
    if "partial_json" in block or "parsed_output" in block:
        return {
            key: value
            for key, value in block.items()
            if key not in ("partial_json", "parsed_output")
        }
    return block


def _own_content(step: Step) -> Any:
    source = step.source
    if source is None or source.note.format != NAME:
        return None
    return thaw(source.body).get("content") or []


def _with_sendable_thinking(blocks: list[Block], *, joined: bool) -> list[Block]:
    """The blocks, without thinking unless all of it is signed and stands where the model put it.

    Thinking opens a message; it comes again later only where the provider's own tools ran in
    between.
    """
    kinds = [block["type"] for block in blocks]
    if not _THINKING.intersection(kinds):
        return blocks
    thinking = [block for block in blocks if block["type"] in _THINKING]
    signed = all(map(_is_signed, thinking))
    if signed and _is_in_place(kinds) and not joined:
        return blocks
    return [block for block in blocks if block["type"] not in _THINKING]


def _is_in_place(kinds: list[str]) -> bool:
    """Whether thinking stands where the model puts it, and leads to something unless it is all."""
    start = 0
    while start < len(kinds) and kinds[start] in _THINKING:
        start += 1
    rest = kinds[start:]
    if not rest:
        return True
    if rest[-1] in _THINKING:
        return False
    served = any(kind.startswith("server_tool") for kind in kinds)
    return served or not _THINKING.intersection(rest)


def _is_signed(block: Block) -> bool:
    return not is_blank(
        block.get("signature" if block["type"] == "thinking" else "data")
    )


def _block(piece: Piece, role: str) -> Block:
    """A part as a block of this format; empty where it can't be said in this role."""
    part: Part = piece.part
    if isinstance(part, Text | Refusal):
        return {"type": "text", "text": part.text}
    if isinstance(part, Call):
        return {
            "type": "tool_use",
            "id": part.id,
            "name": part.name,
            "input": _input(part.arguments),
        }
    if isinstance(part, Result):
        result: Block = {
            "type": "tool_result",
            "tool_use_id": part.call_id,
            "content": part.content,
        }
        return {**result, "is_error": True} if part.error else result
    if isinstance(part, Image | Other) and role != "assistant":
        source = _image_source(part.url) if isinstance(part, Image) else None
        if source:
            return {"type": "image", "source": source}
        return {"type": "text", "text": stand_in(piece)}
    return {}


def _input(arguments: str) -> dict[str, Any]:
    """Arguments as the object this API asks for; what isn't one is handed on in words."""
    if is_blank(arguments):
        return {}
    try:
        value = msgspec.json.decode(arguments)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return {"arguments": arguments}
    return value if isinstance(value, dict) else {"arguments": arguments}


def _image_source(url: str) -> Block | None:
    data = _DATA_URL.fullmatch(url)
    if data and data[1] in MEDIA:
        return {"type": "base64", "media_type": data[1], "data": data[2]}
    return (
        {"type": "url", "url": url} if url.startswith(("http://", "https://")) else None
    )


def image_url(block: Block) -> str | None:
    """The address of an image block; None when only its provider can find it."""
    source = block.get("source")
    source = source if isinstance(source, dict) else {}
    if source.get("type") == "base64" and isinstance(source.get("data"), str):
        return f"data:{source.get('media_type')};base64,{source['data']}"
    url = source.get("url")
    return url if isinstance(url, str) and url else None
