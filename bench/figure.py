"""A figure: what was measured, beside what it has to be."""

import statistics
from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec

Key = TypeVar("Key")


class Run(msgspec.Struct, frozen=True):
    """One run of the benchmark in one world."""

    world: str
    quick: bool = False

    @property
    def repeats(self) -> int:
        return 5 if self.quick else 9

    def some(self, native: int, slowed: int) -> int:
        """How much work one repeat does: enough to measure, not enough to bore."""
        count = native if self.world == "native" else slowed
        return max(1, count // 4) if self.quick else count

    def figure(
        self,
        name: str,
        value: float,
        unit: str,
        *,
        at_least: float | None = None,
        at_most: float | None = None,
        by: str = "",
    ) -> "Figure":
        return Figure(name, self.world, value, unit, at_least, at_most, by)


class Figure(msgspec.Struct, frozen=True):
    """`by` says how it was measured: counts, the parts of a ratio."""

    name: str
    world: str
    value: float
    unit: str
    at_least: float | None = None
    at_most: float | None = None
    by: str = ""

    @property
    def verdict(self) -> str:
        """`ok`, `short`, or nothing where the figure has no bar."""
        if self.at_least is None and self.at_most is None:
            return ""
        low, high = self.at_least, self.at_most
        return (
            "ok"
            if (low is None or self.value >= low) and (high is None or self.value <= high)
            else "short"
        )


def interleaved(repeats: int, rounds: dict[Key, Callable[[], float]]) -> dict[Key, list[float]]:
    """Runs each in turn, again and again: what disturbs one disturbs all alike. The first time does
    not count.
    """
    found: dict[Key, list[float]] = {name: [] for name in rounds}
    for repeat in range(repeats + 1):
        for name, measure in rounds.items():
            value = measure()
            if repeat:
                found[name].append(value)
    return found


def ratio(over: Iterable[float], under: Iterable[float]) -> float:
    """The median of the ratios of neighbours."""
    return statistics.median(one / other for one, other in zip(over, under, strict=True))


def percentile(values: Iterable[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


median = statistics.median
