"""How a dialogue is worded for the Chat Completions API: messages, calls and their results.

What a server said is sent back as it came, keys that only it knows included. Left out is what the
API refuses: nulls, a caller's private keys, what a client library has put there, and audio, whose
id expires: its transcript is sent.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any

from holdfast.domain.message import (
    USUAL_FORMAT,
    Call,
    Image,
    Other,
    Refusal,
    Result,
    Text,
    thaw,
)
from holdfast.domain.repair import Piece, Read, Step
from holdfast.formats.call_ids import CallNames, function_name
from holdfast.formats.shaping import (
    NO_OUTPUT,
    format_of,
    is_blank,
    pieces_of,
    public,
    spoken_text,
    stand_in,
    stand_ins,
    whole_arguments,
)

NAME = USUAL_FORMAT
REASONING_KEYS = ("reasoning_content", "reasoning")
_OF_ONE_MESSAGE = (*REASONING_KEYS, "reasoning_details")
_BY_CLIENTS = frozenset({"parsed", "parsed_arguments"})
"""Keys that the `openai` client adds to what the server said."""
_CALL_BY_CLIENTS = _BY_CLIENTS | {"index", "call_id", "response_item_id"}
"""What callers leave in a call: those that put streams together its index, Hermes the ids of
another API.
"""


def calls_in(payload: dict[str, Any]) -> list[dict[str, Any]]:
    """The calls of a message; the API's first, single kind of call is read as a list of one, named
    by its function.
    """
    calls = payload.get("tool_calls")
    if calls:
        return list(calls)
    single = payload.get("function_call")
    return (
        [{"id": single.get("name"), "type": "function", "function": single}]
        if isinstance(single, dict)
        else []
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


class ChatWriter:
    """Writes one dialogue. Ids need to differ only within a message: servers that reuse them stay
    as they are.
    """

    name = NAME
    sides: dict[str, str | None] = {
        "user": "user",
        "assistant": "assistant",
        "tool": None,
        "system": None,
    }

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
        return {
            "role": step.role,
            "content": _user_content(
                pieces_of(step, self._read), format_of(step) == NAME
            ),
        }

    def _assistant(self, step: Step) -> dict[str, Any] | None:
        payload = _own(step)
        if payload is None:
            payload = _said(pieces_of(step, self._read), own=format_of(step) == NAME)
        _settle_audio(payload)
        calls = [self._call(call) for call in calls_in(payload)]
        payload.pop("function_call", None)
        if calls:
            payload["tool_calls"] = calls
            if isinstance(payload.get("content"), list):
                payload["content"] = _without_blanks(payload["content"])
            return payload
        payload.pop("tool_calls", None)
        payload["content"] = _without_blanks(payload.get("content"))
        if payload["content"] is None and is_blank(payload.get("refusal")):
            payload["content"] = stand_ins(pieces_of(step, self._read)) or None
            return payload if payload["content"] else None
        return payload

    def _call(self, call: dict[str, Any]) -> dict[str, Any]:
        given = self._names.give(_text(call.get("id")))
        self._pending.append(given)
        kind = "custom" if isinstance(call.get("custom"), dict) else "function"
        field = "input" if kind == "custom" else "arguments"
        said = call.get(kind)
        said = said if isinstance(said, dict) else {}
        words = (
            _text(said.get(field))
            if kind == "custom"
            else whole_arguments(said.get(field))
        )
        fitting = {**said, "name": function_name(_text(said.get("name"))), field: words}
        fitting = {
            key: value for key, value in fitting.items() if key not in _BY_CLIENTS
        }
        more = {
            key: value for key, value in call.items() if key not in _CALL_BY_CLIENTS
        }
        return {**more, "id": given, "type": kind, kind: fitting}

    def _tool(self, step: Step) -> dict[str, Any]:
        given = self._pending.popleft()
        self._answered = True
        payload = _own(step)
        if payload is not None and payload["role"] == "tool":
            content = _without_blanks(payload.get("content"))
            return {
                **payload,
                "tool_call_id": given,
                "content": NO_OUTPUT if content is None else content,
            }
        part = pieces_of(step, self._read)[0].part
        assert isinstance(part, Result)
        return {
            "role": "tool",
            "tool_call_id": given,
            "content": NO_OUTPUT if is_blank(part.content) else part.content,
        }

    def join(self, payloads: Sequence[Any]) -> dict[str, Any]:
        first = payloads[0]
        joined = {
            key: value for key, value in first.items() if key not in _OF_ONE_MESSAGE
        }
        joined["content"] = _joined_content(
            [payload.get("content") for payload in payloads]
        )
        calls = [
            call for payload in payloads for call in payload.get("tool_calls") or ()
        ]
        images = [
            image for payload in payloads for image in payload.get("images") or ()
        ]
        refusals = [
            payload["refusal"]
            for payload in payloads
            if not is_blank(payload.get("refusal"))
        ]
        if calls:
            joined["tool_calls"] = calls
        if images:
            joined["images"] = images
        if refusals:
            joined["refusal"] = "\n\n".join(refusals)
        return joined


def _own(step: Step) -> dict[str, Any] | None:
    """The step's payload, when it is a whole one of this format; without what the API refuses."""
    source = step.source
    if source is None or source.note.format != NAME:
        return None
    payload = public(thaw(source.body))
    return {
        key: value
        for key, value in payload.items()
        if key == "content" or (value is not None and key not in _BY_CLIENTS)
    }


