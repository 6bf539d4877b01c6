"""Codex's rollouts: a file of JSON lines for each session, in `~/.codex/sessions/`.

A line is `{"timestamp", "type", "payload"}`. A `response_item` is what was said, an item of the Responses API; events
are what the screen showed of it. A `compacted` line stands for all before it, but for what its new history repeats. The
oldest releases wrote bare items.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from holdfast.domain.message import Usage
from holdfast.foreign.items import Chapter, FileShelf, Item, number, response_item, role_of, wrong_item
from holdfast.foreign.jsonl import first_values, lines, parsed_line
from holdfast.foreign.moments import stamp
from holdfast.foreign.shelf import Unreadable
from holdfast.foreign.story import HIDDEN, Line, Story, Summary

COMPACTED = "[Earlier messages were compacted; the summary is not readable.]"
_ENVELOPES = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
_BARE = ("message", "reasoning", "function_call", "function_call_output", "local_shell_call")


def recognises(path: Path) -> bool:
    """Whether the first lines are those of a rollout."""
    return any(_is_codexs(line) for line in first_values(path, 20))


def _is_codexs(line: Any) -> bool:
    if not isinstance(line, dict):
        return False
    if line.get("type") in _ENVELOPES and isinstance(line.get("payload"), dict):
        return "timestamp" in line
    return _is_old_meta(line)


def _is_old_meta(line: dict[str, Any]) -> bool:
    return "type" not in line and "id" in line and "timestamp" in line and "instructions" in line


class CodexShelf(FileShelf):
    """One rollout, opened from a private copy."""

    kind = "codex"

    def chapters(self, session: str | None = None) -> Iterator[Chapter]:
        meta, left = _overview(self._copy.path)
        id = meta["id"] if isinstance(meta.get("id"), str) and meta["id"] else self._stem
        if session is None or session == id:
            story = Story(
                kind=self.kind,
                id=id,
                place=self.path,
                lines=(),
                opened_at=stamp(meta.get("timestamp")),
                instructions=_instructions(meta),
                facts={"meta": meta} if meta else {},
            )
            yield Chapter(story, lambda: _items(self._copy.path, left, id))


def _overview(path: Path) -> tuple[dict[str, Any], set[int]]:
    """The session's meta, and the numbers of the lines that were rolled back: the last turns before an event that says
    so, a turn beginning with what a user said.
    """
    meta: dict[str, Any] = {}
    left: set[int] = set()
    turns: list[list[int]] = []
    for raw in lines(path):
        line = parsed_line(raw)[0]
        if not isinstance(line, dict):
            continue
        payload: dict[str, Any] = line["payload"] if isinstance(line.get("payload"), dict) else {}
        kind = line.get("type")
        if not meta and (kind == "session_meta" or _is_old_meta(line)):
            meta = payload if kind == "session_meta" else line
        elif kind == "event_msg" and payload.get("type") == "thread_rolled_back":
            for _ in range(min(number(payload.get("num_turns")), len(turns))):
                left.update(turns.pop())
        elif kind == "response_item":
            if payload.get("type") == "message" and payload.get("role") == "user":
                turns.append([])
            if turns:
                turns[-1].append(raw.number)
    return meta, left


def _instructions(meta: dict[str, Any]) -> str | None:
    said = meta.get("base_instructions") or meta.get("instructions")
    text = said.get("text") if isinstance(said, dict) else said
    return text if isinstance(text, str) and text.strip() else None


def _items(path: Path, left: set[int], session: str) -> Iterator[Item | Unreadable]:
    """The items in order. The last one of the model's waits for the count of its tokens, which comes after it."""
    model: str | None = None
    held: Item | None = None
    said: list[tuple[str, Any]] = []
    if path.stat().st_size == 0:
        yield Unreadable(session, "the whole file", "it is empty")
    for raw in lines(path):
        place = f"line {raw.number}"
        line, problem = parsed_line(raw)
        opened: tuple[str, Any, str] = ("", None, problem) if problem else _opened(line)
        kind, payload, problem = opened
        if kind == "turn_context" and isinstance(payload.get("model"), str):
            model = payload["model"]
        elif kind == "event_msg" and held is not None and (usage := _usage(payload)):
            yield _with_usage(held, usage)
            held = None
        if not problem and kind not in ("response_item", "compacted"):
            continue
        if held is not None:
            yield held
            held = None
        if problem or (problem := wrong_item(payload) if kind == "response_item" else ""):
            yield Unreadable(session, place, problem, raw.raw)
        elif kind == "compacted":
            yield _compacted(payload, place, said, line)
            said.clear()
        else:
            item = _item(payload, place, line, model, hidden=raw.number in left)
            if payload.get("role") == "user":
                said.append((item.line.origin, payload.get("content")))
            held = item if role_of(payload) == "assistant" else None
            if held is None:
                yield item
    if held is not None:
        yield held


def _opened(line: Any) -> tuple[str, Any, str]:
    """What a line is, what it holds, and what is wrong with it."""
    if not isinstance(line, dict):
        return "", None, "it is not an object"
    kind = line.get("type")
    if kind in _BARE:
        return "response_item", line, ""
    if kind not in _ENVELOPES:
        return "other", {}, ""
    payload = line.get("payload")
    return (kind, payload, "") if isinstance(payload, dict) else ("", None, "it has no payload")


def _item(payload: dict[str, Any], place: str, line: dict[str, Any], model: str | None, *, hidden: bool) -> Item:
    role = role_of(payload)
    spoken = Line(
        origin=place,
        place=place,
        role=role,
        payload=payload,
        format="openai.responses",
        at=stamp(line.get("timestamp")),
        labels={**HIDDEN, "left": True} if hidden else {},
        model=model if role == "assistant" else None,
    )
    item = response_item(payload, spoken)
    return msgspec.structs.replace(item, says=False) if hidden else item


def _compacted(payload: dict[str, Any], place: str, said: list[tuple[str, Any]], line: dict[str, Any]) -> Item:
    text, history = payload.get("message"), payload.get("replacement_history")
    again = [one.get("content") for one in history if isinstance(one, dict)] if isinstance(history, list) else []
    keeps = tuple(origin for origin, content in said if content in again)
    words = text if isinstance(text, str) and text.strip() else COMPACTED
    return Item(Summary(place, place, words, keeps, stamp(line.get("timestamp"))), says=True)


def _usage(payload: dict[str, Any]) -> Usage | None:
    info = payload.get("info") if payload.get("type") == "token_count" else None
    last = info.get("last_token_usage") if isinstance(info, dict) else None
    if not isinstance(last, dict):
        return None
    return Usage(
        input=number(last.get("input_tokens")),
        output=number(last.get("output_tokens")),
        cached=number(last.get("cached_input_tokens")),
        reasoning=number(last.get("reasoning_output_tokens")),
    )


def _with_usage(item: Item, usage: Usage) -> Item:
    assert isinstance(item.line, Line)
    return msgspec.structs.replace(item, line=msgspec.structs.replace(item.line, usage=usage))
