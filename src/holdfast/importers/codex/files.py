"""The files of one of Codex's threads, and how they follow from each other.

A thread begins in one file. When turns of it are taken back it goes on in another one, whose
`history_base` says up to which ordinal the file before still holds; a fork's `history_base` names
another thread in the same way. So what a thread says is told by a chain of files, each up to where
the next one begins.
"""

import re
from array import array
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

from holdfast.importers.jsonl import first_values, lines, parsed_line
from holdfast.importers.values import (
    JsonObject,
    count_or_zero,
    object_or_empty,
    text_or_none,
)

KNOWN = (
    "session_meta",
    "response_item",
    "event_msg",
    "turn_context",
    "compacted",
    "world_state",
    "token_usage_record",
)
BARE = (
    "message",
    "reasoning",
    "function_call",
    "function_call_output",
    "local_shell_call",
)
_CONTEXT = (
    "<environment_context>",
    "<user_instructions>",
    "<turn_aborted>",
    "<user_shell_command>",
    "<skill>",
    "<subagent_notification>",
    "# AGENTS.md instructions",
)
_OBJECTS = (b"{",)
# Among so many objects at the beginning of a file is what it says of its session.
META_MAX = 100
TITLE_MAX = 200
_NAME = re.compile(r"[0-9A-Za-z-]{8,64}")


class Rollout:
    """One file, gone through once: what it says of its session, and which of its lines are left.
    Its `title` is the first thing that somebody asked. `cut` is the ordinal from which on the
    thread goes on elsewhere.
    """

    def __init__(self, path: Path, *, cut: int | None = None) -> None:
        self.meta: JsonObject = {}
        self.title: str | None = None
        self.left: set[int] = set()
        self.unknown: Counter[str] = Counter()
        self._ordinals = array("q")
        self._numbers = array("q")
        self._compactions: set[int] = set()
        self._turns: list[list[int]] = []
        for raw in lines(path):
            line = parsed_line(raw)[0]
            if isinstance(line, dict):
                self._take(raw.number, line, cut)

    def _take(self, number: int, line: JsonObject, cut: int | None) -> None:
        kind = line.get("type")
        payload = object_or_empty(line.get("payload"))
        if not self.meta and (kind == "session_meta" or is_old_meta(line)):
            self.meta = payload if kind == "session_meta" else line
        elif kind == "event_msg" and payload.get("type") == "thread_rolled_back":
            self._roll_back(payload.get("num_turns"))
        elif kind in ("response_item", "compacted"):
            if is_prompt(payload):
                self._turns.append([])
                if self.title is None:
                    self.title = _asked(payload)
            # What stands before the first prompt belongs to no turn, and no rollback takes it.
            if self._turns and kind == "response_item":
                self._turns[-1].append(number)
            self._note(number, line.get("ordinal"), kind, cut)
        elif kind not in KNOWN and kind not in BARE and "type" in line:
            self.unknown[str(kind)[:80]] += 1

    def _roll_back(self, turns: Any) -> None:
        """Leaves the last turns: a rollback is a line of its own, and what it takes back stays in
        the file above it.
        """
        for _ in range(min(count_or_zero(turns), len(self._turns))):
            self.left.update(self._turns.pop())

    def _note(self, number: int, ordinal: Any, kind: str, cut: int | None) -> None:
        if not isinstance(ordinal, int) or not 0 <= ordinal < 1 << 62:
            return
        self._ordinals.append(ordinal)
        self._numbers.append(number)
        if kind == "compacted":
            self._compactions.add(number)
        # The thread went on from here in another file.
        if cut is not None and ordinal >= cut:
            self.left.add(number)

    def last_before(self, ordinal: int) -> tuple[int, bool] | None:
        """The number of the last line before an ordinal that tells something; and whether nothing
        more can be said of it than that it is the file's last: a compaction has no message of its
        own.
        """
        before = []
        for at, line in zip(self._ordinals, self._numbers, strict=True):
            if at < ordinal:
                before.append(line)
        if not before:
            return None
        # All of the file is shared, so its end can be meant without a name.
        if before[-1] in self._compactions and len(before) == len(self._numbers):
            return before[-1], True
        for line in reversed(before):
            if line not in self._compactions:
                return line, False
        return None


