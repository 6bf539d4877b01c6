"""Remedies for single messages of an OpenViking session: torn, repeated, and those whose tools
never ended.
"""

import hashlib
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from holdfast.doctor.finding import Change
from holdfast.doctor.openviking.detect import files, lost_results, replays, unfinished
from holdfast.domain.repair import INTERRUPTED
from holdfast.importers.jsonl import NOT_JSON, written
from holdfast.importers.openviking.convert import words_of
from holdfast.importers.openviking.files import ROOT, MessageLine, SessionFolder

Records = tuple[MessageLine, ...]


def each_file(
    folder: SessionFolder, change: Callable[[str, Records], Records]
) -> SessionFolder:
    """The folder with every file of messages changed that counts; `change` is told which it is."""
    counted = {place for place, _ in files(folder)}
    archives = []
    for archive in folder.archives:
        place = f"history/{archive.name}/{ROOT}"
        if archive.records is not None and place in counted:
            archive = replace(archive, records=change(place, archive.records))
        archives.append(archive)
    records = change(ROOT, folder.records) if folder.records is not None else None
    return replace(folder, archives=tuple(archives), records=records)


def keep_aside(folder: SessionFolder, rule: str) -> tuple[SessionFolder, list[Change]]:
    """Lines that nobody can read leave their file; their bytes are kept. Files that nobody can read
    stay behind.
    """
    changes: list[Change] = []
    if rule == "openviking/unreadable-record":
        changes += [
            Change(rule, folder.id, place, problem, "left out")
            for place, problem in folder.problems
        ]
        folder = replace(folder, problems=())

    def change(place: str, records: Records) -> Records:
        return tuple(_aside(record, place) for record in records)

    def _aside(record: MessageLine, place: str) -> MessageLine:
        torn = record.last and record.problem.startswith(NOT_JSON)
        if (
            not record.problem
            or record.aside
            or torn != (rule == "openviking/torn-tail")
        ):
            return record
        before = record.raw[:80].decode("utf-8", "backslashreplace")
        after = f"{len(record.raw)} bytes kept aside"
        changes.append(
            Change(rule, folder.id, f"{place}:{record.number}", before, after)
        )
        return replace(record, aside=True)

    return each_file(folder, change), changes


def join_duplicates(
    folder: SessionFolder, rule: str
) -> tuple[SessionFolder, list[Change]]:
    """The first of an id stays, and so does one with other words, under an id of its own."""
    changes: list[Change] = []

    def change(place: str, records: Records) -> Records:
        kept: list[MessageLine] = []
        said: dict[str, list[bytes]] = {}
        for record in records:
            words = b"" if record.problem else words_of(record)
            before = said.setdefault(record.id, [])
            if record.problem or not before:
                kept.append(record)
            elif words not in before:
                kept.append(_renamed(record, words))
            if before and not record.problem:
                after = "left out" if words in before else f"kept as {kept[-1].id}"
                changes.append(
                    Change(
                        rule, folder.id, f"{place}:{record.number}", record.id, after
                    )
                )
            before.append(words)
        return tuple(kept)

    return each_file(folder, change), changes


def _renamed(record: MessageLine, words: bytes) -> MessageLine:
    id = f"msg_{hashlib.sha256(record.id.encode('utf-8', 'replace') + words).hexdigest()[:32]}"
    return replace(record, id=id, raw=written({**record.message(), "id": id}))


def leave_out_replays(
    folder: SessionFolder, rule: str
) -> tuple[SessionFolder, list[Change]]:
    """Of a block that follows itself, the first stays."""
    gone: set[str] = set()
    changes: list[Change] = []
    for begin, size in replays(folder.live):
        again = folder.live[begin + size : begin + 2 * size]
        gone |= {record.id for record in again}
        place = f"{ROOT}:{again[0].number}"
        changes.append(
            Change(
                rule, folder.id, place, f"{again[0].id} to {again[-1].id}", "left out"
            )
        )
    kept = tuple(
        record
        for record in folder.records or ()
        if record.problem or record.id not in gone
    )
    return replace(folder, records=kept), changes


def end_tools(folder: SessionFolder, rule: str) -> tuple[SessionFolder, list[Change]]:
    """Calls whose outcome nobody knows say so."""

    def ended(part: dict[str, Any]) -> dict[str, Any]:
        return {
            **part,
            "tool_status": "error",
            "tool_output": part.get("tool_output") or INTERRUPTED,
        }

    found = {(record.id, index) for _, record, index in unfinished(folder)}
    return _with_parts(folder, rule, found, ended, "tool_status")


def let_go_of_results(
    folder: SessionFolder, rule: str
) -> tuple[SessionFolder, list[Change]]:
    """The preview of a lost output stays, and says that there is no more."""

    def without_ref(part: dict[str, Any]) -> dict[str, Any]:
        why = f"{part['tool_output_ref']} is missing"
        return {**part, "tool_output_ref": "", "tool_output_externalization_error": why}

    found = {(record.id, index) for _, record, index in lost_results(folder)}
    return _with_parts(folder, rule, found, without_ref, "tool_output_ref")


def _with_parts(
    folder: SessionFolder,
    rule: str,
    found: set[tuple[str, int]],
    change: Callable[[dict[str, Any]], dict[str, Any]],
    shown: str,
) -> tuple[SessionFolder, list[Change]]:
    """The folder with these parts changed, in every copy of their message; `shown` is the field to
    tell of.
    """
    changes: list[Change] = []
    ids = {id for id, _ in found}
    mark = {rule.removeprefix("openviking/").replace("-", "_"): True}

    def changed(place: str, record: MessageLine) -> MessageLine:
        if record.problem or record.id not in ids:
            return record
        parts = list(record.parts)
        for index, part in enumerate(record.parts):
            if (record.id, index) in found and isinstance(part, dict):
                parts[index] = change(part)
                before, after = (
                    f"{shown}: {part.get(shown)}",
                    f"{shown}: {parts[index].get(shown)}",
                )
                changes.append(
                    Change(rule, folder.id, f"{place}:{record.number}", before, after)
                )
        return replace(
            record,
            raw=written({**record.message(), "parts": parts}),
            labels={**record.labels, **mark},
        )

    after = each_file(
        folder,
        lambda place, records: tuple(changed(place, record) for record in records),
    )
    return after, changes
