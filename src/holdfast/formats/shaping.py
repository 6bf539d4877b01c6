"""What formats do alike when they shape a dialogue: pass plain payloads on, merge neighbours of one
side, give every call an id of its own and its result the same.
"""

from collections import deque
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import msgspec

from holdfast.domain.message import (
    Image,
    MessageNote,
    Other,
    Refusal,
    Role,
    Text,
    thaw,
)
from holdfast.domain.repair import Piece, Read, Step, StoredMessage
from holdfast.errors import Damaged
from holdfast.formats.call_ids import CallNames
from holdfast.formats.format import Shaped
from holdfast.formats.reading import Block, dumped, is_blank, is_json, text

NO_OUTPUT = "(no output)"

_decode = msgspec.json.Decoder().decode


class DialogueWriter:
    """Writes one dialogue in one format, and is made anew for each. A format's own adds `write`,
    and `join` where neighbours merge.

    `sides` says which roles merge with their neighbours, and as what. `used` is shared with
    whoever goes on shaping the same dialogue.
    """

    name: str
    # None is never merged: a tool's message answers one call, and has that call's id.
    sides: dict[str, str | None] = {
        "user": "user",
        "assistant": "assistant",
        "tool": None,
        "system": None,
    }
    # The limit of the Responses API; formats with no known limit use it too.
    id_length_max = 64
    has_strict_ids = False

    def __init__(self, read: Read, used: set[str]) -> None:
        self._read = read
        self._names = self._fresh_names(used)
        # Ids of calls that were written and not answered yet: results stand in call order.
        self._pending: deque[str] = deque()

    def shape(self, steps: Sequence[Step]) -> list[Shaped]:
        """Payloads for these steps, each with the ids of the messages it shows."""
        out: list[Shaped] = []
        append, name, sides = out.append, self.name, self.sides
        last: str | None = None
        run: list[Shaped] = []
        for step in steps:
            source = step.source
            side = sides[step.role]
            joins = side is not None and side == last
            if source is not None and source.note.plain and source.note.format == name:
                # The way of nearly every message of a long context: one decode, no reading.
                try:
                    payload = _decode(source.body)
                except msgspec.DecodeError:
                    # It reads numbers that msgspec does not, and reports real damage.
                    payload = thaw(source.body)
            else:
                payload = self.write(step, joined=joins)
                if payload is None:
                    # A step that shows nothing does not keep its neighbours from
                    # merging.
                    continue
            shaped = payload, step.shows if source is None else (source.id,)
            # Neighbours are gathered and joined once: joined two by two, a long run would be copied
            # again with each of them.
            if joins:
                run = run or [out[-1]]
                run.append(shaped)
                continue
            if run:
                out[-1] = self._joined(run)
                run = []
            append(shaped)
            last = side
        if run:
            out[-1] = self._joined(run)
        return out

    def write(self, step: Step, *, joined: bool) -> Block | None:
        """The payload of a step, None when this format has nothing to show; `joined`: it continues
        the last payload.
        """
        raise NotImplementedError

    def join(self, payloads: Sequence[Any]) -> Block:
        """Neighbours of one side as one payload."""
        raise AssertionError("no side of this format joins")

    def _joined(self, run: Sequence[Shaped]) -> Shaped:
        ids: list[str] = []
        for _, shown in run:
            ids += shown
        return self.join([payload for payload, _ in run]), tuple(ids)

    def _fresh_names(self, used: set[str]) -> CallNames:
        return CallNames(
            used, length_max=self.id_length_max, strict=self.has_strict_ids
        )

    def _open_call(self, call_id: str) -> str:
        """The id that a call is written under; its result takes it from `_pending`."""
        given = self._names.give(call_id)
        self._pending.append(given)
        return given

    def _blocks(self, step: Step) -> list[Any]:
        """A step's pieces as blocks of this format, those it has no words for left out."""
        own = self._is_own(step)
        blocks = []
        for piece in self._pieces(step):
            block = self._block(piece, step.role, own=own)
            if block is not None:
                blocks.append(block)
        return blocks

    def _block(self, piece: Piece, role: Role, *, own: bool) -> Any:
        """A piece as a block; `own`: its raw block is of this format."""
        raise NotImplementedError

    def _pieces(self, step: Step) -> Sequence[Piece]:
        """A step's pieces, read from its source where repair didn't have to."""
        source = step.source
        if source is None:
            return step.pieces
        return self._read(source.note.format, source.body)

    def _is_own(self, step: Step) -> bool:
        """Whether the raw blocks of a step's pieces are of this format."""
        if step.source is None:
            return step.format == self.name
        return step.source.note.format == self.name

    def _own_payload(self, step: Step) -> Any:
        """The payload of a step that is a stored message of this format, whole; else None."""
        source = step.source
        if source is None or source.note.format != self.name:
            return None
        return thaw(source.body)


