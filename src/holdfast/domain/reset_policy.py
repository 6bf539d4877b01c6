"""Routing: which session a key means now, and when it is time for a new one.

A reset policy is a value. It is asked with the time of the session's last activity and the time
now, and never while a turn is running; its answer is acted on in the transaction that resolves the
key (I-8).
"""

from datetime import UTC, datetime, time, timedelta, tzinfo
from functools import lru_cache
from typing import Any

import msgspec
from msgspec.structs import force_setattr

from holdfast.domain.arguments import (
    INTEGER_MAX,
    Rule,
    kept,
    number,
    refuse,
    shown,
    text,
)
from holdfast.errors import BadArgument

_IDLE_MAX_DAYS = 365_000
_hours = number("hours", most=_IDLE_MAX_DAYS * 24)
_minutes = number("minutes", most=_IDLE_MAX_DAYS * 24 * 60)
# A calendar has the years 1 to 9999: from here to there it has today, in every time zone, and some
# days before.
_CALENDAR_MS = (-62_000_000_000_000, 253_000_000_000_000)


class Policy(msgspec.Struct, frozen=True):
    """When a key gets a new session. Combine with `|`: whichever is due first."""

    def due(self, *, active_at: int, now: int) -> str | None:
        """The reason for a reset, or None. Times are in milliseconds since 1970."""
        _times(active_at, now)
        return None

    def __or__(self, other: "Policy") -> "Policy":
        if not isinstance(other, Policy):
            given = type(other).__name__
            raise BadArgument(
                parameter="a policy's other side of `|`",
                takes="another policy",
                given=f"a {given}",
            )
        return Either(self, other)


class Idle(Policy, frozen=True, kw_only=True):
    """A new session after this long without activity."""

    hours: float = 0
    minutes: float = 0

    def __post_init__(self) -> None:
        # The struct is frozen, and keeps what the rule has made of the value.
        force_setattr(self, "hours", kept(_hours, "hours", self.hours))
        force_setattr(self, "minutes", kept(_minutes, "minutes", self.minutes))

    def due(self, *, active_at: int, now: int) -> str | None:
        active_at, now = _times(active_at, now)
        idle_ms = (self.hours * 3600 + self.minutes * 60) * 1000
        return "idle" if now - active_at >= idle_ms else None


class Daily(Policy, frozen=True, kw_only=True):
    """A new session each day at this time of day, in this time zone. On the day of a change of
    clocks, a time that is skipped comes later by the length of the gap, and of one that comes twice
    the first counts.
    """

    at: str = "04:00"
    tz: str = "UTC"

    def __post_init__(self) -> None:
        force_setattr(self, "at", kept(_time_of_day, "at", self.at))
        force_setattr(self, "tz", kept(_name_of_zone, "tz", self.tz))

    def due(self, *, active_at: int, now: int) -> str | None:
        active_at, now = _times(active_at, now)
        now = kept(_calendar_time, "now", now)
        return "daily" if active_at < self._latest_boundary(now) else None

    def _latest_boundary(self, now: int) -> int:
        zone, moment = _zone(self.tz), time.fromisoformat(self.at)
        today = datetime.fromtimestamp(now / 1000, zone).date()
        # Today's may be still to come; and where clocks change, yesterday's as well.
        for days in (0, 1, 2):
            local = datetime.combine(today - timedelta(days=days), moment, zone)
            boundary = int(local.astimezone(UTC).timestamp() * 1000)
            if boundary <= now:
                return boundary
        raise AssertionError("one of three days has a boundary before now")


class Either(Policy, frozen=True):
    """Due as soon as one of the two is."""

    one: Policy
    other: Policy

    def due(self, *, active_at: int, now: int) -> str | None:
        active_at, now = _times(active_at, now)
        one = self.one.due(active_at=active_at, now=now)
        return one or self.other.due(active_at=active_at, now=now)


def _times(active_at: Any, now: Any) -> tuple[Any, Any]:
    # Any that a store can hold: an imported one may say what it likes.
    return kept(_any_time, "active_at", active_at), kept(_any_time, "now", now)


def _time(first: int, last: int) -> Rule:
    takes = f"milliseconds since 1970, from {first:,} to {last:,}"

    def check(parameter: str, value: Any) -> float:
        bare: float | None = None
        if isinstance(value, int) and not isinstance(value, bool):
            bare = int.__int__(value)
        elif isinstance(value, float):
            bare = float.__float__(value)
        # In bounds, which nan is not.
        if bare is not None and first <= bare <= last:
            return bare
        raise refuse(parameter, takes, value)

    return check


_any_time = _time(-INTEGER_MAX, INTEGER_MAX)
_calendar_time = _time(*_CALENDAR_MS)


def _time_of_day(parameter: str, value: Any) -> str:
    try:
        said = text(parameter, value)
        if time.fromisoformat(said).tzinfo is None:
            return said
    except (BadArgument, ValueError):
        pass
    raise BadArgument(
        parameter=parameter, takes='a time of day, such as "04:00"', given=shown(value)
    )


def _name_of_zone(parameter: str, value: Any) -> str:
    try:
        said = text(parameter, value)
        _zone(said)
    except Exception:
        # zoneinfo raises what its path lookup raises: ValueError, OSError, KeyError
        takes = 'the name of a time zone, such as "Europe/Berlin"'
        given = shown(value)
        raise BadArgument(parameter=parameter, takes=takes, given=given) from None
    return said


@lru_cache(maxsize=64)
def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    # loaded by those who need it: it takes longer than all of this module
    from zoneinfo import ZoneInfo

    return ZoneInfo(name)


def scope_of(tenant: str, *, key: str | None, session: str) -> str:
    """What an event id is unique in: the key, through all its sessions, or the session when it has
    none.
    """
    name = f"key {key}" if key is not None else f"session {session}"
    return f"{len(tenant)} {tenant} {name}"


def doing_scope(scope: str) -> str:
    """Where the names of resets and forks are noted that may be asked for again, apart from the
    event ids of the same scope.
    """
    return f"done {scope}"


def asking_scope(scope: str) -> str:
    """Where call ids that somebody was asked about are noted, apart from the event ids of the same
    scope: an id stays bound through resets and compactions.
    """
    return f"asked {scope}"
