"""Codex's rollouts: files of JSON lines in `~/.codex/sessions/`, one for each session, or more when
turns of it were taken back.

A line is `{"timestamp", "type", "payload"}`. A `response_item` is what was said, an item of the
Responses API; events are what the screen showed of it. A `compacted` line stands for all before it,
but for what its new history repeats; that history is what the model sees from then on, in its
order. The past of a fork lies in the files of its parent. The oldest releases wrote bare items.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.domain.message import Usage
from holdfast.importers.codex.files import (
    BARE,
    KNOWN,
    Rollout,
    base_of,
    chain_of,
    files_of,
    is_old_meta,
    meta_of,
    texts_of,
)
from holdfast.importers.foreign_session import (
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
    response_item,
    role_of,
    wrong_item,
)
from holdfast.importers.jsonl import RawLine, first_values, lines, parsed_line
from holdfast.importers.private_copy import PrivateCopy
from holdfast.importers.reader import UnreadableRecord
from holdfast.importers.values import (
    JsonObject,
    count_or_zero,
    milliseconds,
    name_or_none,
    object_or_empty,
)

COMPACTED = "[Earlier messages were compacted; the summary is not readable.]"
KIN_MAX = 1000
_WORDS = (b'"payload"', b'"instructions"')
# What Codex keeps beside an item and takes off before it sends it.
PRIVATE = "internal_chat_message_metadata_passthrough"


def recognises(path: Path) -> bool:
    """Whether a line of the file's beginning is one of a rollout."""
    return any(_is_codexs(line) for line in first_values(path, _WORDS))


def _is_codexs(line: Any) -> bool:
    if not isinstance(line, dict):
        return False
    if line.get("type") in KNOWN and isinstance(line.get("payload"), dict):
        return "timestamp" in line
    return is_old_meta(line)


class _Part:
    """One file of a thread, opened from a private copy. Its lines are named after it, but for those
    of the first.
    """

    def __init__(self, path: Path, cut: int | None, *, is_first: bool) -> None:
        # Only a database has a log beside it.
        self.copy = PrivateCopy(path, beside=())
        self.rollout = Rollout(self.copy.path, cut=cut)
        self._name = "" if is_first else path.stem.rpartition("_")[2]

    def place(self, number: int) -> str:
        return f"{self._name}:line {number}" if self._name else f"line {number}"


class CodexReader(FileReader):
    """One thread, opened from private copies. Its sessions come with those of its parents."""

    kind = "codex"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._parts: list[_Part] = []
        self._kin: list[CodexReader] | None = None

    def item_sessions(self, session: str | None = None) -> Iterator[ItemSession]:
        parts = self._opened()
        meta = parts[0].rollout.meta
        id = self._id()
        if session is None or session == id:
            parent, origin = self._parent()
            found = ForeignSession(
                kind=self.kind,
                id=id,
                place=self.path,
                lines=(),
                title=parts[0].rollout.title,
                opened_at=milliseconds(meta.get("timestamp")),
                instructions=_instructions(meta),
                parent=parent,
                lineage="branch" if parent is not None else None,
                parent_origin=origin,
                facts={"meta": meta} if meta else {},
            )
            yield ItemSession(found, lambda: _items(parts, id))

    def sessions(self, session: str | None = None) -> Iterator[ForeignSession]:
        if session in (None, self._id()):
            for parent in self._parents():
                yield from parent.own_sessions()
        yield from self.own_sessions(session)

    def own_sessions(self, session: str | None = None) -> Iterator[ForeignSession]:
        """Its session, without those of its parents."""
        return super().sessions(session)

    def unreadable(self) -> list[UnreadableRecord]:
        found = []
        for parent in self._kin or ():
            found += parent.unreadable()
        return found + super().unreadable()

    def close(self) -> None:
        for part in self._parts:
            part.copy.close()
        for parent in self._kin or ():
            parent.close()
        super().close()

    def last_before(self, ordinal: int) -> tuple[str, bool] | None:
        """The origin of the last line before an ordinal, and whether it is one that only a
        session's end can name.
        """
        for part in reversed(self._opened()):
            found = part.rollout.last_before(ordinal)
            if found is not None:
                return part.place(found[0]), found[1]
        return None

    def _id(self) -> str:
        return name_or_none(self._opened()[0].rollout.meta.get("id")) or self._stem

    def _opened(self) -> list[_Part]:
        if not self._parts:
            for at, (path, cut) in enumerate(chain_of(Path(self.path))):
                self._parts.append(_Part(path, cut, is_first=at == 0))
            for part in self._parts:
                self.unknown.update(part.rollout.unknown)
        return self._parts

    def _parents(self) -> "list[CodexReader]":
        """The threads that this one's past lies in, the oldest first, as far as they are there."""
        if self._kin is None:
            self._kin = []
            met = {self._id()}
            base = base_of(self._opened()[0].rollout.meta)
            # A crafted file may name itself, or a chain of any length.
            while base is not None and base[0] not in met and len(met) < KIN_MAX:
                files = files_of(base[0], Path(self.path))
                if not files:
                    break
                met.add(base[0])
                self._kin.insert(0, CodexReader(files[-1]))
                base = base_of(meta_of(files[0]))
        return self._kin

    def _parent(self) -> tuple[str | None, str | None]:
        """The thread that this one goes on from, and the last line of it that both share."""
        base = base_of(self._opened()[0].rollout.meta)
        if base is None or base[0] == self._id():
            return None, None
        kin = self._parents()
        if not kin or kin[-1]._id() != base[0]:
            return base[0], None
        for parent in reversed(kin):
            found = parent.last_before(base[1])
            if found is not None:
                origin, only_as_end = found
                # A session without an origin to share up to is shared to its end.
                return parent._id(), None if only_as_end else origin
        return None, None


