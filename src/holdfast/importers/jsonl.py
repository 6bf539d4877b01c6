"""Files of JSON lines, read so that no line can do harm: split on LF only, bounded, bad ones kept
as their bytes.

Characters like U+2028 stand inside strings and end nothing. A line that is larger than `LINE_MAX`
is told by its size and not loaded; one that is nested deeper than `DEPTH_MAX` is not taken apart.
"""

import json
import math
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from holdfast.importers.private_copy import opened
from holdfast.importers.values import JsonObject, StrPath

LINE_MAX = 64 << 20
DEPTH_MAX = 200
NOT_JSON = "it is not JSON"
_TOO_DEEP = f"it is nested more than {DEPTH_MAX} deep"
_BLOCK = 1 << 20
_HEAD = 1 << 10
# So many bytes of a file are looked at to know whose it is. A prompt that somebody
# pipes in is one line.
START_MAX = 64 << 20

_FIELD = re.compile(
    rb'\s*("[\w$.-]{1,64}")\s*:\s*("(?:[^"\\]|\\.){0,200}"|null|true|false|-?\d{1,15}|\{)\s*,?'
)

_decode = msgspec.json.Decoder().decode


class RawLine(msgspec.Struct, frozen=True):
    """A line of a file, by its number from 1. Of one that is too large, `raw` is the beginning;
    `ended` tells whether a line feed closes it.
    """

    number: int
    raw: bytes
    size: int
    ended: bool

    @property
    def is_whole(self) -> bool:
        return len(self.raw) == self.size


def lines(path: StrPath) -> Iterator[RawLine]:
    """The lines of a file that are not blank, one at a time."""
    with open(path, "rb") as file:
        yield from _split(file)


def _split(file: BinaryIO, most: float = math.inf) -> Iterator[RawLine]:
    """Lines, as far as the first `most` bytes go: what is behind them is not read."""
    held = bytearray()
    size = 0
    number = 1
    read = 0
    while read < most and (block := file.read(_BLOCK)):
        start = 0
        read += len(block)
        while (end := block.find(b"\n", start)) >= 0:
            yield from _line(number, held, size, block[start:end], ended=True)
            held = bytearray()
            size = 0
            number += 1
            start = end + 1
        size += len(block) - start
        if size <= LINE_MAX:
            held += block[start:]
        else:
            # Of a line that is too long only the beginning is kept, to say which one it was.
            del held[_HEAD:]
    yield from _line(number, held, size, b"", ended=False)


def _line(
    number: int, held: bytearray, size: int, rest: bytes, *, ended: bool
) -> Iterator[RawLine]:
    size += len(rest)
    raw = bytes(held + rest)
    if size > LINE_MAX:
        raw = raw[:_HEAD]
    if raw.strip():
        yield RawLine(number, raw, size, ended)


def parsed(raw: bytes) -> tuple[Any, str]:
    """What a piece of JSON says, and what is wrong with it; one of the two is empty."""
    try:
        value = _decode(raw)
    except RecursionError:
        return None, _TOO_DEEP
    except (msgspec.MsgspecError, UnicodeError):
        # Halves of surrogate pairs are JSON to others, and are kept; the rest is refused again.
        try:
            # Infinity and NaN are Python's own, and no JSON.
            value = json.loads(raw, parse_constant=_refused, parse_float=_number)
        except RecursionError:
            return None, _TOO_DEEP
        except (ValueError, UnicodeError) as error:
            return None, f"{NOT_JSON} ({error})"
    # Nothing is nested deeper than it has brackets, so nearly every line is done here.
    if raw.count(b"{") + raw.count(b"[") > DEPTH_MAX and _is_deep(value):
        return None, _TOO_DEEP
    return value, ""


def _too_long(size: int) -> str:
    return f"it is {size} bytes long, more than {LINE_MAX}"


def parsed_line(line: RawLine) -> tuple[Any, str]:
    """What a line says, and what is wrong with it."""
    if not line.is_whole:
        return None, _too_long(line.size)
    return parsed(line.raw)


def first_values(
    path: Path, words: Collection[bytes], *, most: int = START_MAX
) -> Iterator[Any]:
    """What the lines say with which a file begins, those that are objects and hold one of these
    words: enough to know whose they are, whatever else stands before them. Read without a trace, up
    to `most` bytes. Of a line that does not end there, the fields are told that stand at its
    beginning.
    """
    try:
        with opened(path) as file:
            for line in _split(file, most):
                if not line.raw.lstrip().startswith(b"{"):
                    continue
                # Most lines of most files are nobody's: they are not taken apart to know it.
                if not any(word in line.raw for word in words):
                    continue
                value = parsed_line(line)[0]
                is_cut = not (line.ended and line.is_whole)
                if value is None and is_cut:
                    value = first_fields(line.raw)
                yield value
    except OSError:
        return


def first_fields(raw: bytes) -> JsonObject:
    """The plain fields, and the objects as empty ones, with which a line begins that is
    not whole.
    """
    found: JsonObject = {}
    at = raw.find(b"{") + 1
    while (field := _FIELD.match(raw, at)) is not None:
        name, value = field.groups()
        found[parsed(name)[0]] = {} if value == b"{" else parsed(value)[0]
        # What is inside may not be whole.
        if value == b"{":
            break
        at = field.end()
    return found


def read_json(path: Path) -> tuple[Any, bytes, str]:
    """A whole file of JSON: what it says, its bytes (the first of them, if they are too many), and
    what is wrong.
    """
    size = path.stat().st_size
    if size > LINE_MAX:
        with open(path, "rb") as file:
            return None, file.read(_HEAD), _too_long(size)
    raw = path.read_bytes()
    value, problem = parsed(raw)
    return value, raw, problem


def written(value: Any) -> bytes:
    """A value as one line of JSON, in the words of others' programs: readable, and escaped where
    UTF-8 has no word.
    """
    try:
        return json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(value).encode()


def _refused(constant: str) -> Any:
    raise ValueError(f"{constant} is not a JSON number")


def _number(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refused(text)


def _is_deep(value: Any) -> bool:
    """Level by level, so that depth costs no stack."""
    level = _containers([value])
    for _ in range(DEPTH_MAX):
        if not level:
            return False
        inner: list[Any] = []
        for one in level:
            inner += _containers(one.values() if isinstance(one, dict) else one)
        level = inner
    return bool(level)


def _containers(values: Iterable[Any]) -> list[Any]:
    return [value for value in values if isinstance(value, dict | list)]
