"""What the remedies for OpenViking's sessions share."""

from collections.abc import Callable, Collection

from msgspec.structs import replace

from holdfast.doctor.openviking.case import Records, files, under
from holdfast.importers.openviking.files import ROOT, Archive, SessionFolder

# A place, what was there before, and what is there now.
Edit = tuple[str, str, str]
Mended = tuple[SessionFolder, list[Edit]]


def start_of(raw: bytes, size: int) -> str:
    """The first bytes of something that can't be read, for a report."""
    return raw[:size].decode("utf-8", "backslashreplace")


def each_file(
    folder: SessionFolder, change: Callable[[str, Records], Records]
) -> SessionFolder:
    """The folder with every file of messages changed that counts; `change` gets its place and its
    lines.
    """
    # Without archives that never took effect: their messages are changed as live ones.
    counted = {place for place, _ in files(folder)}
    archives = []
    for archive in folder.archives:
        place = under(archive, ROOT)
        if archive.records is not None and place in counted:
            archive = replace(archive, records=change(place, archive.records))
        archives.append(archive)
    folder = replace(folder, archives=tuple(archives))
    if folder.records is not None:
        folder = replace(folder, records=change(ROOT, folder.records))
    return folder


def without_live(folder: SessionFolder, ids: Collection[str]) -> SessionFolder:
    """The folder without these messages in its live file. A line that can't be read has no id and
    stays.
    """
    kept = []
    for record in folder.records or ():
        if record.problem or record.id not in ids:
            kept.append(record)
    return replace(folder, records=tuple(kept))


def with_archive(folder: SessionFolder, changed: Archive) -> SessionFolder:
    """The folder with an archive as it is now."""
    archives = list(folder.archives)
    for place, archive in enumerate(archives):
        if archive.name == changed.name:
            archives[place] = changed
    return replace(folder, archives=tuple(archives))
