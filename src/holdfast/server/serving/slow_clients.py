"""Clients that connect and say nothing, or say it a byte a minute, or never come to an end; and
those that do not listen.

uvicorn waits for the head of a request as long as that takes, so whoever opens connections and
sends nothing holds them for ever. Here a head has arrived after `HEAD_S` and within some
`HEAD_BYTES_MAX`, or its connection is closed. (Bodies are limited by `limits`, and connections
between requests by uvicorn itself.)

It waits as long for a client that asks for a stream and takes nothing of it. Here one that has
taken nothing for `DEAF_S` is cut off; however slow it is, one that takes something is not. When the
server is told to end, a stream whose client does not listen ends at once: there is no way to tell it.
What is left of a whole answer then is for a client that takes some of it within `LEFT_S`.
"""

import asyncio
import sys
import weakref
from collections.abc import Callable
from typing import Any, cast

import httptools
from uvicorn.protocols.http.httptools_impl import (
    HttpToolsProtocol,
    RequestResponseCycle,
)

from holdfast.server.serving.straight_body import STRAIGHT, StraightBody
from holdfast.server.waiting import ENDLESS

HEAD_S = 10.0
HEAD_BYTES_MAX = 64 * 1024
DEAF_S = 30.0
LEFT_S = 1.0


class _ConnectedBody(StraightBody):
    """The bodies of a request and its answer on a connection of this process."""

    def __init__(self, cycle: RequestResponseCycle) -> None:
        super().__init__()
        # Weakly: it is in the scope that the cycle knows.
        self._cycle = weakref.ref(cycle)
        self.hear: Callable[[bytes], None] | None = None

    def listen(self, hear: Callable[[bytes], None] | None) -> None:
        self.hear = hear
        cycle = self._cycle()
        # What has come before is in its body.
        if hear is not None and cycle is not None and cycle.body:
            come, cycle.body = bytes(cycle.body), bytearray()
            hear(come)

    def pause(self) -> None:
        cycle = self._cycle()
        if cycle is not None:
            cycle.flow.pause_reading()

    def resume(self) -> None:
        cycle = self._cycle()
        if cycle is not None:
            cycle.flow.resume_reading()

    @property
    def is_free(self) -> bool:
        cycle = self._cycle()
        # A client that does not take what it is sent, or is being left.
        if cycle is None or cycle.flow.write_paused or cycle.transport.is_closing():
            return False
        # All else is for uvicorn to judge: an answer to an old client, or to one that has gone.
        is_going_on = cycle.response_started and not cycle.response_complete
        return is_going_on and bool(cycle.chunked_encoding) and not cycle.disconnected

    def write(self, body: bytes) -> None:
        cycle = self._cycle()
        assert cycle is not None
        cycle.transport.write(b"%x\r\n%b\r\n" % (len(body), body))

    async def pass_on(self, message: Any) -> None:
        cycle = self._cycle()
        if cycle is not None:
            await cycle.send(message)


