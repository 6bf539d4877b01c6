"""What is on its way to the client, between who reads the provider and who writes to the client: each
can be slow, and each can be gone, without the other.
"""

import asyncio
from typing import NamedTuple

from holdfast.server.proxy.upstream import Header

PIECES_MAX = 64
STALLED_S = 60.0
"""A client that takes nothing for so long is taken for gone."""


class Head(NamedTuple):
    """The beginning of an answer."""

    status: int
    headers: list[Header]


class BrokenOff(NamedTuple):
    """The answer breaks off: the client must not take it for whole."""


Piece = Head | bytes | BrokenOff | None
"""None at the end."""


class Relay:
    """The pieces of one answer, in order."""

    def __init__(self) -> None:
        self._pieces: asyncio.Queue[Piece] = asyncio.Queue(PIECES_MAX)
        self.is_left = False
        self.has_begun = False
        """Whether the head of the answer was handed on."""

    async def put(self, piece: Piece) -> None:
        """Hands a piece on. Waits while the client is behind; nothing, when it is gone."""
        if self.is_left:
            return
        self.has_begun |= isinstance(piece, Head)
        try:
            async with asyncio.timeout(STALLED_S):
                await self._pieces.put(piece)
        except TimeoutError:
            self.leave()

    async def get(self) -> Piece:
        """The next piece."""
        return await self._pieces.get()

    async def fail(self, status: int, body: bytes) -> None:
        """Hands an error on, or breaks off what has begun."""
        if self.has_begun:
            await self.put(BrokenOff())
            return
        kind = (b"content-type", b"application/json")
        length = (b"content-length", str(len(body)).encode())
        await self.put(Head(status, [kind, length]))
        await self.put(body)
        await self.put(None)

    def leave(self) -> None:
        """The client is gone: whatever comes is taken by nobody."""
        self.is_left = True
        while not self._pieces.empty():
            self._pieces.get_nowait()
        # Whoever still writes to it is to stop.
        self._pieces.put_nowait(BrokenOff())
