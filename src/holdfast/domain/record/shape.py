"""Shape: the view entry that makes the context equal the caller's list.

A list has the last word on how messages are arranged, not on what was done to the view by name.
What a rewind took away stays away, what a label hides stays hidden, and what a summary covers is
shown as that summary, though the list may be older than all of these and still have it (I-11,
I-13).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from holdfast.domain.entry import Edit, Shape
from holdfast.domain.log.fold import Log
from holdfast.domain.log.view import ranges
from holdfast.domain.message import Payload, Spoken, thaw
from holdfast.domain.repair import ids_of


class NewView(NamedTuple):
    """A shape to be stored. `shows_past`: it shows messages from before the last compaction, so the
    next load can't begin there.
    """

    shape: Shape
    shows_past: bool


class ListShape:
    """How a caller's list arranges the messages of a log: `order` are their ids, `new` those of the
    messages that are stored with it, and `edits` what the list says in other words than the view.
    """

    def __init__(
        self,
        log: Log,
        order: list[str],
        *,
        new: Sequence[str],
        edits: Mapping[str, Payload],
    ) -> None:
        self.log = log
        self._order = order
        self._new = new
        self._edits = edits
        self._now = ids_of(log.arranged)

    @property
    def is_natural(self) -> bool:
        """Whether the view shows this list without any entry, as it does for most lists."""
        return (
            not self._edits
            and not self.log.rewinds
            and self._order == [*self._now, *self._new]
        )

    @property
    def names_the_past(self) -> bool:
        """Whether the list has messages that the log does not arrange: of those only the whole
        history knows.
        """
        return not {*self._now, *self._new}.issuperset(self._order)

    def view(
        self,
        whole: Log,
        *,
        visible: set[str],
        first: int,
        speak: Callable[[Payload], Spoken],
    ) -> NewView | None:
        """The view that shows this list; None if the view does already. `whole` is a log that knows
        all messages of the list, `visible` are those that a context shows now, and `first` is the
        seq that the first new message gets.
        """
        order = self._allowed(whole)
        present = set(order)
        edits = {id: payload for id, payload in self._edits.items() if id in present}
        kept = _with_unseen(order, self._now, visible)
        if not edits and kept == [*self._now, *self._new]:
            return None
        places = dict(whole.places)
        seqs = {seen.id: seen.seq for seen in whole.natural}
        shows_past = any(seqs[id] < self.log.loads_since for id in kept if id in seqs)
        # They are stored with this view, after all that there is.
        for seq, id in enumerate(self._new, first):
            seqs[id] = seq
            places[seq] = len(places)
        worded, restored = self._wordings(edits, seqs, speak)
        shape = Shape(ranges(places, [seqs[id] for id in kept]), worded, restored)
        return NewView(shape, shows_past)

    def _allowed(self, whole: Log) -> list[str]:
        """The caller's order, as far as a list has a say in it."""
        gone = whole.gone
        if not gone and not self.names_the_past:
            return self._order
        here = {*self._now, *self._new}
        known = set(here)
        away = set()
        for seen in whole.natural:
            known.add(seen.id)
            if seen.seq in gone:
                away.add(seen.id)
        allowed: dict[str, None] = {}
        for id in self._order:
            shown = id
            # Several that one summary covers are shown as that summary, once.
            if id not in here:
                shown = whole.summary_of(id, here) or id
            if shown in known and shown not in away:
                allowed[shown] = None
        return list(allowed)

    def _wordings(
        self,
        edits: Mapping[str, Payload],
        seqs: Mapping[str, int],
        speak: Callable[..., Spoken],
    ) -> tuple[dict[int, Edit], tuple[int, ...]]:
        """The edits by seq, and the seqs of messages that are shown in their own words again."""
        bodies = {seen.id: seen.body for seen in self.log.natural} if edits else {}
        worded: dict[int, Edit] = {}
        restored: list[int] = []
        for id, payload in edits.items():
            if id in bodies and thaw(bodies[id]) == payload:
                # It says again what was stored: an earlier edit is taken back.
                restored.append(seqs[id])
            else:
                spoken = speak(payload)
                worded[seqs[id]] = Edit(spoken.note, thaw(spoken.body))
        return worded, tuple(restored)


def _with_unseen(order: list[str], now: list[str], visible: set[str]) -> list[str]:
    """The caller's order, with what its list can't have (hidden, gone, a stray, a blank) left
    beside the neighbour it had; between two messages that the list has dropped, it is dropped with
    them.
    """
    # None stands for the edges: before the first message and after the last one is always a place.
    present = {None, *order}
    before: dict[str | None, list[str]] = {}
    after: dict[str | None, list[str]] = {}
    previous = None
    last_present = None
    unseen: list[str] = []
    for id in [*now, None]:
        if id is not None and id not in visible and id not in present:
            unseen.append(id)
            continue
        if unseen and previous in present:
            after[previous] = unseen
        elif unseen and id is None:
            after.setdefault(last_present, []).extend(unseen)
        elif unseen and id in present:
            before[id] = unseen
        previous = id
        if id in present:
            last_present = id
        unseen = []
    out = after.get(None, [])
    for id in order:
        out += before.get(id, ())
        out.append(id)
        out += after.get(id, ())
    return out
