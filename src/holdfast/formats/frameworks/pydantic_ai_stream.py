"""Streams of Pydantic AI: the events of a model's response to deltas, deltas to a response.

The adapter hands on chunks of these shapes, made from the framework's events:

    {"start": part, "index": 0}          a part begins, with what it has so far
    {"delta": {…}, "index": 0}           it grows
    {"end": part, "index": 0}            it is whole
    {"final": payload}                   the response as the run goes on with it; one that was interrupted says so

The first one also has `begin`: what is known of the response before its first part.
"""

from collections.abc import Sequence
from typing import Any

from holdfast.domain.chunk import Delta
from holdfast.domain.message import Payload
from holdfast.formats.assembling import Assembling, Deltas
from holdfast.formats.reading import (
    Block,
    dumped,
    fields,
    is_json,
    text,
    without,
)

_GROWS = {"text": "text", "thinking": "thinking", "tool_call": "arguments"}
_STRIDE = 10_000
"""A part that begins again under the same index gets another one: what was shown of it is kept."""


class ResponseAssembly(Assembling):
    """One streamed response, complete when its final form is known and whole."""

    def __init__(self, note: Any) -> None:
        super().__init__(note)
        self._begun: dict[int, int] = {}

    def take(self, chunk: Any) -> Deltas:
        said = fields(chunk)
        if "final" in said:
            return _closing(fields(said["final"]))
        begun: Deltas = []
        if "begin" in said:
            begun = [("meta", 0, {"beside": said["begin"]})]
        return begun + self._taken(said)

    def _taken(self, said: Block) -> Deltas:
        index = said.get("index")
        if type(index) is not int or not 0 <= index < _STRIDE:
            raise ValueError("index is no place")
        if "start" in said:
            place = self._begun.get(index, index - _STRIDE) + _STRIDE
            self._begun[index] = place
            return _started(place, fields(said["start"]))
        place = self._begun.get(index, index)
        if "end" in said:
            part = fields(said["end"])
            # What grew is in the journal already.
            return [] if part.get("part_kind") == "text" else [("part", place, part)]
        return _grown(place, fields(said.get("delta")))

    def fold(self, deltas: Sequence[Delta]) -> None:
        super().fold(deltas)
        if self._final is not None:
            # A final form may be that of a response that was interrupted.
            self._complete = fields(self._final).get("state", "complete") == "complete"

    def _payload(self) -> Payload | None:
        if self._final is not None:
            return self._final
        parts = []
        for index in self._indexes():
            part = self._part(index)
            if part is not None:
                parts.append(part)
        if not parts:
            return None
        beside = fields(self._meta.get("beside"))
        return {"parts": parts, "kind": "response", **beside, "state": "interrupted"}

    def _part(self, index: int) -> Block | None:
        """What has arrived of a part; nothing of a call whose arguments were cut: it was never run."""
        part: Block = dict(self._parts.get(index, ()))
        kind = text(part.get("part_kind")) or "text"
        if kind == "tool-call":
            if "args" not in part:
                part["args"] = self._arguments(index)
            said = part["args"]
            is_whole = not isinstance(said, str) or is_json(said)
            return part if is_whole else None
        for name, grown in (("content", kind), ("signature", "signature")):
            words = self._joined(index, grown)
            if words is not None and name not in part:
                part[name] = words
        return {"part_kind": kind, **part}


def counted(said: Block) -> dict[str, int]:
    """The tokens of a response, by our names."""
    usage = fields(said.get("usage"))
    names = {
        "input": "input_tokens",
        "output": "output_tokens",
        "cached": "cache_read_tokens",
        "reasoning": "output_reasoning_tokens",
    }
    found = {}
    for ours, theirs in names.items():
        number = usage.get(theirs)
        if type(number) is int and number > 0:
            found[ours] = number
    return found


def _started(place: int, part: Block) -> Deltas:
    kind = part.get("part_kind")
    if kind == "tool-call":
        named = {
            "id": text(part.get("tool_call_id")),
            "name": text(part.get("tool_name")),
        }
        opened: Deltas = [
            ("part", place, without(part, ("args",))),
            ("call", place, named),
        ]
        return opened + _arguments(place, part.get("args"))
    if kind not in ("text", "thinking"):
        return [("part", place, part)]
    out: Deltas = [("part", place, without(part, ("content", "signature")))]
    for name, grown in (("content", kind), ("signature", "signature")):
        if text(part.get(name)):
            out.append((grown, place, part[name]))
    return out


def _grown(place: int, delta: Block) -> Deltas:
    kind = _GROWS.get(text(delta.get("part_delta_kind")))
    if kind is None:
        return []
    if kind == "arguments":
        return _arguments(place, delta.get("args_delta"))
    out: Deltas = []
    if text(delta.get("content_delta")):
        out.append((kind, place, delta["content_delta"]))
    if text(delta.get("signature_delta")):
        out.append(("signature", place, delta["signature_delta"]))
    return out


def _arguments(place: int, said: Any) -> Deltas:
    if not said:
        return []
    return [("arguments", place, said if isinstance(said, str) else dumped(said))]


def _closing(payload: Block) -> Deltas:
    facts: Block = {"usage": counted(payload)}
    for ours, theirs in (("finish", "finish_reason"), ("model", "model_name")):
        if text(payload.get(theirs)):
            facts[ours] = payload[theirs]
    return [("meta", 0, facts), ("done", 0, payload)]
