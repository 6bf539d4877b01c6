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
from pathlib import Path
from typing import Any, Literal

import msgspec

from holdfast.importers.foreign_session import (
    HIDDEN,
    ForeignMessage,
    ForeignSession,
    Summary,
)
from holdfast.importers.jsonl import LINE_MAX
from holdfast.importers.openviking.files import (
    Archive,
    MessageLine,
    SessionFolder,
    messages,
)
from holdfast.importers.values import JsonObject, milliseconds

FORMAT = "openviking"
RESET = "[The context was reset here. What was said before is in the transcript.]"
State = Literal["done", "reset", "failed", "pending", "copy"]
_encode = msgspec.json.Encoder(order="sorted").encode
_HEAD = re.compile(r"\A---\n.*?\n---\n", re.S)
_ROLE = re.compile(rb'"role"\s*:\s*"(user|assistant)"')


def state_of(archive: Archive, live: set[str]) -> State:
    """What has become of an archive. A `copy` was prepared and never took effect: its messages are
    all still live.
    """
    if archive.done.there:
        return "reset" if archive.done.data.get("context_reset") is True else "done"
    if archive.failed.there:
        return "failed"
    return (
        "copy"
        if phase_of(archive) != "ready" and held_by(archive) <= live
        else "pending"
    )


def phase_of(archive: Archive) -> str:
    """How far the commit that made the archive came: `preparing`, `ready`, or nothing where it does
    not say.
    """
    status = _phase1(archive).get("status")
    return status if isinstance(status, str) else ""


def held_by(archive: Archive) -> set[str]:
    """The ids of the messages in an archive, or those that it was to hold when it has no file of
    messages.
    """
    if archive.records is None:
        return moved_by(archive)
    return {record.id for record in messages(archive.records)}


def moved_by(archive: Archive) -> set[str]:
    """The ids that this archive took out of the live file: archived and not retained. An archive
    that does not say so has moved what it holds.
    """
    phase = _phase1(archive)
    archived, retained = (
        _ids(phase.get("archived_message_ids")),
        _ids(phase.get("retained_message_ids")),
    )
    if phase and archived is not None and retained is not None:
        return archived - retained
    return {record.id for record in messages(archive.records)}


def overview_of(archive: Archive) -> str:
    """The words of an archive's overview, without the head that says who made it."""
    text = archive.overview.decode("utf-8", "replace").replace("\r\n", "\n")
    return _HEAD.sub("", text, count=1).strip()


def foreign_session(folder: SessionFolder) -> ForeignSession:
    """The session as it is."""
    meta = folder.meta.data
    return ForeignSession(
        kind="openviking",
        id=folder.id,
        place=folder.place,
        lines=_OpenVikingMessages(folder),
        opened_at=milliseconds(meta.get("created_at")),
        facts=_facts(folder),
    )


def _phase1(archive: Archive) -> JsonObject:
    phase = archive.meta.data.get("phase1")
    return phase if isinstance(phase, dict) else {}


def _ids(value: Any) -> set[str] | None:
    return (
        {one for one in value if isinstance(one, str)}
        if isinstance(value, list)
        else None
    )


def _facts(folder: SessionFolder) -> JsonObject:
    facts: JsonObject = {"meta": folder.meta.data} if folder.meta.data else {}
    archives = {
        archive.name: {
            name: paper.data
            for name, paper in (
                ("meta", archive.meta),
                ("done", archive.done),
                ("failed", archive.failed),
            )
            if paper.there
        }
        for archive in folder.archives
    }
    if archives:
        facts["archives"] = archives
    if folder.outputs:
        facts["tool_results"] = {
            name: _output(Path(folder.path, name)) for name in folder.outputs
        }
    return facts


def _output(path: Path) -> str:
    """What a tool said that was too long for its message."""
    with open(path, "rb") as file:
        return file.read(LINE_MAX).decode("utf-8", "backslashreplace")


class _OpenVikingMessages:
    """The lines of a session; each iteration makes them anew."""

    def __init__(self, folder: SessionFolder) -> None:
        self._folder = folder

    def __iter__(self) -> Iterator[ForeignMessage | Summary]:
        folder = self._folder
        live = {record.id for record in folder.live}
        given: set[str] = set()
        states = [(archive, state_of(archive, live)) for archive in folder.archives]
        ended = max(
            (
                archive.number
                for archive, state in states
                if state in ("done", "reset", "failed")
            ),
            default=0,
        )
        for index, (archive, state) in enumerate(states):
            if state == "copy":
                continue
            place = f"history/{archive.name}/messages.jsonl"
            text = (
                RESET
                if state == "reset"
                else overview_of(archive)
                if state == "done"
                else ""
            )
            for line in _said(archive.records, place, given):
                is_hidden = (
                    archive.number <= ended and not text and line.origin not in live
                )
                labels = {
                    "archive": state,
                    **(HIDDEN if is_hidden else {}),
                    **line.labels,
                }
                yield msgspec.structs.replace(line, labels=labels)
            if text:
                # All that stands behind it as well: it may have been brought over before this
                # archive was there.
                later = live.union(
                    *(held_by(after) for after, _ in states[index + 1 :])
                )
                keeps = tuple(sorted(later))
                yield Summary(
                    f"{archive.name}/summary", place, text, keeps, _ended_at(archive)
                )
        yield from _said(folder.records, "messages.jsonl", given)


def _said(
    records: tuple[MessageLine, ...] | None, place: str, given: set[str]
) -> Iterator[ForeignMessage]:
    """The lines of one file that are new. The same id with other words in the same file is a
    message of its own.
    """
    here: dict[str, list[MessageLine]] = {}
    for record in records or ():
        if record.problem:
            if record.aside:
                yield _kept(record, place)
            continue
        same = here.setdefault(record.id, [])
        if same:
            is_new = all(words_of(other) != words_of(record) for other in same)
        else:
            is_new = record.id not in given
        same.append(record)
        if is_new:
            given.add(record.id)
            yield _line(
                record,
                place,
                record.id if len(same) == 1 else f"{record.id}#{len(same)}",
            )


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
    role = _ROLE.search(record.raw)
    text = record.raw.decode("utf-8", "backslashreplace")
    said = role[1].decode() if role else "user"
    digest = hashlib.sha256(record.raw).hexdigest()[:16]
    return ForeignMessage(
        origin=f"{place}:{record.number}:{digest}",
        place=f"{place}:{record.number}",
        role=said,
        payload={
            "role": said,
            "parts": [{"type": "unreadable", "raw": text, "problem": record.problem}],
        },
        format=FORMAT,
        labels={**HIDDEN, "unreadable": True},
    )


def _ended_at(archive: Archive) -> int | None:
    for text in (_phase1(archive).get("ready_at"), _phase1(archive).get("created_at")):
        if (at := milliseconds(text)) is not None:
            return at
    said = messages(archive.records)
    return milliseconds(said[-1].message().get("created_at")) if said else None
