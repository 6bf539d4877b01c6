"""Streams of the Messages API: events to deltas, deltas to an assistant message.

Part indexes are the provider's block indexes. The client's stream helper sends each event again in
another guise (`text`, `input_json`, …); those guises are passed over, or words would be doubled.
"""

from typing import Any

import msgspec

from holdfast.domain.chunk import Delta
from holdfast.domain.message import Payload
from holdfast.formats.assembling import Assembling, counts
from holdfast.formats.merging import merged
from holdfast.formats.sdk_objects import field, plain
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

    def take(self, chunk: Any) -> list[Delta]:
        """An event as deltas; none for events that only frame others."""
        kind = field(chunk, "type")
        if kind == "content_block_delta":
            return _grown(field(chunk, "index"), field(chunk, "delta"))
        if kind == "content_block_start":
            return _opened(field(chunk, "index"), plain(field(chunk, "content_block")))
        if kind == "message_start":
            message = field(chunk, "message")
            facts = {
                "model": _name(field(message, "model")),
                "id": _name(field(message, "id")),
            }
            return [("meta", 0, {**facts, "usage": _usage(field(message, "usage"))})]
        if kind == "message_delta":
            return _closing(chunk)
        if kind == "message_stop":
            return [("done", 0, None)]
        if kind == "error":
            return [
                (
                    "meta",
                    0,
                    {"finish": f"error: {field(field(chunk, 'error'), 'type')}"},
                )
            ]
        return []

    def _put(self, index: int, block: Any) -> None:
        kind = block.get("type")
        if kind == "citations_delta":
            block = {"citations": [block.get("citation")]}
        elif isinstance(kind, str) and kind.endswith("_delta"):
            # A kind of delta that is newer than this code: it grows the keys of its block that it
            # names.
            block = {key: value for key, value in block.items() if key != "type"}
        else:
            self._parts[index] = block
            return
        opened = self._parts.get(index) or {"type": "text"}
        # `citations: null` may grow
        said = {key: value for key, value in opened.items() if value is not None}
        self._parts[index] = merged(said, block)

    def _payload(self) -> Payload | None:
        blocks = [self._block(index) for index in self._indexes()]
        return (
            {"role": "assistant", "content": blocks, **self._meta.get("beside", {})}
            if blocks
            else None
        )

    def _block(self, index: int) -> dict[str, Any]:
        block: dict[str, Any] = dict(self._parts.get(index, ()))
        call = self._calls.get(index)
        if call is not None:
            block = {"type": "tool_use", **block, **call}
        arguments = self._joined(index, "arguments")
        if call is not None or arguments is not None:
            block.update(_input(arguments, whole=self._complete))
        for kind, name in (
            ("text", "text"),
            ("thinking", "thinking"),
            ("signature", "signature"),
        ):
            grown = self._joined(index, kind)
            if grown is not None:
                block.setdefault("type", "thinking" if kind == "signature" else kind)
                block[name] = grown
        return block


def _grown(index: int, delta: Any) -> list[Delta]:
    kind = field(delta, "type")
    grows = _GROWS.get(kind)
    if grows is not None:
        value = field(delta, grows[1])
        return [(grows[0], index, value)] if value else []
    return (
        [("part", index, plain(delta))]
        if isinstance(kind, str) and kind.endswith("_delta")
        else []
    )


def _closing(chunk: Any) -> list[Delta]:
    """Why the message stopped. What else is said of it stands beside its content, as in a message
    that was not streamed: the container that code ran in, the stop sequence, the details of a
    refusal.
    """
    delta = field(chunk, "delta")
    facts: dict[str, Any] = {"usage": _usage(field(chunk, "usage"))}
    finish = field(delta, "stop_reason")
    if finish:
        facts["finish"] = str(finish)
    said = {
        name: plain(field(delta, name))
        for name in ("container", "stop_sequence", "stop_details")
    }
    beside = {name: value for name, value in said.items() if value is not None}
    if beside:
        facts["beside"] = beside
    return [("meta", 0, facts)]


def _name(value: Any) -> str | None:
    return None if value is None else str(value)


def _opened(index: int, block: dict[str, Any]) -> list[Delta]:
    """The deltas of a block's start. What it brings along already grows the part like the deltas
    after it do.
    """
    kind = block["type"]
    if kind == "tool_use":
        out: list[Delta] = [
            ("call", index, {"id": block.get("id", ""), "name": block.get("name", "")})
        ]
        rest = {
            key: value
            for key, value in block.items()
            if key not in ("id", "name", "input")
        }
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