def is_old_meta(line: JsonObject) -> bool:
    """Whether this is the first line of one of the oldest files."""
    return (
        "type" not in line
        and "id" in line
        and "timestamp" in line
        and "instructions" in line
    )


def is_prompt(item: JsonObject) -> bool:
    """Whether a turn begins with this item: somebody asks something. What Codex says of itself in a
    user's voice begins none.
    """
    if item.get("type") != "message" or item.get("role") != "user":
        return False
    texts = texts_of(item)
    return not texts or not all(_is_context(text) for text in texts)


def _is_context(text: Any) -> bool:
    return isinstance(text, str) and text.lstrip().startswith(_CONTEXT)


def _asked(prompt: JsonObject) -> str | None:
    for text in texts_of(prompt):
        if isinstance(text, str) and text.strip() and not _is_context(text):
            return text.strip()[:TITLE_MAX]
    return None


def texts_of(item: JsonObject) -> list[Any]:
    """What stands where an item's texts should: of each of its parts, or all of its content."""
    content = item.get("content")
    if not isinstance(content, list):
        return [content]
    return [part.get("text") for part in content if isinstance(part, dict)]


def base_of(meta: JsonObject) -> tuple[str, int] | None:
    """The thread that a file's past lies in, and the ordinal up to which it does; none when it lies
    in the file.
    """
    base = object_or_empty(meta.get("history_base"))
    thread = base.get("thread_id")
    end = base.get("end_ordinal_exclusive")
    if isinstance(thread, str) and thread and isinstance(end, int):
        return thread, end
    return None


def meta_of(path: Path) -> JsonObject:
    """What a file says of its session, from its first lines."""
    for line in islice(first_values(path, _OBJECTS), META_MAX):
        if (
            isinstance(line, dict)
            and line.get("type") == "session_meta"
            and isinstance(line.get("payload"), dict)
        ):
            return dict(line["payload"])
    return {}


def files_of(thread: str, near: Path) -> list[Path]:
    """The files of a thread in the folders that `near` lies in, the oldest first: they are named by
    their times.
    """
    # The id comes out of a file, and becomes part of a pattern for paths.
    if not _NAME.fullmatch(thread):
        return []
    day = near.parent
    dated = all(part.isdigit() for part in day.parts[-3:]) and len(day.parts) > 3
    name = f"rollout-*-{thread}*.jsonl"
    if dated:
        # Codex keeps sessions in folders by year, month and day, and archived ones beside them all.
        found = set(day.parents[2].glob(f"*/*/*/{name}"))
        found.update((day.parents[3] / "archived_sessions").glob(name))
    else:
        found = set(day.glob(name))
    # The pattern above also finds threads whose id only begins with this one's.
    mine = re.compile(rf"rollout-.*-{re.escape(thread)}(_[0-9A-Za-z-]+)?\.jsonl")
    files = []
    for path in found:
        if mine.fullmatch(path.name) and path.is_file() and not path.is_symlink():
            files.append(path)
    return sorted(files, key=lambda path: path.name)


def chain_of(path: Path) -> list[tuple[Path, int | None]]:
    """The files that tell the thread of this one, the oldest first, each with the ordinal from
    which on it was left.
    """
    meta = meta_of(path)
    thread = text_or_none(meta.get("id")) or ""
    files = files_of(thread, path)
    if len(files) < 2 or path.name not in [file.name for file in files]:
        return [(path, None)]
    # From the last file back: each says up to where the one before it still holds.
    chain: list[tuple[Path, int | None]] = [(files[-1], None)]
    for older in reversed(files[:-1]):
        base = base_of(meta_of(chain[0][0]))
        # The past lies in another thread, or in the file itself.
        if base is None or base[0] != thread:
            break
        first = next(iter(first_values(older, _OBJECTS)), None)
        begins = object_or_empty(first).get("ordinal", 0)
        if isinstance(begins, int) and begins < base[1]:
            chain.insert(0, (older, base[1]))
    # A file that was left altogether is told by itself.
    if path not in [file for file, _ in chain]:
        return [(path, None)]
    return chain
