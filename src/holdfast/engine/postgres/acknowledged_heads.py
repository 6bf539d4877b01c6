"""How far sessions had come when this process was last told so: a server that knows less is not the
one that said it.

What was acknowledged after a question was asked says nothing about the answer, so acknowledgements
are numbered.
"""

import itertools
from collections.abc import Iterable

SESSIONS_MAX = 20_000


class AcknowledgedHeads:
    """Heads of sessions, as far as this process has written them; shared by all threads of an
    engine.
    """

    def __init__(self) -> None:
        self._heads: dict[str, tuple[int, int]] = {}
        self._numbers = itertools.count(1)
        self.count = 0

    def note(self, heads: Iterable[tuple[str, int]]) -> None:
        """So much of these sessions is there: one acknowledgement for all of them."""
        # what is forgotten is not checked: it is one look less, and never a wrong
        # answer
        if len(self._heads) >= SESSIONS_MAX:
            self._heads = {}
        number = next(self._numbers)
        known = self._heads
        for session, head in heads:
            known[session] = (head, number)
        # after the heads are there: a reader that sees the number finds what it stands
        # for
        self.count = number

    def head(self, session: str, until: int) -> int:
        """How far it had come at least, by what was acknowledged up to this number."""
        head, number = self._heads.get(session, (0, 0))
        return head if number <= until else 0
