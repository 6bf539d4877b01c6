"""`agent_framework`: messages as the Microsoft Agent Framework's `Message.to_dict()` words them.

A payload is `{"type": "message", "role": …, "contents": […]}`, and each content names its type. A
call is a content of the assistant; the message of a tool has a result for each call of a batch.
"""

from typing import Any

from holdfast.domain.message import (
    Call,
    MessageNote,
    Other,
    Payload,
    Result,
    Role,
    Text,
    Thinking,
)
from holdfast.domain.repair import Piece
from holdfast.errors import InvalidMessage
from holdfast.formats.assembling import Assembling, Deltas, counts
from holdfast.formats.format import Assembly
from holdfast.formats.frameworks.framework_format import FrameworkFormat
from holdfast.formats.notes import note_of
from holdfast.formats.reading import Block, dumped, fields, image, is_blank, text

NAME = "agent_framework"
_HEAD = -1
_HEAD_KEYS = ("role", "author_name", "message_id")
_WORDS = {"text": "text", "text_reasoning": "thinking"}


class AgentFramework(FrameworkFormat):
    """Messages of the Microsoft Agent Framework."""

    name = NAME
    roles: dict[str, Role] = {
        "user": "user",
        "assistant": "assistant",
        "system": "system",
        "developer": "system",
        "tool": "tool",
    }

    def note(self, payload: Payload) -> MessageNote:
        said = fields(payload)
        contents = said.get("contents")
        if not text(said.get("role")) or not isinstance(contents, list):
            problem = "a message has a `role` and a list of `contents`"
            raise InvalidMessage(problem=problem, place="contents")
        for at, content in enumerate(contents):
            if not isinstance(content, dict) or not text(content.get("type")):
                problem = "each content is an object that names its `type`"
                raise InvalidMessage(problem=problem, place=f"contents[{at}]")
        # A role is any word to the framework.
        role = self.roles.get(said["role"], "user")
        if role in ("user", "assistant") and contents and all(map(_is_words, contents)):
            return MessageNote(role=role, format=NAME)
        return note_of(NAME, role, self.read(payload))

    def read(self, payload: Payload) -> list[Piece]:
        contents = fields(payload).get("contents")
        found = contents if isinstance(contents, list) else []
        return [_piece(fields(content)) for content in found]

    def assembly(self) -> Assembly:
        return _StreamedMessage(self.note)

    def word(self, role: Role, blocks: list[Any]) -> Block:
        said = {"type": "message", "role": role, "contents": blocks}
        return {**said, "additional_properties": {}}

    def text(self, words: str) -> Block:
        return {"type": "text", "text": words, "additional_properties": {}}

    def call(self, id: str, name: str, arguments: Any) -> Block:
        called = {"type": "function_call", "call_id": id, "name": name}
        return {**called, "arguments": dumped(arguments), "additional_properties": {}}

    def result(self, call_id: str, words: str, *, error: bool) -> Block:
        found: Block = {"type": "function_result", "call_id": call_id, "result": words}
        if error:
            found["exception"] = "failed"
        return self.word("tool", [{**found, "additional_properties": {}}])


