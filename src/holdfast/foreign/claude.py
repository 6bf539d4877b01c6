"""Claude Code's sessions: a file of JSON lines each, in `~/.claude/projects/<project>/`.

A line of type `user` or `assistant` holds a message of the Messages API beside what Claude Code knows of it; one answer
is several lines, a block each. Lines name their parents: a prompt that was edited begins a branch, and the one that the
file ends on is what the model sees. What subagents said is a side chain. After a compaction, a user's line marked as
its summary stands for all before it.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdfast.domain.message import Usage
from holdfast.foreign.items import Chapter, FileShelf, Item, number, wrong_content
from holdfast.foreign.jsonl import first_values, lines, parsed_line
from holdfast.foreign.moments import stamp
from holdfast.foreign.shelf import Unreadable
from holdfast.foreign.story import HIDDEN, Line, Story, Summary

_SPOKEN = ("user", "assistant")
_TITLES = {"summary": "summary", "ai-title": "aiTitle", "custom-title": "customTitle"}


def recognises(path: Path) -> bool:
    """Whether one of the first lines is a message of Claude Code's, or a summary of one."""
    return any(_is_claudes(line) for line in first_values(path, 50))


def _is_claudes(line: Any) -> bool:
    if not isinstance(line, dict):
        return False
    spoken = line.get("type") in _SPOKEN and isinstance(line.get("message"), dict)
    return (spoken and "uuid" in line and "parentUuid" in line) or (
        line.get("type") == "summary" and "leafUuid" in line
    )


class ClaudeShelf(FileShelf):
    """One session's file, opened from a private copy."""

    kind = "claude"

    def chapters(self, session: str | None = None) -> Iterator[Chapter]:
        plot = _Plot(self._copy.path)
        id = self._stem if not plot.sessions or self._stem in plot.sessions or plot.is_aside else plot.sessions[0]
        if session is None or session == id:
            story = Story(
                kind=self.kind,
                id=id,
                place=self.path,
                lines=(),
                title=next((plot.titles[kind] for kind in reversed(_TITLES) if kind in plot.titles), None),
                opened_at=plot.opened_at,
                facts=plot.facts,
            )
            yield Chapter(story, lambda: _items(self._copy.path, plot, id))


class _Plot:
    """What only the whole file tells: its titles, whose it is, and which branch is the one that goes on."""

    def __init__(self, path: Path) -> None:
        self.sessions: list[str] = []
        self.titles: dict[str, str] = {}
        self.opened_at: int | None = None
        self.facts: dict[str, Any] = {}
        self._parents: dict[str, str] = {}
        self._prompts: set[str] = set()
        self._left: dict[str, bool] = {}
        self._last = ""
        others: Counter[str] = Counter()
        spoken = aside = 0
        for raw in lines(path):
            line, problem = parsed_line(raw)
            if problem or not isinstance(line, dict):
                continue
            kind = line["type"] if isinstance(line.get("type"), str) else ""
            if kind in _SPOKEN:
                spoken, aside = spoken + 1, aside + (line.get("isSidechain") is True)
            elif kind:
                others[kind] += 1
            self._note(line, kind)
        self.is_aside = spoken > 0 and spoken == aside
        if others:
            self.facts["other_lines"] = dict(sorted(others.items()))
        self._path = self._ancestors(self._last)

    def is_left(self, uuid: str) -> bool:
        """Whether a line stands on a branch that was left: below a prompt that the last line does not descend from.
        Results of calls that ran side by side are branches in form only.
        """
        climbed: dict[str, None] = {}
        while uuid and uuid not in self._path and uuid not in self._left and uuid not in climbed:
            climbed[uuid] = None
            uuid = self._parents.get(uuid, "")
        if uuid in self._left:
            left = self._left[uuid]
        else:
            left = uuid in self._path and bool(climbed) and next(reversed(climbed)) in self._prompts
        self._left.update(dict.fromkeys(climbed, left))
        return left

    def _note(self, line: dict[str, Any], kind: str) -> None:
        session, uuid = line.get("sessionId"), line.get("uuid")
        if isinstance(session, str) and session and session not in self.sessions:
            self.sessions.append(session)
        if self.opened_at is None:
            self.opened_at = stamp(line.get("timestamp"))
        if kind in _TITLES and isinstance(line.get(_TITLES[kind]), str):
            self.titles[kind] = line[_TITLES[kind]]
        for name in ("cwd", "gitBranch", "version", "slug"):
            if isinstance(line.get(name), str):
                self.facts.setdefault(name, line[name])
        if isinstance(uuid, str):
            parent = line.get("parentUuid") or line.get("logicalParentUuid")
            self._parents.setdefault(uuid, parent if isinstance(parent, str) else "")
            if kind == "user" and not _results(line):
                self._prompts.add(uuid)
            if kind in _SPOKEN and line.get("isSidechain") is not True:
                self._last = uuid

    def _ancestors(self, uuid: str) -> set[str]:
        found: set[str] = set()
        while uuid and uuid not in found:
            found.add(uuid)
            uuid = self._parents.get(uuid, "")
        return found


