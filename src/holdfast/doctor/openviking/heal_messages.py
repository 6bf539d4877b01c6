"""Remedies for single messages of an OpenViking session: torn, repeated, and those whose tools
never ended.
"""

import hashlib
from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from holdfast.doctor.openviking.case import Records
from holdfast.doctor.openviking.detect import is_torn, replays
from holdfast.doctor.openviking.detect_tools import (
    PartPlace,
    lost_results,
    unfinished,
)
from holdfast.doctor.openviking.remedy import (
    Edit,
    Mended,
    each_file,
    start_of,
    without_live,
)
from holdfast.domain.repair import INTERRUPTED
from holdfast.importers.jsonl import written
from holdfast.importers.openviking.convert import words_of
from holdfast.importers.openviking.files import ROOT, MessageLine, SessionFolder

Part = dict[str, Any]


def keep_aside(folder: SessionFolder, rule: str) -> Mended:
    """Lines that nobody can read leave their file; their bytes are kept. Files that nobody can read
    stay behind.
    """
    # Two rules share this remedy: what is cut at the end of a file, and what is broken anywhere.
    of_torn = rule == "openviking/torn-tail"
    edits: list[Edit] = []
    if not of_torn:
        for place, problem in folder.problems:
            edits.append((place, problem, "left out"))
        folder = replace(folder, problems=())

    def change(place: str, records: Records) -> Records:
        kept = []
        for record in records:
            if record.problem and not record.aside and is_torn(record) == of_torn:
                after = f"{len(record.raw)} bytes kept aside"
                where = f"{place}:{record.number}"
                edits.append((where, start_of(record.raw, 80), after))
                record = replace(record, aside=True)
            kept.append(record)
        return tuple(kept)

    return each_file(folder, change), edits


def join_duplicates(folder: SessionFolder, rule: str) -> Mended:
    """The first of an id stays, and so does one with other words, under an id of its own."""
    edits: list[Edit] = []

    def change(place: str, records: Records) -> Records:
        kept: list[MessageLine] = []
        said: dict[str, list[bytes]] = {}
        for record in records:
            if record.problem:
                kept.append(record)
                continue
            # Within one file: what a commit retained is in its archive and live under one id.
            words = words_of(record)
            before = said.setdefault(record.id, [])
            after = "left out"
            if words not in before:
                kept.append(_renamed(record, words) if before else record)
                after = f"kept as {kept[-1].id}"
            if before:
                edits.append((f"{place}:{record.number}", record.id, after))
            before.append(words)
        return tuple(kept)

    return each_file(folder, change), edits


def _renamed(record: MessageLine, words: bytes) -> MessageLine:
    # The id comes from what is said: healing the same store again gives the same.
    named = record.id.encode("utf-8", "replace") + words
    id = f"msg_{hashlib.sha256(named).hexdigest()[:32]}"
    return replace(record, id=id, raw=written({**record.message(), "id": id}))


def leave_out_replays(folder: SessionFolder, rule: str) -> Mended:
    """Of a block that follows itself, the first stays."""
    gone: set[str] = set()
    edits = []
    live = folder.live
    for begin, size in replays(live):
        again = live[begin + size : begin + 2 * size]
        gone.update(record.id for record in again)
        before = f"{again[0].id} to {again[-1].id}"
        edits.append((f"{ROOT}:{again[0].number}", before, "left out"))
    return without_live(folder, gone), edits


def end_tools(folder: SessionFolder, rule: str) -> Mended:
    """Calls whose outcome nobody knows say so."""

    def ended(part: Part) -> Part:
        # What had come of the output by then is kept.
        output = part.get("tool_output") or INTERRUPTED
        return {**part, "tool_status": "error", "tool_output": output}

    mark = {"tool_never_finished": True}
    return _with_parts(folder, unfinished(folder), ended, "tool_status", mark)


def let_go_of_results(folder: SessionFolder, rule: str) -> Mended:
    """The preview of a lost output stays, and says that there is no more."""

    def without_ref(part: Part) -> Part:
        why = f"{part['tool_output_ref']} is missing"
        return {**part, "tool_output_ref": "", "tool_output_externalization_error": why}

    mark = {"tool_result_missing": True}
    return _with_parts(
        folder, lost_results(folder), without_ref, "tool_output_ref", mark
    )


def _with_parts(
    folder: SessionFolder,
    found: Iterable[PartPlace],
    change: Callable[[Part], Part],
    shown: str,
    mark: dict[str, bool],
) -> Mended:
    """The folder with these parts changed, in every copy of their message; `shown` is the field to
    tell of, `mark` a label for the messages.
    """
    edits: list[Edit] = []
    indexes: dict[str, set[int]] = {}
    for _, record, index in found:
        indexes.setdefault(record.id, set()).add(index)

    # Every copy: a message that was retained is read from its archive or from the live file.
    def changed(place: str, record: MessageLine) -> MessageLine:
        if record.problem or record.id not in indexes:
            return record
        parts = list(record.parts)
        for index, part in enumerate(parts):
            # Another message may have this id, and no such part.
            if index in indexes[record.id] and isinstance(part, dict):
                parts[index] = change(part)
                before = f"{shown}: {part.get(shown)}"
                after = f"{shown}: {parts[index].get(shown)}"
                edits.append((f"{place}:{record.number}", before, after))
        raw = written({**record.message(), "parts": parts})
        return replace(record, raw=raw, labels={**record.labels, **mark})

    def each_line(place: str, records: Records) -> Records:
        return tuple(changed(place, record) for record in records)

    return each_file(folder, each_line), edits
