"""Claude Code's sessions: a file of JSON lines each, in `~/.claude/projects/<project>/`.

A line of type `user` or `assistant` holds a message of the Messages API beside what Claude Code
knows of it; one answer is several lines, a block each. A prompt that was typed while Claude worked
is an attachment. Which lines the model sees is decided in `branches`. What a subagent said is a
file of its own, in `<session>/subagents/`, or a side chain; outputs too large for a line lie in
`<session>/tool-results/`. After a compaction, a user's line marked as its summary stands for all
before it but for the lines that its boundary names.
"""

import re
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.domain.message import Usage
from holdfast.domain.origin import is_drawn
from holdfast.importers.claude.branches import (
    NOTES,
    SPOKEN,
    Branches,
    blocks_of,
    queued_prompt,
    results_in,
)
from holdfast.importers.foreign_session import (
    HIDDEN,
    ForeignMessage,
    ForeignSession,
    Summary,
)
from holdfast.importers.item_store import (
    LEFT,
    FileReader,
    Found,
    Item,
    ItemSession,
    wrong_content,
)
from holdfast.importers.jsonl import LINE_MAX, first_values, lines, parsed, parsed_line
from holdfast.importers.private_copy import read_start
from holdfast.importers.reader import UnreadableRecord
from holdfast.importers.values import (
    JsonObject,
    count_or_zero,
    milliseconds,
    object_or_empty,
    text_or_none,
)

_WORDS = (b'"parentUuid"', b'"leafUuid"', b'"sessionId"')
_AGENT = "agent-"
# A name that begins with a dot could lead out of the folder.
_OUTPUT = re.compile(r"[/\\]tool-results[/\\]([\w-][\w.-]{0,200})")


def recognises(path: Path) -> bool:
    """Whether a line of the file's beginning is one of Claude Code's: a message, or a note of a
    session.
    """
    return any(_is_claudes(line) for line in first_values(path, _WORDS))


def _is_claudes(line: Any) -> bool:
    kind = object_or_empty(line).get("type")
    if not isinstance(kind, str):
        return False
    if kind in SPOKEN:
        return isinstance(line.get("message"), dict) and "parentUuid" in line
    if kind == "summary" and "leafUuid" in line:
        return True
    return kind in NOTES and is_drawn("claude", line.get("sessionId"))


class ClaudeReader(FileReader):
    """One session's file, opened from a private copy."""

    kind = "claude"

    def item_sessions(self, session: str | None = None) -> Iterator[ItemSession]:
        path = Path(self.path)
        branches = Branches(self._copy.path)
        parent, id = self._named(branches)
        self.unknown = branches.unknown
        # A subagent's session may be asked for by its own name alone.
        names = (None, id, id.removeprefix(f"{parent}/"))
        if session not in names:
            return
        found = ForeignSession(
            kind=self.kind,
            id=id,
            place=self.path,
            lines=(),
            title=branches.title(),
            opened_at=branches.opened_at,
            parent=parent,
            lineage="delegate" if parent is not None else None,
            facts=branches.facts | _about_agent(path),
        )
        items = partial(_items, self._copy.path, branches, id, _Outputs(path))
        yield ItemSession(found, lambda: _in_answers(items(), branches))

    def _named(self, branches: Branches) -> tuple[str | None, str]:
        """The session that gave this one its task, and the id of this one. A subagent's id is drawn
        for its session: both together mean the same wherever the file lies.
        """
        stem = self._stem
        first = branches.sessions[0] if branches.sessions else stem
        if not branches.is_aside or first == stem:
            # A session that was continued begins with lines of the one before.
            return None, stem if stem in branches.sessions else first
        if branches.agent or stem.startswith(_AGENT):
            agent = branches.agent or stem.removeprefix(_AGENT)
            return first, f"{first}/{_AGENT}{agent}"
        return first, stem


class _Outputs:
    """The outputs that were too large for a line, from the folder beside the file. What a line says
    of their place is somebody's word: only the name is taken of it.
    """

    def __init__(self, path: Path) -> None:
        beside = path.with_suffix("")
        if path.parent.name == "subagents":
            beside = path.parent.parent
        self._folder = beside / "tool-results"

    def named_in(
        self, line: JsonObject
    ) -> tuple[dict[str, str], list[tuple[str, str]]]:
        """The outputs that a line's results name, by name; and those that can't be read, with the
        reason.
        """
        found: dict[str, str] = {}
        lost: list[tuple[str, str]] = []
        texts = [str(block.get("content")) for block in results_in(line)]
        about = line.get("toolUseResult")
        if isinstance(about, dict):
            texts.append(str(about.get("persistedOutputPath") or ""))
        for name in dict.fromkeys(_OUTPUT.findall("\n".join(texts))):
            path = self._folder / name
            place = f"tool-results/{name}"
            # What a link points to is somebody else's.
            if not path.is_file() or path.is_symlink():
                continue
            try:
                raw = read_start(path, LINE_MAX + 1)
            except OSError as error:
                lost.append((place, error.strerror or str(error)))
                continue
            if len(raw) > LINE_MAX:
                lost.append((place, f"it is more than {LINE_MAX} bytes long"))
            else:
                found[place] = raw.decode("utf-8", "backslashreplace")
        return found, lost


def _about_agent(path: Path) -> JsonObject:
    """What Claude Code notes of a subagent beside its file."""
    about = path.with_suffix(".meta.json")
    try:
        if not about.is_file() or about.is_symlink():
            return {}
        raw = read_start(about, 1 << 16)
    except OSError:
        return {}
    value, _ = parsed(raw)
    return {"agent": value} if isinstance(value, dict) else {}