class TimedProtocol(HttpToolsProtocol):
    """HTTP/1.1, for clients that say what they want within `HEAD_S`, and take what they are
    answered.
    """

    # httptools parses in C. h11, which uvicorn has otherwise, takes a third of the time of a server
    # that streams.

    head_s = HEAD_S
    deaf_s = DEAF_S

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._head_due: asyncio.TimerHandle | None = None
        self._listening: asyncio.TimerHandle | None = None
        self._straight: _ConnectedBody | None = None
        self._data = b""
        self._is_told_body = False
        self._is_ending = False
        self._is_in_head = False
        self._head_bytes = 0
        self._expect_head()

    def on_message_begin(self) -> None:
        if self._is_told_body:
            return
        super().on_message_begin()
        self._is_in_head = True
        self._head_bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        # What comes behind a body is no header: the request was let in without it.
        if self._is_in_head:
            super().on_header(name, value)

    def on_url(self, url: bytes) -> None:
        if not self._is_told_body:
            super().on_url(url)

    def on_headers_complete(self) -> None:
        if self._is_told_body:
            return
        self._is_in_head = False
        super().on_headers_complete()
        if self.cycle is not None and self.cycle.scope is self.scope:
            self._straight = _ConnectedBody(self.cycle)
            scope: dict[str, Any] = cast(dict[str, Any], self.scope)
            scope[STRAIGHT] = self._straight

    def on_body(self, body: bytes) -> None:
        hear = None if self._straight is None else self._straight.hear
        if hear is None or self.cycle.response_complete:
            super().on_body(body)
        else:
            hear(body)

    def on_message_complete(self) -> None:
        # The parser ends a request that asks for another protocol with its head, whatever follows.
        if not self.parser.should_upgrade() or self._should_upgrade():
            super().on_message_complete()

    def _unsupported_upgrade_warning(self) -> None:
        """A request asks for a protocol that is not spoken here, such as `h2c`: it is answered as if it
        had not. Its body follows, for a parser that is only told how it will come.
        """
        asking = sys.exc_info()[1]
        assert isinstance(asking, httptools.HttpParserUpgrade)
        rest = self._data[asking.args[0] :]
        self.parser = httptools.HttpRequestParser(self)
        head = [b"POST / HTTP/1.1\r\n"]
        for name, value in self.headers:
            if name in (b"content-length", b"transfer-encoding"):
                head.append(b"%b: %b\r\n" % (name, value))
        self._is_told_body = True
        try:
            self.parser.feed_data(b"".join(head) + b"\r\n")
        finally:
            self._is_told_body = False
        super().data_received(rest)

    def send_400_response(self, msg: str) -> None:
        # In the middle of an answer it would be taken for a piece of that.
        if self.cycle is not None and self.cycle.response_started:
            if not self.cycle.response_complete:
                self.transport.close()
                return
        super().send_400_response(msg)

    def data_received(self, data: bytes) -> None:
        self._data = data
        super().data_received(data)
        self._data = b""
        if self.transport.is_closing():
            return
        if self._is_in_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX:
                self.send_400_response("The head of the request is too large.")
                return
        # A request is known once its head is there.
        if self.cycle is not None and not self.cycle.response_complete:
            self._forget_head()
        else:
            self._expect_head()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # What came with it may be the beginning of the next one.
        if self._is_in_head:
            self._expect_head()
        self._leave_when_told()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._listen(self.transport.get_write_buffer_size())
        self._leave_if_deaf()

    def shutdown(self) -> None:
        super().shutdown()
        self._is_ending = True
        self._leave_if_deaf()
        self._leave_when_told()

    def _leave_if_deaf(self) -> None:
        is_deaf = self._is_ending and self._listening is not None
        if is_deaf and self.cycle is not None and ENDLESS in self.cycle.scope:
            self.transport.abort()

    def _leave_when_told(self) -> None:
        """A server that ends is done with a connection when the client has its answer. It is closed,
        but whoever takes nothing would keep it, and the server, for ever.
        """
        is_told = self.cycle is None or self.cycle.response_complete
        left = self.transport.get_write_buffer_size()
        if self._is_ending and is_told and left:
            self.deaf_s = min(self.deaf_s, LEFT_S)
            self._forget_listening()
            self._listen(left)

    def resume_writing(self) -> None:
        self._forget_listening()
        super().resume_writing()
        self._leave_when_told()

    def _listen(self, left: int) -> None:
        self._listening = self.loop.call_later(self.deaf_s, self._look, left)

    def _look(self, left: int) -> None:
        """Whether the client has taken any of what was left; new bytes are not added meanwhile."""
        now = self.transport.get_write_buffer_size()
        if now < left:
            self._listen(now)
        else:
            # Not closed: that would wait until the client has taken all of it.
            self.transport.abort()

    def _forget_listening(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            self._listening = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_head()
        self._forget_listening()
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
