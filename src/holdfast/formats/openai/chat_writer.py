"""How a dialogue is worded for the Chat Completions API: messages, calls and their results.

What a server said is sent back as it came, keys that only it knows included. Left out is what the
API refuses: nulls, a caller's private keys, what a client library has put there, and audio, whose
id expires: its transcript is sent.
"""

from collections.abc import Sequence
from typing import Any

from holdfast.domain.message import (
    USUAL_FORMAT,
    Call,
    Image,
    Other,
    Refusal,
    Result,
    Role,
    Text,
)
from holdfast.domain.repair import Piece, Step
from holdfast.formats.call_ids import function_name
from holdfast.formats.reading import Block, fields, is_blank, text, text_block, without
from holdfast.formats.shaping import (
    NO_OUTPUT,
    DialogueWriter,
    output_text,
    public,
    spoken_text,
    stand_in,
    stand_ins,
    whole_arguments,
)

NAME = USUAL_FORMAT
REASONING_KEYS = ("reasoning_content", "reasoning")
_OF_ONE_MESSAGE = (*REASONING_KEYS, "reasoning_details")
_BY_CLIENTS = frozenset({"parsed", "parsed_arguments"})
"""Keys that the `openai` client adds to what the server said."""
_CALL_BY_CLIENTS = _BY_CLIENTS | {"index", "call_id", "response_item_id"}
"""What callers leave in a call: those that put streams together its index, Hermes the ids of
another API.
"""


def calls_in(payload: Block) -> list[Block]:
    """The calls of a message; the API's first, single kind of call is read as a list of one, named
    by its function.
    """
    calls = payload.get("tool_calls")
    if calls:
        return list(calls)
    single = payload.get("function_call")
    if isinstance(single, dict):
        return [{"id": single.get("name"), "type": "function", "function": single}]
    return []


class ChatWriter(DialogueWriter):
    """Writes one dialogue. Ids need to differ only within a message: servers that reuse them stay
    as they are.
    """

    name = NAME
    # OpenAI's limit in this API; Responses takes 64.
    id_length_max = 40
    # Results stand between the last calls and what comes next; so it is before the first message.
    _answered = True

    def write(self, step: Step, *, joined: bool) -> Block | None:
        if step.role == "tool":
            return self._tool(step)
        if step.role == "assistant":
            if self._answered or not joined:
                self._names = self._fresh_names(set())
                self._answered = False
            return self._assistant(step)
        payload = self._own_payload(step)
        if payload is not None:
            payload["content"] = _without_blanks(payload.get("content"))
            return payload
        blocks = self._blocks(step)
        # Words alone are sent as text: not every server that speaks this API takes blocks.
        if len(blocks) == 1 and blocks[0].keys() == {"type", "text"}:
            return {"role": step.role, "content": blocks[0]["text"]}
        return {"role": step.role, "content": blocks}

    def _block(self, piece: Piece, role: Role, *, own: bool) -> Any:
        part = piece.part
        if isinstance(part, Text) and is_blank(part.text):
            return None
        if own and piece.raw is not None:
            return piece.raw
        if isinstance(part, Image):
            return {"type": "image_url", "image_url": {"url": part.url}}
        if isinstance(part, Text | Refusal):
            return None if is_blank(part.text) else text_block(part.text)
        if isinstance(part, Other):
            return text_block(stand_in(piece))
        return None

    def _own_payload(self, step: Step) -> Block | None:
        """The step's payload, when it is a whole one of this format; without what the API
        refuses.
        """
        payload = super()._own_payload(step)
        if payload is None:
            return None
        sent = {}
        for key, value in public(payload).items():
            if key == "content" or (value is not None and key not in _BY_CLIENTS):
                sent[key] = value
        return sent

    def _assistant(self, step: Step) -> Block | None:
        payload = self._own_payload(step)
        if payload is None:
            payload = _said(self._pieces(step), own=self._is_own(step))
        _settle_audio(payload)
        content = payload.get("content")
        calls = [self._call(call) for call in calls_in(payload)]
        # It is one of `calls` now: its result is sent with role `tool`, and that role
        # needs a call with an id.
        payload.pop("function_call", None)
        if calls:
            payload["tool_calls"] = calls
            # Beside calls this API takes an empty text, but no block of one.
            if isinstance(content, list):
                payload["content"] = _without_blanks(content)
            return payload
        payload.pop("tool_calls", None)
        payload["content"] = _without_blanks(content)
        if payload["content"] is None and is_blank(payload.get("refusal")):
            words = stand_ins(self._pieces(step))
            if not words:
                return None
            payload["content"] = words
        return payload

    def _call(self, call: Block) -> Block:
        given = self._open_call(text(call.get("id")))
        if isinstance(call.get("custom"), dict):
            kind = "custom"
            said = call["custom"]
            words = {"input": text(said.get("input"))}
        else:
            kind = "function"
            said = fields(call.get("function"))
            words = {"arguments": whole_arguments(said.get("arguments"))}
        name = function_name(text(said.get("name")))
        fitting = without({**said, "name": name, **words}, _BY_CLIENTS)
        # Gemini wants its signature of the call back, which is in `extra_content`.
        more = without(call, _CALL_BY_CLIENTS)
        return {**more, "id": given, "type": kind, kind: fitting}

    def _tool(self, step: Step) -> Block:
        given = self._pending.popleft()
        self._answered = True
        payload = self._own_payload(step)
        # A result of role `function` has no id that a call could be found by: it is worded anew.
        if payload is not None and payload["role"] == "tool":
            content = _without_blanks(payload.get("content"))
            if content is None:
                content = NO_OUTPUT
            return {**payload, "tool_call_id": given, "content": content}
        part = self._pieces(step)[0].part
        assert isinstance(part, Result)
        content = output_text(part.content)
        return {"role": "tool", "tool_call_id": given, "content": content}

    def join(self, payloads: Sequence[Any]) -> Block:
        # What a model thought belongs to the message it thought it for, and is not joined.
        joined = without(payloads[0], _OF_ONE_MESSAGE)
        joined["content"] = _joined_content(payloads)
        for key in ("tool_calls", "images"):
            items: list[Any] = []
            for payload in payloads:
                items += payload.get(key) or ()
            if items:
                joined[key] = items
        refusals = []
        for payload in payloads:
            if not is_blank(payload.get("refusal")):
                refusals.append(payload["refusal"])
        if refusals:
            joined["refusal"] = "\n\n".join(refusals)
        return joined


