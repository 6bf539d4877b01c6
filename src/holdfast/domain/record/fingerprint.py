"""The fingerprint of a payload: what it says, whoever shaped it, so that two lists can be laid
beside each other.

A fingerprint is never an identity (I-2): two equal texts are two messages. It only tells
`reconcile` which places of two lists may show the same message. Role, text, calls, answered calls
and what is neither (an image) are in it; bookkeeping (`_` keys, cache marks, usage) and reasoning
are not, as agents add and drop those without saying anything new. The reading is by shape alone:
openai.chat, openai.responses, anthropic and the neutral form need no format here.
"""

import json
from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

from holdfast.domain.message import Payload, check

SpokenCall = tuple[str, str, str]
"""Id, name and arguments of a call."""
Stamps = tuple[str, ...]
"""The ids that a payload carries of its own."""

_TEXT = {"text", "input_text", "output_text", "refusal", "summary_text"}
_CALL = {"tool_use", "function_call", "custom_tool_call", "call"}
_RESULT = {"tool_result", "function_call_output", "custom_tool_call_output", "result"}
_THINKING = {"thinking", "redacted_thinking", "reasoning"}
_MARKS = {"cache_control", "index", "annotations", "logprobs"}


class Fingerprint(NamedTuple):
    """What a payload says. `plain`: words and nothing else."""

    role: str
    text: str
    calls: tuple[SpokenCall, ...] = ()
    answers: tuple[str, ...] = ()
    other: tuple[str, ...] = ()

    @property
    def plain(self) -> bool:
        return bool(self.text) and not (self.calls or self.answers or self.other)


def fingerprint(payload: Payload) -> Fingerprint:
    """Never raises: what can't be read goes in whole."""
    if (
        # What nearly all messages are; reading one block by block takes far longer.
        type(payload) is dict
        and len(payload) == 2
        and type(payload.get("content")) is str
        and "role" in payload
    ):
        return Fingerprint(_role(payload), payload["content"])
    reading = _PayloadReading()
    reading.take(payload)
    found = Fingerprint(
        reading.role or "",
        "\n\n".join(reading.texts),
        tuple(reading.calls),
        tuple(reading.answers),
        tuple(reading.other),
    )
    # Nothing that is read here: what it is made of still tells it from others.
    if found[1:] == ("", (), (), ()) and not _is_blank(payload):
        return found._replace(other=(repr(bare(payload)),))
    return found


def same_calls(some: Sequence[SpokenCall], others: Sequence[SpokenCall]) -> bool:
    """Whether these are the same calls, whatever format their arguments are written in."""
    if some == others:
        return True
    if [call[:2] for call in some] != [call[:2] for call in others]:
        return False
    pairs = zip(some, others, strict=True)
    return all(_arguments(one) == _arguments(other) for one, other in pairs)


def _arguments(call: SpokenCall) -> Any:
    try:
        return json.loads(call[2])
    except (ValueError, RecursionError):
        return call[2]


def bare(payload: Any) -> Any:
    """The payload without the caller's own marks: keys that start with an underscore."""
    if isinstance(payload, dict):
        return {
            key: value for key, value in payload.items() if not str(key).startswith("_")
        }
    if isinstance(payload, list):
        return [bare(item) for item in payload]
    return payload


def is_same(one: Any, other: Any) -> bool:
    """Whether two payloads are equal but for the caller's own marks."""
    return bool(one == other) or bool(bare(one) == bare(other))


def snapshot(payload: Any) -> Any:
    """A copy that the caller's later changes don't reach. Strings are shared, so it costs little.
    It holds nothing but JSON data: what only claims to be equal to that is refused
    (`InvalidMessage`).
    """
    if isinstance(payload, dict):
        return {
            # Nearly all values are strings: a call for each would be most of the work.
            key: value if type(value) is str else snapshot(value)
            for key, value in payload.items()
        }
    if isinstance(payload, list | tuple):
        return [snapshot(item) for item in payload]
    check(payload)
    return payload


def stamp_of(payload: Payload) -> str | None:
    """The payload's own id, where it has one."""
    stamp = payload.get("id") if isinstance(payload, dict) else None
    return stamp if isinstance(stamp, str) and stamp else None


