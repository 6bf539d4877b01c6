"""`anthropic`: messages of the Messages API.

User and assistant alternate; results of tools are blocks at the head of the user message that
follows the call. What the model thought is signed: a message's thinking is sent back as it came, or
not at all (I-14, FAULTS E8).
"""

from collections.abc import Sequence
from typing import Any

from holdfast.domain.message import (
    Call,
    Image,
    MessageNote,
    Other,
    Part,
    Payload,
    Result,
    Role,
    Text,
    Thinking,
)
from holdfast.domain.repair import Piece, Read, Step
from holdfast.formats.anthropic.stream import AnthropicAssembly
from holdfast.formats.anthropic.writer import AnthropicWriter, image_url, paired
from holdfast.formats.format import Assembly, Shaped
from holdfast.formats.notes import check_content, check_role, is_words, note_of
from holdfast.formats.shaping import dialogue, dumped, is_blank

NAME = "anthropic"
EARLIER = "(earlier messages are not shown)"
_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}
_PLAIN_KEYS = frozenset({"role", "content"})


class Anthropic:
    """Messages API messages."""

    name = NAME

    def __init__(self, read: Read) -> None:
        self._read_any = read

    def say(self, role: Role, text: str) -> Payload:
        return {"role": role, "content": text}

    def note(self, payload: Payload) -> MessageNote:
        role = check_role(payload, _ROLES)
        assert isinstance(payload, dict)
        content = payload.get("content")
        check_content(content)
        if (
            role != "system"
            and payload.keys() <= _PLAIN_KEYS
            and is_words(content, ("text",))
        ):
            return MessageNote(role=role, format=NAME)
        return note_of(NAME, role, self.read(payload))

    def read(self, payload: Payload) -> list[Piece]:
        assert isinstance(payload, dict)
        content = payload.get("content")
        if isinstance(content, str):
            return [Piece(Text(content))]
        return [Piece(_part(block), block) for block in content or ()]

    def shape(
        self,
        steps: Sequence[Step],
        *,
        used: set[str],
        first: bool,
        goes_on: bool = False,
    ) -> list[Shaped]:
        shaped = dialogue(steps, AnthropicWriter(self._read_any, used))
        last = shaped[-1:] if goes_on else []
        shaped = [
            (_paired(payload), ids)
            for payload, ids in shaped[: len(shaped) - len(last)]
        ] + last
        if first and shaped and shaped[0][0]["role"] != "user":  # type: ignore[call-overload]
            shaped.insert(0, ({"role": "user", "content": EARLIER}, ()))
        return shaped

    def close(self, payloads: list[Payload], instructions: str | None) -> list[Payload]:
        """A closing assistant message is one the model should go on with: it may not end in white
        space.
        """
        last = payloads[-1] if payloads else None
        if not isinstance(last, dict) or last["role"] != "assistant":
            return payloads
        content = last["content"]
        if isinstance(content, str):
            content = content.rstrip()
        elif content[-1]["type"] == "text":
            content = [
                *content[:-1],
                {**content[-1], "text": content[-1]["text"].rstrip()},
            ]
        return (
            payloads
            if content == last["content"]
            else [*payloads[:-1], {**last, "content": content}]
        )

    def assembly(self) -> Assembly:
        return AnthropicAssembly(self.note)


def _paired(payload: Payload) -> Payload:
    """The message, if it is an assistant's, with uses of the provider's own tools and their results
    in pairs.
    """
    assert isinstance(payload, dict)
    content = payload["content"]
    if payload["role"] != "assistant" or isinstance(content, str):
        return payload
    blocks = paired(content)
    return payload if blocks is content else {**payload, "content": blocks}


def _part(block: dict[str, Any]) -> Part:
    kind = block["type"]
    if kind == "text":
        return Text(_text(block.get("text")))
    if kind == "thinking":
        return Thinking(
            _text(block.get("thinking")), signed=not is_blank(block.get("signature"))
        )
    if kind == "redacted_thinking":
        return Thinking("", signed=not is_blank(block.get("data")))
    if kind == "tool_use":
        return Call(_text(block.get("id")), _text(block.get("name")), _arguments(block))
    if kind == "tool_result":
        error = block.get("is_error") is True
        return Result(
            _text(block.get("tool_use_id")),
            _result_text(block.get("content")),
            error=error,
        )
    if kind == "image":
        url = image_url(block)
        return Image(url) if url else Other("image")
    return Other(kind)


def _arguments(block: dict[str, Any]) -> str:
    """Arguments as JSON text; of a call that was cut off, the text that had arrived."""
    cut = block.get("partial_json")
    return cut if isinstance(cut, str) else dumped(block.get("input", {}))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _result_text(content: Any) -> str:
    if isinstance(content, list):
        blocks = [block for block in content if isinstance(block, dict)]
        return "\n".join(
            _text(b.get("text")) if b.get("type") == "text" else f"[{b.get('type')}]"
            for b in blocks
        )
    return _text(content)
