"""Clients that connect and say nothing, or say it a byte a minute.

uvicorn waits for the head of a request as long as that takes, so whoever opens connections and
sends nothing holds them for ever. Here a head has arrived after `HEAD_S`, or its connection is
closed. (Bodies are limited by `limits`, and connections between requests by uvicorn itself.)
"""

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 10.0


class TimedProtocol(H11Protocol):
    """HTTP/1.1, for clients that say what they want within `HEAD_S`."""

    head_s = HEAD_S

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._head_due: asyncio.TimerHandle | None = None
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        # A request is known once its head is there.
        if self.cycle is not None and not self.cycle.response_complete:
            self._forget_head()
        else:
            self._expect_head()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # What came with it may be the beginning of the next one.
        if self.conn.trailing_data[0]:
            self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_head()
        super().connection_lost(exc)

    def _expect_head(self) -> None:
        # One that is being waited for is not given more time by another byte.
        if self._head_due is None:
            self._head_due = self.loop.call_later(self.head_s, self._give_up)

    def _forget_head(self) -> None:
        if self._head_due is not None:
            self._head_due.cancel()
            self._head_due = None

    def _give_up(self) -> None:
        self._head_due = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
