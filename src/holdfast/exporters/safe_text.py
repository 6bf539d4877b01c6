"""Stored text made harmless for a terminal, and measured for it (I-20).

What an agent or a user wrote must not move the reader's cursor, set the clipboard or hide behind a
change of direction. So whatever steers a terminal or the order of letters is shown as a visible
sign: control characters as their pictures (ESC is ␛), the rest by number (`\\x9b`, `\\u202e`). Line
breaks and tabs stay. One character becomes one sign without a look at its neighbours, so text may
come in pieces.
"""

import re
import unicodedata

_STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 but for tab and line feed, DEL, C1
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # directions of writing
    "\u2028\u2029\ufff9-\ufffb"  # separators and annotations that some terminals obey
    "\ud800-\udfff]"  # halves of characters
)
_PICTURES = 0x2400
_DELETE, _DELETE_PICTURE = 0x7F, "\u2421"


def harmless(text: str) -> str:
    """The text with a visible sign for everything that could steer a terminal."""
    # Nearly all text is plain, and is not looked at letter by letter.
    if text.isascii() and text.isprintable():
        return text
    return _STEERING.sub(_sign, text.replace("\r\n", "\n"))


def _sign(found: re.Match[str]) -> str:
    number = ord(found[0])
    if number < 0x20:
        return chr(_PICTURES + number)
    if number == _DELETE:
        return _DELETE_PICTURE
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}"


def escaped(json: str) -> str:
    """JSON text with the same characters written as JSON escapes: they can only stand inside its
    strings.
    """
    if json.isascii() and json.isprintable():
        return json
    return _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", json)


def one_line(text: str) -> str:
    """The text on one line, harmless."""
    return harmless(" ".join(text.split()))


def cells(text: str) -> int:
    """How many columns of a terminal this text takes."""
    if text.isascii():
        return len(text)
    return sum(map(_cells, text))


def _cells(letter: str) -> int:
    # Marks stand on the letter before them, and format characters are not drawn.
    if unicodedata.category(letter) in ("Mn", "Me", "Cf"):
        return 0
    if unicodedata.east_asian_width(letter) in ("W", "F"):
        return 2
    return 1


def cut(text: str, width: int) -> str:
    """The text if it fits, else its beginning and an ellipsis."""
    if cells(text) <= width:
        return text
    return text[: _fitting(text, 0, width - 1)] + "…"


def _fitting(text: str, start: int, width: int) -> int:
    """Where the letters from `start` on that fit into `width` columns end."""
    taken = 0
    for index in range(start, len(text)):
        taken += _cells(text[index])
        if taken > width:
            return index
    return len(text)


def wrapped(text: str, width: int | None) -> list[str]:
    """The lines of this text, broken between words where they are wider than `width`; never,
    without one.
    """
    lines = text.split("\n")
    if width is None:
        return lines
    pieces: list[str] = []
    for line in lines:
        pieces += _broken(line.expandtabs(4), width)
    return pieces


def _broken(line: str, width: int) -> list[str]:
    # By places in the line, not by cutting pieces off it: a line may be megabytes long.
    pieces = []
    start = 0
    while (end := _fitting(line, start, width)) < len(line):
        end = max(end, start + 1)
        space = end if line[end : end + 1] == " " else line.rfind(" ", start, end)
        if space > start and line[start:space].strip():
            pieces.append(line[start:space].rstrip())
            start = space
            while start < len(line) and line[start] == " ":
                start += 1
        else:
            pieces.append(line[start:end])
            start = end
    if start < len(line) or not pieces:
        pieces.append(line[start:])
    return pieces
