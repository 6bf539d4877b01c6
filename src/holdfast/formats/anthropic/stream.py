"""Streams of the Messages API: events to deltas, deltas to an assistant message.

Part indexes count the blocks in the order in which they began, as the provider's own indexes do.
Servers that speak like it may leave theirs out, or give every block the same: what goes on is then
told by its kind. The client's stream helper sends each event again in another guise (`text`,
`input_json`, …); those guises are passed over, or words would be doubled.
"""

from collections.abc import Callable
from typing import Any

from holdfast.domain.message import MessageNote, Payload
from holdfast.formats.assembling import Assembling, Deltas, counts, name_of
from holdfast.formats.merging import merged
from holdfast.formats.reading import (
    NOT_JSON,
    Block,
    dumped,
    parsed,
    text,
    without,
    without_nulls,
)
from holdfast.formats.sdk_objects import field, plain

_GROWS = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("signature", "signature"),
    "input_json_delta": ("arguments", "partial_json"),
}
_OPENED = {"text": ("text",), "thinking": ("thinking", "signature")}


class _Places:
    """Where in the message each block stands: used when chunks are taken, not when deltas are
    folded.
    """

    def __init__(self) -> None:
        # the type of each block, and the id of each call
        self._kinds: list[tuple[str, str]] = []
        # the provider's index of a block, or None where it has none, to its place
        self._known: dict[int | None, int] = {}
        self._open: int | None = None
        # where the last words were said: they are shown as they come, so none go before them
        self._said = 0

    def start(self, index: Any, kind: str, call_id: str) -> int:
        """The place of a block that begins. One that is said to begin again goes on, and so does a
        call that is known by its id.
        """
        index = _number(index)
        place = self._known.get(index)
        if place is None or self._kinds[place] != (kind, call_id):
            return self._new(index, kind, call_id)
        goes_on = bool(call_id) or place == self._open
        if not goes_on or not self._takes(place, kind):
            return self._new(index, kind, call_id)
        return self._at(place)

    def grow(self, index: Any, kind: str | None) -> int:
        """The place of a delta that grows a block of this kind, if it has to be of one: in the block
        that its index names or, without one, in that which is open; else in one of its own.
        """
        index = _number(index)
        place = self._open if index is None else self._known.get(index)
        if place is None or not self._takes(place, kind):
            return self._new(index, kind or "text", "")
        return self._at(place)

    def stop(self) -> None:
        self._open = None

    def _takes(self, place: int, kind: str | None) -> bool:
        found, _ = self._kinds[place]
        # Words go into texts alone, where they are read again, and after all that were said.
        if kind == "text":
            return found == "text" and place >= self._said
        return kind is None or found != "text"

    def _new(self, index: int | None, kind: str, call_id: str) -> int:
        self._kinds.append((kind, call_id))
        place = len(self._kinds) - 1
        self._known[index] = place
        return self._at(place)

    def _at(self, place: int) -> int:
        self._open = place
        if self._kinds[place][0] == "text":
            self._said = max(self._said, place)
        return place


