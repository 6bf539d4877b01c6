"""Streams of the Responses API: events to deltas, deltas to the list of output items.

A part's index is its item's output index times 1000 plus its place in the item; reasoning text, as
opposed to its summary, begins at 500.
"""

from collections.abc import Callable, Iterable
from typing import Any

from holdfast.domain.chunk import Delta
from holdfast.domain.message import MessageNote, Payload
from holdfast.formats.assembling import Assembling, counts
from holdfast.formats.sdk_objects import field, plain

_STRIDE = 1000
_PLACE_MAX = 1_000_000
_REASONING_TEXT = 500
_TRANSCRIPT = 900
_GROWS = {
    "response.output_text.delta": ("text", "content_index", 0),
    "response.refusal.delta": ("refusal", "content_index", 0),
    "response.reasoning_summary_text.delta": ("thinking", "summary_index", 0),
    "response.reasoning_text.delta": ("thinking", "content_index", _REASONING_TEXT),
    "response.function_call_arguments.delta": ("arguments", None, 0),
    "response.custom_tool_call_input.delta": ("arguments", None, 0),
    "response.mcp_call_arguments.delta": ("arguments", None, 0),
    "response.code_interpreter_call_code.delta": ("arguments", None, 0),
    "response.audio.transcript.delta": ("text", None, _TRANSCRIPT),
}
_ENDS = frozenset({"response.completed", "response.incomplete"})
_FAILURES = frozenset({"response.failed", "response.cancelled"})
_CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
_SERVED = {"mcp_call": "arguments", "code_interpreter_call": "code"}
"""What grows of a call that the server runs itself."""


