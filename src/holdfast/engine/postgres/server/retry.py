"""Retrying: how long to try again, and how long to wait in between."""

import logging
import threading

import psycopg

from holdfast.engine.postgres.server.driver_errors import (
    in_words,
    is_meeting,
    out_of_patience,
    verdict,
)
from holdfast.engine.protocol import Chance, Tick

PAUSE_S, PAUSE_MAX_S = 0.004, 1.0
LOGGED_AT = 4
"""The first tries are everyday life; this one is logged."""

_log = logging.getLogger("holdfast")


class Retry:
    """For one thing that is tried until it is done or `limit_s` have passed. Pauses grow and are
    not all alike: those who got into each other's way should not meet again.
    """

    def __init__(
        self,
        where: str,
        limit_s: float,
        *,
        tick: Tick,
        chance: Chance,
    ) -> None:
        self._where, self._limit_s, self._tick, self._chance = (
            where,
            limit_s,
            tick,
            chance,
        )
        self._since, self._slept, self._tries = tick(), 0.0, 0

    def pause(self, error: psycopg.Error, *, in_doubt: bool = False) -> None:
        """Waits before the next try; the first one comes at once if the last was only overtaken."""
        again = verdict(error) == "again"
        self._tries += 1
        if again and self._tries == 1:
            return
        # a clock that stands still in a test, or in a machine that slept, must not make
        # this endless
        waited_s = max(self._tick() - self._since, self._slept)
        if waited_s >= self._limit_s:
            raise out_of_patience(
                error, self._where, waited_s, in_doubt=in_doubt
            ) from error
        if self._tries == LOGGED_AT:
            # Writers that meet are everyday life, however often; a server that can't be
            # reached is
            # not.
            level = logging.INFO if is_meeting(error) else logging.WARNING
            _log.log(level, "%s: %s; trying again", self._where, in_words(error))
        pause_s = min(PAUSE_MAX_S, PAUSE_S * 2 ** min(self._tries, 10)) * (
            0.5 + self._chance(1)[0] / 255
        )
        # nobody else knows it: it can be interrupted, and by nothing else
        threading.Event().wait(pause_s)
        self._slept += pause_s

    def over(self) -> None:
        """It was done."""
        if self._tries >= LOGGED_AT:
            _log.info("%s: it goes on, after %d tries", self._where, self._tries)
