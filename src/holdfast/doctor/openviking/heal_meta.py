"""Remedies for the small files beside the messages of an OpenViking session: what they said is told
anew.
"""

from typing import Any

from msgspec.structs import replace

from holdfast.doctor.finding import Change
from holdfast.doctor.openviking.detect import held, lines_in, number
from holdfast.doctor.openviking.detect_archives import settled
from holdfast.importers.openviking.files import (
    DONE,
    FAILED,
    META,
    Archive,
    SessionFolder,
    SmallFile,
    messages,
)


def count_anew(folder: SessionFolder, rule: str) -> tuple[SessionFolder, list[Change]]:
    """The counters say what is there."""
    old, total = folder.meta.data, number(folder.meta.data.get("total_message_count"))
    data = {**old, "message_count": lines_in(folder.records)}
    if total is not None:
        data["total_message_count"] = max(total, held(folder))
    before, after = (f"message_count: {one['message_count']}" for one in (old, data))
    return replace(folder, meta=SmallFile.saying(data)), [
        Change(rule, folder.id, META, before, after)
    ]


def rebuild_papers(
    folder: SessionFolder, rule: str
) -> tuple[SessionFolder, list[Change]]:
    """Each file that can't be read is made from the messages; its bytes are kept aside."""
    changes: list[Change] = []
    asides = list(folder.asides)

    def rebuilt(place: str, paper: SmallFile, data: dict[str, Any]) -> SmallFile:
        if not paper.problem:
            return paper
        before = f"{len(paper.raw)} bytes: {paper.raw[:60].decode('utf-8', 'backslashreplace')}"
        changes.append(
            Change(rule, folder.id, place, before, "rebuilt from the messages")
        )
        asides.append((place, paper.raw))
        return SmallFile.saying(data)

    counted = {archive.name for archive, _ in settled(folder)}
    archives = []
    for archive in folder.archives:
        if archive.name in counted:
            under = f"history/{archive.name}"
            archive = replace(
                archive,
                meta=rebuilt(
                    f"{under}/{META}", archive.meta, _archive_meta(folder, archive)
                ),
                done=rebuilt(f"{under}/{DONE}", archive.done, _done(archive)),
                failed=rebuilt(
                    f"{under}/{FAILED}",
                    archive.failed,
                    {"stage": "unknown", "error": "unknown"},
                ),
            )
        archives.append(archive)
    meta = rebuilt(META, folder.meta, _meta(folder))
    return replace(
        folder, archives=tuple(archives), meta=meta, asides=tuple(asides)
    ), changes


def _meta(folder: SessionFolder) -> dict[str, Any]:
    """Times are taken from the first and the last message: nobody knows better."""
    every = [
        record for archive in folder.archives for record in messages(archive.records)
    ]
    every += folder.live
    times = [
        at
        for record in every
        if isinstance(at := record.message().get("created_at"), str)
    ]
    return {
        "session_id": folder.id.rpartition("/")[2],
        "created_at": times[0] if times else "",
        "updated_at": times[-1] if times else "",
        "message_count": lines_in(folder.records),
        "commit_count": folder.archives[-1].number if folder.archives else 0,
        "last_message_at": times[-1] if times else "",
        "total_message_count": held(folder),
    }


def _archive_meta(folder: SessionFolder, archive: Archive) -> dict[str, Any]:
    """What is in the archive and also live was retained, as far as anybody can tell."""
    ids = [record.id for record in messages(archive.records)]
    live = {record.id for record in folder.live}
    phase = {
        "version": 1,
        "status": "ready",
        "archived_message_ids": ids,
        "retained_message_ids": [id for id in ids if id in live],
    }
    return {"phase1": phase}


def _done(archive: Archive) -> dict[str, Any]:
    ids = [record.id for record in messages(archive.records)]
    if archive.records is None and not archive.meta.there:
        return {"context_reset": True, "enable_working_memory": False}
    ends = {"starting_message_id": ids[0], "ending_message_id": ids[-1]} if ids else {}
    return {**ends, "enable_working_memory": bool(archive.overview.strip())}
