"""The book of what came in and no turn has: which messages are open, and which are to be put back.

Hermes passes an event from place to place, joins it to others, copies it, and may lose it. The book
knows each message by its event's identity, so that any copy of the event leads to it. It holds what
is open and nothing else; the store has all of it.
"""

import threading
from collections.abc import Collection, Iterable

from holdfast import Receipt

TRIES_MAX = 3
"""How often a message is put back that comes to nothing each time. A process that ends before Hermes
has done with it does not count: the message may have had no part in that.
"""
STARTS_MAX = 20
"""How many processes may end before Hermes has done with it: the message may be what ends them, and
no gateway would come up again.
"""


class Received:
    """A message that came in. `key` is that of its chat in Hermes; `event_id` its identity on its
    platform, None if it has none; `labels` what is needed to make an event of it again.
    """

    def __init__(
        self,
        receipt: Receipt,
        *,
        key: str,
        text: str,
        event_id: str | None = None,
        labels: dict[str, object] | None = None,
    ) -> None:
        self.receipt = receipt
        self.key = key
        self.text = text
        self.event_id = event_id
        self.labels = labels or {}
        self.tries = 0
        """How often Hermes had it put back, and was done with it, and no turn had it."""
        self.starts = 0
        """How many processes have put it back."""
        self.was_put_back = False
        """Whether this process has handed it in again: if it is lost after that, a try has failed."""
        self.is_left = False
        """Whether a process has received it that is gone: it is in no queue."""
        self.is_held = False
        """Whether it lies where it is not looked for: in an agent's steer buffer, or as a piece in a
        batch of its platform.
        """
        self.is_wanted = False
        """Whether Hermes has dropped it for want of room: it was not refused."""
        self.was_queued = False
        """Whether Hermes means to answer it later: it may be on its way from a queue to its turn."""
        self.is_handed_back = False
        """Whether it steered a turn that did not see it, and Hermes may make a turn of its words."""

    @property
    def id(self) -> str:
        """Its id in the store, which begins with the time of its receipt."""
        return self.receipt.message_id


class Book:
    """What is open. Called from the event loop and from agents' threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[str, Received] = {}
        self._by_event: dict[str, Received] = {}
        self._inside: dict[str, int] = {}

    def add(self, received: Received, *, is_inside: bool = False) -> None:
        """A message was found waiting; or it came in, and is in the hands of whoever received it."""
        with self._lock:
            self._open.setdefault(received.id, received)
            # In one step: open and in nobody's hands, it would be taken for lost, and put back.
            if is_inside:
                self._inside[received.id] = 1
            if received.event_id is not None:
                self._by_event.setdefault(received.event_id, received)

    def has(self, id: str) -> bool:
        """Whether the message with this id is open."""
        return id in self._open

    def of_event(self, event_id: str | None) -> Received | None:
        """The open message with this identity."""
        if event_id is None:
            return None
        return self._by_event.get(event_id)

    def open_of(self, some: Iterable[Received]) -> list[Received]:
        """Those of these that are open, in the order in which they came in."""
        found: dict[str, Received] = {}
        for each in some:
            if each.id in self._open:
                found[each.id] = each
        # Ids begin with the time of their making: their order is that of the receipts.
        in_order = []
        for id in sorted(found):
            in_order.append(found[id])
        return in_order

    def close(self, some: Iterable[Received]) -> list[Received]:
        """Nothing is to be done about these any more; those that were open until now."""
        closed = []
        with self._lock:
            for each in some:
                # Two may want to close it, a turn and a command that settles: one of them has it.
                if self._open.pop(each.id, None) is not None:
                    closed.append(each)
                if each.event_id is not None:
                    self._by_event.pop(each.event_id, None)
        return closed

    def enter(self, some: Iterable[Received]) -> None:
        """These are in the hands of Hermes' receiving code, which may wait in the middle."""
        with self._lock:
            for each in some:
                before = self._inside.get(each.id, 0)
                self._inside[each.id] = before + 1

    def leave(self, some: Iterable[Received]) -> None:
        """The counterpart of `enter`."""
        with self._lock:
            for each in some:
                # It may be in several hands at once: a wrapped call makes another.
                left = self._inside.get(each.id, 0) - 1
                if left > 0:
                    self._inside[each.id] = left
                else:
                    self._inside.pop(each.id, None)

    def lost(self, key: str, queued: Collection[str]) -> list[Received]:
        """The open messages of a chat that are nowhere any more: neither in a queue, nor in an
        agent's buffer, nor in somebody's hands; in the order in which they came in.
        """
        found = []
        with self._lock:
            for id, each in sorted(self._open.items()):
                if each.key != key or each.is_held:
                    continue
                if id in queued or id in self._inside:
                    continue
                found.append(each)
        return found

    def left_behind(self) -> dict[str, list[Received]]:
        """What earlier processes have left, chat by chat, each in the order in which it came in."""
        found: dict[str, list[Received]] = {}
        with self._lock:
            for _, each in sorted(self._open.items()):
                if each.is_left:
                    found.setdefault(each.key, []).append(each)
        return found


def overwritten(
    before: Collection[Received], after: Collection[Received]
) -> tuple[bool, bool]:
    """Hermes has one place for what comes next, and puts an event there over another. Whether the
    one that was there has to be kept, and whether it comes first.
    """
    # A word of Hermes' own, which has no receipt, is overwritten as ever.
    if not before:
        return False, False
    if not after:
        return True, False
    return True, _first_id(before) < _first_id(after)


def _first_id(some: Collection[Received]) -> str:
    return min(each.id for each in some)
