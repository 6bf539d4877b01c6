"""Where the words of a command go: data to stdout, talk to stderr, colour only where it is wanted.

All text passes through `harmless` on its way; only `raw` does not, for what is not text for people.
A line is made of pieces: a string, or a string with the name of a style.
"""

import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from holdfast.exporters.entry_json import encoded
from holdfast.exporters.safe_text import escaped, harmless, wrapped

STYLES = {
    "user": "36", "assistant": "32", "tool": "33", "system": "35",
    "good": "32", "bad": "1;31", "quiet": "2", "strong": "1", "hit": "1;33",
}  # fmt: skip
WIDTH_MIN, WIDTH_MAX = 40, 120
BAR = 24
BREAK = "\u240a"
"""The sign for a line break where there must be none."""

Piece = str | tuple[str, str]


class Output:
    """The two channels of one run of a command."""

    def __init__(self, *, json: bool = False) -> None:
        self.is_json = json
        self.is_terminal = _is_terminal(sys.stdout)
        # None where it was closed before the start (`>&-`).
        self.is_read = sys.__stdout__ is not None
        self._colour = _wants_colour(sys.stdout)
        self._talk_colour = _wants_colour(sys.stderr)

    @property
    def width(self) -> int | None:
        """How wide lines may be; None when nobody's screen is there to be kept to."""
        return _width(sys.stdout)

    def line(self, *pieces: Piece) -> None:
        """A line of data for people; one line, whatever is in it."""
        self.part(*map(_flat, pieces), "\n")

    def lines(self, lines: Iterable[Sequence[Piece]]) -> None:
        """Lines of data for people."""
        for line in lines:
            self.line(*line)

    def part(self, *pieces: Piece) -> None:
        """Some of a line of data for people."""
        sys.stdout.write(painted(pieces, colour=self._colour))

    def flush(self) -> None:
        """What was written is on its way to whoever reads it."""
        sys.stdout.flush()

    def json(self, value: Any) -> None:
        """A line of data for programs. Any Unicode passes, and nothing in it steers a terminal."""
        self.raw(escaped(encoded(value).decode()).encode() + b"\n")

    def report(self, value: Any, *sentence: Piece) -> None:
        """What a command has done: the value for programs, or a line of talk for people."""
        if self.is_json:
            self.json(value)
        else:
            self.say(*sentence)

    def raw(self, data: bytes) -> None:
        """Bytes as they are, on stdout."""
        # Text that was written before these bytes has to come out before them.
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    def say_wrapped(self, sentence: str) -> None:
        """A sentence of talk; on a terminal it is broken between words."""
        for line in wrapped(
            harmless(sentence.replace("\n", BREAK)), _width(sys.stderr)
        ):
            self.say(line)

    def say(self, *pieces: Piece) -> None:
        """A line of talk; one line, whatever is in it."""
        talk(painted((*map(_flat, pieces), "\n"), colour=self._talk_colour))

    @property
    def is_watched(self) -> bool:
        """Whether a line of talk can be written over: somebody sits in front of a terminal."""
        return _is_terminal(sys.stderr) and os.environ.get("TERM") != "dumb"

    def over(self, line: str | None) -> None:
        """A line of talk that the next one takes the place of; None takes it away. There is none
        unless watched.
        """
        width = _width(sys.stderr)
        if self.is_watched and width is not None:
            # One column stays free: in the last one many terminals go on to the next
            # line, and the next `\r` would not come back to this one.
            talk("\r" + harmless(line or "")[: width - 1] + "\x1b[K")

    def bar(self, done: int, total: int, more: str) -> None:
        """How far something long has come, in one line."""
        # What comes in while it runs was not counted in the total.
        done = min(done, total)
        total = max(total, 1)
        marks = ("#" * (done * BAR // total)).ljust(BAR, ".")
        self.over(f"[{marks}] {done * 100 // total:3d} %, {more}")


def talk(text: str) -> None:
    """Writes to stderr. Talk that nobody hears changes neither what is done nor its exit code."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        discard(sys.stderr)


def discard(stream: TextIO) -> None:
    """What is left in the buffer of a stream that can't be written, and what comes after, goes
    nowhere: flushed when Python ends, it would fail again, with a message of Python's own.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def painted(pieces: Sequence[Piece], *, colour: bool) -> str:
    """The pieces as one harmless string."""
    out = []
    for piece in pieces:
        text, style = split(piece)
        text = harmless(text)
        # Spaces have no colour to show.
        if colour and style and text.strip():
            text = f"\x1b[{STYLES[style]}m{text}\x1b[0m"
        out.append(text)
    return "".join(out)


def split(piece: Piece) -> tuple[str, str]:
    """The text of a piece and its style, which is empty where it has none."""
    if isinstance(piece, str):
        return piece, ""
    return piece


def _flat(piece: Piece) -> Piece:
    """Nothing that was stored begins a line that could pass for one of ours."""
    text, style = split(piece)
    return text.replace("\n", BREAK), style


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except ValueError:  # it was closed
        return False


def _width(stream: TextIO) -> int | None:
    if not _is_terminal(stream):
        return None
    # A terminal that knows no size of its own says 0.
    columns = os.get_terminal_size(stream.fileno()).columns or 80
    return min(max(columns, WIDTH_MIN), WIDTH_MAX)


def _wants_colour(stream: TextIO) -> bool:
    # NO_COLOR counts before FORCE_COLOR: who can't bear colour has said so for all
    # programs (no-color.org).
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return bool(os.environ.get("FORCE_COLOR")) or _is_terminal(stream)
