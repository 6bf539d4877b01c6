"""How long a lease in a file still runs: a file has no clock of its own, and may be moved to
another machine.

Within one boot of one machine all processes share a clock that never steps, and a lease is over
when that says so. On any other machine, or after a restart, its time since boot means nothing:
there the calendar decides, with some room for clocks that differ, and never for longer than the
lease was given for.
"""

from collections.abc import Callable
from typing import NamedTuple

from holdfast.engine.protocol import Now, Tick

CALENDAR_SLACK_S = 30.0
"""By how much the calendars of two machines may differ without harm."""
USUAL_S = 30.0
"""What a lease was given for that was stored before it was noted."""


class Clock(NamedTuple):
    """The time as of one moment: seconds of the clock of this name, and milliseconds since 1970."""

    name: str
    tick: float
    now: int


def clock_of(name: str, tick: Tick, now: Now | None) -> Callable[[], Clock]:
    """What tells the time of this clock; without a calendar, that goes as the clock does."""
    return lambda: Clock(name, tick(), int(tick() * 1000) if now is None else now())


class Kept(NamedTuple):
    """A lease as it is kept: until when, by which clock; how long it was given for; until when by
    the calendar.
    """

    until: float | None = None
    clock: str | None = None
    length_s: float | None = None
    calendar_s: float | None = None

    def left_s(self, here: Clock) -> float:
        """What is left of it, as far as it can be told here."""
        # the same boot of the same machine: its clock never steps, and is right to the
        # millisecond
        if self.clock and self.clock == here.name:
            return (self.until or 0.0) - here.tick
        length_s = USUAL_S if self.length_s is None else self.length_s
        # stored before the calendar was noted: then the whole length counts from this
        # look
        if self.calendar_s is None or not length_s:
            return length_s
        return min(length_s, self.calendar_s + CALENDAR_SLACK_S - here.now / 1000)


NO_LEASE = Kept()


def given(length_s: float, here: Clock) -> Kept:
    """A lease of this length, from now on."""
    return Kept(here.tick + length_s, here.name, length_s, here.now / 1000 + length_s)