def _instructions(meta: JsonObject) -> str | None:
    said = meta.get("base_instructions") or meta.get("instructions")
    text = said.get("text") if isinstance(said, dict) else said
    if isinstance(text, str) and text.strip():
        return text
    return None


def _items(parts: list[_Part], session: str) -> Iterator[Found]:
    said = _SaidSinceCompaction()
    for part in parts:
        # Otherwise an empty file would pass for a healthy session.
        if part.copy.path.stat().st_size == 0:
            yield UnreadableRecord(session, "the whole file", "it is empty")
        yield from _items_of(part, session, said)


class _Line(msgspec.Struct):
    """A line of a rollout: what it is, what it holds, or why it can't be read."""

    raw: RawLine
    place: str
    kind: str
    payload: Any
    problem: str
    at: int | None
    is_left: bool


def _lines_of(part: _Part) -> Iterator[_Line]:
    for raw in lines(part.copy.path):
        line, problem = parsed_line(raw)
        kind = ""
        payload = None
        if not problem:
            kind, payload, problem = _opened(line)
        if kind == "response_item":
            problem = wrong_item(payload)
        at = milliseconds(object_or_empty(line).get("timestamp"))
        is_left = raw.number in part.rollout.left
        yield _Line(raw, part.place(raw.number), kind, payload, problem, at, is_left)


def _items_of(
    part: _Part, session: str, said: "_SaidSinceCompaction"
) -> Iterator[Found]:
    """The items in order. The last one of the model's waits for the count of its tokens, which
    comes after it.
    """
    model: str | None = None
    held: Item | None = None
    for line in _lines_of(part):
        if line.kind == "turn_context" and isinstance(line.payload.get("model"), str):
            model = line.payload["model"]
        elif line.kind == "event_msg" and held is not None:
            usage = _usage(line.payload)
            if usage is not None:
                yield _with_usage(held, usage)
                held = None
        if not line.problem and line.kind not in ("response_item", "compacted"):
            continue
        if held is not None:
            yield held
            held = None
        if line.problem:
            yield UnreadableRecord(session, line.place, line.problem, line.raw.raw)
        elif line.kind == "response_item":
            item = _item(line.payload, line.place, line.at, model, is_left=line.is_left)
            said.add(item, line.payload)
            # Its usage follows in an event, so it is held until that is seen or something else is
            # said.
            if role_of(line.payload) == "assistant":
                held = item
            else:
                yield item
        elif not line.is_left:
            yield from said.compacted(line.payload, line.place, line.at)
    if held is not None:
        yield held


def _opened(line: Any) -> tuple[str, Any, str]:
    """What a line is, what it holds, and what is wrong with it."""
    if not isinstance(line, dict):
        return "", None, "it is not an object"
    kind = line.get("type")
    if kind in BARE:
        return "response_item", line, ""
    if kind not in KNOWN:
        # Of a release to come: `Rollout` counts it among what nobody here knows.
        return "other", {}, ""
    payload = line.get("payload")
    if not isinstance(payload, dict):
        return "", None, "it has no payload"
    return kind, payload, ""


