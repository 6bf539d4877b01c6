"""`anthropic`: messages of the Messages API.

User and assistant alternate; results of tools are blocks at the head of the user message that
follows the call. What the model thought is signed: a message's thinking is sent back as it came, or
not at all (I-14, FAULTS E8).
"""

from collections.abc import Sequence

from holdfast.domain.message import (
    Call,
    MessageNote,
    Other,
    Part,
    Payload,
    Result,
    Role,
    Text,
    Thinking,
)
from holdfast.domain.repair import Piece, Step
from holdfast.formats.anthropic.stream import AnthropicAssembly
from holdfast.formats.anthropic.writer import NAME, AnthropicWriter, image_url, paired
from holdfast.formats.format import BuiltInFormat, Shaped
from holdfast.formats.notes import check_content, check_role, is_words, note_of
from holdfast.formats.reading import Block, dumped, image, is_blank, text, texts_of

EARLIER = "(earlier messages are not shown)"
_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}
_PLAIN_KEYS = frozenset({"role", "content"})


class Anthropic(BuiltInFormat):
    """Messages API messages."""

    name = NAME
    _writer = AnthropicWriter
    _assembly = AnthropicAssembly

    def note(self, payload: Payload) -> MessageNote:
        role = check_role(payload, _ROLES)
        assert isinstance(payload, dict)
        content = payload.get("content")
        check_content(content)
        # This API knows no system messages: one is said from the user's side, and so never plain.
        is_bare = role != "system" and payload.keys() <= _PLAIN_KEYS
        if is_bare and is_words(content, ("text",)):
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
        shaped = super().shape(steps, used=used, first=first)
        # The provider itself goes on with what the last message has begun.
        settled = len(shaped) - 1 if goes_on else len(shaped)
        for at, (payload, ids) in enumerate(shaped[: max(settled, 0)]):
            shaped[at] = _paired(payload), ids
        # What came before was compacted or rewound away, and the API wants the user to begin.
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
            # Blank texts were left out when it was shaped: some of this one stays.
            *before, block = content
            content = [*before, {**block, "text": block["text"].rstrip()}]
        if content == last["content"]:
            return payloads
        return [*payloads[:-1], {**last, "content": content}]


def _paired(payload: Payload) -> Payload:
    """The message, if it is an assistant's, with uses of the provider's own tools and their results
    in pairs.
    """
    assert isinstance(payload, dict)
    content = payload["content"]
    if payload["role"] != "assistant" or isinstance(content, str):
        return payload
    blocks = paired(content)
    if blocks is content:
        return payload
    return {**payload, "content": blocks}


def _part(block: Block) -> Part:
    kind = block["type"]
    if kind == "text":
        return Text(text(block.get("text")))
    if kind == "thinking":
        signed = not is_blank(block.get("signature"))
        return Thinking(text(block.get("thinking")), signed=signed)
    if kind == "redacted_thinking":
        return Thinking("", signed=not is_blank(block.get("data")))
    if kind == "tool_use":
        return Call(text(block.get("id")), text(block.get("name")), _arguments(block))
    if kind == "tool_result":
        error = block.get("is_error") is True
        words = texts_of(block.get("content"))
        return Result(text(block.get("tool_use_id")), words, error=error)
    if kind == "image":
        return image(image_url(block))
    return Other(kind)


def _arguments(block: Block) -> str:
    """Arguments as JSON text; of a call that was cut off, the text that had arrived."""
    cut = block.get("partial_json")
    if isinstance(cut, str):
        return cut
    return dumped(block.get("input", {}))
