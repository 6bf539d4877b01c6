"""Streams of the Chat Completions API: chunks to deltas, deltas to an assistant message.

Many servers speak this API and add to it, so whatever a delta holds is kept: what has no part of
its own grows under its own key in the payload (OpenRouter's `images` and `reasoning_details`,
Gemini's `extra_content` of a call).

Part indexes: 0 text, 1 refusal, 2 and 3 the two spellings of reasoning, then the calls in the order
they began. Content that comes as a list of blocks begins at 1000, a block each; 900 is the
transcript of spoken audio; -1 holds all other keys of the message, -2 those of the chunks
themselves.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable, Collection
from typing import Any

from holdfast.domain.message import MessageNote, Payload
from holdfast.formats.assembling import Assembling, Deltas, counts
from holdfast.formats.merging import merged
from holdfast.formats.reading import Block, dumped, text_block, without, without_nulls
from holdfast.formats.sdk_objects import field, plain

_FIELDS = (
    ("content", "text", 0),
    ("refusal", "refusal", 1),
    ("reasoning_content", "thinking", 2),
    ("reasoning", "thinking", 3),
)
_CALLS_FROM = 4
_TRANSCRIPT = 900
_CONTENT_FROM = 1000
_MORE = -1
_AROUND = -2

_OWN_KEYS = frozenset(
    {"role", "tool_calls", "function_call", "audio", *(name for name, _, _ in _FIELDS)}
)
_CALL_KEYS = frozenset({"index", "id", "type", "function", "custom"})
_FRAME_KEYS = frozenset(
    {
        "id",
        "object",
        "created",
        "model",
        "choices",
        "usage",
        "system_fingerprint",
        "service_tier",
        "obfuscation",
        "provider",
        "error",
    }
)
_BROKEN = frozenset(
    {"error", "network_error", "insufficient_system_resource", "abort", "cancelled"}
)
"""Reasons to stop that are no end of a message: OpenRouter, Zhipu, DeepSeek and vLLM give them when
a server failed.
"""


class ChatAssembly(Assembling):
    """One streamed reply. It is complete once a finish reason was said; the usage may follow in a
    chunk of its own.
    """

    def __init__(self, note: Callable[[Payload], MessageNote]) -> None:
        super().__init__(note)
        self._model: str | None = None
        # the calls so far, by the index that the server gives each, and their ids in order
        self._slots: dict[int, int] = {}
        self._opened: list[str] = []
        # the kinds of the content's blocks so far, if it comes in blocks
        self._blocks: list[str] = []
        self._broke = False

    def take(self, chunk: Any) -> Deltas:
        """A chunk as deltas; of several choices only the first is the message."""
        out: Deltas = []
        model = field(chunk, "model")
        if model and model != self._model:
            self._model = str(model)
            out.append(("meta", 0, {"model": self._model}))
        if field(chunk, "error"):
            self._broke = True
            out.append(("meta", 0, {"finish": "error"}))
        for choice in field(chunk, "choices") or ():
            # 0, or None from servers that never have a second one
            if not field(choice, "index"):
                self._take_choice(choice, out)
        # In the last chunk, which has no choices, or in every one.
        usage = field(chunk, "usage")
        if usage:
            out.append(("meta", 0, {"usage": _usage(usage)}))
        _keep_rest(chunk, _FRAME_KEYS, _AROUND, out)
        return out

    def _take_choice(self, choice: Any, out: Deltas) -> None:
        # A choice that holds a whole message is read like one delta.
        delta = field(choice, "delta") or field(choice, "message")
        if delta is not None:
            self._take_delta(delta, out)
        finish = field(choice, "finish_reason")
        if finish:
            self._broke = self._broke or finish in _BROKEN
            out.append(("meta", 0, {"finish": str(finish)}))
            if not self._broke:
                out.append(("done", 0, None))

    def _take_delta(self, delta: Any, out: Deltas) -> None:
        # Nearly every chunk of a stream says some words and nothing else.
        if type(delta) is dict and len(delta) == 1 and not self._blocks:
            words = delta.get("content")
            if type(words) is str:
                if words:
                    out.append(("text", 0, words))
                return
        self._take_fields(delta, out)
        for call in field(delta, "tool_calls") or ():
            self._take_call(call, out)
        function = field(delta, "function_call")
        if function:
            self._take_call(
                {"index": 0, "type": "function_call", "function": function}, out
            )
        audio = plain(field(delta, "audio"))
        if isinstance(audio, dict):
            self._take_audio(audio, out)
        _keep_rest(delta, _OWN_KEYS, _MORE, out)

    def _take_fields(self, delta: Any, out: Deltas) -> None:
        for name, kind, index in _FIELDS:
            value = field(delta, name)
            if not value:
                continue
            if name == "content" and (self._blocks or not isinstance(value, str)):
                self._take_blocks(value, out)
            elif isinstance(value, str):
                out.append((kind, index, value))
            else:
                out.append(("part", _MORE, {name: plain(value)}))

    def _take_blocks(self, content: Any, out: Deltas) -> None:
        """Content as a list of blocks, whose texts grow like any text; words after blocks are one
        more block.
        """
        if not isinstance(content, list | tuple):
            content = [content]
        for block in content:
            said = plain(block)
            if isinstance(said, str):
                said = text_block(said)
            elif not isinstance(said, dict):
                said = text_block(dumped(said))
            self._take_block(said, out)

    def _take_block(self, said: Block, out: Deltas) -> None:
        kind = str(said.get("type") or "unknown")
        # A block carries no index of its own: it goes on while its kind stays the same.
        if not self._blocks or self._blocks[-1] != kind:
            self._blocks.append(kind)
        index = _CONTENT_FROM + len(self._blocks) - 1
        words = said.get("text")
        if kind == "text" and isinstance(words, str):
            said = without(said, ("text",))
            out.append(("text", index, words))
        if kind != "text" or said.keys() != {"type"}:
            out.append(("part", index, {**said, "type": kind}))

    def _take_audio(self, audio: Block, out: Deltas) -> None:
        """Speech is stored as it comes; its transcript is what there is to show."""
        transcript = audio.get("transcript")
        if isinstance(transcript, str) and transcript:
            out.append(("text", _TRANSCRIPT, transcript))
        rest = without_nulls(without(audio, ("transcript",)))
        out.append(("part", _MORE, {"audio": rest}))

    def _take_call(self, call: Any, out: Deltas) -> None:
        custom = field(call, "custom")
        said = custom or field(call, "function")
        call_id = field(call, "id")
        name = field(said, "name")
        place = field(call, "index")
        if not isinstance(place, int):
            # A server that counts no calls goes on with the last one.
            place = len(self._opened) - 1
        slot = self._slots.get(place)
        # Some servers send every call at index 0: another id with a name is another call.
        if slot is None or (call_id and name and str(call_id) != self._opened[slot]):
            slot = self._open_slot(field(call, "index"), str(call_id or ""))
            opened = {"id": self._opened[slot], "name": str(name or "")}
            if custom:
                opened["type"] = "custom"
            elif field(call, "type") == "function_call":
                opened["type"] = "function_call"
            out.append(("call", _CALLS_FROM + slot, opened))
        arguments = field(said, "input" if custom else "arguments")
        if arguments:
            if not isinstance(arguments, str):
                arguments = dumped(plain(arguments))
            out.append(("arguments", _CALLS_FROM + slot, arguments))
        _keep_rest(call, _CALL_KEYS, _CALLS_FROM + slot, out)

    def _open_slot(self, place: Any, call_id: str) -> int:
        slot = len(self._opened)
        self._opened.append(call_id)
        if not isinstance(place, int):
            place = slot
        self._slots[place] = slot
        return slot

    def _put(self, index: int, block: Any) -> None:
        before = self._parts.get(index)
        grown = merged(before, block)
        if index == _MORE and before and "data" in block.get("audio", ()):
            data = _joined_base64(
                before.get("audio", {}).get("data"), block["audio"]["data"]
            )
            grown = {**grown, "audio": {**grown["audio"], "data": data}}
        self._parts[index] = grown

    def _payload(self) -> Payload | None:
        if not self._grown and not self._calls and not self._parts.keys() - {_AROUND}:
            return None
        payload: Block = {"role": "assistant", "content": self._content()}
        for name, kind, index in _FIELDS[1:]:
            grown = self._joined(index, kind)
            if grown is not None:
                payload[name] = grown
        # What has grown as a part of its own is not overwritten by a server's other spelling.
        payload.update(without(self._parts.get(_MORE) or {}, payload))
        transcript = self._joined(_TRANSCRIPT, "text")
        if transcript is not None:
            payload["audio"] = {**payload.get("audio", {}), "transcript": transcript}
        payload.update(self._said_calls())
        # Private: it is not part of the message, and is never sent back.
        if self._parts.get(_AROUND):
            payload["_response"] = self._parts[_AROUND]
        return payload

    def _content(self) -> Any:
        words = self._joined(0, "text")
        blocks: list[Block] = []
        for place in sorted({*self._grown, *self._parts}):
            if place >= _CONTENT_FROM:
                blocks.append(self._block(place))
        if not blocks:
            return words
        # Words that came before the first block stand before it.
        if words:
            blocks.insert(0, text_block(words))
        return blocks

    def _block(self, place: int) -> Block:
        block: Block = dict(self._parts.get(place) or {"type": "text"})
        words = self._joined(place, "text")
        if words is not None:
            block["text"] = words
        return block

    def _said_calls(self) -> Block:
        calls = []
        for index, call in sorted(self._calls.items()):
            if call.get("type") == "function_call":
                # the API's first kind of call, of which a message has one
                return {"function_call": self._first_function()}
            calls.append(self._call(index, call))
        if not calls:
            return {}
        return {"tool_calls": calls}

    def _first_function(self) -> Block:
        index = min(self._calls)
        return {"name": self._calls[index]["name"], "arguments": self._arguments(index)}

    def _call(self, index: int, call: dict[str, str]) -> Block:
        said = self._arguments(index)
        kind = "function"
        function = {"name": call["name"], "arguments": said}
        if call.get("type") == "custom":
            kind = "custom"
            function = {"name": call["name"], "input": said}
        more = self._parts.get(index) or {}
        return {"id": call["id"], "type": kind, kind: function, **more}


def _joined_base64(before: Any, piece: Any) -> Any:
    """Audio comes in pieces of which each may be padded; joined as they are, nothing could read
    them.
    """
    if not (
        isinstance(before, str) and isinstance(piece, str) and before.endswith("=")
    ):
        return merged(before, piece)
    try:
        return b64encode(
            b64decode(before, validate=True) + b64decode(piece, validate=True)
        ).decode()
    except ValueError:
        # Not base64 after all: nothing is lost by joining it as text.
        return before + piece


def _keep_rest(value: Any, known: frozenset[str], index: int, out: Deltas) -> None:
    """Keeps what a chunk says beyond the keys that are known, whether it is a dict or an SDK
    object.
    """
    if type(value) is dict:
        if value.keys() <= known:
            return
        keys: Collection[str] = value.keys()
    else:
        declared = getattr(value, "model_fields_set", ())
        keys = {*declared, *(getattr(value, "model_extra", None) or ())}
    rest = {key: plain(field(value, key)) for key in keys if key not in known}
    rest = without_nulls(rest)
    if rest:
        out.append(("part", index, rest))


def _usage(usage: Any) -> dict[str, int]:
    return counts(
        usage,
        input="prompt_tokens",
        output="completion_tokens",
        cached="prompt_tokens_details.cached_tokens",
        reasoning="completion_tokens_details.reasoning_tokens",
    )
