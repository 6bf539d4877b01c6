"""`openai.responses`: items of the Responses API.

A payload is one item, or a list of items: one model response, which is one message. Reasoning items
belong to the items they led to; a response is sent back whole, or without its reasoning and its
server-side ids (I-14, FAULTS E9).
"""

from collections.abc import Collection, Sequence
from typing import Any

from holdfast.domain.arguments import shown
from holdfast.domain.message import (
    Image,
    MessageNote,
    Other,
    Part,
    Payload,
    Refusal,
    Role,
    Text,
    Thinking,
)
from holdfast.domain.repair import Piece, Read, Step
from holdfast.errors import InvalidMessage
from holdfast.formats.format import Assembly, Shaped
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
from holdfast.formats.openai.responses_writer import ResponsesWriter, is_replayable
from holdfast.formats.shaping import is_blank

NAME = "openai.responses"
_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}
_WORDS = ("input_text", "output_text")
_MESSAGE_KEYS = frozenset({"type", "role", "content", "id", "status", "phase"})


class OpenAIResponses:
    """Responses API items."""

    name = NAME

    def __init__(self, read: Read) -> None:
        self._read_any = read

    def say(self, role: Role, text: str) -> Payload:
        return {"role": role, "content": text}

    def note(self, payload: Payload) -> MessageNote:
        items = payload if isinstance(payload, list) else [payload]
        alone = not isinstance(payload, list)
        roles = [
            _role(item, "" if alone else f"[{index}]", alone=alone)
            for index, item in enumerate(items)
        ]
        if isinstance(payload, list) and not {"user", "system"}.isdisjoint(roles):
            problem = "a list of items is one model response; store what others say item by item"
            raise InvalidMessage(problem=problem, place="the message")
        if items and all(_is_plain(item) for item in items):
            return MessageNote(role=roles[0], format=NAME)
        role: Role = next((role for role in roles if role != "tool"), "assistant")
        return note_of(NAME, role, self.read(payload))

    def read(self, payload: Payload) -> list[Piece]:
        if not isinstance(payload, list):
            return _pieces(payload)
        served = answered_within(payload)
        return [piece for item in payload for piece in _pieces(item, served)]

    def shape(
        self,
        steps: Sequence[Step],
        *,
        used: set[str],
        first: bool,
        goes_on: bool = False,
    ) -> list[Shaped]:
        return ResponsesWriter(self._read_any, used).shape(steps)

    def close(self, payloads: list[Payload], instructions: str | None) -> list[Payload]:
        if instructions is None or is_blank(instructions):
            return payloads
        return [{"role": "system", "content": instructions}, *payloads]

    def assembly(self) -> Assembly:
        return ResponsesAssembly(self.note)


def _role(item: Any, place: str, *, alone: bool) -> Role:
    if not isinstance(item, dict):
        problem = f"an item is a dict, not a {type(item).__name__}"
        raise InvalidMessage(problem=problem, place=place or "the message")
    kind = item.get("type")
    if kind is None or kind == "message":
        role = check_role(item, _ROLES)
        check_content(item.get("content"), f"{place}.content".lstrip("."))
        return role
    if not isinstance(kind, str):
        raise InvalidMessage(
            problem=f"{shown(kind)} is not an item's type",
            place=f"{place}.type".lstrip("."),
        )
    if kind in OUTPUTS:
        return "tool"
    # In a response, what looks like an answer is one that the server gave itself.
    return "user" if alone and kind.endswith(("_output", "_response")) else "assistant"


def _is_plain(item: dict[str, Any]) -> bool:
    return (
        "role" in item
        and item.keys() <= _MESSAGE_KEYS
        and is_words(item.get("content"), _WORDS)
    )


def _pieces(item: dict[str, Any], served: Collection[str] = ()) -> list[Piece]:
    kind = item.get("type") or "message"
    if kind == "message":
        content = item.get("content")
        if isinstance(content, str):
            return [Piece(Text(content), {"type": "input_text", "text": content})]
        return [Piece(_part(block), block) for block in content or ()]
    if item.get("call_id") in served and served:
        return [Piece(Other(kind), item)]
    if kind in SAID or kind in RUN:
        return [Piece(call_of(item), item)]
    if kind in OUTPUTS:
        return [Piece(result_of(item), item)]
    if kind == "reasoning":
        return [Piece(Thinking(_summary(item), signed=is_replayable(item)), item)]
    return [Piece(Other(kind), item)]


def _part(block: dict[str, Any]) -> Part:
    kind = block["type"]
    if kind in _WORDS or kind == "text":
        return Text(_text(block.get("text")))
    if kind == "output_audio":
        return Text(_text(block.get("transcript")))
    if kind == "refusal":
        return Refusal(_text(block.get("refusal")))
    if kind == "input_image":
        url = block.get("image_url")
        return Image(url) if isinstance(url, str) and url else Other("image")
    return Other(kind.removeprefix("input_"))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _summary(item: dict[str, Any]) -> str:
    blocks = [
        block
        for key in ("summary", "content")
        if isinstance(item.get(key), list)
        for block in item[key]
    ]
    return "\n".join(
        _text(block.get("text")) for block in blocks if isinstance(block, dict)
    )
