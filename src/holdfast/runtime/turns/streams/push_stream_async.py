"""A message whose source pushes, for asyncio; see `push_stream`."""

from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any

from holdfast.runtime.border import bordered
from holdfast.runtime.plans.plan_asyncio import adrive, arun
from holdfast.runtime.turns.running_turn import RunningTurn
from holdfast.runtime.turns.streams.push_stream import OpenStream


@bordered
class AsyncPushStream:
    """A message of a turn, from a source that pushes. In an `async with` block it is closed by
    leaving the block, and cut off by an exception.
    """

    def __init__(self, work: RunningTurn, format: str) -> None:
        self._open = OpenStream(work, format)
        self.message_id = self._open.stream.id.hex()

    async def push(self, chunk: Any) -> str:
        """Stores a chunk and returns its text, to be shown: it is durable now. A push that is
        cancelled, or raises anything but `InvalidMessage`, ends the stream: what was stored of it
        is a partial message, and what follows needs another stream.
        """
        self._open.begin(self, chunk)
        return await arun(self._open.push(chunk))

    async def _push_all(self, chunks: Sequence[Any]) -> str:
        """Stores several chunks in one commit, all or none; the text of them, to be shown."""
        for chunk in chunks:
            self._open.begin(self, chunk)
        return await arun(self._open.push(*chunks))

    def _push_then(
        self,
        chunks: Sequence[Any],
        then: Callable[[str], Any],
        failed: Callable[[BaseException], Any],
    ) -> None:
        """The same for one who does not await it: `then` is called with the text, or `failed`."""
        for chunk in chunks:
            self._open.begin(self, chunk)
        adrive(self._open.push(*chunks), then, failed)

    @property
    def _texts(self) -> list[str]:
        """What each chunk of the last push says."""
        return self._open.stream.texts

    def close(self) -> Awaitable[None]:
        """Ends the message; a second time does nothing."""
        return arun(self._open.close())

    async def __aenter__(self) -> "AsyncPushStream":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            await arun(self._open.close())
        else:
            deadline = self._open.deadline(error)
            await arun(self._open.leave(error), deadline=deadline)
