"""`openai.chat`: messages of the Chat Completions API, and of the many servers that speak it.

A reply is one assistant message with `tool_calls`; each result is a message of role `tool`. Some servers add what the
model thought as `reasoning_content` or `reasoning`; it is stored and sent back as it came.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any

from holdfast.domain.message import (
    USUAL_FORMAT,
    Call,
    Image,
    MessageNote,
    Other,
    Payload,
    Refusal,
    Result,
    Role,
    Text,
    Thinking,
    thaw,
)
from holdfast.domain.repair import Piece, Read, Step
from holdfast.errors import InvalidMessage
from holdfast.formats.format import Assembly, Shaped
from holdfast.formats.naming import CallNames, function_name
from holdfast.formats.noting import check_content, check_role, is_words, note_of
from holdfast.formats.openai_chat_stream import ChatAssembly
from holdfast.formats.shaping import (
    NO_OUTPUT,
    dialogue,
    format_of,
    is_blank,
    pieces_of,
    public,
    spoken_text,
    stand_in,
    stand_ins,
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
_REASONING_KEYS = ("reasoning_content", "reasoning")


_USUAL_KEYS = {"role", "content"}
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
        if type(payload) is dict and payload.keys() == _USUAL_KEYS:
            usual = _USUAL.get(payload["role"]) if type(payload["role"]) is str else None
            if usual is not None and type(payload["content"]) is str and not is_blank(payload["content"]):
                return usual
        role = check_role(payload, _ROLES)
        assert isinstance(payload, dict)
        content = payload.get("content")
        check_content(content)
        if role != "tool" and payload.keys() <= _PLAIN_KEYS and is_words(content, ("text",)):
            return MessageNote(role=role, format=NAME)
        for key in ("tool_calls", "function_call"):
            _check_calls(payload.get(key), key)
        return note_of(NAME, role, self.read(payload))

    def read(self, payload: Payload) -> list[Piece]:
        assert isinstance(payload, dict)
        content = payload.get("content")
        if payload["role"] in ("tool", "function"):
            call_id = payload.get("tool_call_id") if payload["role"] == "tool" else payload.get("name")
            return [Piece(Result(_text(call_id), _result_text(content)), payload)]
        pieces = [
            Piece(Thinking(payload[key]), payload[key]) for key in _REASONING_KEYS if isinstance(payload.get(key), str)
        ][:1]
        if isinstance(content, str):
            pieces.append(Piece(Text(content)))
        else:
            pieces.extend(Piece(_part(block), block) for block in content or ())
        if not is_blank(payload.get("refusal")):
            pieces.append(Piece(Refusal(payload["refusal"])))
        pieces.extend(Piece(_call(call), call) for call in _calls(payload))
        return pieces

    def shape(self, steps: Sequence[Step], *, used: set[str], first: bool) -> list[Shaped]:
        return dialogue(steps, _Writer(self._read_any))

    def close(self, payloads: list[Payload], instructions: str | None) -> list[Payload]:
        if instructions is None or is_blank(instructions):
            return payloads
        return [{"role": "system", "content": instructions}, *payloads]

    def assembly(self) -> Assembly:
        return ChatAssembly(self.note)


def _check_calls(calls: Any, key: str) -> None:
    if calls is not None and not isinstance(calls, list | dict):
        raise InvalidMessage(problem=f"calls are a list, not a {type(calls).__name__}", place=key)
    for index, call in enumerate(calls if isinstance(calls, list) else ()):
        if not isinstance(call, dict):
            raise InvalidMessage(problem=f"a call is a dict, not a {type(call).__name__}", place=f"{key}[{index}]")


def _calls(payload: dict[str, Any]) -> list[dict[str, Any]]:
    """The calls of a message; the API's first, single kind of call is read as a list of one, named by its function."""
    calls = payload.get("tool_calls")
    if calls:
        return list(calls)
    single = payload.get("function_call")
    return [{"id": single.get("name"), "type": "function", "function": single}] if isinstance(single, dict) else []


def _call(call: dict[str, Any]) -> Call:
    said = call.get("function") or call.get("custom")
    said = said if isinstance(said, dict) else {}
    arguments = said.get("arguments", said.get("input"))
    return Call(_text(call.get("id")), _text(said.get("name")), _text(arguments))


def _part(block: dict[str, Any]) -> Text | Image | Refusal | Other:
    kind = block["type"]
    if kind == "text":
        return Text(_text(block.get("text")))
    if kind == "refusal":
        return Refusal(_text(block.get("refusal")))
    if kind == "image_url":
        url = block.get("image_url")
        url = url.get("url") if isinstance(url, dict) else url
        return Image(url) if isinstance(url, str) and url else Other("image")
    return Other({"input_audio": "audio"}.get(kind, kind))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _result_text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(
            _text(block.get("text")) if block["type"] == "text" else f"[{block['type']}]" for block in content
        )
    return _text(content)


