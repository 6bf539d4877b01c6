"""What is wrong with the messages and counters of an OpenViking session, seen from its
files alone.
"""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from typing import Any

from holdfast.doctor.finding import Finding
from holdfast.doctor.openviking.detect_archives import (
    archive_signs,
    gaps,
    lost_clear,
    settled,
    stale_ids,
)
from holdfast.doctor.openviking.rules import RULE
from holdfast.importers.jsonl import NOT_JSON
from holdfast.importers.openviking.convert import phase_of, state_of, words_of
from holdfast.importers.openviking.files import (
    META,
    ROOT,
    MessageLine,
    SessionFolder,
    messages,
)

_LOCK = re.compile(rb".+:\d+:[A-Z]\s*")
OPEN = ("pending", "running")
REPLAY_MAX = 1000
REPLAYS_TRIED = 8


def findings_of(folder: SessionFolder) -> tuple[Finding, ...]:
    """All that is wrong with a session."""
    if folder.records is None and not folder.meta.there and not folder.archives:
        problems = "; ".join(
            f"{place}: {problem}" for place, problem in folder.problems
        )
        seen = problems or f"There is neither {ROOT} nor {META} nor an archive."
        return (
            Finding(RULE["openviking/unreadable-store"], folder.id, folder.place, seen),
        )
    found = [*lost_clear(folder), *_counters(folder)]
    for place, records in files(folder):
        found += [*_unread(folder, place, records), *_repeated(folder, place, records)]
    found += [
        *_torn_papers(folder),
        *_replayed(folder),
        *_tools(folder),
        *archive_signs(folder),
        *_locks(folder),
    ]
    return tuple(found)


def files(folder: SessionFolder) -> list[tuple[str, tuple[MessageLine, ...]]]:
    """The files of messages that count, oldest first: archives that took effect, then the live
    file.
    """
    found = []
    for archive, _ in settled(folder):
        found.append((f"history/{archive.name}/{ROOT}", archive.records or ()))
    found.append((ROOT, folder.records or ()))
    return found


def missing(folder: SessionFolder) -> int:
    """How many live messages the counter knows that are not there. A commit that died before it
    wrote the counter has left them in its archive.
    """
    count = number(folder.meta.data.get("message_count"))
    if count is None:
        return 0
    live = {record.id for record in folder.live}
    moved: set[str] = set()
    for archive in folder.archives:
        if state_of(archive, live) == "pending" and phase_of(archive) != "ready":
            moved.update(record.id for record in messages(archive.records))
    return max(0, count - lines_in(folder.records) - len(moved - live))


def missing_in_all(folder: SessionFolder) -> int:
    """How many messages the session has counted in all that are in none of its files."""
    total = number(folder.meta.data.get("total_message_count"))
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
    for records in (*(archive.records for archive in folder.archives), folder.records):
        readable = messages(records)
        ids.update(record.id for record in readable)
        count += _namesakes(readable)
        count += sum(
            bool(record.problem) and not record.aside for record in records or ()
        )
    return len(ids) + count


def _namesakes(records: tuple[MessageLine, ...]) -> int:
    """How many messages of a file have the id of another one before them, and other words."""
    counts = Counter(record.id for record in records)
    again = {
        (record.id, words_of(record)) for record in records if counts[record.id] > 1
    }
    return len(again) - len({id for id, _ in again})


def lines_in(records: tuple[MessageLine, ...] | None) -> int:
    return sum(not record.aside for record in records or ())


def number(value: Any) -> int | None:
    return (
        value
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0
        else None
    )


def _counters(folder: SessionFolder) -> Iterator[Finding]:
    count = number(folder.meta.data.get("message_count"))
    if count is None:
        return
    lines = lines_in(folder.records)
    whole = len({record.id for record in folder.live}) + _namesakes(folder.live)
    if whole > count and not any(stale_ids(folder).values()):
        seen = f"{ROOT} has {whole} messages, `message_count` is {count}."
        yield Finding(
            RULE["openviking/append-crash-meta-behind"], folder.id, META, seen
        )
    if gone := missing(folder):
        seen = f"{ROOT} has {lines} messages, `message_count` is {count}: {gone} are missing."
        yield Finding(RULE["openviking/wiped-live"], folder.id, ROOT, seen)
    elif gone := missing_in_all(folder):
        seen = (
            f"`total_message_count` is {held(folder) + gone}; archives and {ROOT} have "
            f"{held(folder)} messages."
        )
        yield Finding(RULE["openviking/wiped-live"], folder.id, ROOT, seen)


def _unread(
    folder: SessionFolder, place: str, records: tuple[MessageLine, ...]
) -> Iterator[Finding]:
    for record in records:
        if record.problem and not record.aside:
            torn = record.last and record.problem.startswith(NOT_JSON)
            rule = "openviking/torn-tail" if torn else "openviking/unreadable-record"
            seen = f"Line {record.number} is no message: {record.problem}."
            yield Finding(RULE[rule], folder.id, f"{place}:{record.number}", seen)


def _torn_papers(folder: SessionFolder) -> Iterator[Finding]:
    papers = [(META, folder.meta)]
    for archive, _ in settled(folder):
        under = f"history/{archive.name}"
        papers += [
            (f"{under}/.meta.json", archive.meta),
            (f"{under}/.done", archive.done),
            (f"{under}/.failed.json", archive.failed),
        ]
    for place, paper in papers:
        if paper.problem:
            seen = f"It has {len(paper.raw)} bytes; {paper.problem}."
            yield Finding(RULE["openviking/torn-meta"], folder.id, place, seen)
    for place, problem in folder.problems:
        seen = f"The file is not read: {problem}."
        yield Finding(RULE["openviking/unreadable-record"], folder.id, place, seen)