def _items(path: Path, plot: _Plot, session: str) -> Iterator[Item | Unreadable]:
    counted: set[str] = set()
    if path.stat().st_size == 0:
        yield Unreadable(session, "the whole file", "it is empty")
    for raw in lines(path):
        place = f"line {raw.number}"
        line, problem = parsed_line(raw)
        if not problem and not isinstance(line, dict):
            problem = "it is not an object"
        if not problem and line.get("type") in (*_SPOKEN, "system"):
            problem = _wrong_with(line)
            if not problem:
                yield _item(line, place, plot, counted)
                continue
        if problem:
            yield Unreadable(session, place, problem, raw.raw)


def _wrong_with(line: dict[str, Any]) -> str:
    if not isinstance(line.get("uuid"), str) or not line["uuid"]:
        return "it has no uuid"
    if line["type"] == "system":
        return ""
    message = line.get("message")
    if not isinstance(message, dict) or message.get("role") not in _SPOKEN:
        return "it holds no message"
    return wrong_content(message.get("content"))


def _item(line: dict[str, Any], place: str, plot: _Plot, counted: set[str]) -> Item:
    uuid, kind, at = line["uuid"], line["type"], stamp(line.get("timestamp"))
    if kind == "system":
        text = line.get("content")
        payload = {"role": "system", "content": text if isinstance(text, str) else None, "_line": line}
        return Item(Line(uuid, place, "system", payload, "anthropic", at, dict(HIDDEN)), id=uuid)
    message = line["message"]
    content, about = (
        message.get("content"),
        {key: one for key, one in message.items() if key not in ("role", "content")},
    )
    if line.get("isCompactSummary") is True and (text := _text(content)):
        return Item(Summary(uuid, place, text, (), at), id=uuid, says=True)
    labels = _labels(line, plot)
    spoken = Line(
        origin=uuid,
        place=place,
        role="tool" if _results(line) and len(_results(line)) == len(content) else message["role"],
        payload={"role": message["role"], "content": content, "_line": {**line, "message": about}},
        format="anthropic",
        at=at,
        labels=labels,
        usage=_usage(about, counted),
        model=about["model"] if isinstance(about.get("model"), str) else None,
    )
    calls = tuple(_ids(content, "tool_use", "id"))
    answers = tuple(_ids(content, "tool_result", "tool_use_id"))
    return Item(spoken, id=uuid, calls=calls, answers=answers, says=not labels and _says(content))


def _labels(line: dict[str, Any], plot: _Plot) -> dict[str, Any]:
    if line.get("isSidechain") is True and not plot.is_aside:
        return {**HIDDEN, "sidechain": True}
    if line.get("isApiErrorMessage") is True:
        return {**HIDDEN, "error": True}
    return {**HIDDEN, "left": True} if plot.is_left(line["uuid"]) else {}


def _usage(about: dict[str, Any], counted: set[str]) -> Usage | None:
    """What one answer cost, told once though its lines all say it."""
    usage, id = about.get("usage"), about.get("id")
    if not isinstance(usage, dict) or not isinstance(id, str) or id in counted:
        return None
    counted.add(id)
    cached = number(usage.get("cache_read_input_tokens"))
    return Usage(input=number(usage.get("input_tokens")), output=number(usage.get("output_tokens")), cached=cached)


def _results(line: dict[str, Any]) -> list[Any]:
    content = line["message"].get("content") if isinstance(line.get("message"), dict) else None
    return [block for block in _blocks(content) if block.get("type") == "tool_result"]


def _ids(content: Any, kind: str, field: str) -> Iterator[str]:
    for block in _blocks(content):
        if block.get("type") == kind and isinstance(block.get(field), str):
            yield block[field]


def _says(content: Any) -> bool:
    if isinstance(content, str):
        return bool(content.strip())
    return any(block.get("type") == "text" for block in _blocks(content))


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content.strip()
    return "\n".join(str(block.get("text") or "") for block in _blocks(content) if block.get("type") == "text").strip()


def _blocks(content: Any) -> list[dict[str, Any]]:
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
