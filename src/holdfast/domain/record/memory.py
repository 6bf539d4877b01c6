"""What a handle remembers of the lists it recorded.

An agent records its list after every message, so nearly always a list begins with the one recorded
before. Knowing that in one comparison is what makes recording a long list cheap.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from holdfast.domain.message import Payload, Payloads
from holdfast.domain.record.atoms import Wording
from holdfast.domain.record.fingerprint import snapshot
from holdfast.domain.record.grouping import Refs, View, gather
from holdfast.domain.record.split_messages import gather_split


class Remembered(msgspec.Struct, frozen=True, gc=False):
    """A payload as the caller presented it: the object, what it said then, and the messages it
    stood for.

    Payloads are JSON data and hold nothing of ours, so there is no cycle to be looked for in
    thousands of these.
    """

    object: Any
    snapshot: Payload
    refs: Refs


Held = Sequence[Remembered]


class LastList(NamedTuple):
    """The list a handle recorded last in one format: its messages, the number of instructions that
    stood before them, and the head of the log after it was recorded.
    """

    messages: list[Remembered]
    leading: int
    head: int


class EqualStretch(NamedTuple):
    """The places of a list, from `first` up to `stop`, that equal the `snapshots` of all that was
    `held`.
    """

    held: list[Remembered]
    snapshots: list[Payload]
    first: int
    stop: int


NOWHERE = EqualStretch([], [], 0, 0)


class Memory:
    """The lists that one handle recorded last, by format."""

    def __init__(self) -> None:
        self._lists: dict[str, LastList] = {}

    def last(self, format: str) -> LastList:
        return self._lists.get(format) or LastList([], 0, 0)

    def keep(self, format: str, last: LastList) -> None:
        self._lists[format] = last

    def equal_in(self, payloads: list[Any], format: str) -> EqualStretch:
        """Where this list equals all of the last one; `NOWHERE` if anything there differs."""
        held, first, _ = self.last(format)
        stop = first + len(held)
        snapshots = snapshots_of(held)
        same = payloads[first:stop]
        try:
            # Dicts only: anything else is still to be made one, and its class may have an idea of
            # its own of equality.
            if set(map(type, same)) == {dict} and same == snapshots:
                return EqualStretch(held, snapshots, first, stop)
        except Exception:
            # A value of a foreign class that can't be compared: it is refused when it is looked at
            # by itself.
            pass
        return NOWHERE


def gathered(
    payloads: Payloads,
    last: LastList,
    shown: View,
    equal: EqualStretch,
    single: Wording,
) -> list[Payload]:
    """The caller's list, with the items of one stored message as one payload. `shown`: by the view,
    and by contexts before; `single`: how the view words a message by itself.
    """
    held = last.messages
    count = len(held)
    before: Payloads = []
    # What equals the last list is known as it stands there: what it shows is nowhere else in pieces.
    stop = equal.stop if equal.held is held else 0
    if stop and equal.snapshots == _payloads(shown[:count]):
        # Nothing remembered is a list of items then: only what the view shows besides may be, and
        # only after all of that.
        before, payloads, stop = payloads[:stop], payloads[stop:], 0
        held = []
        shown = shown[count:]
    # A message has two pieces at least.
    if len(payloads) - stop > 1:
        apart = _known_besides(shown, held, is_equal=stop > 0)
        payloads = [*payloads[:stop], *gather_split(payloads[stop:], apart, single)]
    known = [*_payloads(shown), *snapshots_of(held)]
    return [*before, *gather(payloads, known)]


def _known_besides(shown: View, held: Held, *, is_equal: bool) -> View:
    """What may be in pieces where a list goes on, if it begins with an equal of all that is `held`."""
    known = [*shown, *((entry.snapshot, entry.refs) for entry in held)]
    if not is_equal:
        return known
    found = {entry.refs[0] for entry in held if entry.refs}
    return [one for one in known if not found.issuperset(one[1])]


def _payloads(shown: View) -> list[Payload]:
    return [payload for payload, _ in shown]


def snapshots_of(held: Held) -> list[Payload]:
    return [entry.snapshot for entry in held]


def rebound(messages: list[Remembered], payloads: Payloads) -> list[Remembered]:
    """What is remembered of copies, bound to the caller's own objects where each has one: the next
    list is known by its objects.
    """
    # Items that were gathered have no single object of the caller's.
    if list in map(type, snapshots_of(messages)):
        return messages
    own = payloads[len(payloads) - len(messages) :]
    return [
        replace(entry, object=payload)
        for entry, payload in zip(messages, own, strict=True)
    ]


def held_of(view: View) -> list[Remembered]:
    """What this view shows, as a handle remembers it: no object of the caller's is known."""
    return [Remembered(None, snapshot(payload), refs) for payload, refs in view]
