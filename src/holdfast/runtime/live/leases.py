"""Whether somebody else's lease still runs, and whether what it protects is free (I-26).

An engine tells what is left of a lease by its own clock. That clock may be wrong by any amount: a
file was moved to another machine, a server took over whose time is another one. So a looker goes by
its own clock too: a lease that it has seen unchanged for as long as it was given for is over,
whatever else is said of it.
"""

from collections.abc import Callable

from holdfast.engine.protocol import SessionState, Waiting
from holdfast.runtime.process_identity import is_gone

WAITER_S = 30.0
"""How long a waiter is waited for that says nothing more. It renews its lease three times
as often.
"""
SEEN_MAX = 10_000

Name = tuple[str, bytes | None]


class Leases:
    """What this process has seen of leases, and since when."""

    def __init__(self, tick: Callable[[], float]) -> None:
        self._tick = tick
        self._seen: dict[Name, tuple[float | None, float]] = {}

    def is_over(self, state: SessionState) -> bool:
        """Whether the lease of the running turn is."""
        left_s = state.lease_left_s or 0.0
        name = (state.id, None)
        return self._left_s(name, left_s, state.lease_s, state.lease_mark) <= 0

    def is_free(self, session: str, waiting: Waiting) -> bool:
        """Whether a message in the inbox waits for any turn: nobody waits with it, or nobody is
        left who does.
        """
        if waiting.waiter is None or is_gone(waiting.waiter):
            return True
        # Earlier releases stored waiters without a lease.
        length_s = WAITER_S if waiting.lease_s is None else waiting.lease_s
        left_s = length_s if waiting.left_s is None else waiting.left_s
        name = (session, waiting.message)
        return self._left_s(name, left_s, length_s, waiting.mark) <= 0

    def _left_s(
        self, name: Name, left_s: float, length_s: float | None, mark: float | None
    ) -> float:
        if length_s is None or left_s <= 0:
            return left_s
        now = self._tick()
        seen = self._seen.get(name)
        # Another mark is another lease: it was renewed, and is watched from now on.
        if seen is None or seen[0] != mark:
            # Forgetting costs little: those leases are watched anew.
            if len(self._seen) >= SEEN_MAX:
                self._seen.clear()
            seen = self._seen[name] = (mark, now)
        return min(left_s, length_s - (now - seen[1]))
