"""Streams of the Responses API: events to deltas, deltas to the list of output items.

A part's index is its item's output index times 1000 plus its place in the item; reasoning text, as
opposed to its summary, begins at 500.
"""

from collections.abc import Callable, Iterator
from typing import Any

from holdfast.domain.chunk import SHOWN, joined
from holdfast.domain.message import MessageNote, Payload
from holdfast.formats.assembling import Assembling, Deltas, counts, name_of
from holdfast.formats.openai.responses_tools import SAID
from holdfast.formats.reading import Block, fields, text
from holdfast.formats.sdk_objects import field, plain

_TEXTS = frozenset({"output_text", "input_text", "text"})
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
        # All of these are used when chunks are taken, not when deltas are folded: that may be done
        # later, or by another process. What was said, by place; where the last words were; where
        # the items are that have ids, and which one is open.
        self._said: dict[int, list[str]] = {}
        self._last = 0
        self._places: dict[str, int] = {}
        self._open: int | None = None
        self._next = 0

    def take(self, chunk: Any) -> Deltas:
        """An event as deltas; none for events that only repeat what others said."""
        kind = field(chunk, "type")
        grows = _GROWS.get(kind)
        if grows is not None:
            grown, place_name, offset = grows
            index = self._item_at(chunk, field(chunk, "item_id")) + offset
            if place_name is not None:
                index += _place(chunk, place_name) or 0
            return self._grow(grown, index, field(chunk, "delta"))
        if kind == "response.output_item.added":
            return self._begun(chunk)
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

    def _item_at(self, chunk: Any, id: Any) -> int:
        """Where the item is that this belongs to. Servers that speak like the API may not number
        their items: then it is known by its id, or it is the one that is open.
        """
        place = _place(chunk, "output_index")
        if place is None:
            place = self._places.get(text(id), self._open)
        if place is None:
            place = self._next
        if text(id):
            self._places[text(id)] = place
        self._open = place
        self._next = max(self._next, place + 1)
        return place * _STRIDE

    def _grow(self, kind: str, index: int, words: Any) -> Deltas:
        if not words or not isinstance(words, str):
            return []
        if kind in SHOWN:
            self._said.setdefault(index, []).append(words)
            self._last = max(self._last, index)
        return [(kind, index, words)]

    def _begun(self, chunk: Any) -> Deltas:
        item = plain(field(chunk, "item"))
        if not isinstance(item, dict):
            return []
        self._open = None
        return _opened(self._item_at(chunk, item.get("id")), item)

    def _finished(self, chunk: Any) -> Deltas:
        item = plain(field(chunk, "item"))
        if not isinstance(item, dict):
            return []
        index = self._item_at(chunk, item.get("id"))
        self._open = None
        return [*self._rest(index, item), ("part", index, item)]

    def _rest(self, index: int, item: Block) -> Deltas:
        """Words of a finished item that no delta has brought: some servers send only the finished
        item. Where it says other words than were shown, or would say some before those, it adds
        none.
        """
        out: Deltas = []
        for place, kind, words in _words_of(index, item):
            said = joined("".join(self._said.get(place, ())))
            if place >= self._last and words.startswith(said):
                out += self._grow(kind, place, words[len(said) :])
        return out

    def _ended(self, kind: str, response: Any) -> Deltas:
        facts: Block = {"finish": _finish(response), "usage": _usage(response)}
        if field(response, "model"):
            facts["model"] = name_of(response, "model")
        # A failed response has no end: what had arrived of it stays a partial message.
        if kind in _FAILURES:
            return [("meta", 0, facts)]
        # It repeats all items. Words that no delta has brought are found there by the stream.
        output = plain(field(response, "output"))
        return [("meta", 0, facts), ("done", 0, output or None)]

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


def _place(chunk: Any, name: str) -> int | None:
    """Where in the response this belongs, if it says so. What is no such number is told to the
    stream, which keeps the chunk unread: a text would be repeated a thousand times.
    """
    place = field(chunk, name)
    if place is None:
        return None
    if type(place) is not int or not 0 <= place <= _PLACE_MAX:
        raise ValueError(f"{name} is no place")
    return place


def _words_of(index: int, item: Block) -> Iterator[tuple[int, str, str]]:
    """The words of a message, each with its place and whether it is a text or a refusal."""
    content = item.get("content")
    if item.get("type") != "message":
        return
    if isinstance(content, str):
        yield index, "text", content
    for place, block in enumerate(content if isinstance(content, list) else (), index):
        kind = fields(block).get("type")
        if kind in _TEXTS:
            yield place, "text", text(block.get("text"))
        elif kind == "refusal":
            yield place, "refusal", text(block.get("refusal"))
        elif kind == "output_audio":
            yield index + _TRANSCRIPT, "text", text(block.get("transcript"))


def _opened(index: int, item: Block) -> Deltas:
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
