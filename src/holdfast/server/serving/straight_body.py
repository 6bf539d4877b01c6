"""The bodies of a request and of its answer that both go on, past all who only look how they begin.

Such a body has thousands of pieces, and each of them would come through a dozen functions that have
nothing to say about it. Where the connection is at hand (`serving.slow_clients`), a piece is given to
whoever listens as it comes, and one of the answer is written at once if its client listens: nobody
is woken for it.
"""

from collections.abc import Callable
from typing import Any

from starlette.types import Scope, Send

STRAIGHT = "holdfast.straight"
"""Where a request has its `StraightBody` in its scope."""


class StraightBody:
    """Pieces of a request and of its answer, once that has begun: as they come and go through any
    server.
    """

    def __init__(self, send: Send | None = None) -> None:
        self._send = send

    def listen(self, hear: Callable[[bytes], None] | None) -> None:
        """From now on each piece of the request is given to `hear`, where that can be; all others,
        and its end, come as they do otherwise. None: to nobody any more.
        """

    def pause(self) -> None:
        """There is more to do than can be done: no more is read from this client."""

    def resume(self) -> None:
        """It is done."""

    @property
    def is_free(self) -> bool:
        """Whether a piece can be written now. If not, it has to be waited for, in `send`."""
        return False

    def write(self, body: bytes) -> None:
        """Writes a piece now; only where that is free."""
        raise NotImplementedError

    async def send(self, body: bytes) -> None:
        """Sends a piece, as soon as the client has taken those before it."""
        if body and self.is_free:
            self.write(body)
        elif body:
            more: dict[str, Any] = {"type": "http.response.body", "more_body": True}
            await self.pass_on({**more, "body": body})

    async def pass_on(self, message: Any) -> None:
        """Hands a message to the server."""
        if self._send is not None:
            await self._send(message)


def straight_body(scope: Scope) -> StraightBody:
    """The body of the answer to this request."""
    found: StraightBody = scope[STRAIGHT]
    return found
