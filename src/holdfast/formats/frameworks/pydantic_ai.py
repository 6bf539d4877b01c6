"""`pydantic_ai`: messages as Pydantic AI's `ModelMessagesTypeAdapter` dumps them.

A payload is a request, `{"kind": "request", "parts": […]}`, with what the user, the application and the
tools said, or a response, `{"kind": "response", "parts": […]}`, of the model. Nothing of Pydantic AI is
needed to read one.
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
from holdfast.formats.format import Assembly
from holdfast.formats.frameworks.framework_format import FrameworkFormat
from holdfast.formats.frameworks.pydantic_ai_stream import ResponseAssembly, counted
from holdfast.formats.notes import note_of
from holdfast.formats.reading import Block, dumped, fields, image, is_blank, text

NAME = "pydantic_ai"
_KINDS: dict[str, Role] = {"request": "user", "response": "assistant"}
_PROMPT = "user-prompt"


class PydanticAI(FrameworkFormat):
    """Pydantic AI's requests and responses."""

    name = NAME

    def note(self, payload: Payload) -> MessageNote:
        said = fields(payload)
        role = _KINDS.get(text(said.get("kind")))
        parts = said.get("parts")
        if role is None or not isinstance(parts, list):
            problem = (
                "a message has a list of `parts`, and `kind` is request or response"
            )
            raise InvalidMessage(problem=problem, place="kind")
        if _is_plain(said, role):
            note = MessageNote(role=role, format=NAME)
        else:
            if parts and all(_kind(part) == "system-prompt" for part in parts):
                role = "system"
            note = note_of(NAME, role, self.read(payload))
        return note if role != "assistant" else _with_facts(note, said)

    def read(self, payload: Payload) -> list[Piece]:
        said = fields(payload)
        parts = said.get("parts")
        found: list[Piece] = []
        is_alone = isinstance(parts, list) and len({_kind(part) for part in parts}) == 1
        for part in parts if isinstance(parts, list) else ():
            # The system prompt rides in the first request, and is not what the user said.
            if is_alone or _kind(part) != "system-prompt":
                found += _pieces(fields(part))
        return found

    def assembly(self) -> Assembly:
        return ResponseAssembly(self.note)

    def word(self, role: Role, blocks: list[Any]) -> Block:
        kind = {"assistant": "text", "system": "system-prompt"}.get(role, _PROMPT)
        parts = []
        for block in blocks:
            parts.append({"part_kind": kind, **block})
        return {
            "kind": "response" if role == "assistant" else "request",
            "parts": parts,
        }

    def text(self, words: str) -> Block:
        return {"content": words}

    def call(self, id: str, name: str, arguments: Any) -> Block:
        call = {"tool_name": name, "args": arguments, "tool_call_id": id}
        return {**call, "part_kind": "tool-call"}

    def result(self, call_id: str, words: str, *, error: bool) -> Block:
        part = {"tool_name": "", "content": words, "tool_call_id": call_id}
        outcome = "failed" if error else "success"
        part |= {"outcome": outcome, "part_kind": "tool-return"}
        return {"kind": "request", "parts": [part]}


def _kind(part: Any) -> str:
    return text(fields(part).get("part_kind")) or "part"


def _is_plain(said: Block, role: Role) -> bool:
    """Whether this is words and nothing else, and whole."""
    words = "text" if role == "assistant" else _PROMPT
    if said.get("state", "complete") != "complete" or not said["parts"]:
        return False
    for part in said["parts"]:
        if _kind(part) != words or is_blank(fields(part).get("content")):
            return False
    return True


def _with_facts(note: MessageNote, said: Block) -> MessageNote:
    usage = counted(said)
    return replace(
        note,
        usage=Usage(**usage) if usage else None,
        finish=text(said.get("finish_reason")) or None,
        model=text(said.get("model_name")) or None,
    )


def _pieces(part: Block) -> list[Piece]:
    kind = _kind(part)
    content = part.get("content")
    if kind == "tool-call":
        return [Piece(_call(part), part)]
    if kind == "tool-return" or (kind == "retry-prompt" and part.get("tool_name")):
        return [Piece(_result(part, kind), part)]
    if kind == "thinking":
        return [
            Piece(Thinking(text(content), signed=bool(part.get("signature"))), part)
        ]
    if kind in (_PROMPT, "text", "system-prompt", "retry-prompt", "retry-feedback"):
        return _words(content, part)
    if kind == "compaction" and not is_blank(content):
        return [Piece(Text(text(content)), part)]
    return [Piece(Other(kind), part)]


def _words(content: Any, part: Block) -> list[Piece]:
    """What a prompt says: a text, or several with pictures and files among them."""
    if isinstance(content, str):
        return [Piece(Text(content), part)]
    found = []
    for item in content if isinstance(content, list) else ():
        said = fields(item)
        if isinstance(item, str):
            found.append(Piece(Text(item), {**part, "content": item}))
        elif said.get("kind") in ("text-content", "structured-content"):
            found.append(Piece(Text(text(said.get("content"))), said))
        elif said.get("kind") == "image-url":
            found.append(Piece(image(said.get("url")), said))
        elif said.get("kind") != "cache-point":
            found.append(Piece(Other(text(said.get("kind")) or "content"), said))
    return found


def _call(part: Block) -> Call:
    arguments = part.get("args")
    if arguments is None:
        arguments = {}
    words = arguments if isinstance(arguments, str) else dumped(arguments)
    return Call(
        text(part.get("tool_call_id")), text(part.get("tool_name")), words or "{}"
    )


def _result(part: Block, kind: str) -> Result:
    content = part.get("content")
    words = content if isinstance(content, str) else dumped(content)
    failed = kind == "retry-prompt" or part.get("outcome", "success") != "success"
    return Result(text(part.get("tool_call_id")), words, error=failed)
