"""Remedies for archives of an OpenViking session: those that never took effect, and those that hide
what they hold.
"""

from msgspec.structs import replace

from holdfast.doctor.finding import Change
from holdfast.doctor.openviking.detect_archives import archive_signs, hidden_by, states
from holdfast.importers.openviking.files import (
    Archive,
    MessageLine,
    SessionFolder,
    SmallFile,
    messages,
)


def leave_out_copies(
    folder: SessionFolder, rule: str
) -> tuple[SessionFolder, list[Change]]:
    """Archives that were prepared and never took effect."""
    changes = []
    for archive, state in reversed(states(folder)):
        if state == "copy":
            place = f"history/{archive.name}"
            changes.append(
                Change(
                    rule,
                    folder.id,
                    place,
                    "a prepared copy of live messages",
                    "left out",
                )
            )
            folder = (
                _without(folder, archive)
                if _is_last(folder, archive)
                else _failed(folder, archive)
            )
    return folder, changes[::-1]


def make_live(folder: SessionFolder, rule: str) -> tuple[SessionFolder, list[Change]]:
    """The messages that only these archives have stand before the live ones again. The last archive
    goes, as if its commit had never been; one in the middle stays in its place, and says that it
    retained what it holds.
    """
    hurt = {one.place for one in archive_signs(folder) if one.rule.name == rule}
    changes = []
    for archive in reversed(folder.archives):
        if f"history/{archive.name}" in hurt:
            hidden = set(hidden_by(folder, archive))
            back = [
                _recovered(record, archive)
                for record in archive.records or ()
                if record.id in hidden or record.problem
            ]
            before, after = (
                f"{len(hidden)} messages in {archive.name} only",
                f"{len(hidden)} messages live again",
            )
            changes.append(
                Change(rule, folder.id, f"history/{archive.name}", before, after)
            )
            folder = replace(folder, records=(*back, *(folder.records or ())))
            folder = (
                _without(folder, archive)
                if _is_last(folder, archive)
                else _retained(folder, archive)
            )
    return folder, changes[::-1]


def _recovered(record: MessageLine, archive: Archive) -> MessageLine:
    """The record with a label that tells where it was; what nobody can read stays aside."""
    labels = {**record.labels, "recovered": archive.name}
    return replace(record, labels=labels, last=False, aside=bool(record.problem))


def _is_last(folder: SessionFolder, archive: Archive) -> bool:
    return folder.archives[-1].name == archive.name


def _without(folder: SessionFolder, archive: Archive) -> SessionFolder:
    """The folder without its last archive; files that OpenViking made for it are kept aside."""
    under = f"history/{archive.name}/"
    others = tuple(
        (f"aside/{name}" if name.startswith(under) else name, source)
        for name, source in folder.others
    )
    archives = folder.archives[:-1]
    meta, count = folder.meta, folder.meta.data.get("commit_count")
    if isinstance(count, int) and count >= archive.number:
        meta = SmallFile.saying(
            {**meta.data, "commit_count": archives[-1].number if archives else 0}
        )
    return replace(folder, archives=archives, others=others, meta=meta)


def _retained(folder: SessionFolder, archive: Archive) -> SessionFolder:
    ids = [record.id for record in messages(archive.records)]
    phase = archive.meta.data.get("phase1")
    phase = {
        **(phase if isinstance(phase, dict) else {"version": 1}),
        "status": "ready",
        "archived_message_ids": ids,
        "retained_message_ids": ids,
    }
    meta = {
        key: value
        for key, value in archive.meta.data.items()
        if key != "overview_tokens"
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
        meta=SmallFile.saying({**meta, "phase1": phase}),
        done=SmallFile.saying(done),
        failed=SmallFile(),
    )
    return _instead(folder, changed)


def _failed(folder: SessionFolder, archive: Archive) -> SessionFolder:
    """What OpenViking's next commit would say of it."""
    failed = {
        "stage": "phase1_recovery",
        "error": "The commit never took effect",
        "skipped": True,
    }
    return _instead(folder, replace(archive, failed=SmallFile.saying(failed)))


def _instead(folder: SessionFolder, archive: Archive) -> SessionFolder:
    return replace(
        folder,
        archives=tuple(
            archive if one.name == archive.name else one for one in folder.archives
        ),
    )
