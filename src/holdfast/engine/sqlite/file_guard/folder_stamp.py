"""A folder in which nothing has changed: one look at it instead of one at each of its files.

Making, moving or deleting a file changes the times of its folder, so while these stay the same, the
files in it are the same ones too. That look is not only shorter. A look at a log that is being
written costs its writer dear: Linux gives a file whose times were seen a time of its own at the
next change, and has to write that with the next sync, which then takes a third longer.

Times can be coarse: two changes within one grain leave the same time, and whoever looked between
them would miss the second. So a change is not the end of looking. The files are looked at again and
again until the folder's time has stayed the same for longer than a grain; what happens from then on
gets another time.
"""

import os
from collections.abc import Callable

from holdfast.engine.protocol import Tick

GRAIN_S = 0.2
"""Longer than a tick of any kernel, by which file systems tell the time at best, with some room for
a late one.
"""
COARSE_GRAIN_S = 2.5
"""Longer than the two seconds of the coarsest file systems."""

Stamp = tuple[int, int, int, int]


class FolderStamp:
    """A folder whose files are known to somebody, who can look at them. `tick` is a clock that
    never steps back.
    """

    def __init__(self, path: str, tick: Tick) -> None:
        self._path, self._tick = path, tick
        self._calm: Stamp | None = None
        self._seen: tuple[Stamp | None, float] = None, 0.0

    def is_calm(self, look: Callable[[], bool]) -> bool:
        """Whether all its files are as they were, which `look` tells where the folder can't. Called
        before each batch and each read, by any of their threads.
        """
        try:
            found = os.stat(self._path)
        except OSError:
            return look()
        stamp = found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev
        if stamp == self._calm:
            return True
        now = (
            self._tick()
        )  # before the files are looked at, so that nothing falls between the two
        if not look():
            return False
        seen, since = self._seen
        if stamp != seen:
            self._seen = stamp, now
        # from here on every change gives the folder another time
        elif now - since > _grain_s(stamp):
            self._calm = stamp
        return True


def _grain_s(stamp: Stamp) -> float:
    """How far apart two changes must lie to be told apart. A time in whole hundredths of a second
    is a coarse one.
    """
    return GRAIN_S if stamp[1] % 10_000_000 else COARSE_GRAIN_S
