"""An OpenViking session as its directory holds it: every line and every marker, nothing judged.

A session is held whole, as OpenViking itself holds it: it reads and writes its files whole for each
message. Lines keep their bytes and are taken apart when somebody asks. What can't be read keeps its
bytes and says why.
"""

import os
import re
from pathlib import Path
from typing import Any

import msgspec

from holdfast.importers.jsonl import (
    LINE_MAX,
    RawLine,
    lines,
    parsed,
    parsed_line,
    read_json,
    written,
)
from holdfast.importers.values import JsonObject

ROOT = "messages.jsonl"
META, DONE, FAILED = ".meta.json", ".done", ".failed.json"
OVERVIEW, ABSTRACT = ".overview.md", ".abstract.md"
# A tuple, not a set: what a line gives as its role may have no hash.
ROLES = ("user", "assistant", "system", "tool")
_ARCHIVE = re.compile(r"archive_(\d{1,9})")


class MessageLine(msgspec.Struct, frozen=True):
    """A line of a `messages.jsonl`. `problem` says why it is no message; `aside`: a healer has
    taken it out of the file and kept its bytes. `last`: nothing stands behind it in its file.
    """

    number: int
    raw: bytes
    id: str = ""
    role: str = ""
    problem: str = ""
    aside: bool = False
    last: bool = False
    labels: JsonObject = {}

    def message(self) -> JsonObject:
        """The message that this line holds; only of one without a problem."""
        message: JsonObject = parsed(self.raw)[0]
        return message

    @property
    def may_hold_tools(self) -> bool:
        """A look at the bytes: most messages hold none, and need not be taken apart to know it."""
        return b'"tool"' in self.raw

    @property
    def parts(self) -> list[Any]:
        message = self.message()
        parts = message.get("parts")
        if isinstance(parts, list):
            return parts
        # The first releases kept words alone.
        return [{"type": "text", "text": message.get("content")}]


# The lines of a file of messages; None when there is none.
Records = tuple[MessageLine, ...] | None


class SmallFile(msgspec.Struct, frozen=True):
    """A small JSON file beside the messages. `data` is empty when it says nothing or
    can't be read.
    """

    raw: bytes = b""
    data: JsonObject = {}
    problem: str = ""
    there: bool = False

    @classmethod
    def saying(cls, data: JsonObject) -> "SmallFile":
        """A file that says this."""
        return cls(written(data), data, "", there=True)


class Archive(msgspec.Struct, frozen=True):
    """`history/archive_NNN`. `records` is None when there is no file of messages."""

    number: int
    name: str
    records: Records = None
    meta: SmallFile = SmallFile()
    done: SmallFile = SmallFile()
    failed: SmallFile = SmallFile()
    overview: bytes = b""
    abstract: bytes = b""


class LockFile(msgspec.Struct, frozen=True):
    """A lock file, by its path in the session's directory."""

    name: str
    raw: bytes


class SessionFolder(msgspec.Struct, frozen=True):
    """A session's directory. `outputs` are the tool results that lie beside the messages, `others`
    all other files: by their path in it, and by where they lie now. `asides` is what a healer took
    out of files, and keeps.
    """

    id: str
    place: str
    path: str
    records: Records
    meta: SmallFile
    archives: tuple[Archive, ...] = ()
    locks: tuple[LockFile, ...] = ()
    outputs: tuple[str, ...] = ()
    others: tuple[tuple[str, str], ...] = ()
    problems: tuple[tuple[str, str], ...] = ()
    asides: tuple[tuple[str, bytes], ...] = ()

    @property
    def live(self) -> tuple[MessageLine, ...]:
        """The lines of the live file that hold a message."""
        return messages(self.records)


def messages(records: Records) -> tuple[MessageLine, ...]:
    """The lines that hold a message."""
    return tuple(record for record in records or () if not record.problem)


def read_folder(path: Path, *, id: str, place: str) -> SessionFolder:
    """A session's directory. What the disk refuses is told in `problems` and stops nothing else."""
    reading = _FolderReading(path)
    records = reading.records(ROOT)
    archives = tuple(reading.archive(number, name) for number, name in _archives(path))
    locks, outputs, others = reading.rest({archive.name for archive in archives})
    return SessionFolder(
        id=id,
        place=place,
        path=str(path),
        records=records,
        meta=reading.small_file(META),
        archives=archives,
        locks=locks,
        outputs=outputs,
        others=others,
        problems=tuple(reading.problems),
    )


