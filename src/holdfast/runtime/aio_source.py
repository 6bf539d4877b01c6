"""Where chunks come from, for asyncio; see `source`."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterable
from typing import Any

from holdfast.runtime.source import AHEAD_MAX, Pace


class AsyncSource:
    """Chunks in batches, each asked for when the one before it has been dealt with. One task does all the reading, so
    that what the source binds to its task stays bound.
    """

    def __init__(self, chunks: AsyncIterable[Any] | Iterable[Any], tick: Callable[[], float]) -> None:
        self._source = chunks
        self._pace = Pace(tick)
        self._chunks: deque[Any] = deque()
        self._go, self._news = asyncio.Event(), asyncio.Event()
        self._ended = self._eager = False
        self._error: BaseException | None = None
        self._task = asyncio.ensure_future(self._run())

    async def __aiter__(self) -> AsyncIterator[list[Any]]:
        try:
            while True:
                self._pace.asking()
                self._go.set()
                while not self._chunks and not self._ended:
                    self._news.clear()
                    await self._news.wait()
                if not self._chunks:
                    break
                self._pace.came()
                batch = list(self._chunks)
                self._chunks.clear()
                yield batch
                self._eager = self._eager or self._pace.stored()
        finally:
            await self._stop()
        if self._error is not None:
            raise self._error

    async def _run(self) -> None:
        try:
            async with contextlib.aclosing(_each(self._source)) as source:
                async for chunk in source:
                    self._chunks.append(chunk)
                    self._news.set()
                    if not self._eager or len(self._chunks) >= AHEAD_MAX:
                        self._go.clear()
                    await self._go.wait()
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._error = error
        finally:
            self._ended = True
            self._news.set()

    async def _stop(self) -> None:
        if not self._task.done():
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


async def _each(source: AsyncIterable[Any] | Iterable[Any]) -> AsyncGenerator[Any, None]:
    """Chunks of either kind of iterable; the source is closed when it is left."""
    if isinstance(source, AsyncIterable):
        try:
            async for chunk in source:
                yield chunk
        finally:
            close = getattr(source, "aclose", None) or getattr(source, "close", None)
            if callable(close):
                closing = close()
                if asyncio.iscoroutine(closing):
                    await closing
    else:
        for chunk in [source] if isinstance(source, str) else source:
            yield chunk
            await asyncio.sleep(0)
