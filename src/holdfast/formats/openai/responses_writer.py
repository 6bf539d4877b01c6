"""How a dialogue is worded for the Responses API: items, groups of a response, call ids.

Roles are not merged here: the API takes items of one role after another.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from holdfast.domain.message import (
    Call,
    Image,
    Other,
    Part,
    Refusal,
    Result,
    Text,
    thaw,
)
from holdfast.domain.repair import Piece, Read, Step
from holdfast.formats.call_ids import CallNames, function_name
from holdfast.formats.format import Shaped
from holdfast.formats.openai.responses_tools import (
    RUN,
    SAID,
    Item,
    answered_within,
    call_of,
    made_output,
    own_output,
)
from holdfast.formats.shaping import (
    NO_OUTPUT,
    format_of,
    is_blank,
    pieces_of,
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


def is_replayable(item: Item) -> bool:
    """Whether a reasoning item has all that the API asks for when it comes back."""
    return isinstance(item.get("summary"), list) and bool(
        item.get("id") or item.get("encrypted_content")
    )


class ResponsesWriter:
    """Writes one dialogue. A run of assistant steps is held until its end is seen: reasoning may
    lead into the next.
    """

    def __init__(self, read: Read, used: set[str]) -> None:
        self._read = read
        self._names = CallNames(used, length_max=64)
        self._pending: deque[tuple[str, str]] = deque()
        self._out: list[Shaped] = []
        self._open: list[tuple[Item, tuple[str, ...]]] = []

    def shape(self, steps: Sequence[Step]) -> list[Shaped]:
        out = self._out
        for step in steps:
            source = step.source
            if source is not None and source.note.plain and source.note.format == NAME:
                payload = thaw(source.body)
                if type(payload) is list or (self._open and step.role == "assistant"):
                    items = payload if isinstance(payload, list) else [payload]
                    self._group(items, (source.id,), intact=True)
                else:
                    out.append((payload, (source.id,)))
            else:
                self._write(step, (source.id,) if source is not None else step.shows)
        return out

    def _write(self, step: Step, ids: tuple[str, ...]) -> None:
        if step.role == "assistant":
            items, intact = self._assistant(step)
            self._group(items, ids, intact=intact)
            return
        self._open.clear()
        if step.role == "tool":
            item = self._tool(step)
            if item is not None:
                self._out.append((item, ids))
        else:
            self._out.append((self._user(step), ids))

    def _group(
        self, items: Sequence[Item], ids: tuple[str, ...], *, intact: bool
    ) -> None:
        """Puts out the items of one message, reasoning with what it led to, or neither with the
        other's ids.
        """
        if not intact:
            self._open.clear()
            self._out.extend(
                (_unbound(item), ids)
                for item in items
                if item.get("type") != "reasoning"
            )
            return
        for item in items:
            if item.get("type") == "reasoning":
                self._open.append((item, ids))
            else:
                self._out.extend(self._open)
                self._open.clear()
                self._out.append((item, ids))

    def _assistant(self, step: Step) -> tuple[list[Item], bool]:
        """A message's items, and whether they are just what the model said."""
        source = step.source
        if source is None or source.note.format != NAME:
            return [self._call(item)[0] for item in _said(step, self._read)], False
        payload = thaw(source.body)
        items: list[Item] = []
        intact = True
        said = payload if isinstance(payload, list) else [payload]
        # A note of an earlier release knows only calls that name their tool.
        run = {call.id for call in source.note.calls} - answered_within(said)
        for item in said:
            kept, same = self._resent(_as_served(public(item)), run)
            intact = intact and same
            if kept is not None:
                items.append(kept)
        # Reasoning at the end leads into the next message only when it is a message of its own.
        ends_open = len(items) > 1 and items[-1].get("type") == "reasoning"
        return items, intact and not ends_open

    def _resent(self, item: Item, run: set[str]) -> tuple[Item | None, bool]:
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
        return ({**item, "content": content} if content else None), same

    def _call(self, item: Item) -> tuple[Item, bool]:
        """A call under an id of its own, and whether that changed nothing."""
        kind = str(item.get("type"))
        if kind not in SAID and kind not in RUN:
            return item, True
        given = self._names.give(_text(item.get("call_id")))
        self._pending.append((given, kind))
        fitting = {"call_id": given}
        if kind in SAID:
            field = SAID[kind]
            fitting["name"] = function_name(_text(item.get("name")))
            if kind == "function_call":
                fitting[field] = whole_arguments(item.get(field))
            else:
                fitting[field] = _text(item.get(field))
        same = all(item.get(key) == value for key, value in fitting.items())
        return (item, True) if same else ({**item, **fitting}, False)

    def _tool(self, step: Step) -> Item | None:
        given, kind = self._pending.popleft()
        piece = pieces_of(step, self._read)[0]
        result = piece.part
        assert isinstance(result, Result)
        if format_of(step) == NAME and piece.raw:
            item = own_output(kind, given, public(piece.raw))
        else:
            item = made_output(kind, given, result.content, error=result.error)
        if item is None:
            return self._in_words(given, kind, result)
        output = (
            _without_blanks(item.get("output")) if kind in SAID else item.get("output")
        )
        if kind == "computer_call" or (
            output and not (isinstance(output, str) and is_blank(output))
        ):
            return {**item, "output": output}
        return {**item, "output": NO_OUTPUT}

    def _in_words(self, given: str, kind: str, result: Result) -> Item | None:
        """A call that only a screenshot could answer, and none did: what the message says of it is
        told in words, and so is what the tool answered. The reasoning that led to it can't stand
        without it.
        """
        out = self._out
        place = next(
            at
            for at in range(len(out) - 1, -1, -1)
            if _is_call(out[at][0], given, kind)
        )
        name = RUN[kind][0]
        ids = out[place][1]
        first = place
        while first and (out[first - 1][1] == ids or _is_reasoning(out[first - 1][0])):
            first -= 1
        words: list[Shaped] = []
        for at, (item, shows) in enumerate(out[first:], first):
            assert isinstance(item, dict)
            if at == place:
                text = f"[{name}: {call_of(item).arguments}]"
                words.append(({"role": "assistant", "content": text}, shows))
            elif shows != ids and at > place:
                words.append((item, shows))
            elif not _is_reasoning(item):
                words.append((_unbound(item), shows))
        out[first:] = words
        if is_blank(result.content):
            return None
        return {"role": "user", "content": f"[{name}: {result.content}]"}

    def _user(self, step: Step) -> Item:
        source = step.source
        if source is not None and source.note.format == NAME:
            item = public(thaw(source.body))
            if "content" not in item:
                return item
            return {**item, "content": _without_blanks(item["content"])}
        own = format_of(step) == NAME
        blocks = [
            block
            for piece in pieces_of(step, self._read)
            if (block := _block(piece, own=own))
        ]
        if len(blocks) == 1 and blocks[0]["type"] == "input_text":
            return {"role": step.role, "content": blocks[0]["text"]}
        return {"role": step.role, "content": blocks}