def record_of(line: RawLine) -> MessageLine:
    """A line as a record, with what is wrong with it."""
    message, problem = parsed_line(line)
    if problem or (problem := _wrong_with(message)):
        return MessageLine(line.number, line.raw, problem=problem)
    return MessageLine(line.number, line.raw, id=message["id"], role=message["role"])


def is_message(value: Any) -> bool:
    """Whether what a line says is a message of OpenViking's."""
    return not _wrong_with(value)


def _wrong_with(message: Any) -> str:
    if not isinstance(message, dict):
        return "it is not an object"
    if not isinstance(message.get("id"), str) or not message["id"]:
        return "it has no id"
    if message.get("role") not in ROLES:
        return f"its role is {str(message.get('role'))[:40]!r}"
    parts, content = message.get("parts"), message.get("content")
    if not isinstance(parts, list) and not (parts is None and isinstance(content, str)):
        return "it has neither parts nor content"
    return ""


def _archives(path: Path) -> list[tuple[int, str]]:
    found = []
    try:
        for item in os.scandir(path / "history"):
            number = _ARCHIVE.fullmatch(item.name)
            if number and item.is_dir(follow_symlinks=False):
                found.append((int(number[1]), item.name))
    except OSError:
        return []
    return sorted(found)


class _FolderReading:
    """One directory being read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.problems: list[tuple[str, str]] = []

    def records(self, name: str) -> Records:
        try:
            found = [record_of(line) for line in lines(self._path / name)]
        except (FileNotFoundError, NotADirectoryError):
            # No problem by itself: the doctor judges what a missing file means.
            return None
        except OSError as error:
            # It is there, and the disk refuses it: unreported, it would look empty.
            self.problems.append((name, _refusal(error)))
            return None
        if found:
            found[-1] = msgspec.structs.replace(found[-1], last=True)
        return tuple(found)

    def archive(self, number: int, name: str) -> Archive:
        under = f"history/{name}"
        return Archive(
            number=number,
            name=name,
            records=self.records(f"{under}/{ROOT}"),
            meta=self.small_file(f"{under}/{META}"),
            done=self.small_file(f"{under}/{DONE}", empty=True),
            failed=self.small_file(f"{under}/{FAILED}", empty=True),
            overview=self.words(f"{under}/{OVERVIEW}"),
            abstract=self.words(f"{under}/{ABSTRACT}"),
        )

    def small_file(self, name: str, *, empty: bool = False) -> SmallFile:
        """A marker's being there says something by itself: it may be empty."""
        try:
            value, raw, problem = read_json(self._path / name)
        except (FileNotFoundError, NotADirectoryError):
            return SmallFile()
        except OSError as error:
            # There, though nobody can read it: that a marker is there is what it says.
            return SmallFile(problem=_refusal(error), there=True)
        # OpenViking marks an archive as done by an empty file.
        if empty and not raw.strip():
            return SmallFile(raw, there=True)
        if not problem and not isinstance(value, dict):
            problem = "it is not an object"
        return SmallFile(raw, {} if problem else value, problem, there=True)

    def words(self, name: str) -> bytes:
        path = self._path / name
        try:
            if path.stat().st_size > LINE_MAX:
                self.problems.append((name, f"it is longer than {LINE_MAX} bytes"))
                return b""
            return path.read_bytes()
        except OSError:
            return b""

    def rest(
        self, archives: set[str]
    ) -> tuple[tuple[LockFile, ...], tuple[str, ...], tuple[tuple[str, str], ...]]:
        locks, outputs, others = [], [], []
        for name in self._names():
            base = os.path.basename(name)
            if ".ovlock" in base:
                # Whose lock it is stands in its first words; the rest is nobody's concern.
                with open(self._path / name, "rb") as file:
                    locks.append(LockFile(name, file.read(256)))
            elif name.startswith("tool-results/"):
                outputs.append(name)
            elif not _is_known(name, archives):
                others.append((name, str(self._path / name)))
        return tuple(locks), tuple(outputs), tuple(others)

    def _names(self) -> list[str]:
        found = []
        for where, below, names in os.walk(self._path):
            below.sort()
            for name in names:
                found.append(os.path.relpath(os.path.join(where, name), self._path))
        # A file system lists names in any order; reports must not vary with it.
        return sorted(found)


def _refusal(error: OSError) -> str:
    return f"it can't be read ({error.strerror or error})"


def _is_known(name: str, archives: set[str]) -> bool:
    folder, base = os.path.split(name)
    if not folder:
        return base in (ROOT, META)
    known = (ROOT, META, DONE, FAILED, OVERVIEW, ABSTRACT)
    return folder.removeprefix("history/") in archives and base in known
