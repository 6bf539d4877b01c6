"""Limits: how large a request may be, how long it may take to arrive, how many there may be.

A body is counted as it comes, whatever its headers say, and read no further than the limit. One
that comes too slowly is given up: whoever sends a byte a minute holds nothing for long. (What comes
before the body is limited by `serving.slow_clients`.)
"""

import asyncio
import math
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.server.problems import WireProblem

BODY_MAX = 16 << 20
"""A request may be so large, in bytes."""
BODY_S = 30.0
"""A body has arrived after so many seconds."""
BUCKETS_MAX = 10_000


class Limits:
    """Refuses bodies that are too large or too slow, and, with a `rate`, senders that ask more often
    than so many times a second.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        bytes_max: int,
        body_s: float,
        rate: float,
        tick: Callable[[], float],
    ) -> None:
        self._app = app
        self._bytes_max, self._body_s = bytes_max, body_s
        self._rates = Rates(rate, tick) if rate else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if self._rates is not None:
            self._rates.count(scope)
        _look_at_length(scope, self._bytes_max)
        limit = BodyLimit(receive, bytes_max=self._bytes_max, body_s=self._body_s)
        scope.setdefault("state", {})["body_limit"] = limit
        await self._app(scope, limit.receive, send)


class BodyLimit:
    """What is left of the limits of one request."""

    def __init__(self, receive: Receive, *, bytes_max: int, body_s: float) -> None:
        self._receive = receive
        self._bytes_max, self._body_s = bytes_max, body_s
        self._taken = 0
        self._ended = self._is_by_line = False
        # For the body as a whole: a limit for each piece would let a sender drip for
        # ever.
        self._deadline = asyncio.get_running_loop().time() + body_s

    def by_line(self) -> None:
        """From now on each line is limited, and not the whole: it goes on for as long as its sender
        has something to say. Whoever reads it looks for one who has gone.
        """
        self._is_by_line = True

    def line(self, length: int) -> None:
        """A line is so long already."""
        if length > self._bytes_max:
            raise _too_large(self._bytes_max)

    async def receive(self) -> Message:
        # After the body, what comes is news of the connection: that may take any time.
        if self._ended or self._is_by_line:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            detail = f"The body did not arrive within {self._body_s:g} seconds."
            raise WireProblem("too_slow", detail, headers=CLOSE) from None
        self._taken += len(message.get("body", b""))
        self._ended = not message.get("more_body", False)
        if self._taken > self._bytes_max:
            raise _too_large(self._bytes_max)
        return message


CLOSE = {"connection": "close"}
"""The rest of such a request is not read: the connection can't be used again."""


def _look_at_length(scope: Scope, most: int) -> None:
    """Refuses what says itself that it is too large, before any of it is read."""
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and int(value) > most:
            raise _too_large(most)


def _too_large(most: int) -> WireProblem:
    detail = f"A request takes at most {most:,} bytes."
    return WireProblem("too_large", detail, headers=CLOSE, bytes_max=most)


class Rates:
    """How often each sender asks. A sender may save up one second's worth of requests."""

    def __init__(self, rate: float, tick: Callable[[], float]) -> None:
        self._rate, self._tick = rate, tick
        self._left: dict[str, tuple[float, float]] = {}

    def count(self, scope: Scope) -> None:
        """One more request; refused when its sender has none left."""
        who = scope.get("state", {}).get("identity")
        client = scope.get("client") or ("", 0)
        name = f"{who.tenant} {who.name}" if who is not None else client[0]
        now = self._tick()
        burst = max(1.0, self._rate)
        # Taken out before it is set, so that whoever asked last stands behind the
        # others.
        left, since = self._left.pop(name, (burst, now))
        left = min(burst, left + (now - since) * self._rate)
        is_refused = left < 1
        # Who is refused keeps what it has saved up: one who asks all the time would
        # never be let in otherwise.
        self._left[name] = (left if is_refused else left - 1, now)
        if len(self._left) > BUCKETS_MAX:
            # Whoever has not asked for the longest time has, most likely, all of it
            # again.
            del self._left[next(iter(self._left))]
        if is_refused:
            wait = math.ceil((1 - left) / self._rate)
            raise WireProblem(
                "rate_limited",
                f"At most {self._rate:g} requests a second; wait a little.",
                headers={"retry-after": str(wait)},
            )