class _StreamedMessage(Assembling):
    """A message put together from the updates of a stream; `{"final": payload}` is its end.

    Each content has a place of its own; words go on in the last one while their kind stays the
    same, and a call goes on where its id was first said.
    """

    def __init__(self, note: Any) -> None:
        super().__init__(note)
        self._kinds: list[str] = []
        self._places: dict[str, int] = {}
        self._named: set[int] = set()
        self._head: Block = {}

    def take(self, chunk: Any) -> Deltas:
        said = fields(chunk)
        deltas: Deltas = []
        facts = _facts(said)
        if facts:
            deltas.append(("meta", 0, facts))
        if "final" in said:
            deltas.append(("done", 0, said["final"]))
            return deltas
        head = {key: said[key] for key in _HEAD_KEYS if text(said.get(key))}
        if not head.items() <= self._head.items():
            self._head = {**self._head, **head}
            deltas.append(("part", _HEAD, self._head))
        contents = said.get("contents")
        for content in contents if isinstance(contents, list) else ():
            deltas += self._take_content(fields(content))
        return deltas

    def _take_content(self, content: Block) -> Deltas:
        kind = text(content.get("type"))
        if kind in _WORDS:
            words = text(content.get("text"))
            if not words:
                return []
            return [(_WORDS[kind], self._going_on(kind), words)]
        if kind == "function_call":
            return self._take_call(content)
        return [] if kind == "usage" else [("part", self._new(kind), content)]

    def _take_call(self, content: Block) -> Deltas:
        call_id = text(content.get("call_id"))
        deltas: Deltas = []
        # Pieces of a call after the first may have no id: they belong to the call
        # before them.
        place = (
            self._places.get(call_id) if call_id else self._going_on("function_call")
        )
        if place is None:
            place = self._places[call_id] = self._new("function_call")
        if call_id and place not in self._named:
            self._named.add(place)
            named = {"id": call_id, "name": text(content.get("name"))}
            deltas.append(("call", place, named))
        arguments = content.get("arguments")
        if arguments:
            words = arguments if isinstance(arguments, str) else dumped(arguments)
            deltas.append(("arguments", place, words))
        return deltas

    def _new(self, kind: str) -> int:
        self._kinds.append(kind)
        return len(self._kinds) - 1

    def _going_on(self, kind: str) -> int:
        if self._kinds and self._kinds[-1] == kind:
            return len(self._kinds) - 1
        return self._new(kind)

    def _payload(self) -> Payload | None:
        if self._final is not None:
            return self._final
        contents = []
        for place in self._indexes():
            if place != _HEAD:
                contents.append(self._content(place))
        if not contents:
            return None
        head = {
            "type": "message",
            "role": "assistant",
            **(self._parts.get(_HEAD) or {}),
        }
        return {**head, "contents": contents, "additional_properties": {}}

    def _content(self, place: int) -> Block:
        if place in self._calls or "arguments" in self._grown.get(place, {}):
            call = self._calls.get(place, {"id": "", "name": ""})
            named = {"type": "function_call", "call_id": call["id"]}
            said = {**named, "name": call["name"], "arguments": self._arguments(place)}
            return {**said, "additional_properties": {}}
        for kind, grown in _WORDS.items():
            words = self._joined(place, grown)
            if words is not None:
                return {"type": kind, "text": words, "additional_properties": {}}
        found: Block = self._parts[place]
        return found


def _facts(said: Block) -> Block:
    """What a chunk tells about the message as a whole."""
    facts: Block = {}
    usage = _usage(said)
    if usage:
        facts["usage"] = usage
    for ours, theirs in (("finish", "finish_reason"), ("model", "model")):
        if text(said.get(theirs)):
            facts[ours] = said[theirs]
    return facts


def _usage(said: Block) -> dict[str, int]:
    counted = fields(said.get("usage"))
    contents = said.get("contents")
    for content in contents if isinstance(contents, list) else ():
        if fields(content).get("type") == "usage":
            counted = fields(content.get("usage_details"))
    return counts(
        counted,
        input="input_token_count",
        output="output_token_count",
        cached="cache_read_input_token_count",
        reasoning="reasoning_output_token_count",
    )


def _piece(content: Block) -> Piece:
    kind = text(content.get("type")) or "content"
    if kind == "text":
        return Piece(Text(text(content.get("text"))), content)
    if kind == "text_reasoning":
        signed = "protected_data" in content
        return Piece(Thinking(text(content.get("text")), signed=signed), content)
    call_id = text(content.get("call_id"))
    if kind == "function_call":
        arguments = content.get("arguments")
        words = arguments if isinstance(arguments, str) else dumped(arguments or {})
        return Piece(Call(call_id, text(content.get("name")), words), content)
    if kind == "function_result":
        result = content.get("result")
        words = result if isinstance(result, str) else dumped(result)
        failed = content.get("exception") is not None
        return Piece(Result(call_id, words, error=failed), content)
    if kind in ("data", "uri") and text(content.get("media_type")).startswith("image/"):
        return Piece(image(content.get("uri")), content)
    return Piece(Other(kind), content)


def _is_words(content: Any) -> bool:
    said = fields(content)
    return said.get("type") == "text" and not is_blank(said.get("text"))
