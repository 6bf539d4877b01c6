"""Streams of the Responses API: events to deltas, deltas to the list of output items.

A part's index is its item's output index times 1000 plus its place in the item; reasoning text, as
opposed to its summary, begins at 500.
"""

from collections.abc import Callable
from typing import Any

from holdfast.domain.message import MessageNote, Payload
from holdfast.formats.assembling import Assembling, Deltas, counts, name_of
from holdfast.formats.openai.responses_tools import SAID
from holdfast.formats.reading import Block
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
# Incomplete is an end too: the model stopped at a limit, and no more will come.
_ENDS = frozenset({"response.completed", "response.incomplete"})
_FAILURES = frozenset({"response.failed", "response.cancelled"})
_SERVED = {"mcp_call": "arguments", "code_interpreter_call": "code"}
"""What grows of a call that the server runs itself."""


class ResponsesAssembly(Assembling):
    """One streamed response; complete when the server says completed or incomplete, not when it
    failed.
    """

    def __init__(self, note: Callable[[Payload], MessageNote]) -> None:
        super().__init__(note)
        self._taken: dict[int, int] = {}

    def take(self, chunk: Any) -> Deltas:
        """An event as deltas; none for events that only repeat what others said."""
        kind = field(chunk, "type")
        grows = _GROWS.get(kind)
        if grows is not None:
            grown, place_name, offset = grows
            index = _place(chunk, "output_index") * _STRIDE + offset
            if place_name is not None:
                index += _place(chunk, place_name)
            return self._grow(grown, index, field(chunk, "delta"))
        if kind == "response.output_item.added":
            return _opened(chunk)
        if kind == "response.output_item.done":
            return self._finished(chunk)
        if kind == "response.created":
            response = field(chunk, "response")
            names = {"model": name_of(response, "model"), "id": name_of(response, "id")}
            return [("meta", 0, names)]
        if kind == "error":
            problem = field(chunk, "code") or field(chunk, "message")
            return [("meta", 0, {"finish": f"error: {problem}"})]
        if kind in _ENDS or kind in _FAILURES:
            return self._ended(kind, field(chunk, "response"))
        return []

    def _grow(self, kind: str, index: int, words: Any) -> Deltas:
        if not words or not isinstance(words, str):
            return []
        # Counted when it is taken: the fold may be done later, or by another process.
        self._taken[index] = self._taken.get(index, 0) + len(words)
        return [(kind, index, words)]

    def _finished(self, chunk: Any) -> Deltas:
        index = _place(chunk, "output_index") * _STRIDE
        item = plain(field(chunk, "item"))
        if not isinstance(item, dict):
            return []
        return [*self._rest(index, item), ("part", index, item)]

    def _rest(self, index: int, item: Any) -> Deltas:
        """Words of a finished item that no delta has brought: some servers send only the finished
        item.
        """
        out: Deltas = []
        if not isinstance(item, dict) or item.get("type") != "message":
            return out
        for place, block in enumerate(item.get("content") or (), index):
            if not isinstance(block, dict):
                continue
            kind = "text"
            if block.get("type") == "refusal":
                kind = "refusal"
            words = block.get(kind) or ""
            out += self._grow(kind, place, words[self._taken.get(place, 0) :])
        return out

    def _ended(self, kind: str, response: Any) -> Deltas:
        facts: Block = {"finish": _finish(response), "usage": _usage(response)}
        if field(response, "model"):
            facts["model"] = name_of(response, "model")
        # A failed response has no end: what had arrived of it stays a partial message.
        if kind in _FAILURES:
            return [("meta", 0, facts)]
        # The last event repeats all items: only words that no delta has brought are
        # added, so that what was shown is what the message says.
        out: Deltas = []
        output = plain(field(response, "output"))
        for place, item in enumerate(output or ()):
            out += self._rest(place * _STRIDE, item)
        return [*out, ("meta", 0, facts), ("done", 0, output or None)]

    def _payload(self) -> Payload | None:
        # What the server says in the end is the whole of it, annotations and ids included.
        if self._final:
            return self._final
        places = sorted({index // _STRIDE for index in self._indexes()})
        return [self._item(place * _STRIDE) for place in places] or None

    def _item(self, index: int) -> Block:
        """An item: as the server finished it, or what has arrived of it."""
        item: Block = dict(self._parts.get(index, ()))
        places = [
            place
            for place in sorted(self._grown)
            if place // _STRIDE * _STRIDE == index
        ]
        # Without deltas there is nothing to add to what the server itself said of it.
        if item.get("status") == "completed" or not (places or index in self._calls):
            return item
        kind = item.get("type") or self._kind(index, places)
        arrived = self._arrived(kind, index, places)
        return {**item, "type": kind, "status": "incomplete", **arrived}

    def _arrived(self, kind: str, index: int, places: list[int]) -> Block:
        """What the deltas have brought of an unfinished item."""
        if kind in SAID:
            call = self._calls.get(index, {"id": "", "name": ""})
            return {
                "call_id": call["id"],
                "name": call["name"],
                SAID[kind]: self._arguments(index),
            }
        if kind in _SERVED:
            return {_SERVED[kind]: self._arguments(index)}
        blocks: list[Block] = []
        if kind == "message":
            for place in places:
                blocks += self._blocks(place)
            return {"role": "assistant", "content": blocks}
        if kind == "reasoning":
            for place in places:
                words = self._joined(place, "thinking") or ""
                blocks.append({"type": "summary_text", "text": words})
            return {"summary": blocks}
        return {}

    def _kind(self, index: int, places: list[int]) -> str:
        """What an item is whose beginning no event told."""
        kinds: set[str] = set()
        for place in places:
            kinds.update(self._grown[place])
        if index in self._calls:
            return "function_call"
        if "thinking" in kinds:
            return "reasoning"
        if "arguments" in kinds:
            return "function_call"
        return "message"

    def _blocks(self, place: int) -> list[Block]:
        blocks: list[Block] = []
        words = self._joined(place, "text")
        if words is not None:
            blocks.append({"type": "output_text", "text": words, "annotations": []})
        refusal = self._joined(place, "refusal")
        if refusal is not None:
            blocks.append({"type": "refusal", "refusal": refusal})
        return blocks


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


def _opened(chunk: Any) -> Deltas:
    index = _place(chunk, "output_index") * _STRIDE
    item = plain(field(chunk, "item"))
    if not isinstance(item, dict):
        return []
    out: Deltas = [("part", index, item)]
    if item.get("type") in SAID:
        call = {"id": item.get("call_id") or "", "name": item.get("name") or ""}
        out.append(("call", index, call))
    return out


def _finish(response: Any) -> str:
    status: str = field(response, "status") or "unknown"
    reason = field(field(response, "incomplete_details"), "reason")
    reason = reason or field(field(response, "error"), "code")
    if reason:
        return f"{status}: {reason}"
    return status


def _usage(response: Any) -> dict[str, int]:
    return counts(
        field(response, "usage"),
        input="input_tokens",
        output="output_tokens",
        cached="input_tokens_details.cached_tokens",
        reasoning="output_tokens_details.reasoning_tokens",
    )