def _is_call(item: Any, given: str, kind: str) -> bool:
    return (
        isinstance(item, dict)
        and item.get("type") == kind
        and item.get("call_id") == given
    )


def _is_reasoning(item: Any) -> bool:
    return isinstance(item, dict) and item.get("type") == "reasoning"


def _as_served(item: Item) -> Item:
    """The item as the API takes it back: without what clients add (the `openai` client what it
    parsed, Codex its notes), and speech as its transcript.
    """
    if item.keys() & _BY_CLIENTS:
        item = {key: value for key, value in item.items() if key not in _BY_CLIENTS}
    content = item.get("content")
    if item.get("role") != "assistant" or not isinstance(content, list):
        return item
    blocks = [_block_as_served(block) for block in content]
    return item if blocks == content else {**item, "content": blocks}


def _block_as_served(block: Any) -> Any:
    if isinstance(block, dict) and block.get("type") == "output_audio":
        return {
            "type": "output_text",
            "text": _text(block.get("transcript")),
            "annotations": [],
        }
    if isinstance(block, dict) and "parsed" in block:
        return {key: value for key, value in block.items() if key != "parsed"}
    return block


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _unbound(item: Item) -> Item:
    """An item without its server-side id: the API asks for the reasoning that belongs to an id it
    knows.
    """
    return {key: value for key, value in item.items() if key not in ("id", "status")}


def _without_blanks(content: Any) -> Any:
    if isinstance(content, list):
        return [block for block in content if not _is_blank_block(block)]
    return "" if is_blank(content) else content


def _is_blank_block(block: Any) -> bool:
    kind = block.get("type")
    return (kind in _WORDS and is_blank(block.get("text"))) or (
        kind == "refusal" and is_blank(block.get("refusal"))
    )


def _said(step: Step, read: Read) -> Iterable[Item]:
    """An assistant's pieces as items without ids: its words, then its calls, in the order in which
    they were said.
    """
    own = format_of(step) == NAME
    pieces = pieces_of(step, read)
    words: list[Piece] = []
    items: list[Item] = []
    for piece in pieces:
        if isinstance(piece.part, Call):
            _speak(words, items)
            items.append(
                _as_served(_unbound(piece.raw))
                if own and piece.raw
                else _call_item(piece.part)
            )
        elif isinstance(piece.part, Text | Refusal):
            words.append(piece)
        elif own and isinstance(piece.part, Other) and piece.raw:
            _speak(words, items)
            items.append(_unbound(piece.raw))
    _speak(words, items)
    if not items and (text := stand_ins(pieces)):
        items.append({"role": "assistant", "content": text})
    return items


def _speak(words: list[Piece], items: list[Item]) -> None:
    text = spoken_text(words)
    words.clear()
    if text:
        items.append({"role": "assistant", "content": text})


def _call_item(call: Call) -> Item:
    return {
        "type": "function_call",
        "call_id": call.id,
        "name": call.name,
        "arguments": call.arguments,
    }


def _block(piece: Piece, *, own: bool) -> Item | None:
    part: Part = piece.part
    if isinstance(part, Text | Refusal):
        return (
            None if is_blank(part.text) else {"type": "input_text", "text": part.text}
        )
    if own and piece.raw is not None:
        stored: Item = piece.raw
        return stored
    if isinstance(part, Image):
        return {"type": "input_image", "image_url": part.url, "detail": "auto"}
    return (
        {"type": "input_text", "text": stand_in(piece)}
        if isinstance(part, Other)
        else None
    )