def _in_answers(items: Iterable[Found], branches: Branches) -> Iterator[Found]:
    """The items, an answer's together: a call that ran while the model was still speaking was
    stored with its result in the middle of the answer.
    """
    held: list[Found] = []
    speaking = ""
    for item in items:
        message = _message_of(item)
        # A result that came before the answer was over waits for its end.
        if speaking and message is not None and message.role == "tool":
            held.append(item)
            continue
        answer = None
        is_last = True
        if message is not None and message.role == "assistant":
            answer = _answer(message)
            is_last = (
                answer is None or branches.last_of_answer.get(answer) == message.origin
            )
        if held and answer != speaking:
            yield from held
            held = []
        yield item
        if answer is None or is_last:
            yield from held
            held = []
            speaking = ""
        else:
            speaking = answer
    yield from held


def _message_of(item: Found) -> ForeignMessage | None:
    if isinstance(item, Item) and isinstance(item.line, ForeignMessage):
        return item.line
    return None


def _answer(line: ForeignMessage) -> str | None:
    """The id of the answer that a line is a part of."""
    return text_or_none(line.payload["_line"]["message"].get("id"))


def _items(
    path: Path, branches: Branches, session: str, outputs: _Outputs
) -> Iterator[Found]:
    counted: set[str] = set()
    # Otherwise an empty file would pass for a healthy session.
    if path.stat().st_size == 0:
        yield UnreadableRecord(session, "the whole file", "it is empty")
    for raw in lines(path):
        place = f"line {raw.number}"
        line, problem = parsed_line(raw)
        if not problem and not isinstance(line, dict):
            problem = "it is not an object"
        if not problem:
            kind = line.get("type")
            # Notes of Claude Code's own are counted by `Branches`, and are no lines.
            if kind not in (*SPOKEN, "system") and queued_prompt(line) is None:
                continue
            problem = _wrong_with(line)
        if problem:
            yield UnreadableRecord(session, place, problem, raw.raw)
            continue
        carried, lost = outputs.named_in(line)
        for name, why in lost:
            yield UnreadableRecord(session, f"{place}, {name}", why)
        yield _item(line, place, branches, counted, carried)


def _wrong_with(line: JsonObject) -> str:
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
    line: JsonObject,
    place: str,
    branches: Branches,
    counted: set[str],
    carried: dict[str, str],
) -> Item:
    uuid = line["uuid"]
    kind = line["type"]
    at = milliseconds(line.get("timestamp"))
    if kind == "system":
        payload = {
            "role": "system",
            "content": text_or_none(line.get("content")),
            "_line": line,
        }
        system = ForeignMessage(
            uuid, place, "system", payload, "anthropic", at, dict(HIDDEN)
        )
        return Item(system, id=uuid)
    labels = _labels(line, branches)
    if kind == "attachment":
        payload = {"role": "user", "content": queued_prompt(line), "_line": line}
        prompt = ForeignMessage(uuid, place, "user", payload, "anthropic", at, labels)
        return Item(prompt, id=uuid, says=not labels)
    content = line["message"].get("content")
    # Without words it can't stand for anything, and is a message like any other.
    if line.get("isCompactSummary") is True and (text := _text(content)):
        kept = branches.keeps.get(uuid, ())
        return Item(
            Summary(uuid, place, text, kept, at, is_shown=True), id=uuid, says=True
        )
    calls = tuple(_ids(content, "tool_use", "id"))
    answers = tuple(_ids(content, "tool_result", "tool_use_id"))
    message = _message(line, place, at, labels, counted, carried)
    return Item(
        message,
        id=uuid,
        calls=calls,
        answers=answers,
        says=not labels and _says(content),
    )


def _message(
    line: JsonObject,
    place: str,
    at: int | None,
    labels: JsonObject,
    counted: set[str],
    carried: dict[str, str],
) -> ForeignMessage:
    about = dict(line["message"])
    role = about.pop("role")
    content = about.pop("content", None)
    payload = {"role": role, "content": content, "_line": {**line, "message": about}}
    if carried:
        payload["_outputs"] = carried
    results = results_in(line)
    # A line of nothing but results is the tools' answer, though the API has the user give it.
    if results and len(results) == len(content):
        role = "tool"
    return ForeignMessage(
        origin=line["uuid"],
        place=place,
        role=role,
        payload=payload,
        format="anthropic",
        at=at,
        labels=labels,
        usage=_usage(about, counted),
        model=text_or_none(about.get("model")),
    )


def _labels(line: JsonObject, branches: Branches) -> JsonObject:
    # In the file of a subagent every line is on the side, and is the session.
    if line.get("isSidechain") is True and not branches.is_aside:
        return {**HIDDEN, "sidechain": True}
    if line.get("isApiErrorMessage") is True:
        return {**HIDDEN, "error": True}
    if branches.is_left(line["uuid"]):
        return LEFT
    return {}


def _usage(about: JsonObject, counted: set[str]) -> Usage | None:
    """What one answer cost, told once though its lines all say it."""
    usage = about.get("usage")
    id = about.get("id")
    # Every line of an answer tells the cost of all of it.
    if not isinstance(usage, dict) or not isinstance(id, str) or id in counted:
        return None
    counted.add(id)
    return Usage(
        input=count_or_zero(usage.get("input_tokens")),
        output=count_or_zero(usage.get("output_tokens")),
        cached=count_or_zero(usage.get("cache_read_input_tokens")),
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
    blocks = [block for block in blocks_of(content) if block.get("type") == "text"]
    texts = [str(block.get("text") or "") for block in blocks]
    return "\n".join(texts).strip()
