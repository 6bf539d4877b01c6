"""The journey of a message: the sessions it comes through until a turn has used it (I-2, I-4).

A message that waits goes on to its key's next session with a reset, and to another session with a
turn that takes it there. A turn that has not used it gives it back, and it may go on from there,
even to where it was before. It keeps its id, and every log on its way tells of its own part:

    it came             the message itself: one of the first entries if a reset carried it along
    a turn took it      `turn`, `take`; `brought` names the session that it came from
    and gave it back    `end`, in `returns`
    it went on          `closed`, in `moved`; `take` outside a turn. Both name the session that has it then

Forward, these parts lead from where a message was accepted to where it is now; backward, from where
it was answered to all copies that it has left behind.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from holdfast.domain.entry import Entry, legible_note, opened_of


class Stay:
    """What one session's log tells of one message, entries in order, those up to `after` left out.

    `turn` has it; or it `waits`; or it `is_gone` to the session `to`, which is None where an older
    log does not say that its key's next one is meant; or it `is_erased`, before a turn had it.
    """

    def __init__(self, after: int = 0) -> None:
        self.after = after
        self.is_known = False
        """Whether any entry was about it."""
        self.has_come = False
        """Whether the message itself was met."""
        self.origins: list[str] = []
        """The sessions that turns brought it from, one for each time."""
        self.departures: list[str | None] = []
        """The sessions that it went to, one for each time."""
        self.turn: int | None = None
        self.waits = self.is_gone = self.is_erased = self.is_used = False
        self.left_by: Entry | None = None

    @property
    def to(self) -> str | None:
        return self.departures[-1] if self.is_gone else None

    @property
    def is_over(self) -> bool:
        """Whether later entries tell nothing more of it, unless it comes again."""
        return self.is_gone or self.is_used or self.is_erased

    def left_for(self, session: str) -> int:
        """How often it went to this session."""
        return sum(to is None or to == session for to in self.departures)

    def _stand(self, turn: int | None = None, *, waits: bool = False) -> None:
        self.is_known = True
        self.turn, self.waits = turn, waits
        self.is_gone = self.is_used = False


class Stays:
    """What one session's log tells of these messages. `ids` has for each the seq after which it is
    looked for.
    """

    def __init__(self, ids: Mapping[str, int]) -> None:
        self.of = {id: Stay(after) for id, after in ids.items()}
        self._taken_by: dict[int, list[str]] = {}

    def add(self, entry: Entry) -> bool:
        """Takes the next entry. Whether it ends the stay of one of them, for now."""
        if entry.kind == "message":
            return self._came(entry)
        handler = _HANDLERS.get(entry.kind)
        if handler is None or (note := legible_note(entry)) is None:
            return False
        return handler(self, entry, note)

    def _met(self, entry: Entry, ids: Iterable[str]) -> Iterable[tuple[str, Stay]]:
        for id in ids:
            stay = self.of.get(id)
            if stay is not None and entry.seq > stay.after:
                yield id, stay

    def _came(self, entry: Entry) -> bool:
        used = False
        for _, stay in self._met(entry, (entry.id.hex(),)):
            note = legible_note(entry)
            # Of one that is erased, nothing tells any more whether it had to wait.
            waits = note is None or note.inbox or note.erased
            stay.has_come = True
            stay._stand(entry.turn, waits=waits and entry.turn is None)
            # Appended, it stands where it is: no turn is to take it.
            stay.is_used = used = not stay.waits
        return used

    def _taken(self, entry: Entry, note: Any) -> bool:
        if entry.turn is None:
            return self._gone(entry, note.takes, note.session)
        # A turn that was asked for by an event alone is known by its own id.
        for id, stay in self._met(entry, (*note.takes, entry.id.hex())):
            stay._stand(entry.turn)
            self._taken_by.setdefault(entry.turn, []).append(id)
            if id in note.brought:
                stay.origins.append(note.brought[id])
        return False

    def _ended(self, entry: Entry, note: Any) -> bool:
        used = False
        for id, stay in self._met(entry, self._taken_by.pop(entry.turn or 0, ())):
            if stay.turn == entry.turn and id in note.returns:
                stay._stand(waits=True)
            elif stay.turn == entry.turn:
                stay.is_used = used = True
        return used

    def _closed(self, entry: Entry, note: Any) -> bool:
        return self._gone(entry, note.moved, note.session)

    def _gone(self, entry: Entry, ids: Iterable[str], to: str | None) -> bool:
        gone = False
        for _, stay in self._met(entry, ids):
            stay._stand()
            stay.is_gone = gone = True
            stay.left_by = entry
            stay.departures.append(to)
        return gone

    def _erased(self, entry: Entry, note: Any) -> bool:
        for stay in self.of.values():
            if stay.waits:
                stay.waits, stay.is_erased = False, True
        return True


_HANDLERS = {
    "turn": Stays._taken,
    "take": Stays._taken,
    "end": Stays._ended,
    "closed": Stays._closed,
    "erased": Stays._erased,
}


def carried_in(entries: Iterable[Entry]) -> tuple[str | None, set[str]]:
    """The session that this log's key meant before, and the messages that a reset may have carried
    along from it: those that the log begins with. Only the other log tells which of them it did.
    """
    carried: set[str] = set()
    previous = None
    for place, entry in enumerate(entries):
        if place == 0:
            previous = opened_of(entry).previous
        # What was carried along follows the entry that opens the session, with its labels.
        elif entry.turn is not None or entry.kind not in ("message", "label"):
            break
        elif entry.kind == "message":
            carried.add(entry.id.hex())
        if previous is None:
            break
    return previous, carried


def brought_in(entries: Iterable[Entry]) -> set[str]:
    """The messages that turns of this session brought along from others."""
    brought: set[str] = set()
    for entry in entries:
        # Nearly none does: it is told by the bytes, without a decoder.
        if entry.kind in ("turn", "take") and b'"brought"' in entry.note:
            note = legible_note(entry)
            brought.update(note.brought if note is not None else ())
    return brought


def passed_on(entries: Iterable[Entry]) -> set[str]:
    """The messages that went on from this session with a reset."""
    moved: set[str] = set()
    for entry in entries:
        if entry.kind == "closed" and (note := legible_note(entry)) is not None:
            moved.update(note.moved)
    return moved
