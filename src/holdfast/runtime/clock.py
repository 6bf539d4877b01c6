"""Clock and chance: the only file that knows the time or rolls dice.

A `World` is given to a store when it is opened; tests give their own, with a seed, and get the same
run again.
"""

import os
import threading
import time
from collections import deque
from typing import Protocol

from holdfast.runtime.process_identity import clock_name


def real_tick() -> float:
    """Seconds on the machine's own clock, whatever clock a store was given: for how long a thread
    really waits.
    """
    return time.monotonic()


def wall_ns() -> int:
    """Nanoseconds since 1970 on the machine's own clock, whatever clock a store was given: the times
    of spans, which others put beside theirs.
    """
    return time.time_ns()


class World(Protocol):
    """Clock and randomness of a store. Tests give their own, with a seed, and get the same run
    again.
    """

    def now(self) -> int:
        """Milliseconds since 1970, UTC; data for people, never order."""
        ...

    def tick(self) -> float:
        """Seconds on a clock that is shared by all processes of this machine and never
        steps back.
        """
        ...

    def clock(self) -> str:
        """The name of that clock: clocks of the same name tell the same time. Empty when it has
        none.
        """
        ...

    def chance(self, size: int) -> bytes:
        """Random bytes."""
        ...


class RealWorld:
    """The machine's clock and the machine's randomness.

    Randomness is drawn ahead: asking the kernel lets go of the interpreter's lock, and with many
    writers that costs more than everything else about an id. A forked child draws anew.
    """

    def now(self) -> int:
        return time.time_ns() // 1_000_000

    if hasattr(time, "CLOCK_BOOTTIME"):

        def tick(self) -> float:
            # Unlike the monotonic clock of Linux it goes on while the machine sleeps: a
            # lease runs out then, too.
            return time.clock_gettime(time.CLOCK_BOOTTIME)
    else:

        def tick(self) -> float:
            return time.monotonic()

    def clock(self) -> str:
        return clock_name()

    def chance(self, size: int) -> bytes:
        # Other sizes are rare, for the id of a session or of a call: only what every
        # entry needs is drawn ahead.
        if size != _MINTED:
            return os.urandom(size)
        try:
            # No lock: popping from a deque is one step, so no two threads get the same
            # bytes.
            return _drawn.pop()
        except IndexError:
            raw = os.urandom(_MINTED * 256)
            _drawn.extend(
                raw[at : at + _MINTED] for at in range(_MINTED, len(raw), _MINTED)
            )
            return raw[:_MINTED]


_MINTED = 10
_drawn: deque[bytes] = deque()
# Parent and child would mint the same ids from the same bytes.
os.register_at_fork(after_in_child=_drawn.clear)


def mint_session(world: World) -> str:
    """A fresh session id: a random UUID, its leading bits random too."""
    raw = bytearray(world.chance(16))
    # Version 4 and the variant of RFC 9562. No time in front, as version 7 has it:
    # eight letters are to tell sessions apart, and ids to be spread evenly.
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    digits = raw.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def mint(world: World, at: int) -> bytes:
    """A fresh id for an entry or a message: 48 bits of time for people to sort by, 80 bits of
    chance.
    """
    return at.to_bytes(6, "big") + world.chance(_MINTED)


class Arrivals:
    """Mints ids of messages as they come in: those of one moment sort in the order in which they
    came.
    """

    def __init__(self, world: World) -> None:
        self._world, self._lock, self._last = world, threading.RLock(), b""

    def mint(self) -> bytes:
        """A fresh id, after all that were minted here before it, unless the clock has gone back."""
        id = mint(self._world, self._world.now())
        with self._lock:
            # Only within one millisecond: in a later one it is greater anyway, and one
            # that the clock has gone back to is not made up for.
            if id <= self._last and id[:6] == self._last[:6]:
                step = int.from_bytes(id[-4:], "big") + 1
                id = (int.from_bytes(self._last, "big") + step).to_bytes(16, "big")
            self._last = id
            return id
