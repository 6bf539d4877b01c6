"""Chance from a seed, the same on every machine."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")


class Dice:
    """Numbers that follow from a seed, whatever it is."""

    def __init__(self, *seed: object) -> None:
        # Not `random`: its numbers may differ from one version of Python to the next.
        self._key = hashlib.blake2b(
            "/".join(map(str, seed)).encode(), digest_size=32
        ).digest()
        self._count = 0

    def bytes(self, size: int) -> bytes:
        """So many bytes, at most 64."""
        # Counted, not chained: what was drawn before does not matter, only how often.
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
