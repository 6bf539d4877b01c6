"""The inbox as the log tells it: which messages wait after these entries, and where they stand
(I-4).

An engine keeps an inbox for its guards, as it is now. What waited at an earlier point only the log
can tell, and a copy that ends at such a point needs it.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from holdfast.domain.entry import Entry, note_of, opened_of


class Inbox:
    """Grows with a session's own log, entries in order. `waiting` has the seqs of what waits, by
    id.
    """

    def __init__(self) -> None:
        self.waiting: dict[str, int] = {}
        self._taken: dict[int | None, dict[str, int]] = {}

    def add(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            # Nearly all entries are messages that never waited: they are told by their bytes,
            # without a decoder.
            if entry.kind != "message" or b'"inbox"' in entry.note:
                handler = _HANDLERS.get(entry.kind)
                if handler is not None:
                    handler(self, entry)

    def _message(self, entry: Entry) -> None:
        if note_of("message", entry.note).inbox:
            self.waiting[entry.id.hex()] = entry.seq

    def _taken_by_turn(self, entry: Entry) -> None:
        taken = self._taken.setdefault(entry.turn, {})
        for id in note_of(entry.kind, entry.note).takes:
            if id in self.waiting:
                taken[id] = self.waiting.pop(id)

    def _end(self, entry: Entry) -> None:
        """A turn that has used nothing of what it took gives it back, to where it stood."""
        # What it does not return it has used.
        taken = self._taken.pop(entry.turn, {})
        for id in note_of("end", entry.note).returns:
            if id in taken:
                self.waiting[id] = taken[id]

    def _closed(self, entry: Entry) -> None:
        for id in note_of("closed", entry.note).moved:
            self.waiting.pop(id, None)

    def _erased(self, entry: Entry) -> None:
        self.waiting.clear()

    def _opened(self, entry: Entry) -> None:
        """A session that shares the past of another begins here: what waits there is answered
        there.
        """
        if opened_of(entry).parent is not None:
            self.waiting.clear()
            self._taken.clear()


_HANDLERS = {
    "message": Inbox._message,
    "turn": Inbox._taken_by_turn,
    "take": Inbox._taken_by_turn,
    "end": Inbox._end,
    "closed": Inbox._closed,
    "erased": Inbox._erased,
    "opened": Inbox._opened,
}


class NamedMessage(NamedTuple):
    """A message that a caller wants to be taken: its id, and the session that it was accepted in, if
    the caller has said that.
    """

    id: str
    session: str | None = None


def to_take(
    free: Sequence[str], named: Iterable[NamedMessage] | None
) -> tuple[Collection[str], set[str]]:
    """Which of the messages that nobody waits with a turn takes: all of them, or those that its
    caller has named; and which of those can't be had.
    """
    if named is None:
        return free, set()
    wanted = {each.id for each in named}
    return wanted, wanted.difference(free)
