"""Streams of the Chat Completions API: chunks to deltas, deltas to an assistant message.

Part indexes: 0 text, 1 refusal, 2 and 3 the two spellings of reasoning, then the calls in the order they began.
"""

from collections.abc import Callable
from typing import Any

from holdfast.domain.chunk import Delta
from holdfast.domain.message import MessageNote, Payload
from holdfast.formats.assembling import Assembling, counts
from holdfast.formats.objects import field

_FIELDS = (
    ("content", "text", 0),
    ("refusal", "refusal", 1),
    ("reasoning_content", "thinking", 2),
    ("reasoning", "thinking", 3),
)
_CALLS_FROM = 4


class ChatAssembly(Assembling):
    """One streamed reply. It is complete once a finish reason was said; the usage may follow in a chunk of its own."""

    def __init__(self, note: Callable[[Payload], MessageNote]) -> None:
        super().__init__()
        self._note_payload = note
        self._model: str | None = None
        self._slots: dict[int, int] = {}
        self._opened: list[str] = []

    def take(self, chunk: Any) -> list[Delta]:
        """A chunk as deltas; of several choices only the first is the message."""
        out: list[Delta] = []
        model = field(chunk, "model")
        if model and model != self._model:
            self._model = model
            out.append(("meta", 0, {"model": model}))
        for choice in field(chunk, "choices") or ():
            if not field(choice, "index"):
                self._take_choice(choice, out)
        usage = field(chunk, "usage")
        if usage:
            out.append(("meta", 0, {"usage": _usage(usage)}))
        return out

    def _take_choice(self, choice: Any, out: list[Delta]) -> None:
        delta = field(choice, "delta")
        if delta is not None:
            for name, kind, index in _FIELDS:
                value = field(delta, name)
                if value and isinstance(value, str):
                    out.append((kind, index, value))
            for call in field(delta, "tool_calls") or ():
                self._take_call(call, out)
        finish = field(choice, "finish_reason")
        if finish:
            out.append(("meta", 0, {"finish": finish}))
            out.append(("done", 0, None))

    def _take_call(self, call: Any, out: list[Delta]) -> None:
        said = field(call, "function")
        call_id, name = field(call, "id"), field(said, "name")
        place = field(call, "index")
        slot = self._slots.get(place if isinstance(place, int) else len(self._opened) - 1)
        # Some servers send every call at index 0: another id with a name is another call.
        if slot is None or (call_id and name and call_id != self._opened[slot]):
            slot = len(self._opened)
            self._slots[place if isinstance(place, int) else slot] = slot
            self._opened.append(call_id or "")
            out.append(("call", _CALLS_FROM + slot, {"id": call_id or "", "name": name or ""}))
        arguments = field(said, "arguments")
        if arguments:
            out.append(("arguments", _CALLS_FROM + slot, arguments))

    def _payload(self) -> Payload | None:
        if not self._grown and not self._calls:
            return None
        payload: dict[str, Any] = {"role": "assistant", "content": self._joined(0, "text")}
        for name, kind, index in _FIELDS[1:]:
            grown = self._joined(index, kind)
            if grown is not None:
                payload[name] = grown
        if self._calls:
            payload["tool_calls"] = [self._call(index) for index in sorted(self._calls)]
        return payload

    def _call(self, index: int) -> dict[str, Any]:
        call = self._calls[index]
        arguments = self._joined(index, "arguments") or ""
        return {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": arguments}}

    def _note(self, payload: Payload) -> MessageNote:
        return self._note_payload(payload)


def _usage(usage: Any) -> dict[str, int]:
    return counts(
        input=field(usage, "prompt_tokens"),
        output=field(usage, "completion_tokens"),
        cached=field(field(usage, "prompt_tokens_details"), "cached_tokens"),
        reasoning=field(field(usage, "completion_tokens_details"), "reasoning_tokens"),
    )
