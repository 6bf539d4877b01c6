"""How a dialogue is worded for the Messages API: blocks, call ids, images, thinking."""

import re
from collections.abc import Sequence
from typing import Any

from holdfast.domain.message import Call, Image, Other, Part, Refusal, Result, Text
from holdfast.domain.repair import Piece, Step
from holdfast.formats.call_ids import function_name
from holdfast.formats.reading import (
    Block,
    fields,
    is_blank,
    parsed,
    text,
    text_block,
    without,
)
from holdfast.formats.shaping import NO_OUTPUT, DialogueWriter, stand_in, stand_ins

NAME = "anthropic"
# OpenAI allows half as much; a name is cut no shorter than this API requires.
NAME_LENGTH_MAX = 128
MEDIA = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})

_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,(.+)", re.DOTALL)
_THINKING = frozenset({"thinking", "redacted_thinking"})
_BY_CLIENTS = ("partial_json", "parsed_output")
"""What the `anthropic` client adds to a block, and what only a cut stream has."""


class AnthropicWriter(DialogueWriter):
    """Writes one dialogue: results, user text and system text are all said from the user's side."""

    name = NAME
    sides = {
        "user": "user",
        "assistant": "assistant",
        "tool": "user",
        "system": "user",
    }
    # The API takes letters, digits, `_` and `-` in an id, and refuses a request with any other.
    has_strict_ids = True

    def write(self, step: Step, *, joined: bool) -> Block | None:
        role = "assistant" if step.role == "assistant" else "user"
        payload = self._own_payload(step)
        if payload is None:
            blocks = self._made_blocks(step)
        else:
            content = payload.get("content") or []
            if isinstance(content, str):
                return None if is_blank(content) else {"role": role, "content": content}
            blocks = content
        blocks = _without_blanks(blocks)
        # Thinking goes first: whether it may be sent depends on what stands around it.
        if step.role == "assistant":
            blocks = _with_sendable_thinking(blocks, joined=joined)
            blocks = [self._resent(block) for block in blocks]
        elif step.role == "tool":
            results = [block for block in blocks if block["type"] == "tool_result"]
            blocks = [self._result(block) for block in results]
        if not blocks:
            return None
        # Whole responses are stored with their id, usage and stop reason, which the API
        # does not take back.
        return {"role": role, "content": blocks}

    def join(self, payloads: Sequence[Any]) -> Block:
        blocks: list[Block] = []
        for payload in payloads:
            content = payload["content"]
            if isinstance(content, str):
                blocks.append(text_block(content))
            else:
                blocks += content
        return {"role": payloads[0]["role"], "content": blocks}

    def _made_blocks(self, step: Step) -> list[Block]:
        pieces = self._pieces(step)
        own = self._is_own(step)
        blocks: list[Block] = []
        speaks = own
        for piece in pieces:
            if own and piece.raw is not None:
                blocks.append(piece.raw)
                continue
            block = _block(piece, step.role)
            if block or own:
                blocks.append(block)
                speaks = (
                    speaks or block["type"] != "text" or bool(block["text"].strip())
                )
        if speaks or step.role != "assistant":
            return blocks
        words = stand_ins(pieces)
        return [text_block(words)] if words else []

    def _resent(self, block: Block) -> Block:
        if block["type"] != "tool_use":
            return _as_served(block)
        given = self._open_call(text(block.get("id")))
        name = function_name(text(block.get("name")), length_max=NAME_LENGTH_MAX)
        said = block.get("input")
        if "partial_json" in block:
            said = _input(block["partial_json"])
        elif not isinstance(said, dict):
            said = {"arguments": said}
        elif (block.get("id"), block.get("name")) == (given, name):
            # What needs no change is the very block that was stored (I-14).
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
    kept = []
    for block in blocks:
        if block.get("type") != "text" or not is_blank(block.get("text")):
            kept.append(block)
    return kept


