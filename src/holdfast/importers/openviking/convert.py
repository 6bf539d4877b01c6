"""From an OpenViking session's directory to a foreign session: archives in order, then what is live, each
message once by id.

What the model sees is decided as OpenViking decides it. The newest archive that has ended is the
boundary: what it and those before it hold is not shown raw. An overview stands for it as a summary,
where there is one; without one, the messages are kept hidden. An archive after that boundary is
still being worked on, and its messages are shown.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec

from holdfast.importers.foreign_session import (
    HIDDEN,
    ForeignLine,
    ForeignLines,
    ForeignMessage,
    ForeignSession,
    Summary,
)
from holdfast.importers.jsonl import LINE_MAX
from holdfast.importers.openviking.files import (
    ROOT,
    Archive,
    MessageLine,
    Records,
    SessionFolder,
    SmallFile,
    messages,
)
from holdfast.importers.values import (
    JsonObject,
    milliseconds,
    object_or_empty,
    text_or_none,
)

FORMAT = "openviking"
RESET = "[The context was reset here. What was said before is in the transcript.]"
State = Literal["done", "reset", "failed", "pending", "copy"]
# Two writers of the same words may order the keys of a part differently.
_encode = msgspec.json.Encoder(order="sorted").encode
_HEAD = re.compile(r"\A---\n.*?\n---\n", re.S)
_ROLE = re.compile(rb'"role"\s*:\s*"(user|assistant)"')


def state_of(archive: Archive, live: set[str]) -> State:
    """What has become of an archive. A `copy` was prepared and never took effect: its messages are
    all still live.
    """
    if archive.done.there and archive.done.data.get("context_reset") is True:
        return "reset"
    if archive.done.there:
        return "done"
    if archive.failed.there:
        return "failed"
    if phase_of(archive) != "ready" and held_by(archive) <= live:
        return "copy"
    return "pending"


def phase_of(archive: Archive) -> str:
    """How far the commit that made the archive came: `preparing`, `ready`, or nothing where it does
    not say.
    """
    return text_or_none(_phase1(archive).get("status")) or ""


def held_by(archive: Archive) -> set[str]:
    """The ids of the messages in an archive, or those that it was to hold when it has no file of
    messages.
    """
    if archive.records is None:
        return moved_by(archive)
    return _ids_in(archive.records)


def moved_by(archive: Archive) -> set[str]:
    """The ids that this archive took out of the live file: archived and not retained. An archive
    that does not say so has moved what it holds.
    """
    phase = _phase1(archive)
    archived = phase.get("archived_message_ids")
    retained = phase.get("retained_message_ids")
    if isinstance(archived, list) and isinstance(retained, list):
        return _texts(archived) - _texts(retained)
    return _ids_in(archive.records)


def overview_of(archive: Archive) -> str:
    """The words of an archive's overview, without the head that says who made it."""
    text = archive.overview.decode("utf-8", "replace").replace("\r\n", "\n")
    return _HEAD.sub("", text, count=1).strip()


def foreign_session(folder: SessionFolder) -> ForeignSession:
    """The session as it is."""
    return ForeignSession(
        kind="openviking",
        id=folder.id,
        place=folder.place,
        lines=ForeignLines(partial(_lines, folder)),
        opened_at=milliseconds(folder.meta.data.get("created_at")),
        facts=_facts(folder),
    )


def _phase1(archive: Archive) -> JsonObject:
    return object_or_empty(archive.meta.data.get("phase1"))


def _texts(values: list[Any]) -> set[str]:
    return {value for value in values if isinstance(value, str)}


def _ids_in(records: Records) -> set[str]:
    return {record.id for record in messages(records)}


def _facts(folder: SessionFolder) -> JsonObject:
    facts: JsonObject = {}
    if folder.meta.data:
        facts["meta"] = folder.meta.data
    if folder.archives:
        archives = {archive.name: _about(archive) for archive in folder.archives}
        facts["archives"] = archives
    if folder.outputs:
        facts["tool_results"] = {
            name: _output(Path(folder.path, name)) for name in folder.outputs
        }
    return facts


