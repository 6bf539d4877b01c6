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
)
from holdfast.importers.foreign_session import HIDDEN, ForeignMessage, ForeignSession, Summary
from holdfast.importers.item_store import (
    FileReader,
    Item,
    ItemSession,
    number,
    response_item,
    role_of,
    wrong_item,
)
from holdfast.importers.jsonl import first_values, lines, parsed_line
from holdfast.importers.private_copy import PrivateCopy
from holdfast.importers.reader import UnreadableRecord
from holdfast.importers.timestamps import stamp

COMPACTED = "[Earlier messages were compacted; the summary is not readable.]"
KIN_MAX = 1000
_WORDS = (b'"payload"', b'"instructions"')
PRIVATE = "internal_chat_message_metadata_passthrough"
"""What Codex keeps beside an item and takes off before it sends it."""


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
        self.copy = PrivateCopy(path, beside=())
        self.rollout = Rollout(self.copy.path, cut=cut)
        self._name = "" if is_first else path.stem.rpartition("_")[2]

    def place(self, number: int) -> str:
        return f"{self._name}:line {number}" if self._name else f"line {number}"


class CodexReader(FileReader):
    """One thread, opened from private copies. Told as stories, its parents come with it."""

    kind = "codex"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._parts: list[_Part] = []
        self._kin: list[CodexReader] | None = None

    def chapters(self, session: str | None = None) -> Iterator[ItemSession]:
        parts = self._opened()
        meta = parts[0].rollout.meta
        id = self._id()
        if session is None or session == id:
            parent, origin = self._parent()
            story = ForeignSession(
                kind=self.kind,
                id=id,
                place=self.path,
                lines=(),
                opened_at=stamp(meta.get("timestamp")),
                instructions=_instructions(meta),
                parent=parent,
                lineage="branch" if parent is not None else None,
                parent_origin=origin,
                facts={"meta": meta} if meta else {},
            )
            yield ItemSession(story, lambda: _items(parts, id))

    def sessions(self, session: str | None = None) -> Iterator[ForeignSession]:
        if session in (None, self._id()):
            for shelf in self._parents():
                yield from ItemStories(shelf)
        yield from super().sessions(session)

    def unreadable(self) -> list[UnreadableRecord]:
        return [
            *(one for shelf in self._kin or () for one in shelf.unreadable()),
            *super().unreadable(),
        ]

    def close(self) -> None:
        for part in self._parts:
            part.copy.close()
        for shelf in self._kin or ():
            shelf.close()
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
        id = self._opened()[0].rollout.meta.get("id")
        return id if isinstance(id, str) and id else self._stem

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
            met, meta = {self._id()}, self._opened()[0].rollout.meta
            while (base := base_of(meta)) is not None and base[0] not in met and len(met) < KIN_MAX:
                files = files_of(base[0], Path(self.path))
                if not files:
                    break
                met.add(base[0])
                self._kin.insert(0, CodexReader(files[-1]))
                meta = meta_of(files[0])
        return self._kin

    def _parent(self) -> tuple[str | None, str | None]:
        """The thread that this one goes on from, and the last line of it that both share."""
        base = base_of(self._opened()[0].rollout.meta)
        if base is None or base[0] == self._id():
            return None, None
        kin = self._parents()
        if not kin or kin[-1]._id() != base[0]:
            return base[0], None
        for shelf in reversed(kin):
            found = shelf.last_before(base[1])
            if found is not None:
                return shelf._id(), None if found[1] else found[0]
        return None, None


class ItemStories:
    """The stories of a shelf, without those of its parents."""

    def __init__(self, shelf: FileReader) -> None:
        self._shelf = shelf

    def __iter__(self) -> Iterator[ForeignSession]:
        return FileReader.sessions(self._shelf)


def _instructions(meta: dict[str, Any]) -> str | None:
    said = meta.get("base_instructions") or meta.get("instructions")
    text = said.get("text") if isinstance(said, dict) else said
    return text if isinstance(text, str) and text.strip() else None


def _items(parts: list[_Part], session: str) -> Iterator[Item | UnreadableRecord]:
    said = _SaidSinceCompaction()
    for part in parts:
        yield from _items_of(part, session, said)


