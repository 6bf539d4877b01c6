"""Streams of the Messages API: events to deltas, deltas to an assistant message.

Part indexes are the provider's block indexes. The client's stream helper sends each event again in
another guise (`text`, `input_json`, …); those guises are passed over, or words would be doubled.
"""

from typing import Any

from holdfast.domain.message import Payload
from holdfast.formats.assembling import Assembling, Deltas, counts, name_of
from holdfast.formats.merging import merged
from holdfast.formats.reading import (
    NOT_JSON,
    Block,
    dumped,
    parsed,
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


class AnthropicAssembly(Assembling):
    """One streamed reply, complete at `message_stop`."""

    def take(self, chunk: Any) -> Deltas:
        """An event as deltas; none for events that only frame others."""
        kind = field(chunk, "type")
        if kind == "content_block_delta":
            return _grown(field(chunk, "index"), field(chunk, "delta"))
        if kind == "content_block_start":
            return _opened(field(chunk, "index"), plain(field(chunk, "content_block")))
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


def _grown(index: int, delta: Any) -> Deltas:
    kind = field(delta, "type")
    grows = _GROWS.get(kind)
    if grows is not None:
        grown, name = grows
        value = field(delta, name)
        return [(grown, index, value)] if value else []
    if _is_delta(kind):
        return [("part", index, plain(delta))]
    return []


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
