"""goose's sessions in files of their own: the JSON lines of its first releases, and the JSON that
it exports.

A file of lines has a header and then one message a line, without metadata. An export is one object
with the messages in `conversation`; of one that is cut or broken, the messages that are whole are
found by their brackets.
"""

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from holdfast.importers.goose.records import (
    MISSING,
    GooseRow,
    GooseSession,
    GooseStore,
    flagged,
    seconds_of,
)
from holdfast.importers.jsonl import LINE_MAX, RawLine, lines, parsed, parsed_line
from holdfast.importers.values import (
    JsonObject,
    name_or_none,
    object_or_empty,
    text_or_none,
)

# An export is one JSON value and held whole; files of lines need no such limit.
EXPORT_MAX = 256 << 20
_MESSAGE_KEYS = frozenset({"id", "role", "created", "content", "metadata"})
# A string that is not closed is one token, to the end: looking for its end from each
# quote in it is quadratic.
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[{}\[\]]', re.DOTALL)
_LIST = re.compile(rb'"conversation"\s*:\s*\[')


class GooseFile(GooseStore):
    """A file with one session."""

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        self.name = name
        self.problems = []


class GooseLegacy(GooseFile):
    """A session of JSON lines, read line by line."""

    def sessions(self) -> Iterator[GooseSession]:
        header = None
        problem = "the file is empty"
        for first in islice(lines(self.path), 1):
            header, problem = parsed_line(first)
        if is_message(header):
            header = {}
            problem = "its header is missing"
        elif not problem and not isinstance(header, dict):
            problem = "its header is not an object"
        yield GooseSession(
            id=Path(self.name).stem,
            source="legacy",
            place=f"{self.name} line 1",
            columns=object_or_empty(header),
            problem=problem,
        )

    def rows(self, session: GooseSession) -> Iterator[GooseRow]:
        for line in lines(self.path):
            # The first line is the header, unless that is missing.
            if line.number > 1 or is_message(parsed_line(line)[0]):
                yield self._row(line)

    def _row(self, line: RawLine) -> GooseRow:
        place = f"{self.name} line {line.number}"
        said, problem = parsed_line(line)
        if problem or not isinstance(said, dict):
            broken = _broken(line.number, place, problem, line.raw)
            return msgspec.structs.replace(broken, unfinished=not line.ended)
        return row_of(said, line.number, place, needs_metadata=False)


class GooseExport(GooseFile):
    """A session that goose exported."""

    def __init__(self, path: Path, name: str) -> None:
        super().__init__(path, name)
        self._columns, self._messages, self._problem = _taken_apart(path)

    def sessions(self) -> Iterator[GooseSession]:
        columns = self._columns
        yield GooseSession(
            id=name_or_none(columns.get("id")) or Path(self.name).stem,
            source="export",
            place=self.name,
            columns=columns,
            parent=name_or_none(columns.get("parent_session_id")),
            problem=self._problem,
        )

    def rows(self, session: GooseSession) -> Iterator[GooseRow]:
        for number, raw in enumerate(self._messages, start=1):
            place = f"{self.name} conversation[{number - 1}]"
            said = raw
            problem = ""
            if isinstance(raw, bytes):
                said, problem = parsed(raw)
            elif not isinstance(raw, dict):
                raw = msgspec.json.encode(raw)
            if problem or not isinstance(said, dict):
                yield _broken(number, place, problem, raw)
            else:
                yield row_of(said, number, place, needs_metadata=True)


def _broken(number: int, place: str, problem: str, raw: bytes) -> GooseRow:
    """A message that could not be taken apart."""
    is_json = not problem.startswith("it is not JSON")
    row = GooseRow(number, place, None, "user", None, None, None, raw=raw)
    if problem and is_json:  # too large, or too deep
        return msgspec.structs.replace(row, problem=problem)
    return msgspec.structs.replace(
        row, content_problem=problem or "it is not an object"
    )


def row_of(
    said: JsonObject, number: int, place: str, *, needs_metadata: bool
) -> GooseRow:
    """A message of a file."""
    created, odd = seconds_of(said.get("created"))
    content = said.get("content")
    metadata = None
    metadata_problem = ""
    raw_metadata = b""
    if said.get("metadata") is not None:
        metadata, metadata_problem = flagged(said["metadata"])
        if metadata_problem:
            raw_metadata = msgspec.json.encode(said["metadata"])
    elif needs_metadata:
        metadata_problem = MISSING
    content_problem = ""
    raw = b""
    if not isinstance(content, list):
        content_problem = "it has no list of blocks"
        raw = msgspec.json.encode(content)
        content = None
    return GooseRow(
        number=number,
        place=place,
        message_id=text_or_none(said.get("id")),
        role=str(said.get("role")),
        content=content,
        created=created,
        metadata=metadata,
        content_problem=content_problem,
        metadata_problem=metadata_problem,
        raw_metadata=raw_metadata,
        problem=odd,
        raw=raw,
        rest={key: value for key, value in said.items() if key not in _MESSAGE_KEYS},
    )


def is_message(said: Any) -> bool:
    """Whether a line is a message of goose: others have `parts`, or say what `type` they are."""
    return (
        isinstance(said, dict)
        and isinstance(said.get("role"), str)
        and isinstance(said.get("content"), list)
        and "created" in said
        and "type" not in said
    )


def is_header(said: Any) -> bool:
    """Whether a line is the header of a session of goose."""
    if not isinstance(said, dict) or "role" in said or "type" in said:
        return False
    return "message_count" in said or {"working_dir", "description"} <= said.keys()


def is_export(said: Any) -> bool:
    return isinstance(said, dict) and "conversation" in said and "working_dir" in said


def _taken_apart(path: Path) -> tuple[JsonObject, list[Any], str]:
    """An export's columns, its messages (as bytes where the whole was not parsed), and what is
    wrong with it. A large one is not parsed as a whole: its messages are, one by one.
    """
    size = path.stat().st_size
    if size > EXPORT_MAX:
        return {}, [], f"it is {size} bytes long, more than {EXPORT_MAX}"
    raw = path.read_bytes()
    said = None
    problem = ""
    if size <= LINE_MAX:
        said, problem = parsed(raw)
    if isinstance(said, dict) and isinstance(said.get("conversation"), list):
        columns = dict(said)
        return columns, columns.pop("conversation"), ""
    start = _LIST.search(raw)
    if start is None:
        return {}, [], problem or "it has no `conversation`"
    elements, end = _elements(raw, start.end())
    # What stands around the list is made an object again by closing it.
    head = raw[: start.start()].rstrip().rstrip(b",") + b"}"
    tail = raw[end:].lstrip().lstrip(b",")
    columns = {**_object(head), **_object(b"{" + tail)}
    # One message that is nested too deep says so itself, and the others are whole.
    if problem.startswith("it is nested"):
        problem = ""
    return columns, elements, problem


def _object(raw: bytes) -> JsonObject:
    return object_or_empty(parsed(raw)[0])


def _elements(raw: bytes, start: int) -> tuple[list[bytes], int]:
    """The objects of a list that begins at `start`, by their brackets, the last one as far as it
    goes; and where the list ends.
    """
    found: list[bytes] = []
    depth = 0
    begun = start
    for token in _TOKEN.finditer(raw, start):
        mark = token[0][:1]
        if mark in b"{[":
            if depth == 0:
                begun = token.start()
            depth += 1
        elif mark in b"}]":
            depth -= 1
            if depth < 0:
                return found, token.end()
            if depth == 0:
                found.append(raw[begun : token.end()])
    if depth > 0:
        found.append(raw[begun:])
    return found, len(raw)
