"""What formats do alike when they shape a dialogue: pass plain payloads on, merge neighbours of one
side.

A format brings a `DialogueWriter`, made anew for each shaping; `dialogue` walks the steps with it.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from holdfast.domain.message import Image, Other, Refusal, Text, freeze, thaw
from holdfast.domain.repair import Piece, Read, Step, StoredMessage
from holdfast.formats.format import Shaped

NO_OUTPUT = "(no output)"

_decode = msgspec.json.Decoder().decode


class DialogueWriter(Protocol):
    """Writes steps in one format. `sides` tells which roles merge with their neighbours, and as
    what.
    """

    name: str
    sides: dict[str, str | None]

    def write(self, step: Step, *, joined: bool) -> dict[str, Any] | None:
        """The payload of a step, None when this format has nothing to show; `joined`: it continues
        the last payload.
        """
        ...

    def join(self, payloads: Sequence[Any]) -> dict[str, Any]:
        """Neighbours of one side as one payload."""
        ...


def dialogue(steps: Sequence[Step], writer: DialogueWriter) -> list[Shaped]:
    """Payloads for these steps, each with the ids of the messages it shows."""
    out: list[Shaped] = []
    append, name, sides = out.append, writer.name, writer.sides
    last: str | None = None
    run: list[Shaped] = []
    for step in steps:
        source = step.source
        is_plain = (
            source is not None and source.note.plain and source.note.format == name
        )
        if is_plain and step.role != last and not run:
            # The way of nearly every message of a long context: no merge, no reading, one decode.
            last = step.role
            try:
                append((_decode(source.body), (source.id,)))  # type: ignore[union-attr]
            except msgspec.DecodeError:
                append((thaw(source.body), (source.id,)))  # type: ignore[union-attr]
            continue
        side = sides[step.role]
        shaped = _shaped(
            step, writer, plain=is_plain, joined=side is not None and side == last
        )
        if shaped is None:
            continue
        if side != last or side is None:
            if run:
                out[-1] = _joined(run, writer)
                run = []
            append(shaped)
            last = side
        else:
            run = run or [out[-1]]
            run.append(shaped)
    if run:
        out[-1] = _joined(run, writer)
    return out


def is_plain_dialogue(messages: Sequence[StoredMessage], name: str) -> bool:
    """Whether these messages, in format `name`, are plain and take turns, the user first: shaping
    would change nothing.
    """
    expected = "user"
    for message in messages:
        note = message.note
        if note.role != expected or not note.plain or note.format != name:
            return False
        expected = "assistant" if expected == "user" else "user"
    return True


def _shaped(
    step: Step, writer: DialogueWriter, *, plain: bool, joined: bool
) -> Shaped | None:
    source = step.source
    if plain and source is not None:
        return thaw(source.body), (source.id,)
    payload = writer.write(step, joined=joined)
    if payload is None:
        return None
    return payload, (source.id,) if source is not None else step.shows


def _joined(run: Sequence[Shaped], writer: DialogueWriter) -> Shaped:
    return writer.join([payload for payload, _ in run]), tuple(
        one for _, ids in run for one in ids
    )


def pieces_of(step: Step, read: Read) -> Sequence[Piece]:
    """A step's pieces, read from its source where repair didn't have to."""
    source = step.source
    return step.pieces if source is None else read(source.note.format, source.body)


def format_of(step: Step) -> str:
    """Whose raw blocks a step's pieces hold."""
    return step.format if step.source is None else step.source.note.format


def is_blank(text: Any) -> bool:
    return not isinstance(text, str) or not text or text.isspace()


def public(payload: dict[str, Any]) -> dict[str, Any]:
    """The payload without private keys: a provider refuses what it doesn't know."""
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
    return f"[{piece.part.kind}]" if isinstance(piece.part, Other) else "[image]"


def is_json(text: str) -> bool:
    """Whether arguments were fully said."""
    try:
        msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return False
    return True


def whole_arguments(said: Any) -> str:
    """Arguments as a provider takes them back: what was said, where that is JSON. Half an object,
    as an answer that was cut off at its limit leaves it, is handed on in words.
    """
    if not isinstance(said, str):
        return dumped(said) if isinstance(said, dict | list) else "{}"
    if is_blank(said):
        return "{}"
    return said if is_json(said) else dumped({"arguments": said})


def dumped(value: Any) -> str:
    """Arguments as JSON text."""
    return freeze(value).decode()
