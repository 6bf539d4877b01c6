"""Where chunks come from, for asyncio; see `chunk_source`."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterable, Callable, Iterable
from typing import Any

from holdfast.runtime.plans.chunk_source import AHEAD_MAX, Pace


class Bell:
    """Rung by one task and heard by one other, which costs less than an `asyncio.Event` does:
    each chunk of a stream is waited for.
    """

    def __init__(self) -> None:
        self.has_rung = False
        self._heard: asyncio.Future[None] | None = None

    def ring(self) -> None:
        self.has_rung = True
        heard = self._heard
        # Nobody may wait yet, and one that did may have been cancelled.
        if heard is not None and not heard.done():
            heard.set_result(None)

    def hush(self) -> None:
        self.has_rung = False

    def heard(self) -> "asyncio.Future[None]":
        """To be awaited, by one at a time; it is over when the bell rings next."""
        self._heard = asyncio.get_running_loop().create_future()
        return self._heard


class AsyncSource:
    """Chunks in batches, each asked for when the one before it has been dealt with. One task does
    all the reading, so that what the source binds to its task stays bound.
    """

    def __init__(
        self, chunks: AsyncIterable[Any] | Iterable[Any], tick: Callable[[], float]
    ) -> None:
        self._source = chunks
        self._pace = Pace(tick)
        self._chunks: deque[Any] = deque()
        self._go, self._news = Bell(), Bell()
        self._ended = self._eager = self._given = self._left = False
        self._error: BaseException | None = None
        self._loop = asyncio.get_running_loop()
        self.task = asyncio.ensure_future(self._run())

    async def batch(self) -> list[Any]:
        """All that has come, at least one chunk; nothing at the end. Raises what the source has
        raised, a cancellation of its own included: what was cut off has not ended.
        """
        self._eager = self._eager or (self._given and self._pace.stored())
        self._pace.asking()
        self._go.ring()
        while not self._chunks and not self._ended:
            self._news.hush()
            await self._news.heard()
        # What came before the error is given first.
        if not self._chunks and self._error is not None:
            raise self._error
        self._pace.came()
        batch = list(self._chunks)
        self._chunks.clear()
        self._given = True
        return batch

    async def close(self) -> None:
        """Stops reading, and closes what was read from."""
        self._left = True
        if not self.task.done():
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)

    def let_go(self) -> None:
        """Stops reading, from any thread, without waiting for that."""
        self._left = True
        # The loop is closed, and its tasks with it.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.task.cancel)

    async def _run(self) -> None:
        try:
            await self._read()
        except asyncio.CancelledError as error:
            if not self._left:
                self._error = error
            raise
        except BaseException as error:
            self._error = error
            if not isinstance(error, Exception):
                raise  # an interrupt is the loop's, and nobody may ever read this source again
        finally:
            self._ended = True
            self._news.ring()

    async def _read(self) -> None:
        """Reads either kind of iterable; the source is closed when it is left."""
        source = self._source
        if not isinstance(source, AsyncIterable):
            for chunk in [source] if isinstance(source, str) else source:
                await self._put(chunk)
                # A bell that has rung is not waited for, so nothing else here lets other
                # tasks run.
                await asyncio.sleep(0)
            return
        try:
            async for chunk in source:
                await self._put(chunk)
        except (KeyboardInterrupt, SystemExit):
            with contextlib.suppress(Exception):  # the interrupt is what is re-raised
                await _close(source)
            raise
        except BaseException:
            await _close(source)
            raise
        await _close(source)

    async def _put(self, chunk: Any) -> None:
        self._chunks.append(chunk)
        self._news.ring()
        if not self._eager or len(self._chunks) >= AHEAD_MAX:
            self._go.hush()
        if not self._go.has_rung:
            await self._go.heard()


async def _close(source: Any) -> None:
    close = getattr(source, "aclose", None) or getattr(source, "close", None)
    if callable(close):
        closing = close()
        if asyncio.iscoroutine(closing):
            await closing