def paired(blocks: list[Block]) -> list[Block]:
    """The blocks of an assistant message without half of what the provider's own tools did.

    A turn that paused, or was cut, ends in a use of such a tool without its result; that is valid
    only as the very end of a request, where the provider goes on with it. Whatever is left says
    something: words stand in for a message of nothing but such a use.
    """
    used = {block.get("id") for block in blocks if _is_served_use(block)}
    answered = {
        block.get("tool_use_id") for block in blocks if _is_served_result(block)
    }
    if used == answered:
        return blocks
    kept: list[Block] = []
    for block in blocks:
        if _is_served_use(block) and block.get("id") not in answered:
            continue
        if _is_served_result(block) and block.get("tool_use_id") not in used:
            continue
        kept.append(block)
    while kept and kept[-1]["type"] in _THINKING:
        kept.pop()  # it led to what is gone
    if kept:
        return kept
    last = blocks[-1]
    return [text_block(f"[{last.get('name') or last['type']}: interrupted]")]


def _is_served_use(block: Block) -> bool:
    """Whether this is the use of a tool that the provider runs itself."""
    return block["type"] in ("server_tool_use", "mcp_tool_use")


def _is_served_result(block: Block) -> bool:
    kind: str = block["type"]
    # A `tool_result`, which the caller gives, does not end like this.
    return kind.endswith("_tool_result")


def _as_served(block: Block) -> Block:
    """The block as the API takes it back: without what clients add, and what only a cut
    stream has.
    """
    if "partial_json" in block or "parsed_output" in block:
        return without(block, _BY_CLIENTS)
    return block


def _with_sendable_thinking(blocks: list[Block], *, joined: bool) -> list[Block]:
    """The blocks, without thinking unless all of it is signed and stands where the model put it.

    Thinking opens a message; it comes again later only where the provider's own tools ran in
    between.
    """
    kinds = [block["type"] for block in blocks]
    if not _THINKING.intersection(kinds):
        return blocks
    signed = True
    rest = []
    for block in blocks:
        if block["type"] in _THINKING:
            signed = signed and _is_signed(block)
        else:
            rest.append(block)
    # Joined to the message before it, thinking would no longer open a message.
    if signed and _is_in_place(kinds) and not joined:
        return blocks
    return rest


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
    # Only a tool that ran within the message lets the model think again in the middle of it.
    served = any(kind.startswith("server_tool") for kind in kinds)
    return served or not _THINKING.intersection(rest)


def _is_signed(block: Block) -> bool:
    key = "signature" if block["type"] == "thinking" else "data"
    return not is_blank(block.get(key))


def _block(piece: Piece, role: str) -> Block:
    """A part as a block of this format; empty where it can't be said in this role."""
    part: Part = piece.part
    if isinstance(part, Text | Refusal):
        return text_block(part.text)
    if isinstance(part, Call):
        said = _input(part.arguments)
        return {"type": "tool_use", "id": part.id, "name": part.name, "input": said}
    if isinstance(part, Result):
        result: Block = {
            "type": "tool_result",
            "tool_use_id": part.call_id,
            "content": part.content,
        }
        if part.error:
            result["is_error"] = True
        return result
    if isinstance(part, Image | Other) and role != "assistant":
        source = _image_source(part)
        if source is None:
            return text_block(stand_in(piece))
        return {"type": "image", "source": source}
    return {}


def _input(arguments: str) -> Block:
    """Arguments as the object this API asks for; what isn't one is handed on in words."""
    if is_blank(arguments):
        return {}
    value = parsed(arguments)
    if isinstance(value, dict):
        return value
    return {"arguments": arguments}


def _image_source(part: Image | Other) -> Block | None:
    if not isinstance(part, Image):
        return None
    # Bytes of another kind than these are refused; an address is left to the provider to fetch.
    data = _DATA_URL.fullmatch(part.url)
    if data and data[1] in MEDIA:
        return {"type": "base64", "media_type": data[1], "data": data[2]}
    if part.url.startswith(("http://", "https://")):
        return {"type": "url", "url": part.url}
    return None


def image_url(block: Block) -> str:
    """The address of an image block; empty when only its provider can find it."""
    source = fields(block.get("source"))
    if source.get("type") == "base64" and isinstance(source.get("data"), str):
        return f"data:{source.get('media_type')};base64,{source['data']}"
    return text(source.get("url"))
