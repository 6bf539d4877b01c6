"""What is wrong with a session that is a plain row of provider messages."""

import hashlib
import json
from collections.abc import Iterable, Iterator

import msgspec

from holdfast.doctor.finding import Finding, Rule
from holdfast.importers.foreign_session import ForeignMessage
from holdfast.importers.item_store import Item
from holdfast.importers.reader import UnreadableRecord


class ItemCase(msgspec.Struct):
    """What an examination saw: how many messages, where calls stand that nobody answered, results
    that nobody called for, rows that were there before; all by their places.
    """

    messages: int = 0
    open_calls: dict[str, tuple[str, ...]] = {}
    strays: dict[str, tuple[str, ...]] = {}
    repeated: dict[str, str] = {}
    unread: list[UnreadableRecord] = []


def looked_at(
    items: Iterable[Item | UnreadableRecord], *, may_run: bool = True
) -> ItemCase:
    """Goes through a session once. A call is open when something was said after it and no result
    came, before or since. So is one that the session ends on, unless it may be running (`may_run`).
    """
    case = ItemCase()
    met: set[tuple[str, bytes]] = set()
    waiting: dict[str, str] = {}
    passed: dict[str, str] = {}
    answers: dict[str, list[str]] = {}
    called: set[str] = set()
    for item in items:
        if isinstance(item, UnreadableRecord):
            case.unread.append(item)
            continue
        case.messages += 1
        place = item.line.place
        # A row that was there before says nothing new: neither its calls nor its answers count.
        if item.id and (said := (item.id, _gist(item))) in met:
            case.repeated[place] = item.id
            continue
        if item.id:
            met.add(said)
        # Somebody speaks: a call that waits for its result now is not running any more.
        if item.says:
            passed.update(waiting)
            waiting.clear()
        called.update(item.calls)
        waiting.update((call, place) for call in item.calls)
        for call in item.answers:
            waiting.pop(call, None)
            answers.setdefault(call, []).append(place)
    if not may_run:
        passed.update(waiting)
    for call, place in passed.items():
        if call not in answers:
            case.open_calls[place] = (*case.open_calls.get(place, ()), call)
    for call, places in answers.items():
        for place in places if call not in called else ():
            case.strays[place] = (*case.strays.get(place, ()), call)
    return case


def _gist(item: Item) -> bytes:
    """What an item says. The same id alone makes no repetition: some models give all their messages
    one.
    """
    line = item.line
    said = line.payload if isinstance(line, ForeignMessage) else line.text
    # A digest is remembered for each item of a session, and not its words.
    text = json.dumps(said, sort_keys=True, default=repr)
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def item_findings(
    rules: Iterable[Rule],
    session: str,
    path: str,
    case: ItemCase,
    *,
    is_all: bool = True,
) -> tuple[Finding, ...]:
    """What a case shows. `is_all`: there is nothing else in the store, which is unreadable when all
    of this is.
    """
    # The same rules for each program, under a name of its own.
    named = {rule.name.partition("/")[2]: rule for rule in rules}
    if is_all and not case.messages and (case.unread or not session):
        problem = case.unread[0].problem if case.unread else "there is no session in it"
        measured = f"Nothing in it can be read: {problem}."
        return (Finding(named["unreadable-store"], session, path, measured),)
    found = []
    for rule, place, measured in _signs(case):
        found.append(Finding(named[rule], session, place, measured))
    return tuple(found)


def _signs(case: ItemCase) -> Iterator[tuple[str, str, str]]:
    """The rules that are broken, each with a place and what was seen there."""
    for place, calls in case.open_calls.items():
        yield (
            "tool-call-without-result",
            place,
            f"{', '.join(calls)} has no result.",
        )
    for place, calls in case.strays.items():
        seen = f"{', '.join(calls)} is called by no message."
        yield "tool-result-without-call", place, seen
    for place, id in case.repeated.items():
        yield "repeated-message", place, f"{id} stood here before."
    for one in case.unread:
        yield "unreadable-record", one.place, f"It is not read: {one.problem}."
