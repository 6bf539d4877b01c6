"""The text of a streamed message for asyncio; see `delivery`."""

from collections.abc import AsyncIterable, AsyncIterator, Iterable
from typing import Any

from holdfast.runtime.plans.chunk_source_async import AsyncSource
from holdfast.runtime.plans.plan_asyncio import arun
from holdfast.runtime.turns.running_turn import RunningTurn


class AsyncDelivery(AsyncIterator[str]):
    """The pieces of one message; `aclose` leaves it before its end, and what was said so far is
    stored as partial.
    """

    def __init__(
        self, work: RunningTurn, chunks: AsyncIterable[Any] | Iterable[Any], format: str
    ) -> None:
        self._work, self._chunks = work, chunks
        self._stream = work.open_stream(format)
        self._source: AsyncSource | None = None
        self._over = self._reading = False

    def __aiter__(self) -> "AsyncDelivery":
        return self

    async def __anext__(self) -> str:
        if self._over:
            raise StopAsyncIteration
        # Before the `try`: this mistake must not cut off the task that is reading.
        if self._reading:
            raise ValueError("another task is reading this delivery")
        self._reading = True
        try:
            text = await self._advance()
        except BaseException as error:
            await self._leave(error)
            raise
        finally:
            self._reading = False
        if text is None:
            raise StopAsyncIteration
        return text

    async def _advance(self) -> str | None:
        """The next text to show; None at the end of the stream, when its message is stored."""
        work, stream, source = self._work, self._stream, self._source
        # Not in `__init__`: a source needs the running loop, and reads at once.
        if source is None:
            source = self._source = AsyncSource(self._chunks, work.session.world.tick)
            work.attend(stream, self, source.let_go)
            work.hold.lend(source.task)
        if work.ended:
            await arun(work.refuse())
        while not stream.taken_back and (batch := await source.batch()):
            text = await arun(work.store_chunks(stream, batch))
            if text:
                return text
        # its source was let go of because the turn is over: that is no end of the stream
        if work.ended:
            await arun(work.refuse())
        if stream.taken_back:
            await source.close()
            self._over = True
            return None
        stream.finish()
        await arun(work.close_stream(stream))
        self._over = True
        return None

    def __repr__(self) -> str:
        return f"<AsyncDelivery of turn {self._work.id}, {'over' if self._over else 'open'}>"

    async def aclose(self) -> None:
        """Leaves the stream before its end. Its source is closed, and what was handed on
        is stored.
        """
        if not self._over:
            await self._leave()

    async def _leave(self, error: BaseException | None = None) -> None:
        self._over = self._stream.closed = True
        if self._work.is_cut_loose(error):
            return  # what was handed on is stored with the turn's end
        try:
            if self._source is not None:
                await self._source.close()
        finally:
            # what is on its way out is re-raised, a cancellation above all
            with self._work.untold():
                closing = self._work.close_stream(self._stream)
                await arun(closing, deadline=self._work.deadline(error))