class _Writer:
    """Writes one dialogue. Ids need to differ only within a message: servers that reuse them stay as they are."""

    name = NAME
    sides: dict[str, str | None] = {"user": "user", "assistant": "assistant", "tool": None, "system": None}

    def __init__(self, read: Read) -> None:
        self._read = read
        self._names = CallNames(set(), length_max=40)
        self._pending: deque[str] = deque()
        self._answered = False

    def write(self, step: Step, *, joined: bool) -> dict[str, Any] | None:
        if step.role == "tool":
            return self._tool(step)
        if step.role == "assistant":
            if self._answered or not joined:
                self._names = CallNames(set(), length_max=40)
                self._answered = False
            return self._assistant(step)
        payload = _own(step)
        if payload is not None:
            payload["content"] = _without_blanks(payload.get("content"))
            return payload
        return {"role": step.role, "content": _user_content(pieces_of(step, self._read), format_of(step) == NAME)}

    def _assistant(self, step: Step) -> dict[str, Any] | None:
        payload = _own(step)
        if payload is None:
            payload = _said(pieces_of(step, self._read), own=format_of(step) == NAME)
        calls = [self._call(call) for call in _calls(payload)]
        payload.pop("function_call", None)
        if calls:
            payload["tool_calls"] = calls
            if isinstance(payload.get("content"), list):
                payload["content"] = _without_blanks(payload["content"])
            return payload
        payload.pop("tool_calls", None)
        payload["content"] = _without_blanks(payload.get("content"))
        return None if payload["content"] is None and is_blank(payload.get("refusal")) else payload

    def _call(self, call: dict[str, Any]) -> dict[str, Any]:
        given = self._names.give(_text(call.get("id")))
        self._pending.append(given)
        kind = "custom" if isinstance(call.get("custom"), dict) else "function"
        field = "input" if kind == "custom" else "arguments"
        said = call.get(kind)
        said = said if isinstance(said, dict) else {}
        name = function_name(_text(said.get("name")))
        if given == call.get("id") and name == said.get("name") and isinstance(said.get(field), str):
            return call if call.get("type") == kind else {**call, "type": kind}
        return {**call, "id": given, "type": kind, kind: {**said, "name": name, field: _text(said.get(field))}}

    def _tool(self, step: Step) -> dict[str, Any]:
        given = self._pending.popleft()
        self._answered = True
        payload = _own(step)
        if payload is not None and payload["role"] == "tool":
            content = _without_blanks(payload.get("content"))
            return {**payload, "tool_call_id": given, "content": NO_OUTPUT if content is None else content}
        part = pieces_of(step, self._read)[0].part
        assert isinstance(part, Result)
        return {"role": "tool", "tool_call_id": given, "content": NO_OUTPUT if is_blank(part.content) else part.content}

    def join(self, payloads: Sequence[Any]) -> dict[str, Any]:
        first = payloads[0]
        joined = {key: value for key, value in first.items() if key not in _REASONING_KEYS}
        joined["content"] = _joined_content([payload.get("content") for payload in payloads])
        calls = [call for payload in payloads for call in payload.get("tool_calls") or ()]
        refusals = [payload["refusal"] for payload in payloads if not is_blank(payload.get("refusal"))]
        if calls:
            joined["tool_calls"] = calls
        if refusals:
            joined["refusal"] = "\n\n".join(refusals)
        return joined


def _own(step: Step) -> dict[str, Any] | None:
    """The step's payload, when it is a whole one of this format; without what the API refuses."""
    source = step.source
    if source is None or source.note.format != NAME:
        return None
    payload = public(thaw(source.body))
    return {key: value for key, value in payload.items() if value is not None or key == "content"}


def _without_blanks(content: Any) -> Any:
    if isinstance(content, list):
        kept = [block for block in content if block["type"] != "text" or not is_blank(block.get("text"))]
        return kept or None
    return None if is_blank(content) else content


def _said(pieces: Sequence[Piece], *, own: bool) -> dict[str, Any]:
    """An assistant message put together from pieces."""
    text = spoken_text(pieces, refusals=False)
    payload: dict[str, Any] = {"role": "assistant", "content": text or None}
    refusal = "\n\n".join(piece.part.text for piece in pieces if isinstance(piece.part, Refusal))
    if not is_blank(refusal):
        payload["refusal"] = refusal
    calls = [piece for piece in pieces if isinstance(piece.part, Call)]
    if calls:
        payload["tool_calls"] = [piece.raw if own and piece.raw else _tool_call(piece.part) for piece in calls]
    if not (text or calls or "refusal" in payload):
        payload["content"] = stand_ins(pieces) or None
    return payload


def _tool_call(call: Any) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _user_content(pieces: Sequence[Piece], own: bool) -> Any:
    blocks: list[dict[str, Any]] = []
    for piece in pieces:
        part = piece.part
        if own and piece.raw is not None and not (isinstance(part, Text) and is_blank(part.text)):
            blocks.append(piece.raw)
        elif isinstance(part, Image):
            blocks.append({"type": "image_url", "image_url": {"url": part.url}})
        elif isinstance(part, Text | Refusal):
            if not is_blank(part.text):
                blocks.append({"type": "text", "text": part.text})
        elif isinstance(part, Other):
            blocks.append({"type": "text", "text": stand_in(piece)})
    if len(blocks) == 1 and blocks[0].keys() == {"type", "text"}:
        return blocks[0]["text"]
    return blocks


def _joined_content(contents: Sequence[Any]) -> Any:
    said = [content for content in contents if isinstance(content, list) or not is_blank(content)]
    if all(isinstance(content, str) for content in said):
        return "\n\n".join(said) or None
    blocks: list[Any] = []
    for content in said:
        blocks.extend([{"type": "text", "text": content}] if isinstance(content, str) else content)
    return blocks