def _item(
    payload: JsonObject,
    place: str,
    at: int | None,
    model: str | None = None,
    *,
    is_left: bool = False,
) -> Item:
    role = role_of(payload)
    return response_item(
        ForeignMessage(
            origin=place,
            place=place,
            role=role,
            payload=_public(payload),
            format="openai.responses",
            at=at,
            labels=LEFT if is_left else {},
            model=model if role == "assistant" else None,
        )
    )


def _public(payload: JsonObject) -> JsonObject:
    """The item as Codex sends it, with what it keeps for itself under a private name."""
    if PRIVATE not in payload:
        return payload
    public = dict(payload)
    public[f"_{PRIVATE}"] = public.pop(PRIVATE)
    return public


class _SaidSinceCompaction:
    """What was said since the last compaction, for the next one: items that its new history repeats
    are not new.
    """

    def __init__(self) -> None:
        self._by_id: dict[str, str] = {}
        self._by_content: dict[str, str] = {}

    def add(self, item: Item, payload: JsonObject) -> None:
        if not item.line.labels:  # type: ignore[union-attr]
            if isinstance(payload.get("id"), str):
                self._by_id[payload["id"]] = item.line.origin
            # A prompt has no id of its own: its words have to do.
            elif payload.get("role") == "user":
                self._by_content[_content(payload)] = item.line.origin

    def compacted(
        self, payload: JsonObject, place: str, at: int | None
    ) -> Iterator[Item]:
        """What a compaction's history holds that is new, and then its summary, which says in which
        order the model sees all of it.
        """
        message = payload.get("message")
        text = COMPACTED
        if isinstance(message, str) and message.strip():
            text = message
        summary = _content({"content": text})
        shows: list[str] = []
        new: list[tuple[Item, JsonObject]] = []
        for place_in_history, one in _history(payload):
            origin = self._known(one)
            if origin is None and place not in shows and _content(one) == summary:
                # The summary itself stands in the history, where the model sees it.
                origin = place
            elif origin is None:
                item = _item(one, f"{place}, {place_in_history}", at)
                origin = item.line.origin
                new.append((item, one))
                yield item
            # A history may repeat an item; the model's order has each once.
            if origin not in shows:
                shows.append(origin)
        # What this history dropped can't be repeated by the next one.
        self._forget(shows)
        for item, one in new:
            self.add(item, one)
        if place not in shows:
            shows.append(place)
        keeps = tuple(origin for origin in shows if origin != place)
        order = tuple(shows) if keeps else ()
        is_shown = text == message
        line = Summary(place, place, text, keeps, at, order, is_shown)
        yield Item(line, says=True)

    def _known(self, item: JsonObject) -> str | None:
        id = item.get("id")
        if isinstance(id, str) and id in self._by_id:
            return self._by_id[id]
        if item.get("role") == "user":
            return self._by_content.get(_content(item))
        return None

    def _forget(self, shows: list[str]) -> None:
        """What is not repeated can't be repeated later."""
        stays = set(shows)
        for known in (self._by_id, self._by_content):
            for what, origin in list(known.items()):
                if origin not in stays:
                    del known[what]


def _history(payload: JsonObject) -> Iterator[tuple[int, JsonObject]]:
    """The items of a compaction's new history that can be read, by their places from 1 on."""
    history = payload.get("replacement_history")
    if isinstance(history, list):
        for place, item in enumerate(history, 1):
            if not wrong_item(item):
                yield place, item


def _content(item: JsonObject) -> str:
    """What an item says, to compare: words and a single part with these words are the same."""
    texts = texts_of(item)
    if all(isinstance(text, str) for text in texts):
        return repr(texts)
    return repr(item.get("content"))


def _usage(payload: JsonObject) -> Usage | None:
    if payload.get("type") != "token_count":
        return None
    last = object_or_empty(payload.get("info")).get("last_token_usage")
    if not isinstance(last, dict):
        return None
    return Usage(
        input=count_or_zero(last.get("input_tokens")),
        output=count_or_zero(last.get("output_tokens")),
        cached=count_or_zero(last.get("cached_input_tokens")),
        reasoning=count_or_zero(last.get("reasoning_output_tokens")),
    )


def _with_usage(item: Item, usage: Usage) -> Item:
    assert isinstance(item.line, ForeignMessage)
    line = replace(item.line, usage=usage)
    return replace(item, line=line)