def _items_of(
    part: _Part, session: str, said: "_SaidSinceCompaction"
) -> Iterator[Item | UnreadableRecord]:
    """The items in order. The last one of the model's waits for the count of its tokens, which
    comes after it.
    """
    model: str | None = None
    held: Item | None = None
    path = part.copy.path
    if path.stat().st_size == 0:
        yield UnreadableRecord(session, "the whole file", "it is empty")
    for raw in lines(path):
        place = part.place(raw.number)
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
            yield UnreadableRecord(session, place, problem, raw.raw)
        elif kind == "compacted" and raw.number not in part.rollout.left:
            yield from said.compacted(payload, place, line)
        elif kind == "response_item":
            item = _item(payload, place, line, model, hidden=raw.number in part.rollout.left)
            said.add(item, payload)
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
    if kind in BARE:
        return "response_item", line, ""
    if kind not in KNOWN:
        return "other", {}, ""
    payload = line.get("payload")
    return (kind, payload, "") if isinstance(payload, dict) else ("", None, "it has no payload")


def _item(
    payload: dict[str, Any], place: str, line: dict[str, Any], model: str | None, *, hidden: bool
) -> Item:
    role = role_of(payload)
    spoken = ForeignMessage(
        origin=place,
        place=place,
        role=role,
        payload=_public(payload),
        format="openai.responses",
        at=stamp(line.get("timestamp")),
        labels={**HIDDEN, "left": True} if hidden else {},
        model=model if role == "assistant" else None,
    )
    item = response_item(payload, spoken)
    return msgspec.structs.replace(item, says=False) if hidden else item


def _public(payload: dict[str, Any]) -> dict[str, Any]:
    """The item as Codex sends it, with what it keeps for itself under a private name."""
    if PRIVATE not in payload:
        return payload
    return {key: value for key, value in payload.items() if key != PRIVATE} | {
        f"_{PRIVATE}": payload[PRIVATE]
    }


class _SaidSinceCompaction:
    """What was said since the last compaction, for the next one: items that its new history repeats
    are not new.
    """

    def __init__(self) -> None:
        self._by_id: dict[str, str] = {}
        self._by_content: dict[bytes, str] = {}

    def add(self, item: Item, payload: dict[str, Any]) -> None:
        if not item.line.labels:  # type: ignore[union-attr]
            if isinstance(payload.get("id"), str):
                self._by_id[payload["id"]] = item.line.origin
            elif payload.get("role") == "user":
                self._by_content[_content(payload)] = item.line.origin

    def compacted(
        self, payload: dict[str, Any], place: str, line: dict[str, Any]
    ) -> Iterator[Item]:
        """What a compaction's history holds that is new, and then its summary, which says in which
        order the model sees all of it.
        """
        text, history = payload.get("message"), payload.get("replacement_history")
        words = text if isinstance(text, str) and text.strip() else COMPACTED
        shows: list[str] = []
        kept: list[tuple[Item, dict[str, Any]]] = []
        for at, one in enumerate(history if isinstance(history, list) else (), 1):
            if wrong_item(one):
                continue
            origin = self._known(one)
            if (
                origin is None
                and _content(one) == _content({"content": words})
                and place not in shows
            ):
                origin = place
            elif origin is None:
                item = _item(one, f"{place}, {at}", line, None, hidden=False)
                origin = item.line.origin
                kept.append((item, one))
                yield item
            if origin not in shows:
                shows.append(origin)
        self._forget(shows)
        for item, one in kept:
            self.add(item, one)
        if place not in shows:
            shows.append(place)
        keeps = tuple(origin for origin in shows if origin != place)
        order = tuple(shows) if keeps else ()
        said_at = stamp(line.get("timestamp"))
        yield Item(
            Summary(place, place, words, keeps, said_at, order, is_shown=words == text), says=True
        )

    def _known(self, item: dict[str, Any]) -> str | None:
        id = item.get("id")
        found = self._by_id.get(id) if isinstance(id, str) else None
        return (
            found
            if found is not None or item.get("role") != "user"
            else self._by_content.get(_content(item))
        )

    def _forget(self, shows: list[str]) -> None:
        """What is not repeated can't be repeated later."""
        stays = set(shows)
        self._by_id = {id: origin for id, origin in self._by_id.items() if origin in stays}
        self._by_content = {
            words: origin for words, origin in self._by_content.items() if origin in stays
        }


def _content(item: dict[str, Any]) -> bytes:
    content = item.get("content")
    texts = (
        [part.get("text") for part in content if isinstance(part, dict)]
        if isinstance(content, list)
        else [content]
    )
    return repr(content if any(not isinstance(text, str) for text in texts) else texts).encode()


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
    assert isinstance(item.line, ForeignMessage)
    return msgspec.structs.replace(item, line=msgspec.structs.replace(item.line, usage=usage))
