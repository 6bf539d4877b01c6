"""`agno`: messages as Agno's `Message.to_dict()` words them, and records of its sessions and runs.

A payload is `{"id": …, "role": …, "content": …}`, with `tool_calls` as OpenAI's API words them; the
message of a tool names its call in `tool_call_id`. A record, `{"record": "run", …}`, has what Agno
keeps about a session or a run beside its messages; no model is told of it.
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
from holdfast.formats.frameworks.framework_format import FrameworkFormat
from holdfast.formats.notes import note_of
from holdfast.formats.reading import Block, dumped, fields, is_blank, text

NAME = "agno"
_ABOUT = frozenset({"id", "role", "content", "created_at", "from_history", "metrics"})
_KINDS = frozenset({"from_history", "stop_after_tool_call"})


class Agno(FrameworkFormat):
    """Messages of Agno."""

    name = NAME
    roles: dict[str, Role] = {
        "user": "user",
        "assistant": "assistant",
        "model": "assistant",
        "system": "system",
        "developer": "system",
        "tool": "tool",
    }

    def note(self, payload: Payload) -> MessageNote:
        said = fields(payload)
        if text(said.get("record")):
            return note_of(NAME, "system", self.read(payload))
        if not text(said.get("role")):
            problem = "a message has a `role`"
            raise InvalidMessage(problem=problem, place="role")
        # A role is any word to Agno.
        role = self.roles.get(said["role"], "user")
        is_plain = role in ("user", "assistant") and said.keys() - _KINDS <= _ABOUT
        if is_plain and not is_blank(said.get("content")):
            return MessageNote(role=role, format=NAME)
        return note_of(NAME, role, self.read(payload))

    def read(self, payload: Payload) -> list[Piece]:
        said = fields(payload)
        if text(said.get("record")):
            return [Piece(Other(text(said["record"])), said)]
        words = _words(said.get("content"))
        if self.roles.get(text(said.get("role"))) == "tool":
            failed = said.get("tool_call_error") is True
            call_id = text(said.get("tool_call_id"))
            return [Piece(Result(call_id, words, error=failed), said)]
        pieces: list[Piece] = []
        thought = text(said.get("reasoning_content"))
        if thought:
            pieces.append(Piece(Thinking(thought), {"reasoning_content": thought}))
        if words:
            pieces.append(Piece(Text(words), self.text(words)))
        for kind in ("images", "audio", "videos", "files"):
            if said.get(kind):
                pieces.append(Piece(Other(kind), {kind: said[kind]}))
        calls = said.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            pieces.append(_call(fields(call)))
        return pieces

    def word(self, role: Role, blocks: list[Any]) -> Block:
        words, calls = [], []
        for block in blocks:
            if block.get("type") == "function":
                calls.append(block)
            else:
                words.append(text(block.get("content")))
        said: Block = {"role": role, "content": "\n".join(words)}
        return {**said, "tool_calls": calls} if calls else said

    def text(self, words: str) -> Block:
        return {"content": words}

    def call(self, id: str, name: str, arguments: Any) -> Block:
        function = {"name": name, "arguments": dumped(arguments)}
        return {"id": id, "type": "function", "function": function}

    def result(self, call_id: str, words: str, *, error: bool) -> Block:
        said = {"role": "tool", "tool_call_id": call_id, "content": words}
        return {**said, "tool_call_error": True} if error else said


def _words(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return dumped(content)


def _call(said: Block) -> Piece:
    function = fields(said.get("function"))
    arguments = function.get("arguments")
    words = arguments if isinstance(arguments, str) else dumped(arguments or {})
    name = text(function.get("name")) or text(said.get("name"))
    return Piece(Call(text(said.get("id")), name, words), said)
