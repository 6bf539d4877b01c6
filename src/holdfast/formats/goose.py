"""`goose`: messages as the agent goose stores and exports them.

A payload is `{"id", "role", "created", "content", "metadata"}`; content is a list of blocks tagged
by `type`. Calls are blocks of the assistant, results blocks of user messages, and there is no place
for instructions. Blocks that only goose's own screens show, and those of releases to come, are
carried as they are.
"""

from collections.abc import Callable, Sequence
from typing import Any

from holdfast.domain.chunk import Delta
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
from holdfast.domain.repair import Piece, Read, Step
from holdfast.errors import InvalidMessage
from holdfast.formats.assembling import Assembling, counts
from holdfast.formats.format import Assembly, Shaped
from holdfast.formats.goose_writer import NAME, GooseWriter
from holdfast.formats.notes import is_words, note_of
from holdfast.formats.shaping import dialogue, dumped, is_blank

_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}
_SPEAKERS = ("user", "assistant")
_CALLS = ("toolRequest", "frontendToolRequest")


class Goose:
    """Messages of goose."""

    name = NAME

    def __init__(self, read: Read) -> None:
        self._read_any = read

    def say(self, role: Role, text: str) -> Payload:
        return {"role": role, "content": [{"type": "text", "text": text}]}

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
        if payload["role"] in _SPEAKERS and all(
            isinstance(block, dict) for block in content
        ):
            if is_words(content, ("text",)):
                return MessageNote(role=role, format=NAME)
        return note_of(NAME, role, self.read(payload))

    def read(self, payload: Payload) -> list[Piece]:
        assert isinstance(payload, dict)
        speaks = payload["role"] == "assistant"
        return [
            Piece(_part(block, speaks=speaks), block) for block in payload["content"]
        ]

    def shape(
        self,
        steps: Sequence[Step],
        *,
        used: set[str],
        first: bool,
        goes_on: bool = False,
    ) -> list[Shaped]:
        return dialogue(steps, GooseWriter(self._read_any, used))

    def close(self, payloads: list[Payload], instructions: str | None) -> list[Payload]:
        return payloads

    def assembly(self) -> Assembly:
        return GooseAssembly(self.note)


def _part(block: Any, *, speaks: bool) -> Part:
    kind = block.get("type") if isinstance(block, dict) else None
    if kind == "text":
        return Text(_text(block.get("text")))
    if kind == "thinking":
        return Thinking(
            _text(block.get("thinking")), signed=not is_blank(block.get("signature"))
        )
    if kind == "redactedThinking":
        return Thinking("", signed=not is_blank(block.get("data")))
    if kind in _CALLS and speaks:
        return _call(block)
    if kind == "toolResponse":
        return _result(block)
    if kind == "image" and not is_blank(block.get("data")):
        return Image(
            f"data:{_text(block.get('mimeType')) or 'image/png'};base64,{block['data']}"
        )
    return Other(_text(kind) or "block")


def _call(block: dict[str, Any]) -> Call:
    """A call that the model worded wrongly is kept in goose as its error; it has an id and is
    answered like others.
    """
    call = block.get("toolCall")
    value = call.get("value") if isinstance(call, dict) else None
    value = value if isinstance(value, dict) else {}
    arguments = value.get("arguments")
    return Call(
        _text(block.get("id")),
        _text(value.get("name")),
        dumped({} if arguments is None else arguments),
    )


def _result(block: dict[str, Any]) -> Result:
    call_id = _text(block.get("id"))
    result = block.get("toolResult")
    result = result if isinstance(result, dict) else {}
    if "error" in result:
        return Result(call_id, _text(result["error"]) or "error", error=True)
    value = result.get("value")
    if isinstance(value, dict):
        return Result(
            call_id,
            _result_text(value.get("content")),
            error=value.get("isError") is True,
        )
    return Result(call_id, _result_text(value))


def _result_text(content: Any) -> str:
    words = []
    for block in content if isinstance(content, list) else ():
        if not isinstance(block, dict):
            continue
        if block.get("type") == "text":
            words.append(_text(block.get("text")))
        else:
            words.append(f"[{_text(block.get('type')) or 'block'}]")
    return "\n".join(words)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


class GooseAssembly(Assembling):
    """A message put together from the events of goose's stream: each `Message` carries more blocks
    of one message, and texts that follow each other are one text.
    """

    def __init__(self, note: Callable[[Payload], MessageNote]) -> None:
        super().__init__(note)
        self._next = 0
        self._growing = False

    def take(self, chunk: Any) -> list[Delta]:
        if chunk.get("type") == "Finish":
            return [("meta", 0, {"finish": chunk.get("reason")}), ("done", 0, None)]
        message = chunk.get("message") if "message" in chunk else chunk
        deltas: list[Delta] = []
        for block in message.get("content") or ():
            is_text = block.get("type") == "text"
            if not is_text or not self._growing:
                self._next += 1
            self._growing = is_text
            if is_text:
                deltas.append(("text", self._next, _text(block.get("text"))))
            else:
                deltas.append(("part", self._next, block))
        return [*deltas, *_facts(message)]

    def _payload(self) -> Payload | None:
        blocks = []
        for index in self._indexes():
            text = self._joined(index, "text")
            blocks.append(
                self._parts[index] if text is None else {"type": "text", "text": text}
            )
        if not blocks:
            return None
        identity: dict[str, Any] = {
            key: self._meta[key]
            for key in ("id", "created", "metadata")
            if key in self._meta
        }
        return {**identity, "role": "assistant", "content": blocks}


def _facts(message: dict[str, Any]) -> list[Delta]:
    facts = {
        key: message[key]
        for key in ("id", "created", "metadata")
        if message.get(key) is not None
    }
    metadata = facts.get("metadata")
    usage = metadata.get("usage") if isinstance(metadata, dict) else None
    if isinstance(usage, dict):
        facts["usage"] = counts(
            input=usage.get("inputTokens"), output=usage.get("outputTokens")
        )
    return [("meta", 0, facts)] if facts else []