def _repeated(
    folder: SessionFolder, place: str, records: tuple[MessageLine, ...]
) -> Iterator[Finding]:
    counts = Counter(record.id for record in messages(records))
    again = [id for id, count in counts.items() if count > 1]
    if again:
        seen = f"{_some(again)} stand more than once."
        yield Finding(RULE["openviking/duplicate-ids"], folder.id, place, seen)


def _replayed(folder: SessionFolder) -> Iterator[Finding]:
    for begin, size in replays(folder.live):
        first, again = folder.live[begin], folder.live[begin + size]
        seen = f"The {size} messages from {again.id} on say what the {size} from {first.id} on say."
        yield Finding(
            RULE["openviking/replayed-batch"], folder.id, f"{ROOT}:{again.number}", seen
        )


def replays(live: tuple[MessageLine, ...]) -> Iterator[tuple[int, int]]:
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
        near = same[bisect_right(same, begin) :][:REPLAYS_TRIED]
        size = next(
            (place - begin for place in near if _is_replay(live, words, begin, place)),
            0,
        )
        if size:
            yield begin, size
        begin += 2 * size or 1


def _is_replay(
    live: tuple[MessageLine, ...], words: list[bytes], begin: int, middle: int
) -> bool:
    size = middle - begin
    if (
        not 2 <= size <= REPLAY_MAX
        or words[begin:middle] != words[middle : middle + size]
    ):
        return False
    ids = [record.id for record in live[begin : middle + size]]
    says_much = any(_says_much(record) for record in live[begin:middle])
    return len(set(ids)) == len(ids) and len(set(words[begin:middle])) > 1 and says_much


def _says_much(record: MessageLine) -> bool:
    parts = [part for part in record.parts if isinstance(part, dict)]
    return any(
        _is_tool(part) or len(str(part.get("text") or "").split()) > 2 for part in parts
    )


def _tools(folder: SessionFolder) -> Iterator[Finding]:
    for place, record, index in unfinished(folder):
        part = record.parts[index]
        seen = (
            f"The part {part.get('tool_id')} is {part.get('tool_status')}, and the "
            "session went on."
        )
        yield Finding(
            RULE["openviking/tool-never-finished"],
            folder.id,
            f"{place}:{record.number}",
            seen,
        )
    for place, record, index in lost_results(folder):
        seen = f"{record.parts[index]['tool_output_ref']} is not there."
        yield Finding(
            RULE["openviking/tool-result-missing"],
            folder.id,
            f"{place}:{record.number}",
            seen,
        )


def unfinished(folder: SessionFolder) -> Iterator[tuple[str, MessageLine, int]]:
    """Parts of tools that have no outcome, here or in a later message, though the session went on:
    somebody has said something since, and was not still calling.
    """
    waiting: list[tuple[str, MessageLine, int, str]] = []
    for place, record in _each_message(folder):
        if waiting and _goes_on(record):
            yield from ((place, record, index) for place, record, index, _ in waiting)
            waiting = []
        for index, part in enumerate(record.parts if record.may_hold_tools else ()):
            if _is_tool(part):
                call = str(part.get("tool_id"))
                waiting = [one for one in waiting if one[3] != call]
                if part.get("tool_status") in OPEN:
                    waiting.append((place, record, index, call))


def _goes_on(record: MessageLine) -> bool:
    parts = record.parts
    is_calling = any(
        _is_tool(part) and part.get("tool_status") in OPEN for part in parts
    )
    return not is_calling and not all(_is_tool(part) for part in parts)


def lost_results(folder: SessionFolder) -> Iterator[tuple[str, MessageLine, int]]:
    """Parts that refer to an output of this session that is not there."""
    for place, record in _each_message(folder):
        for index, part in enumerate(record.parts if record.may_hold_tools else ()):
            ref = part.get("tool_output_ref") if _is_tool(part) else None
            if isinstance(ref, str) and ref and _is_own(ref, folder):
                name = ref.rstrip("/").removesuffix("/output.txt").rpartition("/")[2]
                if f"tool-results/{name}/output.txt" not in folder.outputs:
                    yield place, record, index


def _each_message(folder: SessionFolder) -> Iterator[tuple[str, MessageLine]]:
    """Every message once, in order, with its file."""
    seen: set[str] = set()
    for place, records in files(folder):
        for record in messages(records):
            if record.id not in seen:
                seen.add(record.id)
                yield place, record


def _is_tool(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "tool"


def _is_own(ref: str, folder: SessionFolder) -> bool:
    session = re.search(r"/sessions/([^/]+)/", ref)
    names = (
        folder.id,
        folder.id.rpartition("/")[2],
        folder.meta.data.get("session_id"),
    )
    return session is None or session[1] in names


def _locks(folder: SessionFolder) -> Iterator[Finding]:
    for lock in folder.locks:
        rule = "stale-locks" if _LOCK.fullmatch(lock.raw) else "torn-lock"
        seen = f"It says {lock.raw[:80].decode('latin-1').strip()!r}."
        yield Finding(RULE[f"openviking/{rule}"], folder.id, lock.name, seen)


def _some(ids: list[str]) -> str:
    return ", ".join(ids[:5]) + (f" and {len(ids) - 5} more" if len(ids) > 5 else "")