class AnthropicAssembly(Assembling):
    """One streamed reply, complete at `message_stop`."""

    def __init__(self, note: Callable[[Payload], MessageNote]) -> None:
        super().__init__(note)
        self._places = _Places()

    def take(self, chunk: Any) -> Deltas:
        """An event as deltas; none for events that only frame others."""
        kind = field(chunk, "type")
        if kind == "content_block_delta":
            return self._grow(field(chunk, "index"), field(chunk, "delta"))
        if kind == "content_block_start":
            block = plain(field(chunk, "content_block"))
            call_id = text(block.get("id")) if block["type"] == "tool_use" else ""
            index = field(chunk, "index")
            return _opened(self._places.start(index, block["type"], call_id), block)
        if kind == "content_block_stop":
            self._places.stop()
            return []
        if kind == "message_start":
            message = field(chunk, "message")
            names = {"model": name_of(message, "model"), "id": name_of(message, "id")}
            return [("meta", 0, {**names, "usage": _usage(message)})]
        if kind == "message_delta":
            return _closing(chunk)
        if kind == "message_stop":
            return [("done", 0, None)]
        if kind == "error":
            problem = field(field(chunk, "error"), "type")
            return [("meta", 0, {"finish": f"error: {problem}"})]
        return []

    def _grow(self, index: Any, delta: Any) -> Deltas:
        kind = field(delta, "type")
        grows = _GROWS.get(kind)
        if grows is not None:
            grown, name = grows
            value = field(delta, name)
            if not value:
                return []
            return [(grown, self._places.grow(index, grown), value)]
        if _is_delta(kind):
            return [("part", self._places.grow(index, None), plain(delta))]
        return []

    def _put(self, index: int, block: Any) -> None:
        kind = block.get("type")
        if not _is_delta(kind):
            self._parts[index] = block
            return
        if kind == "citations_delta":
            block = {"citations": [block.get("citation")]}
        else:
            # A kind of delta that is newer than this code: it grows the keys of its block that it
            # names.
            block = without(block, ("type",))
        opened = self._parts.get(index) or {"type": "text"}
        # `citations: null` may grow
        self._parts[index] = merged(without_nulls(opened), block)

    def _payload(self) -> Payload | None:
        blocks = [self._block(index) for index in self._indexes()]
        if not blocks:
            return None
        return {"role": "assistant", "content": blocks, **self._meta.get("beside", {})}

    def _block(self, index: int) -> Block:
        block: Block = dict(self._parts.get(index, ()))
        call = self._calls.get(index)
        # A call that says no more than its id and name has no part beside it.
        if call is not None:
            block = {"type": "tool_use", **block, **call}
        arguments = self._joined(index, "arguments")
        if call is not None or arguments is not None:
            # A call without arguments brings no words for them, so only the message's
            # end tells an empty input from one that has not come yet.
            block.update(_input(arguments, whole=self._complete))
        for kind in ("text", "thinking", "signature"):
            grown = self._joined(index, kind)
            if grown is not None:
                block.setdefault("type", "thinking" if kind == "signature" else kind)
                block[kind] = grown
        return block


def _is_delta(kind: Any) -> bool:
    return isinstance(kind, str) and kind.endswith("_delta")


def _number(index: Any) -> int | None:
    """A block's index, if it is one."""
    return index if type(index) is int else None


def _closing(chunk: Any) -> Deltas:
    """Why the message stopped. What else is said of it stands beside its content, as in a message
    that was not streamed: the container that code ran in, the stop sequence, the details of a
    refusal.
    """
    delta = field(chunk, "delta")
    facts: Block = {"usage": _usage(chunk)}
    finish = field(delta, "stop_reason")
    if finish:
        facts["finish"] = str(finish)
    beside = {}
    for name in ("container", "stop_sequence", "stop_details"):
        value = plain(field(delta, name))
        if value is not None:
            beside[name] = value
    if beside:
        facts["beside"] = beside
    return [("meta", 0, facts)]


def _opened(index: int, block: Block) -> Deltas:
    """The deltas of a block's start. What it brings along already grows the part like the deltas
    after it do.
    """
    kind = block["type"]
    if kind == "tool_use":
        return _opened_call(index, block)
    # What grows is emptied in the part, or the words that came with it would be said twice.
    growing = _OPENED.get(kind, ())
    out: Deltas = [("part", index, {**block, **dict.fromkeys(growing, "")})]
    for name in growing:
        if block.get(name):
            out.append((name, index, block[name]))
    return out


def _opened_call(index: int, block: Block) -> Deltas:
    out: Deltas = []
    # Beside its id and name a call may say more: who called it, how it is cached.
    rest = without(block, ("id", "name", "input"))
    if rest.keys() != {"type"}:
        out.append(("part", index, rest))
    call = {"id": block.get("id", ""), "name": block.get("name", "")}
    out.append(("call", index, call))
    if block.get("input"):
        out.append(("arguments", index, dumped(block["input"])))
    return out


def _input(arguments: str | None, *, whole: bool) -> Block:
    """The call's input; text that is not JSON (yet) is kept as it arrived."""
    if not arguments and whole:
        return {"input": {}}
    value = parsed(arguments or "")
    if value is NOT_JSON:
        return {"input": {}, "partial_json": arguments or ""}
    return {"input": value}


def _usage(said: Any) -> dict[str, int]:
    return counts(
        field(said, "usage"),
        input="input_tokens",
        output="output_tokens",
        cached="cache_read_input_tokens",
        reasoning="output_tokens_details.thinking_tokens",
    )