def stamps_in(payload: Payload) -> Stamps:
    """The payload's own id; those of its items, where it is a list of them."""
    items = payload if isinstance(payload, list) else (payload,)
    return tuple(stamp for item in items if (stamp := stamp_of(item)))


def pieces_of(payload: Payload) -> list[dict[str, Any]]:
    """A payload with results and more in it as each of its results, and what stands between them;
    nothing for any other.
    """
    if not isinstance(payload, dict):
        return []
    key = "parts" if "parts" in payload else "content"
    blocks = payload.get(key)
    if not isinstance(blocks, list) or len(blocks) < 2:
        return []
    pieces: list[dict[str, Any]] = []
    for is_result, group in groupby(blocks, key=_is_result):
        some = list(group)
        for piece in [[block] for block in some] if is_result else [some]:
            pieces.append({"role": payload.get("role", "user"), key: piece})
    return pieces if any(map(_is_result, blocks)) else []


def _is_result(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") in _RESULT


def worded(payload: Payload, text: str) -> Payload:
    """A message of the same role and shape that says only `text`."""
    if isinstance(payload, list):
        item = worded(payload[0] if payload else {}, text)
        # What has no type is no item of a response, and stands by itself in every format.
        return [item] if "type" in item else item
    made = {"type": payload["type"]} if "type" in payload else {}
    made["role"] = payload.get("role", "user")
    if "parts" in payload:
        made["parts"] = [{"type": "text", "text": text}]
    else:
        made["content"] = text
    return made


def _role(payload: dict[str, Any]) -> str:
    role = str(payload["role"])
    # one role under its older and its newer name
    return {"developer": "system", "function": "tool"}.get(role, role)


def _is_blank(payload: Payload) -> bool:
    """Whether there is nothing in it but a role: an empty answer, as models sometimes give."""
    if isinstance(payload, list):
        return not payload
    # Formats name the list of what was said as they like.
    lists = [value for value in payload.values() if isinstance(value, list)]
    return "role" in payload and not payload.get("content") and not any(lists)


class _PayloadReading:
    """What has been read of one payload so far."""

    def __init__(self) -> None:
        self.role: str | None = None
        self.texts: list[str] = []
        self.calls: list[SpokenCall] = []
        self.answers: list[str] = []
        self.other: list[str] = []

    def take(self, value: Any) -> None:
        if isinstance(value, str):
            if value:
                self.texts.append(value)
        elif isinstance(value, list | tuple):
            for item in value:
                self.take(item)
        elif isinstance(value, dict):
            if "role" in value:
                self._take_message(value)
            else:
                self._take_block(value)
        elif value is not None:
            self.other.append(repr(value))

    def _take_message(self, message: dict[str, Any]) -> None:
        self.role = self.role or _role(message)
        if message.get("tool_call_id") is not None:
            self.answers.append(str(message["tool_call_id"]))
        self.take(message.get("content"))
        self.take(message.get("parts"))
        self.take(message.get("refusal"))
        calls = message.get("tool_calls") or ()
        for call in calls if isinstance(calls, list | tuple) else (calls,):
            self._take_call(call)

    def _take_block(self, block: dict[str, Any]) -> None:
        kind = str(block.get("type"))
        if kind in _TEXT:
            self.take(block.get("text") or block.get("refusal"))
        elif kind in _CALL:
            self.role = self.role or "assistant"
            self._take_call(block)
        elif kind in _RESULT:
            self.role = self.role or "tool"
            answers = block.get("tool_use_id") or block.get("call_id") or ""
            self.answers.append(str(answers))
            self.take(block.get("content", block.get("output")))
        elif kind in _THINKING:
            self.role = self.role or "assistant"
        else:
            self.other.append(
                repr(
                    {
                        key: value
                        for key, value in bare(block).items()
                        if key not in _MARKS
                    }
                )
            )

    def _take_call(self, call: Any) -> None:
        if not isinstance(call, dict):
            self.other.append(repr(call))
            return
        said = call.get("function")
        if not isinstance(said, dict):
            said = call
        words = said.get("arguments", said.get("input", ""))
        if not isinstance(words, str):
            words = json.dumps(words, default=repr)
        id = str(call.get("call_id") or call.get("id") or "")
        self.calls.append((id, str(said.get("name", "")), words))
