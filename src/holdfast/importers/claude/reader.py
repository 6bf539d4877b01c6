"""Claude Code's sessions: a file of JSON lines each, in `~/.claude/projects/<project>/`.

A line of type `user` or `assistant` holds a message of the Messages API beside what Claude Code
knows of it; one answer is several lines, a block each. A prompt that was typed while Claude worked
is an attachment. Which lines the model sees is told in `claude_plot`. What a subagent said is a
file of its own, in `<session>/subagents/`, or a side chain; outputs too large for a line lie in
`<session>/tool-results/`. After a compaction, a user's line marked as its summary stands for all
before it but for the lines that its boundary names.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from holdfast.domain.message import Usage
from holdfast.domain.origin import is_drawn
from holdfast.importers.claude.branches import (
    NOTES,
    SPOKEN,
    TITLES,
    Branches,
    blocks_of,
    queued_prompt,
    results_in,
)
from holdfast.importers.foreign_session import HIDDEN, ForeignMessage, ForeignSession, Summary
from holdfast.importers.item_store import FileReader, Item, ItemSession, number, wrong_content
from holdfast.importers.jsonl import LINE_MAX, first_values, lines, parsed, parsed_line
from holdfast.importers.private_copy import read_start
from holdfast.importers.reader import UnreadableRecord
from holdfast.importers.timestamps import stamp

_WORDS = (b'"parentUuid"', b'"leafUuid"', b'"sessionId"')
_AGENT = "agent-"
_OUTPUT = re.compile(r"[/\\]tool-results[/\\]([\w-][\w.-]{0,200})")


def recognises(path: Path) -> bool:
    """Whether a line of the file's beginning is one of Claude Code's: a message, or a note of a
    session.
    """
    return any(_is_claudes(line) for line in first_values(path, _WORDS))


def _is_claudes(line: Any) -> bool:
    kind = line.get("type") if isinstance(line, dict) else None
    if not isinstance(kind, str):
        return False
    if kind in SPOKEN:
        return isinstance(line.get("message"), dict) and "parentUuid" in line
    return (kind == "summary" and "leafUuid" in line) or (
        kind in NOTES and is_drawn("claude", line.get("sessionId"))
    )


class ClaudeReader(FileReader):
    """One session's file, opened from a private copy."""

    kind = "claude"

    def chapters(self, session: str | None = None) -> Iterator[ItemSession]:
        plot = Branches(self._copy.path)
        parent, id = self._named(plot)
        self.unknown = plot.unknown
        if session in (None, id) or (
            parent is not None and session == id.removeprefix(f"{parent}/")
        ):
            story = ForeignSession(
                kind=self.kind,
                id=id,
                place=self.path,
                lines=(),
                title=next(
                    (plot.titles[kind] for kind in reversed(TITLES) if kind in plot.titles), None
                ),
                opened_at=plot.opened_at,
                parent=parent,
                lineage="delegate" if parent is not None else None,
                facts=plot.facts | _about_agent(Path(self.path)),
            )
            outputs = _Outputs(Path(self.path))
            yield ItemSession(
                story, lambda: _in_answers(_items(self._copy.path, plot, id, outputs), plot)
            )

    def _named(self, plot: Branches) -> tuple[str | None, str]:
        """The session that gave this one its task, and the id of this one. A subagent's id is drawn
        for its session: both together mean the same wherever the file lies.
        """
        first = plot.sessions[0] if plot.sessions else self._stem
        if not plot.is_aside or first == self._stem:
            return None, self._stem if self._stem in plot.sessions else first
        if plot.agent or self._stem.startswith(_AGENT):
            return first, f"{first}/{_AGENT}{plot.agent or self._stem.removeprefix(_AGENT)}"
        return first, self._stem


class _Outputs:
    """The outputs that were too large for a line, from the folder beside the file. What a line says
    of their place is somebody's word: only the name is taken of it.
    """

    def __init__(self, path: Path) -> None:
        beside = path.parent.parent if path.parent.name == "subagents" else path.with_suffix("")
        self._folder = beside / "tool-results"

    def named_in(self, line: dict[str, Any]) -> tuple[dict[str, str], list[tuple[str, str]]]:
        """The outputs that a line's results name, by name; and those that can't be read, with the
        reason.
        """
        found: dict[str, str] = {}
        lost: list[tuple[str, str]] = []
        texts = [str(block.get("content")) for block in results_in(line)]
        about = line.get("toolUseResult")
        if isinstance(about, dict):
            texts.append(str(about.get("persistedOutputPath") or ""))
        for name in dict.fromkeys(name for text in texts for name in _OUTPUT.findall(text)):
            path = self._folder / name
            if not path.is_file() or path.is_symlink():
                continue
            try:
                raw = read_start(path, LINE_MAX + 1)
            except OSError as error:
                lost.append((f"tool-results/{name}", error.strerror or str(error)))
                continue
            if len(raw) > LINE_MAX:
                lost.append((f"tool-results/{name}", f"it is more than {LINE_MAX} bytes long"))
            else:
                found[f"tool-results/{name}"] = raw.decode("utf-8", "backslashreplace")
        return found, lost


