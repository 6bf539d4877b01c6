"""A document that is handed on, without what looks like a secret."""

from collections.abc import Iterator

from holdfast.exporters.document import Fact, Paragraph, Piece, Remark
from holdfast.formats.secret_shapes import redacted


def redacted_pieces(pieces: Iterator[Piece]) -> Iterator[Piece]:
    """A document without secrets."""
    for piece in pieces:
        match piece:
            case Paragraph(text=text, title=title):
                yield Paragraph(redacted(text), title)
            case Remark(text=text, quoted=quoted):
                yield Remark(text, redacted(quoted))
            case Fact(name=name, text=text):
                yield Fact(name, redacted(text))
            case _:
                yield piece
