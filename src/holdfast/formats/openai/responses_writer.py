"""How a dialogue is worded for the Responses API: items, groups of a response, call ids.

Roles are not merged here: the API takes items of one role after another.
"""

from collections.abc import Sequence
from typing import Any

from holdfast.domain.message import (
    Call,
    Image,
    Other,
    Part,
    Refusal,
    Result,
    Role,
    Text,
)
from holdfast.domain.repair import Piece, Read, Step
from holdfast.formats.call_ids import function_name
from holdfast.formats.format import Shaped
from holdfast.formats.openai.responses_tools import (
    RUN,
    SAID,
    answered_within,
    call_of,
    made_output,
    own_output,
)
from holdfast.formats.reading import Block, is_blank, text, without
from holdfast.formats.shaping import (
    NO_OUTPUT,
    DialogueWriter,
    public,
    spoken_text,
    stand_in,
    stand_ins,
    whole_arguments,
)

NAME = "openai.responses"
_WORDS = frozenset({"input_text", "output_text", "text"})
_BY_CLIENTS = frozenset(
    {"parsed_arguments", "internal_chat_message_metadata_passthrough"}
)


def is_replayable(item: Block) -> bool:
    """Whether a reasoning item has all that the API asks for when it comes back."""
    has_content = item.get("id") or item.get("encrypted_content")
    return isinstance(item.get("summary"), list) and bool(has_content)


