"""What was shown and is in no line of the transcript yet, as lines of Claude Code's own form."""

import hashlib
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from holdfast.adapters.framework import uuid_of
from holdfast.domain.repair import INTERRUPTED
from holdfast.formats.anthropic.claude_code import message_of
from holdfast.runtime.live.message import Message

Line = dict[str, Any]
Block = dict[str, Any]

_FACTS = ("cwd", "version", "gitBranch", "userType", "entrypoint")


def left_over(
    said: Sequence[Message],
    stored: Sequence[Line],
    session_id: str = "",
    before: Sequence[Line] = (),
) -> list[Line]:
    """The lines for what was said and is not stored; they go on from the last of those `before`.
    Calls that nobody has answered are closed by the last of them.
    """
    known = _StoredLines(stored)
    made = []
    for message in said:
        blocks = known.new_in(message)
        if blocks:
            made.append((message, blocks))
    closing = known.closing()
    if closing and said:
        made.append((said[-1], closing))
    chain = _Chain(session_id, before)
    return [chain.line(message, blocks) for message, blocks in made]


class _StoredLines:
    """What the stored lines of a query have, and what is new in what was shown."""

    def __init__(self, stored: Sequence[Line]) -> None:
        self._texts: dict[str, list[str]] = {}
        self._calls: dict[str, None] = {}
        self._answered: set[str] = set()
        self._prompted = False
        for line in stored:
            message = message_of(line)
            if message is not None:
                self._note(line, message)

    def _note(self, line: Line, message: Line) -> None:
        content = message["content"]
        results = False
        for block in _blocks(content):
            results |= block["type"] == "tool_result"
            self._note_block(_id(message), block)
        if message["role"] == "user" and not results and line.get("isMeta") is not True:
            self._prompted = True

    def _note_block(self, message_id: str, block: Block) -> None:
        kind = block["type"]
        if kind == "tool_use":
            self._calls[str(block.get("id"))] = None
        elif kind == "tool_result":
            self._answered.add(str(block.get("tool_use_id")))
        elif kind in ("text", "thinking"):
            self._texts.setdefault(message_id, []).append(str(block.get(kind)))

    def new_in(self, message: Message) -> Any:
        """What of this message is not stored: words or blocks, nothing where all is."""
        held = message_of(message.payload or {})
        if held is None:
            return None
        if message.role == "user":
            return None if self._prompted else held["content"]
        fresh = []
        for block in _blocks(held["content"]):
            if self._is_new(_id(held), block):
                fresh.append(block)
        for block in fresh:
            self._note_block("", block)
        return fresh

    def _is_new(self, message_id: str, block: Block) -> bool:
        kind = block["type"]
        if kind == "tool_use":
            # One whose arguments were cut off was never run.
            return block.get("id") not in self._calls and "partial_json" not in block
        if kind == "tool_result":
            return str(block.get("tool_use_id")) not in self._answered
        # Thoughts that were cut off before they were signed are refused by the API.
        if kind == "thinking" and not block.get("signature"):
            return False
        words = str(block.get(kind) or "")
        whole = self._texts.get(message_id, ())
        return bool(words.strip()) and not any(text.startswith(words) for text in whole)

    def closing(self) -> list[Block]:
        """Results for the calls that have none."""
        made = []
        for call in self._calls:
            if call not in self._answered:
                result = {"type": "tool_result", "tool_use_id": call}
                made.append({**result, "content": INTERRUPTED, "is_error": True})
        return made


class _Chain:
    """Lines that hang one on the other."""

    def __init__(self, session_id: str, before: Iterable[Line]) -> None:
        self._session_id = session_id
        self._parent: Any = None
        self._facts: Line = {}
        for line in before:
            if isinstance(line.get("uuid"), str):
                self._parent = line["uuid"]
            found = {name: line[name] for name in _FACTS if name in line}
            self._facts.update(found)

    def line(self, message: Message, content: Any) -> Line:
        held = dict(message_of(message.payload or {}) or {})
        is_result = bool(_blocks(content)) and content[0]["type"] == "tool_result"
        if is_result or message.role == "user":
            role, held = "user", {}
        else:
            role = "assistant"
            held.setdefault("stop_reason", None)
            held.setdefault("usage", {"input_tokens": 0, "output_tokens": 0})
        name = f"{message.id}/{role}/{is_result}"
        made = {
            **self._facts,
            "parentUuid": self._parent,
            "isSidechain": False,
            "sessionId": self._session_id,
            "type": role,
            "message": {**held, "role": role, "content": content},
            # The same line whoever makes it: it is stored once.
            "uuid": uuid_of(hashlib.sha256(name.encode()).digest()),
            "timestamp": _iso(message.at),
        }
        self._parent = made["uuid"]
        return made


def _blocks(content: Any) -> list[Block]:
    return content if isinstance(content, list) else []


def _id(message: Line) -> str:
    return str(message.get("id") or "")


def _iso(at: int) -> str:
    moment = datetime.fromtimestamp(at / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
