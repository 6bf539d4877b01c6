"""A session as a Markdown document for people.

What was said stands in fenced blocks, whose fences are longer than any run of backticks in it: no
renderer takes it for markup or HTML (I-20), and code in it stays as it was.
"""

import re
from collections.abc import Iterable, Iterator

from holdfast.exporters.document import Fact, Heading, Paragraph, Piece, Remark, Title
from holdfast.exporters.safe_text import harmless, one_line


def markdown(pieces: Iterable[Piece]) -> Iterator[str]:
    """The lines of the document."""
    for piece in pieces:
        match piece:
            case Title(text):
                # Titles and headings are in our words; all that others said comes in
                # the other pieces.
                yield from (f"# {text}", "")
            case Fact(name, text):
                yield f"* {name}: {_code(text)}"
            case Heading(level, text):
                yield from ("", f"{'#' * level} {text}")
            case Remark(text, quoted):
                if quoted:
                    text += _code(quoted)
                yield from ("", text)
            case Paragraph(text, title):
                if title:
                    yield from ("", f"**{title}**")
                yield from _fenced(text)


def _fenced(text: str) -> Iterator[str]:
    text = harmless(text)
    fence = "`" * max(3, 1 + _longest_run(text))
    yield from ("", f"{fence}text", *text.split("\n"), fence)


def _code(text: str) -> str:
    """A short text as a code span, whatever stands in it."""
    text = one_line(text)
    if "`" not in text:
        return f"`{text}`"
    # Spaces, so that a backtick of the text does not touch the fence; a renderer takes
    # one off at each end.
    fence = "`" * (1 + _longest_run(text))
    return f"{fence} {text} {fence}"


def _longest_run(text: str) -> int:
    """How many backticks follow one another in this text, at most."""
    return max(map(len, re.findall("`+", text)), default=0)
