"""`adk`: events of Google's Agent Development Kit, as `Event.model_dump(mode="json")` words them.

A payload is `{"author": …, "content": {"role": …, "parts": […]}, "actions": {…}, …}`. Calls and
results are parts; who spoke is told by the author: "user", or the name of an agent. An event without
content (a change of state, an error) says nothing. Fields may be named as Python has them or in
camel case, as the kit's own servers write them.
"""

from typing import Any

from msgspec.structs import replace

from holdfast.domain.message import (
    Call,
    MessageNote,
    Other,
    Payload,
    Result,
    Role,
    Text,
    Thinking,
    Usage,
)
from holdfast.domain.repair import Piece
from holdfast.errors import InvalidMessage
from holdfast.formats.assembling import Assembling, Deltas, counts
from holdfast.formats.format import Assembly
from holdfast.formats.frameworks.framework_format import FrameworkFormat
from holdfast.formats.notes import note_of
from holdfast.formats.reading import Block, dumped, fields, image, is_blank, text

NAME = "adk"
_THOUGHTS, _WORDS = 0, 1
_FACTS = (
    "id",
    "invocation_id",
    "author",
    "branch",
    "isolation_scope",
    "node_info",
    "timestamp",
    "custom_metadata",
    "model_version",
)
"""What a piece of a stream tells about its whole event."""


class Adk(FrameworkFormat):
    """Events of Google's Agent Development Kit."""

    name = NAME

    def note(self, payload: Payload) -> MessageNote:
        said = fields(payload)
        content = said.get("content")
        if not said or not isinstance(content, dict | None):
            problem = "an event is an object, and its `content`, too"
            raise InvalidMessage(problem=problem, place="content")
        role = _role(said)
        pieces = self.read(payload)
        # Most events are words and nothing else: for these, what `note_of` would look
        # for is known.
        if _is_plain(pieces):
            note = MessageNote(role=role, format=NAME)
        else:
            note = note_of(NAME, role, pieces)
        finish, model = _get(said, "finish_reason"), _get(said, "model_version")
        if finish is None and model is None and "usage_metadata" not in said:
            return note
        usage = _usage(fields(_get(said, "usage_metadata")))
        return replace(
            note, usage=usage, finish=text(finish) or None, model=text(model) or None
        )

    def read(self, payload: Payload) -> list[Piece]:
        said = fields(payload)
        pieces: list[Piece] = []
        for part in _parts(said.get("content")):
            pieces.append(_piece(part))
        for name in ("input_transcription", "output_transcription"):
            words = text(fields(_get(said, name)).get("text"))
            if words:
                pieces.append(Piece(Text(words), None))
        summary = fields(_get(fields(said.get("actions")), "compaction"))
        for part in _parts(_get(summary, "compacted_content")):
            pieces.append(_piece(part))
        return pieces

    def assembly(self) -> Assembly:
        return _EventAssembly(self.note)

    def word(self, role: Role, blocks: list[Any]) -> Block:
        speaker = "model" if role == "assistant" else "user"
        return {"author": speaker, "content": {"role": speaker, "parts": blocks}}

    def text(self, words: str) -> Block:
        return {"text": words}

    def call(self, id: str, name: str, arguments: Any) -> Block:
        return {"function_call": {"id": id, "name": name, "args": arguments}}

    def result(self, call_id: str, words: str, *, error: bool) -> Block:
        said = {"error" if error else "result": words}
        # The kit wants the name of the function, which nobody knows here any more.
        answer = {"id": call_id, "name": "function", "response": said}
        return self.word("tool", [{"function_response": answer}])


class _EventAssembly(Assembling):
    """The pieces of an event that is being streamed: events with `partial`. What they come to, when
    the event itself does not follow, is one that was interrupted.
    """

    def take(self, chunk: Any) -> Deltas:
        said = fields(chunk)
        deltas: Deltas = []
        if not self._meta:
            facts = {name: said[name] for name in _FACTS if said.get(name)}
            deltas.append(("meta", 0, facts))
        for part in _parts(said.get("content")):
            words = text(part.get("text"))
            if words and part.get("thought"):
                deltas.append(("thinking", _THOUGHTS, words))
            elif words:
                deltas.append(("text", _WORDS, words))
        return deltas

    def _payload(self) -> Payload | None:
        parts: list[Block] = []
        thoughts = self._joined(_THOUGHTS, "thinking")
        if thoughts:
            parts.append({"text": thoughts, "thought": True})
        words = self._joined(_WORDS, "text")
        if words:
            parts.append({"text": words})
        if not parts:
            return None
        content = {"role": "model", "parts": parts}
        return {**self._meta, "content": content, "interrupted": True}


def _role(said: Block) -> Role:
    author = text(said.get("author"))
    role = text(fields(said.get("content")).get("role"))
    # An agent's events with the user's role carry what tools have answered.
    is_user = author == "user" or (not author and role != "model")
    return "user" if is_user else "assistant"


def _is_plain(pieces: list[Piece]) -> bool:
    if not pieces:
        return False
    for piece in pieces:
        if not isinstance(piece.part, Text) or is_blank(piece.part.text):
            return False
    return True


def _parts(content: Any) -> list[Block]:
    parts = fields(content).get("parts")
    found = parts if isinstance(parts, list) else []
    return [fields(part) for part in found]


def _piece(part: Block) -> Piece:
    words = part.get("text")
    if isinstance(words, str):
        if part.get("thought"):
            signed = _get(part, "thought_signature") is not None
            return Piece(Thinking(words, signed=signed), part)
        return Piece(Text(words), part)
    call = fields(_get(part, "function_call"))
    if call:
        arguments = dumped(call.get("args") or {})
        return Piece(
            Call(text(call.get("id")), text(call.get("name")), arguments), part
        )
    answer = fields(_get(part, "function_response"))
    if answer:
        return Piece(_result(answer), part)
    for name in ("inline_data", "file_data"):
        data = fields(_get(part, name))
        if data:
            return Piece(_file(data), part)
    kinds = [name for name, value in part.items() if value is not None]
    return Piece(Other(kinds[0] if kinds else "part"), part)


def _result(answer: Block) -> Result:
    response = answer.get("response")
    said = fields(response)
    # A tool's own answer may have an `error` among other fields: it has not failed.
    failed = list(said) == ["error"]
    for only in ("result", "output", "error"):
        if list(said) == [only] and isinstance(said[only], str):
            return Result(text(answer.get("id")), said[only], error=failed)
    return Result(text(answer.get("id")), dumped(response), error=failed)


def _file(data: Block) -> Any:
    kind = text(_get(data, "mime_type"))
    if not kind.startswith("image/"):
        return Other(kind or "file")
    if isinstance(data.get("data"), str):
        return image(f"data:{kind};base64,{data['data']}")
    return image(_get(data, "file_uri"))


def _usage(said: Block) -> Usage | None:
    found = counts(
        {name: _get(said, name) for name in _COUNTS.values()},
        **_COUNTS,
    )
    return Usage(**found) if found else None


_COUNTS = {
    "input": "prompt_token_count",
    "output": "candidates_token_count",
    "cached": "cached_content_token_count",
    "reasoning": "thoughts_token_count",
}


def _get(said: Block, name: str) -> Any:
    """A field by its name in Python, or in camel case."""
    if name in said:
        return said[name]
    first, *rest = name.split("_")
    return said.get(first + "".join(word.capitalize() for word in rest))
