"""What a handle has worked out from its session's entries, kept for the next time.

Ctrl-C may come between any two steps of bringing it up to date. What was interrupted is torn: it may
have counted an entry that it has not folded, and would lack it for good. So it says so of itself
before it changes anything, and is whole again only when all of a page is in; whoever finds it torn
works it out anew. Nothing has to be undone for that, so it does not matter what else is interrupted.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from holdfast.domain.entry import STARTING, Compacted, Draft, Entry, entry_of
from holdfast.domain.log.fold import Log
from holdfast.engine.protocol import Written
from holdfast.runtime.live.context import Contexts

STORED_MAX = 64
"""How many entries of its own a handle keeps in mind until they are folded."""


class Derived:
    """The folded log, and what was made from it. Thrown away as one: parts of an old one beside
    parts of a new one would be wrong.
    """

    def __init__(self, *, from_first: bool = False) -> None:
        self.log = Log()
        self.begun = from_first
        """Whether it is known with which entry `log` begins."""
        self.whole = from_first
        """Whether that is the first one."""
        self.history: Log | None = None
        """All of the log, where `log` begins later; without payloads."""
        self.contexts = Contexts()
        self.sums: Any = None
        self._stored: dict[int, Entry] = {}
        self.is_torn = False
        """Whether something was interrupted while it changed this."""

    def begin(
        self, base: Compacted | None = None, instructions: str | None = None
    ) -> None:
        """The log begins with this compaction; without one, with the first entry."""
        self.is_torn = True
        self.whole = base is None
        if base is not None:
            self.log.begin(base, instructions)
        self.begun = True
        self.is_torn = False

    def note_stored(self, drafts: Sequence[Draft], written: Written) -> None:
        """Its own session has stored these: they need not be read back. Any thread may call this,
        and what is forgotten between two of its steps is read.
        """
        # Nobody has asked for the log yet, or not for long.
        if not self.begun or len(self._stored) > STORED_MAX:
            self._stored.clear()
            return
        seq = written.seq
        for draft in drafts:
            turn = written.turn if draft.turn == STARTING else draft.turn
            self._stored[seq] = entry_of(draft, seq, turn)
            seq += 1

    def stored(self) -> list[Entry]:
        """What it has stored itself and stands next in the log, once. Behind an entry of somebody
        else's, all is read.
        """
        found: list[Entry] = []
        following = self.log.head + 1
        while (entry := self._stored.pop(following, None)) is not None:
            found.append(entry)
            following += 1
        self._stored.clear()
        return found

    def fold(self, log: Log, page: Iterable[Entry]) -> None:
        """Adds a page to `log` or to `history`."""
        self.is_torn = True
        log.add(page)
        self.is_torn = False
