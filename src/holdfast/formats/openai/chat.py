"""`openai.chat`: messages of the Chat Completions API, and of the many servers that speak it.

A reply is one assistant message with `tool_calls`; each result is a message of role `tool`. Some
servers add what the model thought as `reasoning_content` or `reasoning`, pictures as `images`, and
much else; all of it is stored and sent back as it came.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from holdfast.domain.message import (
    USUAL_FORMAT,
    Call,
    Image,
    MessageNote,
    Other,
    Part,
    Payload,
    Refusal,
    Result,
    Role,
    Text,
    Thinking,
)
from holdfast.domain.repair import Piece, Read, Step
from holdfast.errors import InvalidMessage
from holdfast.formats.format import Assembly, Shaped
from holdfast.formats.notes import check_content, check_role, is_words, note_of
from holdfast.formats.openai.chat_stream import ChatAssembly
from holdfast.formats.openai.chat_writer import REASONING_KEYS, ChatWriter, calls_in
from holdfast.formats.shaping import dialogue, dumped, is_blank

NAME = USUAL_FORMAT
_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
_PLAIN_KEYS = frozenset({"role", "content"})
_USUAL = {role: MessageNote(role=role, format=NAME) for role in ("user", "assistant")}
"""The notes of nearly every message: those that are only words."""


class OpenAIChat:
    """Chat Completions messages."""

    name = NAME

    def __init__(self, read: Read) -> None:
        self._read_any = read

    def say(self, role: Role, text: str) -> Payload:
        return {"role": role, "content": text}

    def note(self, payload: Payload) -> MessageNote:
        if type(payload) is dict and payload.keys() == _PLAIN_KEYS:
            usual = (
                _USUAL.get(payload["role"]) if type(payload["role"]) is str else None
            )
            if (
                usual is not None
                and type(payload["content"]) is str
                and not is_blank(payload["content"])
            ):
                return usual
        role = check_role(payload, _ROLES)
        assert isinstance(payload, dict)
        content = payload.get("content")
        check_content(content)
        if (
            role != "tool"
            and payload.keys() <= _PLAIN_KEYS
            and is_words(content, ("text",))
        ):
            return MessageNote(role=role, format=NAME)
        _check_calls(payload.get("tool_calls"), payload.get("function_call"))
        return note_of(NAME, role, self.read(payload))

    def read(self, payload: Payload) -> list[Piece]:
        assert isinstance(payload, dict)
        content = payload.get("content")
        if payload["role"] in ("tool", "function"):
            call_id = (
                payload.get("tool_call_id")
                if payload["role"] == "tool"
                else payload.get("name")
            )
            return [Piece(Result(_text(call_id), _result_text(content)), payload)]
        if type(content) is str and payload.keys() == _PLAIN_KEYS:
            # nearly all: nothing beside the words has to be looked for
            return [Piece(Text(content))]
        pieces = [
            Piece(Thinking(payload[key]), payload[key])
            for key in REASONING_KEYS
            if isinstance(payload.get(key), str)
        ][:1]
        if isinstance(content, str):
            pieces.append(Piece(Text(content)))
        else:
            pieces.extend(Piece(_part(block), block) for block in content or ())
        pieces.extend(_spoken_beside(payload))
        if not is_blank(payload.get("refusal")):
            pieces.append(Piece(Refusal(payload["refusal"])))
        pieces.extend(Piece(_call(call), call) for call in calls_in(payload))
        return pieces

    def shape(
        self,
        steps: Sequence[Step],
        *,
        used: set[str],
        first: bool,
        goes_on: bool = False,
    ) -> list[Shaped]:
        return dialogue(steps, ChatWriter(self._read_any))

    def close(self, payloads: list[Payload], instructions: str | None) -> list[Payload]:
        if instructions is None or is_blank(instructions):
            return payloads
        return [{"role": "system", "content": instructions}, *payloads]

    def assembly(self) -> Assembly:
        return ChatAssembly(self.note)


def _check_calls(calls: Any, single: Any) -> None:
    if single is not None and not isinstance(single, dict):
        raise InvalidMessage(
            problem=f"a call is a dict, not a {type(single).__name__}",
            place="function_call",
        )
    if calls is not None and not isinstance(calls, list):
        raise InvalidMessage(
            problem=f"calls are a list, not a {type(calls).__name__}",
            place="tool_calls",
        )
    for index, call in enumerate(calls or ()):
        if not isinstance(call, dict):
            problem = f"a call is a dict, not a {type(call).__name__}"
            raise InvalidMessage(problem=problem, place=f"tool_calls[{index}]")


def _spoken_beside(payload: dict[str, Any]) -> Iterable[Piece]:
    """What a reply says beside its content: speech, by its transcript, and pictures."""
    audio = payload.get("audio")
    if isinstance(audio, dict) and not is_blank(audio.get("transcript")):
        yield Piece(Text(audio["transcript"]))
    images = payload.get("images")
    for image in images if isinstance(images, list) else ():
        if isinstance(image, dict):
            yield Piece(_part({**image, "type": "image_url"}), None)


def _call(call: dict[str, Any]) -> Call:
    said = call.get("function") or call.get("custom")
    said = said if isinstance(said, dict) else {}
    arguments = said.get("arguments", said.get("input"))
    # not the API's own way, but that of servers that nearly speak it
    if isinstance(arguments, dict | list):
        arguments = dumped(arguments)
    return Call(_text(call.get("id")), _text(said.get("name")), _text(arguments))


def _part(block: dict[str, Any]) -> Part:
    kind = block["type"]
    if kind == "text":
        return Text(_text(block.get("text")))
    if kind == "refusal":
        return Refusal(_text(block.get("refusal")))
    if kind == "image_url":
        url = block.get("image_url")
        url = url.get("url") if isinstance(url, dict) else url
        return Image(url) if isinstance(url, str) and url else Other("image")
    if kind == "thinking":
        return Thinking(_result_text(block.get("thinking")))
    return Other({"input_audio": "audio"}.get(kind, kind))


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
