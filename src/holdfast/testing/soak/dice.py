"""A world that is ruled by chance from a seed: one seed, one world.

Nothing here moves by itself. The clocks stand still until somebody moves them, the wall clock in
either direction and the other one forward only, and leases are renewed when a hand keeper is told
to make its round.
"""

from holdfast.runtime.live.lease_keeper import LeaseKeeper
from holdfast.testing.dice import Dice

# Far from zero: clocks are set back in a soak, by a day at a time.
BEGINNING_MS = 1_700_000_000_000


class DiceWorld:
    """Time and chance for a store, from a seed; see `clock.World`."""

    def __init__(self, *seed: object) -> None:
        self._dice = Dice("world", *seed)
        self.at = BEGINNING_MS
        self.seconds = 1_000.0

    def now(self) -> int:
        return self.at

    def tick(self) -> float:
        return self.seconds

    def clock(self) -> str:
        return "dice"

    def chance(self, size: int) -> bytes:
        return self._dice.bytes(size)

    def step_clock(self, ms: int) -> None:
        """Somebody sets the wall clock, forward or back."""
        self.at = max(0, self.at + ms)

    def pass_time(self, seconds: float) -> None:
        """Both clocks go on."""
        self.at += int(seconds * 1000)
        self.seconds += seconds


class HandKeeper(LeaseKeeper):
    """A keeper without a thread: leases are renewed when `round` is called, and not otherwise."""

    def _look_out(self, lease_s: float) -> None:
        """Whoever has this keeper makes its rounds."""
