"""Healing a session that is a plain row of provider messages, row by row as it is told."""

import hashlib
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from msgspec.structs import replace

from holdfast.doctor.finding import Change
from holdfast.doctor.items.detect import ItemCase
from holdfast.domain.repair import INTERRUPTED
from holdfast.importers.foreign_session import HIDDEN, ForeignMessage
from holdfast.importers.item_store import Item
from holdfast.importers.reader import UnreadableRecord

SEEN = "shown to the model"
UNSEEN = "hidden from the model"


class ItemHealing:
    """The remedies of some rules on one session. `changes` is complete once the items have been
    gone through.
    """

    def __init__(
        self, kind: str, session: str, case: ItemCase, accepted: Collection[str]
    ) -> None:
        self._kind = kind
        self._session = session
        self._case = case
        self._accepted = accepted
        self.changes: list[Change] = []

    def heal(self, items: Iterable[Item | UnreadableRecord]) -> Iterator[Item]:
        """The items, healed."""
        # Lines can be gone through again and again; what is changed is counted once.
        self.changes.clear()
        case = self._case
        for item in items:
            if isinstance(item, UnreadableRecord):
                before = _shown(item.raw)
                if self._heals("unreadable-record", item.place, before, "kept aside"):
                    yield Item(_kept(item))
                continue
            place = item.line.place
            id = case.repeated.get(place)
            if id and self._heals("repeated-message", place, id, "left out"):
                continue
            strays = case.strays.get(place)
            if strays and self._heals("tool-result-without-call", place, SEEN, UNSEEN):
                item = _stray(item, strays)
            yield item
            # Next to their call, where providers look for results.
            for call in case.open_calls.get(place, ()):
                before = f"{call} has no result"
                if self._heals("tool-call-without-result", place, before, INTERRUPTED):
                    yield _answered(item, call)

    def _heals(self, rule: str, place: str, before: str, after: str) -> bool:
        """Whether the remedy of a rule is to be applied; if so, the change is noted."""
        name = f"{self._kind}/{rule}"
        if name not in self._accepted:
            return False
        self.changes.append(Change(name, self._session, place, before, after))
        return True


def _stray(item: Item, strays: tuple[str, ...]) -> Item:
    """The item out of the model's view. What is said beside a stray result stays: no context shows
    the result.
    """
    assert isinstance(item.line, ForeignMessage)
    answers = tuple(call for call in item.answers if call not in strays)
    hidden = {} if item.says or answers else HIDDEN
    line = replace(item.line, labels={**item.line.labels, **hidden, "stray": True})
    return replace(item, line=line, answers=answers)


def _answered(item: Item, call: str) -> Item:
    """A result that nobody gave, next to its call."""
    line = item.line
    assert isinstance(line, ForeignMessage) and isinstance(line.payload, dict)
    made = ForeignMessage(
        origin=f"{line.origin}/{call}/interrupted",
        place=line.place,
        role="tool",
        payload=_result(line.format, line.payload, call),
        format=line.format,
        at=line.at,
        # The result of a call on a branch that was left stays on that branch.
        labels={**line.labels, "interrupted": True},
    )
    return Item(made, answers=(call,))


def _result(format: str, payload: dict[str, Any], call: str) -> dict[str, Any]:
    if format == "anthropic":
        block = {
            "type": "tool_result",
            "tool_use_id": call,
            "content": INTERRUPTED,
            "is_error": True,
        }
        return {"role": "user", "content": [block]}
    if format == "openai.chat":
        return {"role": "tool", "tool_call_id": call, "content": INTERRUPTED}
    kind = "function_call_output"
    # A call of the Responses API wants a result of its own kind.
    if payload.get("type") == "custom_tool_call":
        kind = "custom_tool_call_output"
    return {"type": kind, "call_id": call, "output": INTERRUPTED}


def _kept(trouble: UnreadableRecord) -> ForeignMessage:
    # From its bytes: healing the same store again gives the same origin.
    digest = hashlib.sha256(trouble.raw).hexdigest()[:16]
    text = trouble.raw.decode("utf-8", "backslashreplace")
    parts = [{"type": "unreadable", "raw": text, "problem": trouble.problem}]
    return ForeignMessage(
        origin=f"{trouble.place}:{digest}",
        place=trouble.place,
        role="user",
        payload={"role": "user", "parts": parts},
        format="holdfast",
        labels={**HIDDEN, "unreadable": True},
    )


def _shown(raw: bytes) -> str:
    return raw[:80].decode("utf-8", "backslashreplace")
