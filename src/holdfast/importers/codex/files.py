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

from holdfast.importers.item_store import number
from holdfast.importers.jsonl import first_values, lines, parsed_line

KNOWN = (
    "session_meta",
    "response_item",
    "event_msg",
    "turn_context",
    "compacted",
    "world_state",
    "token_usage_record",
)
BARE = ("message", "reasoning", "function_call", "function_call_output", "local_shell_call")
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
META_MAX = 100
"""Among so many objects at the beginning of a file is what it says of its session."""
_NAME = re.compile(r"[0-9A-Za-z-]{8,64}")


class Rollout:
    """One file, gone through once: what it says of its session, and which of its lines are left.
    `cut` is the ordinal from which on the thread goes on elsewhere.
    """

    def __init__(self, path: Path, *, cut: int | None = None) -> None:
        self.meta: dict[str, Any] = {}
        self.left: set[int] = set()
        self.unknown: Counter[str] = Counter()
        self.first: int | None = None
        self._ordinals, self._numbers = array("q"), array("q")
        self._compactions: set[int] = set()
        turns: list[list[int]] = []
        for raw in lines(path):
            line = parsed_line(raw)[0]
            if not isinstance(line, dict):
                continue
            payload: dict[str, Any] = (
                line["payload"] if isinstance(line.get("payload"), dict) else {}
            )
            kind, ordinal = line.get("type"), line.get("ordinal")
            if not self.meta and (kind == "session_meta" or is_old_meta(line)):
                self.meta = payload if kind == "session_meta" else line
                self.first = ordinal if isinstance(ordinal, int) else None
            elif kind == "event_msg" and payload.get("type") == "thread_rolled_back":
                for _ in range(min(number(payload.get("num_turns")), len(turns))):
                    self.left.update(turns.pop())
            elif kind in ("response_item", "compacted"):
                if is_prompt(payload):
                    turns.append([])
                if turns and kind == "response_item":
                    turns[-1].append(raw.number)
                self._note(raw.number, ordinal, kind, cut)
            elif kind not in KNOWN and kind not in BARE and "type" in line:
                self.unknown[str(kind)[:80]] += 1

    def _note(self, number: int, ordinal: Any, kind: str, cut: int | None) -> None:
        if not isinstance(ordinal, int) or not 0 <= ordinal < 1 << 62:
            return
        self._ordinals.append(ordinal)
        self._numbers.append(number)
        if kind == "compacted":
            self._compactions.add(number)
        if cut is not None and ordinal >= cut:
            self.left.add(number)

    def last_before(self, ordinal: int) -> tuple[int, bool] | None:
        """The number of the last line before an ordinal that tells something; and whether nothing
        more can be said of it than that it is the file's last: a compaction has no message of its
        own.
        """
        told = [
            number for at, number in zip(self._ordinals, self._numbers, strict=True) if at < ordinal
        ]
        if not told:
            return None
        is_end = told[-1] in self._compactions and len(told) == len(self._numbers)
        said = [number for number in told if number not in self._compactions]
        return (told[-1], True) if is_end else (said[-1], False) if said else None


def is_old_meta(line: dict[str, Any]) -> bool:
    """Whether this is the first line of one of the oldest files."""
    return "type" not in line and "id" in line and "timestamp" in line and "instructions" in line


def is_prompt(item: dict[str, Any]) -> bool:
    """Whether a turn begins with this item: somebody asks something. What Codex says of itself in a
    user's voice begins none.
    """
    if item.get("type") != "message" or item.get("role") != "user":
        return False
    content = item.get("content")
    texts = (
        [part.get("text") for part in content if isinstance(part, dict)]
        if isinstance(content, list)
        else [content]
    )
    return (
        not all(isinstance(text, str) and text.lstrip().startswith(_CONTEXT) for text in texts)
        or not texts
    )


def base_of(meta: dict[str, Any]) -> tuple[str, int] | None:
    """The thread that a file's past lies in, and the ordinal up to which it does; none when it lies
    in the file.
    """
    base = meta.get("history_base")
    if not isinstance(base, dict):
        return None
    thread, end = base.get("thread_id"), base.get("end_ordinal_exclusive")
    return (thread, end) if isinstance(thread, str) and thread and isinstance(end, int) else None


def meta_of(path: Path) -> dict[str, Any]:
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
    if not _NAME.fullmatch(thread):
        return []
    day = near.parent
    dated = all(part.isdigit() for part in day.parts[-3:]) and len(day.parts) > 3
    where = (
        [(day.parents[2], "*/*/*/"), (day.parents[3] / "archived_sessions", "")]
        if dated
        else [(day, "")]
    )
    found = {
        path for folder, depth in where for path in folder.glob(f"{depth}rollout-*-{thread}*.jsonl")
    }
    mine = re.compile(rf"rollout-.*-{re.escape(thread)}(_[0-9A-Za-z-]+)?\.jsonl")
    fitting = [
        path
        for path in found
        if mine.fullmatch(path.name) and path.is_file() and not path.is_symlink()
    ]
    return sorted(fitting, key=lambda path: path.name)


def chain_of(path: Path) -> list[tuple[Path, int | None]]:
    """The files that tell the thread of this one, the oldest first, each with the ordinal from
    which on it was left.
    """
    meta = meta_of(path)
    thread = meta.get("id")
    files = files_of(thread, path) if isinstance(thread, str) else []
    if len(files) < 2 or path.name not in [file.name for file in files]:
        return [(path, None)]
    chain: list[tuple[Path, int | None]] = [(files[-1], None)]
    for older in reversed(files[:-1]):
        base = base_of(meta_of(chain[0][0]))
        if base is None or base[0] != thread:
            break
        first = next(iter(first_values(older, _OBJECTS)), None)
        begins = first.get("ordinal", 0) if isinstance(first, dict) else 0
        if isinstance(begins, int) and begins < base[1]:
            chain.insert(0, (older, base[1]))
    return chain if path in [file for file, _ in chain] else [(path, None)]