class ResponsesWriter(DialogueWriter):
    """Writes one dialogue. A run of assistant steps is held until its end is seen: reasoning may
    lead into the next.
    """

    name = NAME

    def __init__(self, read: Read, used: set[str]) -> None:
        super().__init__(read, used)
        # What kind of item each pending call is, and so what kind answers it.
        self._kinds: dict[str, str] = {}
        self._out: list[Shaped] = []
        # Reasoning that is held until it is seen what it led to.
        self._open: list[Shaped] = []

    def shape(self, steps: Sequence[Step]) -> list[Shaped]:
        for step in steps:
            source = step.source
            if source is None:
                self._write(step, step.shows)
            elif source.note.plain and source.note.format == NAME:
                self._pass_on(step, self._own_payload(step), (source.id,))
            else:
                self._write(step, (source.id,))
        return self._out

    def _pass_on(self, step: Step, payload: Any, ids: tuple[str, ...]) -> None:
        """A plain payload, as it is."""
        if type(payload) is list:
            self._group(payload, ids, intact=True)
        elif self._open and step.role == "assistant":
            # Reasoning waits for what it led to, and this is it: both go out now.
            self._group([payload], ids, intact=True)
        else:
            self._out.append((payload, ids))

    def _write(self, step: Step, ids: tuple[str, ...]) -> None:
        if step.role == "assistant":
            items, intact = self._assistant(step)
            self._group(items, ids, intact=intact)
            return
        # Somebody else speaks: what the reasoning led to is not in this dialogue.
        self._open.clear()
        item: Block | None
        if step.role == "tool":
            item = self._tool(step)
        else:
            item = self._user(step)
        if item is not None:
            self._out.append((item, ids))

    def _group(
        self, items: Sequence[Block], ids: tuple[str, ...], *, intact: bool
    ) -> None:
        """Puts out the items of one message, reasoning with what it led to, or neither with the
        other's ids.
        """
        # Reasoning before a message that was changed can't lead into it any more.
        if not intact:
            self._open.clear()
        for item in items:
            is_reasoning = item.get("type") == "reasoning"
            if is_reasoning and intact:
                self._open.append((item, ids))
            elif intact:
                self._out += self._open
                self._open.clear()
                self._out.append((item, ids))
            elif not is_reasoning:
                self._out.append((_unbound(item), ids))

    def _assistant(self, step: Step) -> tuple[list[Block], bool]:
        """A message's items, and whether they are just what the model said."""
        payload = self._own_payload(step)
        # Of another format, or changed by repair: it is no longer the response that the
        # server knows, so nothing of it may keep its ids.
        if payload is None:
            return [self._call(item)[0] for item in self._said(step)], False
        assert step.source is not None
        said = payload if isinstance(payload, list) else [payload]
        # A note of an earlier release knows only calls that name their tool.
        run = {call.id for call in step.source.note.calls} - answered_within(said)
        items: list[Block] = []
        intact = True
        for item in said:
            kept, same = self._resent(_as_served(public(item)), run)
            intact = intact and same
            if kept is not None:
                items.append(kept)
        # Reasoning at the end leads into the next message only when it is a message of its own.
        ends_open = len(items) > 1 and items[-1].get("type") == "reasoning"
        return items, intact and not ends_open

    def _resent(self, item: Block, run: set[str]) -> tuple[Block | None, bool]:
        """An item as it is sent back, None when nothing is left of it; and whether it is just what
        the model said. `run` are the calls that are to be answered.
        """
        kind = item.get("type")
        if kind in SAID or (kind in RUN and item.get("call_id") in run):
            return self._call(item)
        if kind == "reasoning":
            return item, is_replayable(item)
        if "content" not in item:
            return item, True
        content = _without_blanks(item["content"])
        same = content == item["content"]
        # The API refuses a message that says nothing.
        if not content:
            return None, same
        return {**item, "content": content}, same

    def _call(self, item: Block) -> tuple[Block, bool]:
        """A call under an id of its own, and whether that changed nothing."""
        kind = str(item.get("type"))
        if kind not in SAID and kind not in RUN:
            return item, True
        given = self._open_call(text(item.get("call_id")))
        self._kinds[given] = kind
        fitting = {"call_id": given}
        if kind in SAID:
            fitting["name"] = function_name(text(item.get("name")))
        if kind == "function_call":
            fitting["arguments"] = whole_arguments(item.get("arguments"))
        elif kind == "custom_tool_call":
            fitting["input"] = text(item.get("input"))
        # The very item that was stored: reasoning may stand before it (I-14).
        if fitting.items() <= item.items():
            return item, True
        return {**item, **fitting}, False

    def _tool(self, step: Step) -> Block | None:
        given = self._pending.popleft()
        kind = self._kinds[given]
        piece = self._pieces(step)[0]
        result = piece.part
        assert isinstance(result, Result)
        if self._is_own(step) and piece.raw:
            item = own_output(kind, given, public(piece.raw))
        else:
            item = made_output(kind, given, result.content, error=result.error)
        if item is None:
            return self._in_words(given, kind, result)
        output = item.get("output")
        # Outputs of the tools that OpenAI defines have shapes of their own.
        if kind in SAID:
            output = _without_blanks(output)
        # No words can stand for a screenshot.
        if kind != "computer_call" and _says_nothing(output):
            output = NO_OUTPUT
        return {**item, "output": output}

    def _in_words(self, given: str, kind: str, result: Result) -> Block | None:
        """A call that only a screenshot could answer, and none did: what the message says of it is
        told in words, and so is what the tool answered. The reasoning that led to it can't stand
        without it.
        """
        out = self._out
        place = len(out) - 1
        while not _is_call(out[place][0], given, kind):
            place -= 1
        name = RUN[kind][0]
        ids = out[place][1]
        first = place
        # To the first item of the call's message, and to reasoning stored as a message
        # before it: without the call, all of these lose their server-side ids.
        while first and (out[first - 1][1] == ids or _is_reasoning(out[first - 1][0])):
            first -= 1
        words: list[Shaped] = []
        for at, (item, shows) in enumerate(out[first:], first):
            assert isinstance(item, dict)
            if at == place:
                said = f"[{name}: {call_of(item).arguments}]"
                words.append((_spoken(said), shows))
            elif shows != ids and at > place:
                words.append((item, shows))
            elif not _is_reasoning(item):
                words.append((_unbound(item), shows))
        out[first:] = words
        if is_blank(result.content):
            return None
        return {"role": "user", "content": f"[{name}: {result.content}]"}

    def _user(self, step: Step) -> Block:
        payload = self._own_payload(step)
        if payload is not None:
            item = public(payload)
            if "content" not in item:
                return item
            return {**item, "content": _without_blanks(item["content"])}
        blocks = self._blocks(step)
        if len(blocks) == 1 and blocks[0]["type"] == "input_text":
            return {"role": step.role, "content": blocks[0]["text"]}
        return {"role": step.role, "content": blocks}

    def _block(self, piece: Piece, role: Role, *, own: bool) -> Any:
        """A part of what somebody other than the model said; None where it can't be said."""
        part: Part = piece.part
        # Worded anew even where it is this API's own block: `output_text` is refused in
        # a message that is not the model's.
        if isinstance(part, Text | Refusal):
            return (
                None
                if is_blank(part.text)
                else {"type": "input_text", "text": part.text}
            )
        if own and piece.raw is not None:
            return piece.raw
        if isinstance(part, Image):
            return {"type": "input_image", "image_url": part.url, "detail": "auto"}
        if isinstance(part, Other):
            return {"type": "input_text", "text": stand_in(piece)}
        return None

    def _said(self, step: Step) -> list[Block]:
        """An assistant's pieces as items without ids: its words and its calls, in the order in
        which they were said.
        """
        own = self._is_own(step)
        pieces = self._pieces(step)
        words: list[Piece] = []
        items: list[Block] = []
        for piece in pieces:
            if isinstance(piece.part, Text | Refusal):
                words.append(piece)
                continue
            item = _item(piece, own=own)
            if item is not None:
                _speak(words, items)
                items.append(item)
        _speak(words, items)
        if not items and (said := stand_ins(pieces)):
            items.append(_spoken(said))
        return items


