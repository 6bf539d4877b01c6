"""Salvaging: a session's log as a copy carries it, with a placeholder wherever an entry can't be
read (I-25).

A placeholder has the seq of the entry, and says what a reader of the source is shown in its place.
The same damage gives the same placeholder, so copying again finds it where the first copy put it.
An entry that is missing has one too, and one with a large part that was altered since: its words
would be taken for those that were said.
"""

from collections.abc import Iterator

from holdfast.domain.entry import Entry, Opened, noted
from holdfast.domain.origin import entry_name
from holdfast.engine.protocol import Engine, SessionState
from holdfast.engine.store_info import BrokenPart
from holdfast.errors import Damaged
from holdfast.runtime.live.damage import placeholder
from holdfast.runtime.transfer import compare_logs
from holdfast.runtime.transfer.compare_logs import Page
from holdfast.runtime.transfer.vet import TIME_MAX, vet_entry

MISSING_MAX = 100_000
"""No more entries than this are missing from a log whose last entry is where it says."""


class Salvage:
    """The own entries of one session, as it stood at one moment. `lost` tells by seq what can't be
    read, and why, as far as the pages were read.
    """

    def __init__(self, engine: Engine, state: SessionState) -> None:
        self._engine = engine
        self._state = state
        self._at = state.opened_at
        self._broken: dict[int, BrokenPart] = {}
        self.lost: dict[int, str] = {}

    def pages(self) -> Iterator[Page]:
        """All of them, page by page: each entry, or what stands in its place."""
        self._insist_on_a_length()
        after, head = self._state.origin, self._state.head
        # A server keeps its rows from harm by itself.
        if hasattr(self._engine, "last_place"):
            head = self._engine.last_place(self._state)
        if hasattr(self._engine, "broken_parts"):
            self._broken = self._engine.broken_parts(self._state.id)
        while after < head:
            upto = min(after + compare_logs.PAGE, head)
            found = self._found(after, upto)
            # A page is bounded in bytes, too: it may end before the last entry asked for.
            upto = min(upto, max(found, default=upto))
            yield [
                self._sound(seq, found.get(seq)) for seq in range(after + 1, upto + 1)
            ]
            after = upto

    def _insist_on_a_length(self) -> None:
        """`Damaged` for a log that says it is longer than it can be: it would be placeholders
        without an end.
        """
        length = self._state.head - self._state.origin
        if length <= MISSING_MAX:
            return
        weight = self._engine.weigh([self._state.id]).get(self._state.id)
        if weight is not None and length - weight.entries > MISSING_MAX:
            problem = (
                f"its last entry says it is number {self._state.head}, and it has "
                f"{weight.entries} entries; `holdfast doctor --heal` mends that"
            )
            raise Damaged(where=f"session {self._state.id}", problem=problem)

    def _found(self, after: int, upto: int) -> dict[int, Entry]:
        """The entries after one seq and up to another that are there; one by one where they can't
        be read together.
        """
        try:
            page = self._engine.entries(self._state.id, after=after, limit=upto - after)
        # One entry that can't be read fails its whole page.
        except Damaged:
            page = []
            for before in range(after, upto):
                page += self._alone(before)
        return {entry.seq: entry for entry in page if entry.seq <= upto}

    def _alone(self, after: int) -> Page:
        try:
            return self._engine.entries(self._state.id, after=after, limit=1)
        except Damaged as error:
            self.lost[after + 1] = error.problem
            return []

    def _sound(self, seq: int, entry: Entry | None) -> Entry:
        try:
            if entry is None:
                raise Damaged(where="an entry", problem="there is no such entry")
            vet_entry(entry)
            self._vet_parts(seq)
        except Damaged as error:
            self.lost.setdefault(seq, error.problem)
            entry = self._instead(seq, entry)
        # The time of the entry before is the best guess for one without a time.
        self._at = entry.at
        return entry

    def _vet_parts(self, seq: int) -> None:
        """`Damaged` for words that are not those that were said. Where some are missing the entry
        itself says so.
        """
        broken = self._broken.get(seq)
        if broken == "altered":
            problem = "a large part of it is not what it was stored as"
            raise Damaged(where="an entry", problem=problem)
        if broken is not None:
            self.lost[seq] = "a large part of it is missing"

    def _instead(self, seq: int, entry: Entry | None) -> Entry:
        """The placeholder. What of an entry's own names and numbers can't be one is that of its
        place.
        """
        if entry is None:
            entry = Entry(seq, "message", None, b"", -1, b"", b"")
        at = entry.at
        if type(at) is not int or not 0 <= at <= TIME_MAX:
            at = self._at
        turn = entry.turn
        if type(turn) is not int or not 0 < turn <= self._state.fence:
            turn = None
        id = entry.id
        if type(id) is not bytes or len(id) != 16:
            id = entry_name(self._state.id, f"entry {seq}", at)
        # Without its first entry no log can be read, so that one is made from what is known.
        if seq == self._state.origin + 1:
            return Entry(seq, "opened", None, id, at, self._opened(), b"")
        return placeholder(Entry(seq, entry.kind, turn, id, at, entry.note, b""))

    def _opened(self) -> bytes:
        """The note of the first entry: all but where the session came from is known
        beside the log.
        """
        state = self._state
        # The first entry of all has no past before it.
        parent = state.parent if state.origin else None
        parent_seq = state.origin or None
        return noted(
            Opened(state.key, state.epoch, parent=parent, parent_seq=parent_seq)
        )
