"""Chance from a seed, the same on every machine, and a world that is ruled by it: one seed, one
world.

Nothing here moves by itself. The clocks stand still until somebody moves them, the wall clock in
either direction and the other one forward only, and leases are renewed when a hand keeper is told
to make its round.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import TypeVar

from holdfast.runtime.live.lease_keeper import LeaseKeeper

T = TypeVar("T")

BEGINNING_MS = 1_700_000_000_000


class Dice:
    """Numbers that follow from a seed, whatever it is."""

    def __init__(self, *seed: object) -> None:
        self._key = hashlib.blake2b(
            "/".join(map(str, seed)).encode(), digest_size=32
        ).digest()
        self._count = 0

    def bytes(self, size: int) -> bytes:
        """So many bytes, at most 64."""
        self._count += 1
        return hashlib.blake2b(
            self._count.to_bytes(8, "big"), digest_size=size, key=self._key
        ).digest()

    def below(self, limit: int) -> int:
        """A number from 0 up to this one, which is not reached."""
        return int.from_bytes(self.bytes(8), "big") % limit

    def happens(self, share: float) -> bool:
        """True in this share of all cases."""
        return self.below(1_000_000) < share * 1_000_000

    def pick(self, things: Sequence[T]) -> T:
        """One of these."""
        return things[self.below(len(things))]

    def weighted(self, weights: Mapping[T, int]) -> T:
        """One of these, as often as its weight says."""
        left = self.below(sum(weights.values()))
        for thing, weight in weights.items():
            left -= weight
            if left < 0:
                return thing
        raise AssertionError("the weights come to more than their sum")


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