def _settle_audio(payload: dict[str, Any]) -> None:
    """Speech is sent back in words: the id that the API would take expires, and the session with
    it.
    """
    audio = payload.pop("audio", None)
    if (
        isinstance(audio, dict)
        and not is_blank(audio.get("transcript"))
        and _is_blank_content(payload.get("content"))
    ):
        payload["content"] = audio["transcript"]


def _is_blank_content(content: Any) -> bool:
    return not content if isinstance(content, list) else is_blank(content)


def _without_blanks(content: Any) -> Any:
    if isinstance(content, list):
        kept = [
            block
            for block in content
            if block["type"] != "text" or not is_blank(block.get("text"))
        ]
        # Reasoning alone says nothing, and no server takes a message of nothing else.
        return kept if any(block["type"] != "thinking" for block in kept) else None
    return None if is_blank(content) else content


def _said(pieces: Sequence[Piece], *, own: bool) -> dict[str, Any]:
    """An assistant message put together from pieces."""
    text = spoken_text(pieces, refusals=False)
    payload: dict[str, Any] = {"role": "assistant", "content": text or None}
    refusal = "\n\n".join(
        piece.part.text for piece in pieces if isinstance(piece.part, Refusal)
    )
    if not is_blank(refusal):
        payload["refusal"] = refusal
    calls = [piece for piece in pieces if isinstance(piece.part, Call)]
    if calls:
        payload["tool_calls"] = [
            piece.raw if own and piece.raw else _tool_call(piece.part)
            for piece in calls
        ]
    if not (text or calls or "refusal" in payload):
        payload["content"] = stand_ins(pieces) or None
    return payload


def _tool_call(call: Any) -> dict[str, Any]:
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }


def _user_content(pieces: Sequence[Piece], own: bool) -> Any:
    blocks: list[dict[str, Any]] = []
    for piece in pieces:
        part = piece.part
        if (
            own
            and piece.raw is not None
            and not (isinstance(part, Text) and is_blank(part.text))
        ):
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
    said = [
        content
        for content in contents
        if isinstance(content, list) or not is_blank(content)
    ]
    if all(isinstance(content, str) for content in said):
        return "\n\n".join(said) or None
    blocks: list[Any] = []
    for content in said:
        blocks.extend(
            [{"type": "text", "text": content}] if isinstance(content, str) else content
        )
    return blocks
