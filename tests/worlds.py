"""Worlds for tests: a clock that is moved by hand, and dice that come from a seed."""

import random
from datetime import datetime
from zoneinfo import ZoneInfo


class HandWorld:
    """Time and chance for `holdfast.open(world=…)`: nothing moves unless the test moves it."""

    def __init__(self, seed: int = 0, now: int = 1_700_000_000_000) -> None:
        self.at = now
        self.seconds = 0.0
        self._dice = random.Random(seed)

    def now(self) -> int:
        return self.at

    def tick(self) -> float:
        return self.seconds

    def clock(self) -> str:
        return "by hand"

    def chance(self, size: int) -> bytes:
        return self._dice.randbytes(size)

    def advance(self, *, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Both clocks go on by this much."""
        passed = hours * 3600 + minutes * 60 + seconds
        self.at += int(passed * 1000)
        self.seconds += passed

    def set_local(self, text: str, tz: str, *, fold: int = 0) -> None:
        """The wall clock shows this time there; the other clock stays."""
        self.at = local_ms(text, tz, fold=fold)


def local_ms(text: str, tz: str, *, fold: int = 0) -> int:
    """A wall time as milliseconds since 1970."""
    return int(
        datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(tz), fold=fold).timestamp() * 1000
    )
