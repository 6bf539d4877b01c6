"""`openai.responses`: items of the Responses API.

A payload is one item, or a list of items: one model response, which is one message. Reasoning items
belong to the items they led to; a response is sent back whole, or without its reasoning and its
server-side ids (I-14, FAULTS E9).
"""

from collections.abc import Collection
from typing import Any

from holdfast.domain.arguments import shown
from holdfast.domain.message import (
    MessageNote,
    Other,
    Part,
    Payload,
    Refusal,
    Role,
    Text,
    Thinking,
)
from holdfast.domain.repair import Piece
from holdfast.errors import InvalidMessage
from holdfast.formats.format import BuiltInFormat
from holdfast.formats.notes import check_content, check_role, is_words, note_of
from holdfast.formats.openai.responses_stream import ResponsesAssembly
from holdfast.formats.openai.responses_tools import (
    OUTPUTS,
    RUN,
    SAID,
    answered_within,
    call_of,
    result_of,
)
from holdfast.formats.openai.responses_writer import (
    NAME,
    ResponsesWriter,
    is_replayable,
)
from holdfast.formats.reading import Block, image, text

_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}
_WORDS = ("input_text", "output_text")
# All keys that the API takes in a message: with any other one it can't be sent unread.
_MESSAGE_KEYS = frozenset({"type", "role", "content", "id", "status", "phase"})


class OpenAIResponses(BuiltInFormat):
    """Responses API items."""

    name = NAME
    _writer = ResponsesWriter
    _assembly = ResponsesAssembly

    def note(self, payload: Payload) -> MessageNote:
        if isinstance(payload, list):
            items = payload
            roles = [_role(item, f"[{at}]") for at, item in enumerate(items)]
            if not {"user", "system"}.isdisjoint(roles):
                problem = (
                    "a list of items is one model response; store what others say item "
                    "by item"
                )
                raise InvalidMessage(problem=problem, place="the message")
        else:
            items = [payload]
            roles = [_role(payload, "")]
        if items and all(_is_plain(item) for item in items):
            return MessageNote(role=roles[0], format=NAME)
        # A response that holds outputs of server-run tools is still the model's. For a
        # lone result, `note_of` sets the role to `tool`.
        role: Role = next((role for role in roles if role != "tool"), "assistant")
        return note_of(NAME, role, self.read(payload))

    def read(self, payload: Payload) -> list[Piece]:
        if not isinstance(payload, list):
            return _pieces(payload)
        served = answered_within(payload)
        pieces: list[Piece] = []
        for item in payload:
            pieces += _pieces(item, served)
        return pieces


def _role(item: Any, place: str) -> Role:
    """Who speaks in an item, which stands at `place` of a response or, without one, alone."""
    if not isinstance(item, dict):
        problem = f"an item is a dict, not a {type(item).__name__}"
        raise InvalidMessage(problem=problem, place=place or "the message")
    kind = item.get("type")
    if kind is None or kind == "message":
        role = check_role(item, _ROLES)
        check_content(item.get("content"), f"{place}.content".lstrip("."))
        return role
    if not isinstance(kind, str):
        problem = f"{shown(kind)} is not an item's type"
        raise InvalidMessage(problem=problem, place=f"{place}.type".lstrip("."))
    if kind in OUTPUTS:
        return "tool"
    # In a response, what looks like an answer is one that the server gave itself.
    if not place and kind.endswith(("_output", "_response")):
        return "user"
    return "assistant"


def _is_plain(item: Block) -> bool:
    if "role" not in item or not item.keys() <= _MESSAGE_KEYS:
        return False
    return is_words(item.get("content"), _WORDS)


def _pieces(item: Block, served: Collection[str] = ()) -> list[Piece]:
    kind = item.get("type") or "message"
    if kind == "message":
        content = item.get("content")
        if isinstance(content, str):
            return [Piece(Text(content), {"type": "input_text", "text": content})]
        return [Piece(_part(block), block) for block in content or ()]
    return [Piece(_item_part(kind, item, served), item)]


def _item_part(kind: str, item: Block, served: Collection[str]) -> Part:
    # The server has answered it: read as a call, it would be given a second result. An
    # id that is no text may have no hash to be looked up by.
    if text(item.get("call_id")) in served:
        return Other(kind)
    if kind in SAID or kind in RUN:
        return call_of(item)
    if kind in OUTPUTS:
        return result_of(item)
    if kind == "reasoning":
        return Thinking(_summary(item), signed=is_replayable(item))
    return Other(kind)


def _part(block: Block) -> Part:
    kind = block["type"]
    if kind in _WORDS or kind == "text":
        return Text(text(block.get("text")))
    if kind == "output_audio":
        return Text(text(block.get("transcript")))
    if kind == "refusal":
        return Refusal(text(block.get("refusal")))
    if kind == "input_image":
        return image(block.get("image_url"))
    # Shown to people and other providers: `[file]`, not `[input_file]`.
    return Other(kind.removeprefix("input_"))


def _summary(item: Block) -> str:
    words = []
    for key in ("summary", "content"):
        blocks = item.get(key)
        if not isinstance(blocks, list):
            continue
        for block in blocks:
            if isinstance(block, dict):
                words.append(text(block.get("text")))
    return "\n".join(words)
