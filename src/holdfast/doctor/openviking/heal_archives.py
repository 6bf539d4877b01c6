"""Remedies for archives of an OpenViking session: those that never took effect, and those that hide
what they hold.
"""

from msgspec.structs import replace

from holdfast.doctor.openviking.case import states, under
from holdfast.doctor.openviking.detect_archives import archive_signs, hidden_by
from holdfast.doctor.openviking.remedy import Mended, with_archive
from holdfast.importers.openviking.files import (
    Archive,
    MessageLine,
    SessionFolder,
    SmallFile,
    messages,
)


def leave_out_copies(folder: SessionFolder, rule: str) -> Mended:
    """Archives that were prepared and never took effect."""
    edits = []
    # From the last one on: each that goes makes the one before it the last.
    for archive, state in reversed(states(folder)):
        if state == "copy":
            before = "a prepared copy of live messages"
            edits.append((under(archive), before, "left out"))
            if _is_last(folder, archive):
                folder = _without(folder, archive)
            else:
                folder = _failed(folder, archive)
    return folder, edits[::-1]


def make_live(folder: SessionFolder, rule: str) -> Mended:
    """The messages that only these archives have stand before the live ones again. The last archive
    goes, as if its commit had never been; one in the middle stays in its place, and says that it
    retained what it holds.
    """
    hurt = {one.place for one in archive_signs(folder) if one.rule.name == rule}
    edits = []
    for archive in reversed(folder.archives):
        place = under(archive)
        if place not in hurt:
            continue
        hidden = set(hidden_by(folder, archive))
        count = f"{len(hidden)} messages"
        edits.append((place, f"{count} in {archive.name} only", f"{count} live again"))
        # What can't be read comes along: it may be one of those that nobody else has.
        back = []
        for record in archive.records or ():
            if record.id in hidden or record.problem:
                back.append(_recovered(record, archive))
        folder = replace(folder, records=(*back, *(folder.records or ())))
        if _is_last(folder, archive):
            folder = _without(folder, archive)
        else:
            folder = _retained(folder, archive)
    return folder, edits[::-1]


def _recovered(record: MessageLine, archive: Archive) -> MessageLine:
    """The record with a label that tells where it was; what nobody can read stays aside."""
    labels = {**record.labels, "recovered": archive.name}
    return replace(record, labels=labels, last=False, aside=bool(record.problem))


def _is_last(folder: SessionFolder, archive: Archive) -> bool:
    return folder.archives[-1].name == archive.name


def _without(folder: SessionFolder, archive: Archive) -> SessionFolder:
    """The folder without its last archive; files that OpenViking made for it are kept aside."""
    others = []
    # Beside the session: OpenViking would take the folder for an archive.
    for name, source in folder.others:
        if name.startswith(f"{under(archive)}/"):
            name = f"aside/{name}"
        others.append((name, source))
    archives = folder.archives[:-1]
    meta = folder.meta
    count = meta.data.get("commit_count")
    # The counter counts archives, and must not count the one that goes.
    if isinstance(count, int) and count >= archive.number:
        last = archives[-1].number if archives else 0
        meta = SmallFile.saying({**meta.data, "commit_count": last})
    return replace(folder, archives=archives, others=tuple(others), meta=meta)


def _retained(folder: SessionFolder, archive: Archive) -> SessionFolder:
    """The folder with an archive that says that all it holds is live."""
    # Never empty: an archive comes here only for messages that nothing else has.
    ids = [record.id for record in messages(archive.records)]
    meta = dict(archive.meta.data)
    # With a count of tokens it would promise an overview, which it does not have.
    meta.pop("overview_tokens", None)
    phase = meta.get("phase1")
    if not isinstance(phase, dict):
        phase = {"version": 1}
    ready = {
        "status": "ready",
        "archived_message_ids": ids,
        "retained_message_ids": ids,
    }
    done = {
        "starting_message_id": ids[0],
        "ending_message_id": ids[-1],
        "enable_working_memory": False,
        "coverage_start_archive": archive.name,
        "coverage_end_archive": archive.name,
        "covered_failed_archives": [],
        "completed_memory_steps": {},
    }
    changed = replace(
        archive,
        meta=SmallFile.saying({**meta, "phase1": {**phase, **ready}}),
        done=SmallFile.saying(done),
        failed=SmallFile(),
    )
    return with_archive(folder, changed)


def _failed(folder: SessionFolder, archive: Archive) -> SessionFolder:
    """What OpenViking's next commit would say of it."""
    failed = {
        "stage": "phase1_recovery",
        "error": "The commit never took effect",
        "skipped": True,
    }
    changed = replace(archive, failed=SmallFile.saying(failed))
    return with_archive(folder, changed)
