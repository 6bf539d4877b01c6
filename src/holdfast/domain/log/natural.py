"""The natural order of a log's messages: turns as they started, what was said outside one where it
was said.
"""

from holdfast.domain.entry import Ranges
from holdfast.domain.log.view import Places, in_ranges
from holdfast.domain.repair import Order, StoredMessage

Unit = Order | StoredMessage
"""What stands together: the messages of a turn, or one message outside a turn."""


class NaturalOrder:
    """The natural order, written out as far as somebody asked: going on costs what is new, not the
    history again.

    It holds while messages are added to the last unit only; after any other change to the units it
    is begun anew.
    """

    def __init__(self) -> None:
        self._order: Order = []
        self._places: dict[int, int] = {}
        # Where messages stand that make or answer a call of an id, and how many were looked at.
        self._about: dict[str, dict[int, None]] = {}
        self._looked_at = 0
        # How much of `_order` is sure, and what of the units is in that: so many of them, and so
        # many messages of the last.
        self._sure = (0, 0, 0)

    def of(self, units: list[Unit]) -> Order:
        """The messages of all these units, in order. Not to be changed by the reader."""
        size, count, of_last = self._sure
        # What was interrupted may have left more there.
        del self._order[size:]
        # The last unit that was written out may have grown since: a turn that went on.
        if count and isinstance(last := units[count - 1], list):
            self._order += last[of_last:]
            of_last = len(last)
        for unit in units[count:]:
            if isinstance(unit, list):
                self._order += unit
                of_last = len(unit)
            else:
                self._order.append(unit)
        # At once: an interrupt may come between any two steps.
        self._sure = (len(self._order), len(units), of_last)
        return self._order

    def named(self, units: list[Unit], ranges: Ranges) -> Order:
        """The messages in these ranges over the natural order."""
        return in_ranges(self.of(units), self.places(units), ranges)

    def places(self, units: list[Unit]) -> Places:
        """Where each seq stands in the natural order. Not to be changed by the reader."""
        order = self.of(units)
        for index in range(len(self._places), len(order)):
            self._places[order[index].seq] = index
        return self._places

    def about(self, units: list[Unit], call_id: str) -> Order:
        """The messages that make or answer a call of this id."""
        order = self.of(units)
        for index in range(self._looked_at, len(order)):
            note = order[index].note
            for call in note.calls:
                self._about.setdefault(call.id, {})[index] = None
            for id in note.answers:
                self._about.setdefault(id, {})[index] = None
            self._looked_at = index + 1
        return [order[index] for index in self._about.get(call_id, ())]
