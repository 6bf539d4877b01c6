"""`openai.chat`: messages of the Chat Completions API, and of the many servers that speak it.

A reply is one assistant message with `tool_calls`; each result is a message of role `tool`. Some
servers add what the model thought as `reasoning_content` or `reasoning`, pictures as `images`, and
much else; all of it is stored and sent back as it came.
"""

from collections.abc import Iterator
from typing import Any

from holdfast.domain.message import (
    USUAL_FORMAT,
    Call,
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
from holdfast.domain.repair import Piece
from holdfast.errors import InvalidMessage
from holdfast.formats.format import BuiltInFormat
from holdfast.formats.notes import check_content, check_role, is_words, note_of
from holdfast.formats.openai.chat_stream import ChatAssembly
from holdfast.formats.openai.chat_writer import REASONING_KEYS, ChatWriter, calls_in
from holdfast.formats.reading import (
    Block,
    dumped,
    fields,
    image,
    is_blank,
    text,
    texts_of,
)

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


class OpenAIChat(BuiltInFormat):
    """Chat Completions messages."""

    name = NAME
    _writer = ChatWriter
    _assembly = ChatAssembly

    def note(self, payload: Payload) -> MessageNote:
        # Every append passes here, and nearly all of them are words alone.
        usual = _usual_note(payload)
        if usual is not None:
            return usual
        role = check_role(payload, _ROLES)
        assert isinstance(payload, dict)
        content = payload.get("content")
        check_content(content)
        # A result is never plain, whatever it says: it has to be paired with its call.
        is_bare = role != "tool" and payload.keys() <= _PLAIN_KEYS
        if is_bare and is_words(content, ("text",)):
            return MessageNote(role=role, format=NAME)
        _check_calls(payload)
        return note_of(NAME, role, self.read(payload))

    def read(self, payload: Payload) -> list[Piece]:
        assert isinstance(payload, dict)
        content = payload.get("content")
        # Functions came before tools in this API: their results name the function, and have no id.
        if payload["role"] == "function":
            return [
                Piece(Result(text(payload.get("name")), texts_of(content)), payload)
            ]
        if payload["role"] == "tool":
            call_id = text(payload.get("tool_call_id"))
            return [Piece(Result(call_id, texts_of(content)), payload)]
        if type(content) is str and payload.keys() == _PLAIN_KEYS:
            # nearly all: nothing beside the words has to be looked for
            return [Piece(Text(content))]
        return list(_pieces(payload, content))


def _usual_note(payload: Payload) -> MessageNote | None:
    """The note of a message that is a role and some words, told at a glance; None for others."""
    if type(payload) is not dict or payload.keys() != _PLAIN_KEYS:
        return None
    role, content = payload["role"], payload["content"]
    if type(role) is not str or type(content) is not str or is_blank(content):
        return None
    return _USUAL.get(role)


def _check_calls(payload: Block) -> None:
    single = payload.get("function_call")
    if single is not None:
        _check_call(single, "function_call")
    calls = payload.get("tool_calls")
    if calls is None:
        return
    if not isinstance(calls, list):
        problem = f"calls are a list, not a {type(calls).__name__}"
        raise InvalidMessage(problem=problem, place="tool_calls")
    for index, call in enumerate(calls):
        _check_call(call, f"tool_calls[{index}]")


def _check_call(call: Any, place: str) -> None:
    if not isinstance(call, dict):
        problem = f"a call is a dict, not a {type(call).__name__}"
        raise InvalidMessage(problem=problem, place=place)


def _pieces(payload: Block, content: Any) -> Iterator[Piece]:
    # The first that is there: both are spellings of the same thought.
    for key in REASONING_KEYS:
        thought = payload.get(key)
        if isinstance(thought, str):
            yield Piece(Thinking(thought), thought)
            break
    if isinstance(content, str):
        yield Piece(Text(content))
    else:
        for block in content or ():
            yield Piece(_part(block), block)
    # `note` has checked content and calls, and nothing that servers add to a message:
    # from here on a value may be of any type.
    audio = fields(payload.get("audio"))
    if not is_blank(audio.get("transcript")):
        yield Piece(Text(audio["transcript"]))
    images = payload.get("images")
    if isinstance(images, list):
        for each in images:
            if isinstance(each, dict):
                yield Piece(_part({**each, "type": "image_url"}))
    if not is_blank(payload.get("refusal")):
        yield Piece(Refusal(payload["refusal"]))
    for call in calls_in(payload):
        yield Piece(_call(call), call)


def _call(call: Block) -> Call:
    said = fields(call.get("function") or call.get("custom"))
    arguments = said.get("arguments", said.get("input"))
    # not the API's own way, but that of servers that nearly speak it
    if isinstance(arguments, dict | list):
        arguments = dumped(arguments)
    return Call(text(call.get("id")), text(said.get("name")), text(arguments))


def _part(block: Block) -> Part:
    kind = block["type"]
    if kind == "text":
        return Text(text(block.get("text")))
    if kind == "refusal":
        return Refusal(text(block.get("refusal")))
    if kind == "image_url":
        url = block.get("image_url")
        if isinstance(url, dict):
            url = url.get("url")
        return image(url)
    if kind == "thinking":
        return Thinking(texts_of(block.get("thinking")))
    if kind == "input_audio":
        return Other("audio")
    return Other(kind)