def _settle_audio(payload: Block) -> None:
    """Speech is sent back in words: the id that the API would take expires, and the session with
    it.
    """
    transcript = fields(payload.pop("audio", None)).get("transcript")
    if not is_blank(transcript) and _is_blank_content(payload.get("content")):
        payload["content"] = transcript


def _is_blank_content(content: Any) -> bool:
    if isinstance(content, list):
        return not content
    return is_blank(content)


def _without_blanks(content: Any) -> Any:
    if not isinstance(content, list):
        return None if is_blank(content) else content
    kept = []
    speaks = False
    for block in content:
        if block["type"] == "text" and is_blank(block.get("text")):
            continue
        kept.append(block)
        speaks = speaks or block["type"] != "thinking"
    # Reasoning alone says nothing, and no server takes a message of nothing else.
    return kept if speaks else None


def _said(pieces: Sequence[Piece], *, own: bool) -> Block:
    """An assistant message put together from pieces."""
    words = spoken_text(pieces, refusals=False)
    payload: Block = {"role": "assistant", "content": words or None}
    refusals: list[str] = []
    calls: list[Block] = []
    for piece in pieces:
        part = piece.part
        if isinstance(part, Refusal):
            refusals.append(part.text)
        elif isinstance(part, Call):
            calls.append(piece.raw if own and piece.raw else _tool_call(part))
    refusal = "\n\n".join(refusals)
    if not is_blank(refusal):
        payload["refusal"] = refusal
    if calls:
        payload["tool_calls"] = calls
    return payload


def _tool_call(call: Call) -> Block:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def _joined_content(payloads: Sequence[Any]) -> Any:
    contents = []
    for payload in payloads:
        content = payload.get("content")
        if isinstance(content, list) or not is_blank(content):
            contents.append(content)
    if all(isinstance(content, str) for content in contents):
        # Calls without any words have null for content, not an empty text.
        return "\n\n".join(contents) or None
    blocks: list[Block] = []
    for content in contents:
        if isinstance(content, str):
            blocks.append(text_block(content))
        else:
            blocks += content
    return blocks
