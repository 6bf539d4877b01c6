"""What is wrong with an OpenViking session, seen from its files alone."""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator

from holdfast.doctor.finding import Finding, Findings
from holdfast.doctor.openviking.case import (
    Records,
    files,
    finding,
    settled,
    under,
)
from holdfast.doctor.openviking.counters import counter_signs
from holdfast.doctor.openviking.detect_archives import archive_signs, lost_clear
from holdfast.doctor.openviking.detect_tools import is_tool, tool_signs
from holdfast.importers.jsonl import NOT_JSON
from holdfast.importers.openviking.convert import words_of
from holdfast.importers.openviking.files import (
    DONE,
    FAILED,
    META,
    ROOT,
    MessageLine,
    SessionFolder,
    messages,
)

_LOCK = re.compile(rb".+:\d+:[A-Z]\s*")
# How long a block is looked for, and at how many of the places where its first words come again.
REPLAY_MAX = 1000
REPLAYS_TRIED = 8


def findings_of(folder: SessionFolder) -> tuple[Finding, ...]:
    """All that is wrong with a session."""
    if folder.records is None and not folder.meta.there and not folder.archives:
        problems = [f"{place}: {problem}" for place, problem in folder.problems]
        nothing = f"There is neither {ROOT} nor {META} nor an archive."
        seen = "; ".join(problems) or nothing
        return (finding(folder, "unreadable-store", folder.place, seen),)
    found = [*lost_clear(folder), *counter_signs(folder)]
    for place, records in files(folder):
        found += _unread(folder, place, records)
        found += _repeated(folder, place, records)
    found += _torn_files(folder)
    found += _replayed(folder)
    found += tool_signs(folder)
    found += archive_signs(folder)
    found += _locks(folder)
    return tuple(found)


def is_torn(record: MessageLine) -> bool:
    """Whether a write was cut off here: only the last line of a file can be torn."""
    # A line that is JSON, and no message, was written like that.
    return record.last and record.problem.startswith(NOT_JSON)


def _unread(folder: SessionFolder, place: str, records: Records) -> Findings:
    for record in records:
        if record.problem and not record.aside:
            rule = "torn-tail" if is_torn(record) else "unreadable-record"
            seen = f"Line {record.number} is no message: {record.problem}."
            yield finding(folder, rule, f"{place}:{record.number}", seen)


def _torn_files(folder: SessionFolder) -> Findings:
    """Small files that say nothing any more, and files that the disk refuses."""
    small = [(META, folder.meta)]
    for archive in settled(folder):
        small.append((under(archive, META), archive.meta))
        small.append((under(archive, DONE), archive.done))
        small.append((under(archive, FAILED), archive.failed))
    for place, file in small:
        if file.problem:
            seen = f"It has {len(file.raw)} bytes; {file.problem}."
            yield finding(folder, "torn-meta", place, seen)
    for place, problem in folder.problems:
        seen = f"The file is not read: {problem}."
        yield finding(folder, "unreadable-record", place, seen)


def _repeated(folder: SessionFolder, place: str, records: Records) -> Findings:
    counts = Counter(record.id for record in messages(records))
    again = [id for id, count in counts.items() if count > 1]
    if again:
        more = f" and {len(again) - 5} more" if len(again) > 5 else ""
        seen = f"{', '.join(again[:5])}{more} stand more than once."
        yield finding(folder, "duplicate-ids", place, seen)


def _replayed(folder: SessionFolder) -> Findings:
    for begin, size in replays(folder.live):
        first, again = folder.live[begin], folder.live[begin + size]
        seen = f"The {size} messages from {again.id} on say what the {size} from {first.id} on say."
        yield finding(folder, "replayed-batch", f"{ROOT}:{again.number}", seen)


def replays(live: Records) -> Iterator[tuple[int, int]]:
    """Blocks that follow themselves word for word under other ids: where each begins, and how many
    messages it has. One message said twice is no block, and neither is a habit of a word or two
    ("go on", "done").
    """
    words = [words_of(record) for record in live]
    places: dict[bytes, list[int]] = {}
    for place, said in enumerate(words):
        places.setdefault(said, []).append(place)
    begin = 0
    while begin < len(live):
        same = places[words[begin]]
        size = 0
        # A block follows itself from where its first words come again. Only the nearest places are
        # tried: a store that says one thing ten thousand times must not take for ever.
        for middle in same[bisect_right(same, begin) :][:REPLAYS_TRIED]:
            if _is_replay(live, words, begin, middle):
                size = middle - begin
                yield begin, size
                break
        begin += 2 * size or 1


def _is_replay(live: Records, words: list[bytes], begin: int, middle: int) -> bool:
    size = middle - begin
    block = words[begin:middle]
    if not 2 <= size <= REPLAY_MAX or block != words[middle : middle + size]:
        return False
    # The same words under the same ids are messages stored twice, which is another rule.
    ids = {record.id for record in live[begin : middle + size]}
    if len(ids) < 2 * size or len(set(block)) == 1:
        return False
    return any(map(_says_much, live[begin:middle]))


def _says_much(record: MessageLine) -> bool:
    for part in record.parts:
        if is_tool(part):
            return True
        if isinstance(part, dict) and len(str(part.get("text") or "").split()) > 2:
            return True
    return False


def _locks(folder: SessionFolder) -> Findings:
    for lock in folder.locks:
        rule = "stale-locks" if _LOCK.fullmatch(lock.raw) else "torn-lock"
        seen = f"It says {lock.raw[:80].decode('latin-1').strip()!r}."
        yield finding(folder, rule, lock.name, seen)
