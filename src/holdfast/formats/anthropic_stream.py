"""Streams of the Messages API: events to deltas, deltas to an assistant message.

Part indexes are the provider's block indexes. The client's stream helper sends each event again in another guise
(`text`, `input_json`, …); those guises are passed over, or words would be doubled.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.domain.chunk import Delta
from holdfast.domain.message import MessageNote, Payload
from holdfast.formats.assembling import Assembling, counts
from holdfast.formats.objects import field, plain
from holdfast.formats.shaping import dumped

_GROWS = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("signature", "signature"),
    "input_json_delta": ("arguments", "partial_json"),
}
_OPENED = {"text": ("text",), "thinking": ("thinking", "signature")}


class AnthropicAssembly(Assembling):
    """One streamed reply, complete at `message_stop`."""

    def __init__(self, note: Callable[[Payload], MessageNote]) -> None:
        super().__init__()
        self._note_payload = note

    def take(self, chunk: Any) -> list[Delta]:
        """An event as deltas; none for events that only frame others."""
        kind = field(chunk, "type")
        if kind == "content_block_delta":
            return _grown(field(chunk, "index"), field(chunk, "delta"))
        if kind == "content_block_start":
            return _opened(field(chunk, "index"), plain(field(chunk, "content_block")))
        if kind == "message_start":
            message = field(chunk, "message")
            facts = {"model": field(message, "model"), "id": field(message, "id")}
            return [("meta", 0, {**facts, "usage": _usage(field(message, "usage"))})]
        if kind == "message_delta":
            finish = field(field(chunk, "delta"), "stop_reason")
            facts = {"finish": finish} if finish else {}
            return [("meta", 0, {**facts, "usage": _usage(field(chunk, "usage"))})]
        if kind == "message_stop":
            return [("done", 0, None)]
        return []

    def _put(self, index: int, block: Any) -> None:
        if block.get("type") == "citations_delta":
            opened = self._parts.get(index, {"type": "text"})
            cited = [*(opened.get("citations") or ()), block.get("citation")]
            self._parts[index] = {**opened, "citations": cited}
        else:
            self._parts[index] = block

    def _payload(self) -> Payload | None:
        blocks = [self._block(index) for index in self._indexes()]
        return {"role": "assistant", "content": blocks} if blocks else None

    def _block(self, index: int) -> dict[str, Any]:
        block: dict[str, Any] = dict(self._parts.get(index, ()))
        call = self._calls.get(index)
        if call is not None:
            block = {"type": "tool_use", **block, **call}
        arguments = self._joined(index, "arguments")
        if call is not None or arguments is not None:
            block.update(_input(arguments, whole=self._complete))
        for kind, name in (("text", "text"), ("thinking", "thinking"), ("signature", "signature")):
            grown = self._joined(index, kind)
            if grown is not None:
                block.setdefault("type", "thinking" if kind == "signature" else kind)
                block[name] = grown
        return block

    def _note(self, payload: Payload) -> MessageNote:
        return self._note_payload(payload)


def _grown(index: int, delta: Any) -> list[Delta]:
    kind = field(delta, "type")
    grows = _GROWS.get(kind)
    if grows is not None:
        value = field(delta, grows[1])
        return [(grows[0], index, value)] if value else []
    return [("part", index, plain(delta))] if kind == "citations_delta" else []


def _opened(index: int, block: dict[str, Any]) -> list[Delta]:
    """The deltas of a block's start. What it brings along already grows the part like the deltas after it do."""
    kind = block["type"]
    if kind == "tool_use":
        out: list[Delta] = [("call", index, {"id": block.get("id", ""), "name": block.get("name", "")})]
        rest = {key: value for key, value in block.items() if key not in ("id", "name", "input")}
        if rest.keys() != {"type"}:
            out.insert(0, ("part", index, rest))
        if block.get("input"):
            out.append(("arguments", index, dumped(block["input"])))
        return out
    growing = _OPENED.get(kind, ())
    out = [("part", index, {**block, **{name: "" for name in growing}})]
    out.extend((name, index, block[name]) for name in growing if block.get(name))
    return out


def _input(arguments: str | None, *, whole: bool) -> dict[str, Any]:
    """The call's input; text that is not JSON (yet) is kept as it arrived."""
    if not arguments:
        return {"input": {}} if whole else {"input": {}, "partial_json": ""}
    try:
        return {"input": msgspec.json.decode(arguments)}
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return {"input": {}, "partial_json": arguments}


def _usage(usage: Any) -> dict[str, int]:
    return counts(
        input=field(usage, "input_tokens"),
        output=field(usage, "output_tokens"),
        cached=field(usage, "cache_read_input_tokens"),
        reasoning=field(field(usage, "output_tokens_details"), "thinking_tokens"),
    )
