"""How many messages an OpenViking session has, and how many its counters say that it has."""

from collections import Counter
from typing import Any

from holdfast.doctor.finding import Findings
from holdfast.doctor.openviking.case import (
    Records,
    all_files,
    finding,
    ids_of,
)
from holdfast.doctor.openviking.detect_archives import gaps, stale_ids
from holdfast.importers.openviking.convert import phase_of, state_of, words_of
from holdfast.importers.openviking.files import META, ROOT, SessionFolder, messages


def counter(folder: SessionFolder, name: str) -> int | None:
    """What a counter in `.meta.json` says; None where it says nothing that can be a count."""
    value: Any = folder.meta.data.get(name)
    # True is an int for Python, and no count for anybody.
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        return None
    return value


def missing(folder: SessionFolder) -> int:
    """How many live messages the counter knows that are not there. A commit that died before it
    wrote the counter has left them in its archive.
    """
    count = counter(folder, "message_count")
    if count is None:
        return 0
    live = ids_of(folder.records)
    moved: set[str] = set()
    for archive in folder.archives:
        if state_of(archive, live) == "pending" and phase_of(archive) != "ready":
            moved |= ids_of(archive.records)
    return max(0, count - lines_in(folder.records) - len(moved - live))


def missing_in_all(folder: SessionFolder) -> int:
    """How many messages the session has counted in all that are in none of its files."""
    total = counter(folder, "total_message_count")
    # With an archive gone, or without its messages, nobody can tell how many it held.
    if total is None or gaps(folder):
        return 0
    for archive in folder.archives:
        if archive.records is None and state_of(archive, set()) == "done":
            return 0
    return max(0, total - held(folder))


def held(folder: SessionFolder) -> int:
    """How many messages a session has, each counted once, with those that can't be read and those
    that only share an id.
    """
    ids: set[str] = set()
    count = 0
    for records in all_files(folder):
        ids |= ids_of(records)
        count += _namesakes(records)
        for record in records:
            # A healer has taken what is aside out of the file: it counts no more.
            count += bool(record.problem) and not record.aside
    return len(ids) + count


def lines_in(records: Records | None) -> int:
    return sum(not record.aside for record in records or ())


def _namesakes(records: Records) -> int:
    """How many messages of a file have the id of another one before them, and other words."""
    readable = messages(records)
    counts = Counter(record.id for record in readable)
    again: dict[str, set[bytes]] = {}
    for record in readable:
        # Words are compared only where an id comes again: most messages need not be taken apart.
        if counts[record.id] > 1:
            again.setdefault(record.id, set()).add(words_of(record))
    return sum(len(words) - 1 for words in again.values())


def counter_signs(folder: SessionFolder) -> Findings:
    count = counter(folder, "message_count")
    if count is None:
        return
    whole = len(ids_of(folder.records)) + _namesakes(folder.records or ())
    # Messages that an archive took and that are live still are told as that.
    if whole > count and not any(stale_ids(folder).values()):
        seen = f"{ROOT} has {whole} messages, `message_count` is {count}."
        yield finding(folder, "append-crash-meta-behind", META, seen)
    if gone := missing(folder):
        seen = (
            f"{ROOT} has {lines_in(folder.records)} messages, `message_count` is {count}: "
            f"{gone} are missing."
        )
        yield finding(folder, "wiped-live", ROOT, seen)
    elif gone := missing_in_all(folder):
        has = held(folder)
        seen = f"`total_message_count` is {has + gone}; archives and {ROOT} have {has} messages."
        yield finding(folder, "wiped-live", ROOT, seen)
