"""What a store's engine is asked: on a server, each call is a round trip.

calls = EngineCalls(store)
…
calls.taken()        # Counter({"entries": 1, "submit": 1}); what comes then is counted anew
"""

from collections import Counter
from typing import Any

ASKED = ("current", "state", "entries", "labels", "inbox", "accepted", "under", "submit")


class EngineCalls:
    """Counts the calls of an engine by name, from now on."""

    def __init__(self, store: Any) -> None:
        self._made: Counter[str] = Counter()
        for name in ASKED:
            self._count(store._work.engine, name)

    def _count(self, engine: Any, name: str) -> None:
        work = getattr(engine, name)

        def counted(*given: Any, **named: Any) -> Any:
            self._made[name] += 1
            return work(*given, **named)

        setattr(engine, name, counted)

    def taken(self) -> dict[str, int]:
        """How many there were of each."""
        made, self._made = self._made, Counter()
        return dict(made)