def _is_call(item: Any, given: str, kind: str) -> bool:
    if not isinstance(item, dict) or item.get("type") != kind:
        return False
    return bool(item.get("call_id") == given)


def _is_reasoning(item: Any) -> bool:
    return isinstance(item, dict) and item.get("type") == "reasoning"


def _says_nothing(output: Any) -> bool:
    return not output or (isinstance(output, str) and is_blank(output))


def _as_served(item: Block) -> Block:
    """The item as the API takes it back: without what clients add (the `openai` client what it
    parsed, Codex its notes), and speech as its transcript.
    """
    if item.keys() & _BY_CLIENTS:
        item = without(item, _BY_CLIENTS)
    content = item.get("content")
    if item.get("role") != "assistant" or not isinstance(content, list):
        return item
    blocks = [_block_as_served(block) for block in content]
    if blocks == content:
        return item
    return {**item, "content": blocks}


def _block_as_served(block: Any) -> Any:
    if not isinstance(block, dict):
        return block
    if block.get("type") == "output_audio":
        words = text(block.get("transcript"))
        return {"type": "output_text", "text": words, "annotations": []}
    if "parsed" in block:
        return without(block, ("parsed",))
    return block


def _unbound(item: Block) -> Block:
    """An item without its server-side id: the API asks for the reasoning that belongs to an id it
    knows.
    """
    return without(item, ("id", "status"))


def _without_blanks(content: Any) -> Any:
    if isinstance(content, list):
        return [block for block in content if not _is_blank_block(block)]
    return "" if is_blank(content) else content


def _is_blank_block(block: Any) -> bool:
    kind = block.get("type")
    if kind in _WORDS:
        return is_blank(block.get("text"))
    return kind == "refusal" and is_blank(block.get("refusal"))


def _item(piece: Piece, *, own: bool) -> Block | None:
    """A call, or what only this API knows, as an item; None for what it can't be sent."""
    if isinstance(piece.part, Call):
        if own and piece.raw:
            return _as_served(_unbound(piece.raw))
        return _call_item(piece.part)
    if isinstance(piece.part, Other) and own and piece.raw:
        return _unbound(piece.raw)
    return None


def _speak(words: list[Piece], items: list[Block]) -> None:
    said = spoken_text(words)
    words.clear()
    if said:
        items.append(_spoken(said))


def _spoken(words: str) -> Block:
    return {"role": "assistant", "content": words}


def _call_item(call: Call) -> Block:
    return {
        "type": "function_call",
        "call_id": call.id,
        "name": call.name,
        "arguments": call.arguments,
    }