def _about(archive: Archive) -> JsonObject:
    about = {}
    for name in ("meta", "done", "failed"):
        file: SmallFile = getattr(archive, name)
        if file.there:
            about[name] = file.data
    return about


def _output(path: Path) -> str:
    """What a tool said that was too long for its message."""
    with open(path, "rb") as file:
        return file.read(LINE_MAX).decode("utf-8", "backslashreplace")


def _lines(folder: SessionFolder) -> Iterator[ForeignLine]:
    live = _ids_in(folder.records)
    given: set[str] = set()
    states = [(archive, state_of(archive, live)) for archive in folder.archives]
    ended = 0
    for archive, state in states:
        if state in ("done", "reset", "failed"):
            ended = max(ended, archive.number)
    for index, (archive, state) in enumerate(states):
        # Its messages are all still live, and are given there.
        if state == "copy":
            continue
        place = f"history/{archive.name}/{ROOT}"
        text = ""
        if state == "reset":
            text = RESET
        elif state == "done":
            text = overview_of(archive)
        # Nothing stands for what was archived without an overview: it is kept for readers.
        is_past = archive.number <= ended and not text
        for line in _said(archive.records, place, given):
            hidden = HIDDEN if is_past and line.origin not in live else {}
            labels = {"archive": state, **hidden, **line.labels}
            yield msgspec.structs.replace(line, labels=labels)
        if text:
            # All that stands behind it as well: it may have been brought over before this
            # archive was there.
            later = live.union(*(held_by(after) for after, _ in states[index + 1 :]))
            origin = f"{archive.name}/summary"
            yield Summary(origin, place, text, tuple(sorted(later)), _ended_at(archive))
    yield from _said(folder.records, ROOT, given)


def _said(records: Records, place: str, given: set[str]) -> Iterator[ForeignMessage]:
    """The lines of one file that are new. The same id with other words in the same file is a
    message of its own.
    """
    here: dict[str, list[MessageLine]] = {}
    for record in records or ():
        if record.problem:
            if record.aside:
                yield _kept(record, place)
            continue
        # A batch that was appended twice repeats its messages word for word.
        same = here.setdefault(record.id, [])
        if same:
            is_new = all(words_of(other) != words_of(record) for other in same)
        else:
            is_new = record.id not in given
        same.append(record)
        if is_new:
            given.add(record.id)
            origin = record.id
            if len(same) > 1:
                origin += f"#{len(same)}"
            yield _line(record, place, origin)


def words_of(record: MessageLine) -> bytes:
    """What a message says, as bytes to compare."""
    said = [record.role, record.parts]
    try:
        return _encode(said)
    except UnicodeEncodeError:  # half of a surrogate pair
        return json.dumps(said, sort_keys=True).encode()


def _line(record: MessageLine, place: str, origin: str) -> ForeignMessage:
    message = record.message()
    return ForeignMessage(
        origin=origin,
        place=f"{place}:{record.number}",
        role="assistant" if record.role == "tool" else record.role,
        payload=message,
        format=FORMAT,
        at=milliseconds(message.get("created_at")),
        labels=record.labels,
    )


def _kept(record: MessageLine, place: str) -> ForeignMessage:
    """The bytes of a line that could not be read, for people; the model is not shown them."""
    found = _ROLE.search(record.raw)
    role = found[1].decode() if found else "user"
    text = record.raw.decode("utf-8", "backslashreplace")
    part = {"type": "unreadable", "raw": text, "problem": record.problem}
    # Lines move when a file is written anew, so their bytes are part of their identity.
    digest = hashlib.sha256(record.raw).hexdigest()[:16]
    return ForeignMessage(
        origin=f"{place}:{record.number}:{digest}",
        place=f"{place}:{record.number}",
        role=role,
        payload={"role": role, "parts": [part]},
        format=FORMAT,
        labels={**HIDDEN, "unreadable": True},
    )


def _ended_at(archive: Archive) -> int | None:
    phase = _phase1(archive)
    for name in ("ready_at", "created_at"):
        at = milliseconds(phase.get(name))
        if at is not None:
            return at
    said = messages(archive.records)
    if not said:
        return None
    return milliseconds(said[-1].message().get("created_at"))
