"""`goose`: messages as the agent goose stores and exports them.

A payload is `{"id", "role", "created", "content", "metadata"}`; content is a list of blocks tagged
by `type`. Calls are blocks of the assistant, results blocks of user messages, and there is no place
for instructions. Blocks that only goose's own screens show, and those of releases to come, are
carried as they are.
"""

from collections.abc import Callable
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
from holdfast.domain.repair import Piece
from holdfast.errors import InvalidMessage
from holdfast.formats.assembling import Assembling, Deltas, counts
from holdfast.formats.format import BuiltInFormat
from holdfast.formats.goose.writer import NAME, GooseWriter
from holdfast.formats.notes import is_words, note_of
from holdfast.formats.reading import (
    Block,
    dumped,
    fields,
    is_blank,
    text,
    text_block,
    texts_in,
)

_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}
_SPEAKERS = ("user", "assistant")
_CALLS = ("toolRequest", "frontendToolRequest")
_IDENTITY = ("id", "created", "metadata")


class GooseAssembly(Assembling):
    """A message put together from the events of goose's stream: each `Message` carries more blocks
    of one message, and texts that follow each other are one text.
    """

    def __init__(self, note: Callable[[Payload], MessageNote]) -> None:
        super().__init__(note)
        # Both change when chunks are taken, not when deltas are folded: deltas that are
        # read back from the journal carry their index.
        self._next = 0
        self._growing = False

    def take(self, chunk: Any) -> Deltas:
        if chunk.get("type") == "Finish":
            return [("meta", 0, {"finish": chunk.get("reason")}), ("done", 0, None)]
        message = chunk.get("message") if "message" in chunk else chunk
        out: Deltas = []
        for block in message.get("content") or ():
            is_text = block.get("type") == "text"
            # goose gives its blocks no index: texts that follow each other grow one block.
            if not is_text or not self._growing:
                self._next += 1
            self._growing = is_text
            if is_text:
                out.append(("text", self._next, text(block.get("text"))))
            else:
                out.append(("part", self._next, block))
        facts = _facts(message)
        if facts:
            out.append(("meta", 0, facts))
        return out

    def _payload(self) -> Payload | None:
        blocks = []
        for index in self._indexes():
            words = self._joined(index, "text")
            if words is None:
                blocks.append(self._parts[index])
            else:
                blocks.append(text_block(words))
        if not blocks:
            return None
        identity = {key: self._meta[key] for key in _IDENTITY if key in self._meta}
        return {**identity, "role": "assistant", "content": blocks}


def _facts(message: Block) -> Block:
    facts = {key: message[key] for key in _IDENTITY if message.get(key) is not None}
    usage = fields(facts.get("metadata")).get("usage")
    if isinstance(usage, dict):
        facts["usage"] = counts(usage, input="inputTokens", output="outputTokens")
    return facts


class Goose(BuiltInFormat):
    """Messages of goose."""

    name = NAME
    _writer = GooseWriter
    _assembly = GooseAssembly

    def say(self, role: Role, text: str) -> Payload:
        return {"role": role, "content": [text_block(text)]}

    def note(self, payload: Payload) -> MessageNote:
        """Stores of goose hold odd roles, which goose skips; they are taken for the user's: then
        they can be kept.
        """
        if not isinstance(payload, dict) or not isinstance(payload.get("role"), str):
            raise InvalidMessage(
                problem="a message of goose is a dict with a `role`", place="role"
            )
        content = payload.get("content")
        if not isinstance(content, list):
            raise InvalidMessage(problem="content is a list of blocks", place="content")
        role = _ROLES.get(payload["role"], "user")
        # A plain payload is passed on unread, so an odd role is never plain. Stores
        # also hold blocks that are no objects, and `is_words` asks each for its type.
        is_whole = all(isinstance(block, dict) for block in content)
        if payload["role"] in _SPEAKERS and is_whole and is_words(content, ("text",)):
            return MessageNote(role=role, format=NAME)
        return note_of(NAME, role, self.read(payload))

    def read(self, payload: Payload) -> list[Piece]:
        assert isinstance(payload, dict)
        speaks = payload["role"] == "assistant"
        return [
            Piece(_part(block, speaks=speaks), block) for block in payload["content"]
        ]

    def close(self, payloads: list[Payload], instructions: str | None) -> list[Payload]:
        # There is no place for instructions among the messages of goose.
        return payloads


def _part(block: Any, *, speaks: bool) -> Part:
    kind = fields(block).get("type")
    if kind == "text":
        return Text(text(block.get("text")))
    if kind == "thinking":
        signed = not is_blank(block.get("signature"))
        return Thinking(text(block.get("thinking")), signed=signed)
    if kind == "redactedThinking":
        return Thinking("", signed=not is_blank(block.get("data")))
    # Only a model calls tools: in a user's message nobody would ever have run it.
    if kind in _CALLS and speaks:
        return _call(block)
    if kind == "toolResponse":
        return _result(block)
    if kind == "image" and not is_blank(block.get("data")):
        media = text(block.get("mimeType")) or "image/png"
        return Image(f"data:{media};base64,{block['data']}")
    return Other(text(kind) or "block")


def _call(block: Block) -> Call:
    """A call that the model worded wrongly is kept in goose as its error; it has an id and is
    answered like others.
    """
    value = fields(fields(block.get("toolCall")).get("value"))
    arguments = value.get("arguments")
    if arguments is None:
        arguments = {}
    return Call(text(block.get("id")), text(value.get("name")), dumped(arguments))


def _result(block: Block) -> Result:
    call_id = text(block.get("id"))
    result = fields(block.get("toolResult"))
    if "error" in result:
        return Result(call_id, text(result["error"]) or "error", error=True)
    # Earlier releases store the list of blocks itself, later ones an object with it.
    value = result.get("value")
    if isinstance(value, dict):
        error = value.get("isError") is True
        return Result(call_id, _result_text(value.get("content")), error=error)
    return Result(call_id, _result_text(value))


def _result_text(content: Any) -> str:
    if not isinstance(content, list):
        return ""
    return texts_in(content, lambda block: text(block.get("type")) or "block")