def _about_agent(path: Path) -> dict[str, Any]:
    """What Claude Code notes of a subagent beside its file."""
    about = path.with_suffix(".meta.json")
    try:
        raw = read_start(about, 1 << 16) if about.is_file() and not about.is_symlink() else b""
    except OSError:
        return {}
    value, problem = parsed(raw) if raw else (None, "there is none")
    return {"agent": value} if not problem and isinstance(value, dict) else {}


def _in_answers(
    items: Iterable[Item | UnreadableRecord], plot: Branches
) -> Iterator[Item | UnreadableRecord]:
    """The items, an answer's together: a call that ran while the model was still speaking was
    stored with its result in the middle of the answer.
    """
    held: list[Item | UnreadableRecord] = []
    speaking = ""
    for item in items:
        line = item.line if isinstance(item, Item) else None
        answer = (
            _answer(line) if isinstance(line, ForeignMessage) and line.role == "assistant" else None
        )
        if speaking and isinstance(line, ForeignMessage) and line.role == "tool":
            held.append(item)
            continue
        if held and answer != speaking:
            yield from held
            held = []
        yield item
        is_last = not isinstance(answer, str) or plot.last_of_answer.get(answer) == item.id  # type: ignore[union-attr]
        if is_last:
            yield from held
            held = []
        speaking = "" if is_last else str(answer)
    yield from held


def _answer(line: ForeignMessage) -> Any:
    """The id of the answer that a line is a part of."""
    return line.payload["_line"]["message"].get("id")


def _items(
    path: Path, plot: Branches, session: str, outputs: _Outputs
) -> Iterator[Item | UnreadableRecord]:
    counted: set[str] = set()
    if path.stat().st_size == 0:
        yield UnreadableRecord(session, "the whole file", "it is empty")
    for raw in lines(path):
        place = f"line {raw.number}"
        line, problem = parsed_line(raw)
        if not problem and not isinstance(line, dict):
            problem = "it is not an object"
        if not problem and (
            line.get("type") in (*SPOKEN, "system") or queued_prompt(line) is not None
        ):
            problem = _wrong_with(line)
            if not problem:
                carried, lost = outputs.named_in(line)
                yield from (
                    UnreadableRecord(session, f"{place}, {name}", why) for name, why in lost
                )
                yield _item(line, place, plot, counted, carried)
                continue
        if problem:
            yield UnreadableRecord(session, place, problem, raw.raw)


def _wrong_with(line: dict[str, Any]) -> str:
    if not isinstance(line.get("uuid"), str) or not line["uuid"]:
        return "it has no uuid"
    if line["type"] == "system":
        return ""
    if line["type"] == "attachment":
        return wrong_content(queued_prompt(line))
    message = line.get("message")
    if not isinstance(message, dict) or message.get("role") not in SPOKEN:
        return "it holds no message"
    return wrong_content(message.get("content"))


def _item(
    line: dict[str, Any], place: str, plot: Branches, counted: set[str], carried: dict[str, str]
) -> Item:
    uuid, kind, at = line["uuid"], line["type"], stamp(line.get("timestamp"))
    if kind == "system":
        text = line.get("content")
        payload = {
            "role": "system",
            "content": text if isinstance(text, str) else None,
            "_line": line,
        }
        return Item(
            ForeignMessage(uuid, place, "system", payload, "anthropic", at, dict(HIDDEN)), id=uuid
        )
    labels = _labels(line, plot)
    if kind == "attachment":
        prompt = {"role": "user", "content": queued_prompt(line), "_line": line}
        return Item(
            ForeignMessage(uuid, place, "user", prompt, "anthropic", at, labels),
            id=uuid,
            says=not labels,
        )
    message = line["message"]
    content = message.get("content")
    about = {key: one for key, one in message.items() if key not in ("role", "content")}
    if line.get("isCompactSummary") is True and (text := _text(content)):
        kept = plot.keeps.get(uuid, ())
        return Item(Summary(uuid, place, text, kept, at, is_shown=True), id=uuid, says=True)
    payload = {"role": message["role"], "content": content, "_line": {**line, "message": about}}
    spoken = ForeignMessage(
        origin=uuid,
        place=place,
        role="tool"
        if results_in(line) and len(results_in(line)) == len(content)
        else message["role"],
        payload=payload | ({"_outputs": carried} if carried else {}),
        format="anthropic",
        at=at,
        labels=labels,
        usage=_usage(about, counted),
        model=about["model"] if isinstance(about.get("model"), str) else None,
    )
    calls = tuple(_ids(content, "tool_use", "id"))
    answers = tuple(_ids(content, "tool_result", "tool_use_id"))
    return Item(spoken, id=uuid, calls=calls, answers=answers, says=not labels and _says(content))


def _labels(line: dict[str, Any], plot: Branches) -> dict[str, Any]:
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
    return Usage(
        input=number(usage.get("input_tokens")),
        output=number(usage.get("output_tokens")),
        cached=cached,
    )


def _ids(content: Any, kind: str, field: str) -> Iterator[str]:
    for block in blocks_of(content):
        if block.get("type") == kind and isinstance(block.get(field), str):
            yield block[field]


def _says(content: Any) -> bool:
    if isinstance(content, str):
        return bool(content.strip())
    return any(block.get("type") == "text" for block in blocks_of(content))


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content.strip()
    texts = [
        str(block.get("text") or "") for block in blocks_of(content) if block.get("type") == "text"
    ]
    return "\n".join(texts).strip()
