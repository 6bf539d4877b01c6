"""An OpenViking session in the doctor's hands: its archives, and what has become of them."""

from collections.abc import Iterable, Iterator

from holdfast.doctor.finding import Finding
from holdfast.doctor.openviking.rules import RULE
from holdfast.importers.openviking.convert import State, state_of
from holdfast.importers.openviking.files import (
    ROOT,
    Archive,
    MessageLine,
    SessionFolder,
    messages,
)

Records = tuple[MessageLine, ...]


def finding(folder: SessionFolder, rule: str, place: str, measured: str) -> Finding:
    return Finding(RULE[f"openviking/{rule}"], folder.id, place, measured)


def ids_of(records: Iterable[MessageLine] | None) -> set[str]:
    """The ids of the messages among these lines."""
    return {record.id for record in records or () if not record.problem}


def states(folder: SessionFolder) -> list[tuple[Archive, State]]:
    """All archives, each with what has become of it."""
    live = ids_of(folder.records)
    return [(archive, state_of(archive, live)) for archive in folder.archives]


def settled(folder: SessionFolder) -> list[Archive]:
    """The archives that took effect."""
    # The messages of a copy are all live: whatever is wrong with them is found there.
    return [archive for archive, state in states(folder) if state != "copy"]


def under(archive: Archive, name: str = "") -> str:
    """A file of an archive, by its path in the session's directory; or the archive itself."""
    return f"history/{archive.name}/{name}".rstrip("/")


def files(folder: SessionFolder) -> list[tuple[str, Records]]:
    """The files of messages that count, oldest first: archives that took effect, then the live
    file.
    """
    found = [
        (under(archive, ROOT), archive.records or ()) for archive in settled(folder)
    ]
    return [*found, (ROOT, folder.records or ())]


def all_files(folder: SessionFolder) -> list[Records]:
    """The lines of every file of messages, oldest first, whether it took effect or not."""
    files = [archive.records or () for archive in folder.archives]
    return [*files, folder.records or ()]


def every_message(folder: SessionFolder) -> Iterator[tuple[str, MessageLine]]:
    """Every message that counts once, in order, with its file."""
    seen: set[str] = set()
    for place, records in files(folder):
        for record in messages(records):
            # What a commit retained stands in its archive and is live as well.
            if record.id not in seen:
                seen.add(record.id)
                yield place, record
