"""`claude.code`: lines of Claude Code's transcripts, as its session files and the Claude Agent SDK's
session stores hold them.

A line of type `user` or `assistant` holds a message of the Messages API beside what Claude Code
knows of it; a prompt that was typed while Claude worked is an attachment. All other lines are notes
of Claude Code's own: they say nothing to the model, and whoever stores them hides them from it
(`is_spoken`).
"""

from collections.abc import Sequence
from typing import Any

from holdfast.domain.message import MessageNote, Other, Payload, Role, Text
from holdfast.domain.repair import Piece, Read, Step
from holdfast.errors import InvalidMessage
from holdfast.formats.anthropic.messages import Anthropic
from holdfast.formats.anthropic.stream import AnthropicAssembly
from holdfast.formats.format import BuiltInFormat, Shaped
from holdfast.formats.notes import note_of
from holdfast.formats.reading import Block, fields, text

NAME = "claude.code"
_SPOKEN = ("user", "assistant")


class _LineAssembly(AnthropicAssembly):
    """A line being spoken, from the events of the Messages API."""

    def _payload(self) -> Payload | None:
        message = super()._payload()
        if not isinstance(message, dict):
            return None
        facts: Block = {"type": "message"}
        for name in ("id", "model"):
            if self._meta.get(name):
                facts[name] = self._meta[name]
        return {"type": "assistant", "message": {**facts, **message}}


class ClaudeCode(BuiltInFormat):
    """Lines of Claude Code's transcripts."""

    name = NAME
    _assembly = _LineAssembly

    def __init__(self, read: Read) -> None:
        super().__init__(read)
        self._messages = Anthropic(read)

    def say(self, role: Role, text: str) -> Payload:
        return {"type": role, "message": {"role": role, "content": text}}

    def note(self, payload: Payload) -> MessageNote:
        if not isinstance(payload, dict):
            problem = f"a line is a dict, not a {type(payload).__name__}"
            raise InvalidMessage(problem=problem, place="the line")
        message = message_of(payload)
        role: Role = "system"
        if message is not None:
            role = "user" if message["role"] == "user" else "assistant"
        return note_of(NAME, role, self.read(payload))

    def read(self, payload: Payload) -> list[Piece]:
        assert isinstance(payload, dict)
        message = message_of(payload)
        if message is not None:
            return self._messages.read(message)
        kind = text(payload.get("type")) or "line"
        words = payload.get("content")
        if kind == "system" and isinstance(words, str):
            return [Piece(Text(words), payload)]
        return [Piece(Other(kind), payload)]

    def shape(
        self,
        steps: Sequence[Step],
        *,
        used: set[str],
        first: bool,
        goes_on: bool = False,
    ) -> list[Shaped]:
        shaped = self._messages.shape(steps, used=used, first=first, goes_on=goes_on)
        return [(_line(payload), ids) for payload, ids in shaped]

    def close(self, payloads: list[Payload], instructions: str | None) -> list[Payload]:
        # A transcript has no line for instructions.
        return payloads


def _line(message: Any) -> Payload:
    return {"type": message["role"], "message": message}


def message_of(line: Block) -> Block | None:
    """The message that a line holds; None when it holds none, or none that can be read."""
    if line.get("type") == "attachment":
        return _queued_prompt(line)
    message = line.get("message")
    if line.get("type") not in _SPOKEN or not isinstance(message, dict):
        return None
    if message.get("role") not in _SPOKEN or not _is_content(message.get("content")):
        return None
    return message


def is_spoken(line: Block, *, aside: bool) -> bool:
    """Whether the model is told this line. `aside`: it is of a sub-agent's own transcript, where
    every line is on the side.
    """
    if message_of(line) is None or line.get("isApiErrorMessage") is True:
        return False
    return aside or line.get("isSidechain") is not True


def _queued_prompt(line: Block) -> Block | None:
    held = fields(line.get("attachment"))
    prompt = held.get("prompt")
    if held.get("type") != "queued_command" or not prompt or not _is_content(prompt):
        return None
    return {"role": "user", "content": prompt}


def _is_content(content: Any) -> bool:
    if not isinstance(content, list):
        return isinstance(content, str)
    blocks = [block for block in content if isinstance(block, dict)]
    whole = [block for block in blocks if isinstance(block.get("type"), str)]
    return len(whole) == len(content)