class ResponsesAssembly(Assembling):
    """One streamed response; complete when the server says completed or incomplete, not when it
    failed.
    """

    def __init__(self, note: Callable[[Payload], MessageNote]) -> None:
        super().__init__(note)
        self._taken: dict[int, int] = {}

    def take(self, chunk: Any) -> list[Delta]:
        """An event as deltas; none for events that only repeat what others said."""
        kind = field(chunk, "type")
        grows = _GROWS.get(kind)
        if grows is not None:
            place = _place(chunk, grows[1]) if grows[1] else 0
            index = _place(chunk, "output_index") * _STRIDE + grows[2] + place
            return self._grow(grows[0], index, field(chunk, "delta"))
        if kind in ("response.output_item.added", "response.output_item.done"):
            index = _place(chunk, "output_index") * _STRIDE
            item = plain(field(chunk, "item"))
            if not isinstance(item, dict):
                return []
            if kind == "response.output_item.added":
                return _opened(index, item)
            return [*self._rest(index, item), ("part", index, item)]
        if kind == "response.created":
            response = field(chunk, "response")
            names = {
                "model": _name(field(response, "model")),
                "id": _name(field(response, "id")),
            }
            return [("meta", 0, names)]
        if kind == "error":
            problem = field(chunk, "code") or field(chunk, "message")
            return [("meta", 0, {"finish": f"error: {problem}"})]
        if kind in _ENDS or kind in _FAILURES:
            return self._ended(kind, field(chunk, "response"))
        return []

    def _grow(self, kind: str, index: int, text: Any) -> list[Delta]:
        if not text or not isinstance(text, str):
            return []
        self._taken[index] = self._taken.get(index, 0) + len(text)
        return [(kind, index, text)]

    def _rest(self, index: int, item: Any) -> Iterable[Delta]:
        """Words of a finished item that no delta has brought: some servers send only the finished
        item.
        """
        if not isinstance(item, dict) or item.get("type") != "message":
            return
        for place, block in enumerate(item.get("content") or ()):
            if not isinstance(block, dict):
                continue
            kind = "refusal" if block.get("type") == "refusal" else "text"
            text = block.get(kind) or ""
            yield from self._grow(
                kind, index + place, text[self._taken.get(index + place, 0) :]
            )

    def _ended(self, kind: str, response: Any) -> list[Delta]:
        facts: dict[str, Any] = {
            "finish": _finish(response),
            "usage": _usage(field(response, "usage")),
        }
        if field(response, "model"):
            facts["model"] = _name(field(response, "model"))
        if kind not in _ENDS:
            return [("meta", 0, facts)]
        output = plain(field(response, "output"))
        deltas: list[Delta] = []
        for place, item in enumerate(output or ()):
            deltas += self._rest(place * _STRIDE, item)
        return [*deltas, ("meta", 0, facts), ("done", 0, output or None)]

    def _payload(self) -> Payload | None:
        if self._final:
            return self._final
        places = sorted({index // _STRIDE for index in self._indexes()})
        return [self._item(place * _STRIDE) for place in places] or None

    def _item(self, index: int) -> dict[str, Any]:
        """An item: as the server finished it, or what has arrived of it."""
        item: dict[str, Any] = dict(self._parts.get(index, ()))
        kind = item.get("type") or self._kind(index)
        places = self._places(index)
        if item.get("status") == "completed" or not (places or index in self._calls):
            return item
        return {
            **item,
            "type": kind,
            "status": "incomplete",
            **self._arrived(kind, index, places),
        }

    def _places(self, index: int) -> list[int]:
        """The parts of an item that have grown."""
        return [
            place
            for place in sorted(self._grown)
            if place // _STRIDE == index // _STRIDE
        ]

    def _arrived(self, kind: str, index: int, places: list[int]) -> dict[str, Any]:
        """What the deltas have brought of an unfinished item."""
        if kind in _CALLS:
            call = self._calls.get(index, {"id": "", "name": ""})
            arguments = self._joined(index, "arguments") or ""
            return {
                "call_id": call["id"],
                "name": call["name"],
                _CALLS[kind]: arguments,
            }
        if kind in _SERVED:
            return {_SERVED[kind]: self._joined(index, "arguments") or ""}
        if kind == "message":
            blocks: list[dict[str, Any]] = []
            for place in places:
                blocks += self._blocks(place)
            return {"role": "assistant", "content": blocks}
        if kind == "reasoning":
            texts = [self._joined(place, "thinking") or "" for place in places]
            return {
                "summary": [{"type": "summary_text", "text": text} for text in texts]
            }
        return {}

    def _kind(self, index: int) -> str:
        """What an item is whose beginning no event told."""
        kinds: set[str] = set()
        for place in self._places(index):
            kinds.update(self._grown[place])
        if index in self._calls:
            return "function_call"
        if "thinking" in kinds:
            return "reasoning"
        return "function_call" if "arguments" in kinds else "message"

    def _blocks(self, place: int) -> Iterable[dict[str, Any]]:
        text = self._joined(place, "text")
        refusal = self._joined(place, "refusal")
        if text is not None:
            yield {"type": "output_text", "text": text, "annotations": []}
        if refusal is not None:
            yield {"type": "refusal", "refusal": refusal}


def _place(chunk: Any, name: str) -> int:
    """Where in the response this belongs. What is no such number is told to the stream, which keeps
    the chunk unread: a text would be repeated a thousand times.
    """
    place = field(chunk, name)
    if place is None:
        return 0
    if type(place) is not int or not 0 <= place <= _PLACE_MAX:
        raise ValueError(f"{name} is no place")
    return place


def _name(value: Any) -> str | None:
    return None if value is None else str(value)


def _opened(index: int, item: dict[str, Any]) -> list[Delta]:
    out: list[Delta] = [("part", index, item)]
    if item.get("type") in _CALLS:
        out.append(
            (
                "call",
                index,
                {"id": item.get("call_id") or "", "name": item.get("name") or ""},
            )
        )
    return out


def _finish(response: Any) -> str:
    status = field(response, "status") or "unknown"
    reason = field(field(response, "incomplete_details"), "reason") or field(
        field(response, "error"), "code"
    )
    return f"{status}: {reason}" if reason else status


def _usage(usage: Any) -> dict[str, int]:
    return counts(
        input=field(usage, "input_tokens"),
        output=field(usage, "output_tokens"),
        cached=field(field(usage, "input_tokens_details"), "cached_tokens"),
        reasoning=field(field(usage, "output_tokens_details"), "reasoning_tokens"),
    )
