"""A document that is handed on, without what looks like a secret."""

from collections.abc import Iterator

from msgspec.structs import replace

from holdfast.domain.message import Call
from holdfast.exporters import units
from holdfast.exporters.document import Fact, Paragraph, Piece, Remark
from holdfast.formats.secret_shapes import redacted, redacted_text


def redacted_pieces(pieces: Iterator[Piece]) -> Iterator[Piece]:
    """A document without secrets."""
    for piece in pieces:
        match piece:
            case Paragraph(title=title, call=Call() as call):
                # By its fields, as they were: what is worded for people is no JSON any more.
                kept = replace(call, arguments=redacted_text(call.arguments))
                yield Paragraph(redacted(units.call(kept)), title)
            case Paragraph(text=text, title=title):
                yield Paragraph(redacted_text(text), title)
            case Remark(text=text, quoted=quoted):
                yield Remark(text, redacted(quoted))
            case Fact(name=name, text=text):
                yield Fact(name, redacted(text))
            case _:
                yield piece
