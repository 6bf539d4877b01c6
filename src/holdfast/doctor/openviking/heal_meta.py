"""Remedies for the small files beside the messages of an OpenViking session: what they said is
worked out from the messages.
"""

from typing import Any

from msgspec.structs import replace

from holdfast.doctor.openviking.case import all_files, ids_of, settled, under
from holdfast.doctor.openviking.counters import counter, held, lines_in
from holdfast.doctor.openviking.remedy import Edit, Mended, start_of, with_archive
from holdfast.importers.openviking.files import (
    DONE,
    FAILED,
    META,
    Archive,
    SessionFolder,
    SmallFile,
    messages,
)

Data = dict[str, Any]


def count_anew(folder: SessionFolder, rule: str) -> Mended:
    """The counters say what is there."""
    lines = lines_in(folder.records)
    data = {**folder.meta.data, "message_count": lines}
    total = counter(folder, "total_message_count")
    if total is not None:
        # What an archive that is gone has held was counted, and is not here to be counted again.
        data["total_message_count"] = max(total, held(folder))
    before = f"message_count: {folder.meta.data['message_count']}"
    edit = (META, before, f"message_count: {lines}")
    return replace(folder, meta=SmallFile.saying(data)), [edit]


def rebuild_small_files(folder: SessionFolder, rule: str) -> Mended:
    """Each file that can't be read is made from the messages; its bytes are kept aside."""
    edits: list[Edit] = []
    asides = list(folder.asides)

    def rebuilt(place: str, file: SmallFile, data: Data) -> SmallFile:
        if not file.problem:
            return file
        before = f"{len(file.raw)} bytes: {start_of(file.raw, 60)}"
        edits.append((place, before, "rebuilt from the messages"))
        asides.append((place, file.raw))
        return SmallFile.saying(data)

    # What is made comes from the folder as it was: the files are rebuilt from messages, and never
    # from each other.
    healed = folder
    for archive in settled(folder):
        meta = _archive_meta(folder, archive)
        failed = {"stage": "unknown", "error": "unknown"}
        changed = replace(
            archive,
            meta=rebuilt(under(archive, META), archive.meta, meta),
            done=rebuilt(under(archive, DONE), archive.done, _done(archive)),
            failed=rebuilt(under(archive, FAILED), archive.failed, failed),
        )
        healed = with_archive(healed, changed)
    meta_file = rebuilt(META, folder.meta, _meta(folder))
    return replace(healed, meta=meta_file, asides=tuple(asides)), edits


def _meta(folder: SessionFolder) -> Data:
    """Times are taken from the first and the last message: nobody knows better."""
    times = []
    for records in all_files(folder):
        for record in messages(records):
            at = record.message().get("created_at")
            if isinstance(at, str):
                times.append(at)
    first, last = (times[0], times[-1]) if times else ("", "")
    return {
        # Where two directories have the same name, the reader's id is a path.
        "session_id": folder.id.rpartition("/")[2],
        "created_at": first,
        "updated_at": last,
        "message_count": lines_in(folder.records),
        "commit_count": folder.archives[-1].number if folder.archives else 0,
        "last_message_at": last,
        "total_message_count": held(folder),
    }


def _archive_meta(folder: SessionFolder, archive: Archive) -> Data:
    """What is in the archive and also live was retained, as far as anybody can tell."""
    live = ids_of(folder.records)
    ids = [record.id for record in messages(archive.records)]
    phase = {
        "version": 1,
        "status": "ready",
        "archived_message_ids": ids,
        "retained_message_ids": [id for id in ids if id in live],
    }
    return {"phase1": phase}


def _done(archive: Archive) -> Data:
    if archive.records is None and not archive.meta.there:
        return {"context_reset": True, "enable_working_memory": False}
    ends: Data = {}
    if held := messages(archive.records):
        ends = {"starting_message_id": held[0].id, "ending_message_id": held[-1].id}
    return {**ends, "enable_working_memory": bool(archive.overview.strip())}