def is_plain_dialogue(messages: Sequence[StoredMessage], name: str) -> bool:
    """Whether these messages, in format `name`, are plain and take turns, the user first: shaping
    would change nothing.
    """
    notes = [message.note for message in messages]
    return _are_plain(notes[::2], "user", name) and _are_plain(
        notes[1::2], "assistant", name
    )


def _are_plain(notes: list[MessageNote], role: Role, name: str) -> bool:
    # Nearly always all are one object (`note_of`), and counted at once.
    if notes and notes.count(notes[0]) == len(notes):
        notes = notes[:1]
    for note in notes:
        if not (note.plain and note.role == role and note.format == name):
            return False
    return True


def public(payload: Block) -> Block:
    """The payload without private keys: a provider refuses what it doesn't know."""
    # Nearly no payload has one, and is then passed on without a copy.
    if any(key.startswith("_") for key in payload):
        return {key: value for key, value in payload.items() if not key.startswith("_")}
    return payload


def spoken_text(pieces: Sequence[Piece], *, refusals: bool = True) -> str:
    """The words of an assistant's pieces. Neighbouring text blocks are one text cut up; others are
    paragraphs.
    """
    paragraphs = [""]
    for piece in pieces:
        part = piece.part
        if isinstance(part, Text) or (refusals and isinstance(part, Refusal)):
            paragraphs[-1] += part.text
        else:
            paragraphs.append("")
    return "\n\n".join(paragraph for paragraph in paragraphs if not is_blank(paragraph))


def stand_ins(pieces: Sequence[Piece]) -> str:
    """Words for an assistant message of which a format can express nothing: dropped, it would let
    roles clash.
    """
    return " ".join(
        stand_in(piece) for piece in pieces if isinstance(piece.part, Image | Other)
    )


def stand_in(piece: Piece) -> str:
    """A word for a part that a format can't express."""
    if isinstance(piece.part, Other):
        return f"[{piece.part.kind}]"
    return "[image]"


def output_text(content: str) -> str:
    """What a tool answered; providers refuse an answer that is empty."""
    if is_blank(content):
        return NO_OUTPUT
    return content


def whole_arguments(said: Any) -> str:
    """Arguments as a provider takes them back: what was said, where that is JSON. Half an object,
    as an answer that was cut off at its limit leaves it, is handed on in words.
    """
    if isinstance(said, dict | list):
        return dumped(said)
    if is_blank(said):
        return "{}"
    words = text(said)
    if not is_json(words):
        return dumped({"arguments": words})
    return words


_CONTENT = frozenset({str, list, type(None)})
_ROLE, _CONTENT_OF = itemgetter("role"), itemgetter("content")


def insist_on_messages(payloads: list[Any]) -> set[type]:
    """The types of these payloads; `Damaged` when one is none that a message has. Those of plain
    messages are passed on unread, so this is all that is seen of them.
    """
    if payloads and _are_usual(payloads):
        return {dict}
    kinds = set(map(type, payloads))
    if not kinds <= {dict, list}:
        raise Damaged(where="a payload", problem="it is no longer a message")
    for payload in payloads:
        if type(payload) is dict and not _is_message(payload):
            raise Damaged(where="a payload", problem="it is no longer a message")
    return kinds


def _is_message(payload: dict[str, Any]) -> bool:
    content = payload.get("content")
    if "author" in payload and "role" not in payload:
        # An event of Google's kit names its author, and its content is an object.
        return content is None or type(content) is dict
    # An item of a response that is no message: what it has is its own affair.
    if "role" not in payload and payload.get("type", "message") != "message":
        return True
    # Pydantic AI's messages are of a kind, and have parts.
    is_named = "type" in payload or "kind" in payload
    return (is_named or type(payload.get("role")) is str) and type(content) in _CONTENT


def _are_usual(payloads: list[Any]) -> bool:
    """Whether all are objects with a role and content, as nearly all are."""
    # Sets, made without a look at each for itself: this is done for all of a long history.
    try:
        roles = set(map(_ROLE, payloads))
        contents = set(map(type, map(_CONTENT_OF, payloads)))
    except (KeyError, TypeError):
        return False
    return set(map(type, roles)) == {str} and contents <= _CONTENT
