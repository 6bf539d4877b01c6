"""Why what the model will be sent of a message is not what is stored of it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from holdfast.domain.log.explain import Outline
from holdfast.domain.message import Call, Image, Other, Part, Result, Thinking
from holdfast.domain.repair import StoredMessage
from holdfast.exporters.safe_text import one_line
from holdfast.runtime.live.message import Message
from holdfast.server.page.reasons import ViewDifference, sent
from holdfast.server.page.sent_list import MARK, SentList

NAMED_MAX = 4
"""So many neighbours, or places, are named."""
_KINDS = {
    Call: "calls",
    Result: "outcomes",
    Thinking: "reasoning",
    Image: "images",
    Other: "other parts",
}


class SentDifferences:
    """For each message, the reasons; none where it is sent as it is stored."""

    def __init__(
        self,
        outline: Outline,
        sent_list: SentList,
        order: Sequence[StoredMessage],
        aside: Mapping[str, str],
    ) -> None:
        """`order`: all messages as they stand on the page; `aside`: those that stand nowhere in the
        log any more, with the reason.
        """
        self._outline = outline
        self._sent = sent_list
        self._aside = aside
        self._moved = _out_of_order(order, sent_list)
        self._rewinds = outline.log.away_since()
        self._shown = {seen.id for seen in outline.log.visible}
        self._seqs = {seen.id: seen.seq for seen in order}

    def of(
        self, seen: StoredMessage, message: Message, parts: list[Part]
    ) -> list[ViewDifference]:
        """All the reasons for one message, which has these parts."""
        if message.state == "erased":
            return [sent("erased")]
        if seen.id in self._aside:
            return [sent(self._aside[seen.id])]
        view = self._outline.view(seen)
        if view != "shown":
            return [self._kept_out(seen, view)]
        if seen.id not in self._sent.steps:
            return [sent(_why_repaired_away(message.role, parts))]
        if seen.id not in self._sent.places:
            return [sent("not_in_format", format=self._sent.format)]
        return [*self._changed(seen, message, parts), *self._elsewhere(seen)]

    def _kept_out(self, seen: StoredMessage, view: str) -> ViewDifference:
        """Why the view does not have it."""
        log = self._outline.log
        if view == "summarised":
            summary = log.summary_of(seen.id, self._shown) or ""
            return sent("summarised", seq=self._seqs.get(summary, 0))
        if view == "rewound":
            return sent("rewound", seq=self._rewinds.get(seen.id, 0))
        if view == "retracted":
            reason = one_line(self._outline.retracted.get(seen.id, ""))
            return sent("retracted", why=f": {reason}" if reason else "")
        return sent(view.replace(" ", "_"))

    def _changed(
        self, seen: StoredMessage, message: Message, parts: list[Part]
    ) -> list[ViewDifference]:
        """Why another payload is sent than the one that is stored; nothing where it is that one."""
        is_edited = seen.seq in self._outline.log.edits
        if self._is_as_stored(message) and not is_edited:
            return []
        found = [sent("edited")] if is_edited else []
        others = self._sent.others(seen.id)
        if others:
            found.append(sent("merged", others=self._named(others)))
        roles = {step.role for step in self._sent.steps[seen.id]}
        if len(roles) > 1 and len(self._sent.places[seen.id]) > 1:
            found.append(sent("split"))
        said = self.sent_parts(seen.id)
        if message.state == "partial":
            found += map(sent, dict.fromkeys(_cut(parts, said)))
        if message.format != self._sent.format and not is_edited:
            if not others or said != parts:
                found.append(self._in_other_format(message, parts, said))
        return found or [sent("adapted", places=self._places(message))]

    def _in_other_format(
        self, message: Message, parts: list[Part], said: list[Part]
    ) -> ViewDifference:
        names = {"stored": message.format, "format": self._sent.format}
        # Of one that was cut off, other reasons say what is not sent.
        without = [] if message.state == "partial" else _without(parts, said)
        if without:
            return sent("reduced", without=" and ".join(without), **names)
        return sent("reshaped", **names)

    def _is_as_stored(self, message: Message) -> bool:
        payload = message.payload
        stored = payload if isinstance(payload, list) else [payload]
        return self._sent.at(message.id) == stored

    def _places(self, message: Message) -> str:
        payload = message.payload
        now = self._sent.at(message.id)
        was = payload if isinstance(payload, list) else [payload]
        if len(was) == len(now) == 1:
            was, now = was[0], now[0]
        found = list(_differing(was, now))
        named = [f"`{place}`" for place in found[:NAMED_MAX]]
        if len(found) > NAMED_MAX:
            named.append(f"{len(found) - NAMED_MAX} more")
        return ", ".join(named) or "its form"

    def _elsewhere(self, seen: StoredMessage) -> Iterator[ViewDifference]:
        """It stands in another order."""
        if seen.id not in self._moved:
            return
        if seen.id in self._outline.covers:
            yield sent("summary_in_front")
        elif seen.note.answers:
            yield sent("next_to_call")
        else:
            yield sent("reordered")

    def sent_parts(self, id: str) -> list[Part]:
        """What is sent of this message."""
        said = self._sent.parts(id)
        if self._sent.others(id):
            # It goes into a payload with others, and in another format these don't go along.
            format = self._format_of(id)
            if format != self._sent.format:
                return [each for each in said if not isinstance(each, Thinking | Other)]
        return said

    def _format_of(self, id: str) -> str:
        step = self._sent.steps[id][0]
        return step.format if step.source is None else step.source.note.format

    def _named(self, ids: list[str]) -> str:
        stored = sorted(self._seqs[id] for id in ids if id in self._seqs)
        words = [f"entry {seq}" for seq in stored[:NAMED_MAX]]
        if len(stored) > NAMED_MAX:
            words.append(f"{len(stored) - NAMED_MAX} more")
        if any(id.startswith(MARK) for id in ids):
            words.append("an outcome that nobody has stored")
        return ", ".join(words) or "its neighbour"


def _out_of_order(order: Iterable[StoredMessage], sent_list: SentList) -> set[str]:
    """The messages that are sent before one that stands before them."""
    moved = set()
    furthest = -1
    for seen in order:
        places = sent_list.places.get(seen.id)
        if places:
            if places[0] < furthest:
                moved.add(seen.id)
            furthest = max(furthest, *places)
    return moved


def _why_repaired_away(role: str, parts: list[Part]) -> str:
    """Why a message that the view shows is left out of the dialogue that is made of it."""
    kinds = {type(part) for part in parts}
    if role == "tool" or kinds == {Result}:
        return "stray_result"
    if Thinking in kinds:
        return "thinking_alone"
    if Call in kinds and role == "assistant":
        return "cut_call"
    return "blank"


def _cut(parts: Iterable[Part], said: list[Part]) -> Iterator[str]:
    """Why parts of a message that was cut off are not sent."""
    left = list(said)
    for part in parts:
        if part in left:
            left.remove(part)
        elif isinstance(part, Call):
            yield "cut_call"
        elif isinstance(part, Thinking):
            yield "cut_thinking"
        elif isinstance(part, Other):
            yield "cut_part"


def _without(parts: list[Part], said: list[Part]) -> list[str]:
    """The kinds of parts that are stored and not sent, in words."""
    stored = {type(part) for part in parts}
    kept = {type(part) for part in said}
    gone = stored - kept
    return [word for kind, word in _KINDS.items() if kind in gone]


def _differing(was: Any, now: Any, place: str = "") -> Iterator[str]:
    """Where two JSON values differ."""
    if type(was) is dict and type(now) is dict:
        keys = dict.fromkeys([*was, *now])
        for key in keys:
            # `get` alone does not tell null from nothing.
            if was.get(key) != now.get(key) or (key in was) != (key in now):
                inner = f"{place}.{key}" if place else key
                yield from _differing(was.get(key), now.get(key), inner)
    elif type(was) is list and type(now) is list and len(was) == len(now):
        for index, (one, other) in enumerate(zip(was, now, strict=True)):
            if one != other:
                yield from _differing(one, other, f"{place}[{index}]")
    else:
        yield one_line(place)[:60] or "its form"
