"""Where chunks come from: an iterator, read no faster than what is stored of it.

In the beginning one chunk is read, stored and handed on before the next is asked for. When the
source turns out to be faster than the disk, it is read ahead on a second thread, within bounds, and
all that came in while the last row was being stored becomes the next row: the stream keeps up with
its source, a slow disk slows it down, and memory stays bounded.
"""

import contextvars
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import islice
from queue import SimpleQueue
from typing import Any

EAGER_AFTER = 8
"""So many chunks in a row that came sooner than the last was stored make a source fast."""
AHEAD_MAX = 1024
"""So many chunks wait in memory at the most: a slow disk slows the source down (I-24)."""
BATCH_MAX = 512
"""Of a list, which is in memory already, so many chunks make a row."""


class Pace:
    """Tells a fast source from one that lets itself be waited for."""

    def __init__(self, tick: Callable[[], float]) -> None:
        self._tick = tick
        self._quick = 0
        self._asked = self._came = 0.0

    def asking(self) -> None:
        self._asked = self._tick()

    def came(self) -> None:
        self._came = self._tick()

    def stored(self) -> bool:
        """After the chunk was stored and handed on: whether to read ahead from now on."""
        self._quick = (
            self._quick + 1
            if self._came - self._asked < self._tick() - self._came
            else 0
        )
        return self._quick >= EAGER_AFTER


def batches(
    chunks: Iterable[Any], tick: Callable[[], float]
) -> Generator[list[Any], None, None]:
    """Chunks in batches, each asked for when the one before it has been dealt with."""
    # Iterated, it would be a chunk for every character.
    if isinstance(chunks, str):
        chunks = [chunks]
    pace = Pace(tick)
    source = iter(chunks)
    try:
        while True:
            pace.asking()
            try:
                chunk = next(source)
            except StopIteration:
                return
            pace.came()
            yield [chunk]
            if pace.stored():
                break
        if isinstance(chunks, list | tuple):
            yield from _slices(source)
        else:
            yield from _ahead(source)
    finally:
        # Both: a client's stream and the iterator that it gives may be two objects.
        _close(chunks, source)


def _slices(source: Iterator[Any]) -> Iterator[list[Any]]:
    while batch := list(islice(source, BATCH_MAX)):
        yield batch


def _ahead(source: Iterator[Any]) -> Iterator[list[Any]]:
    pump = _Pump(source)
    try:
        while True:
            batch = pump.take()
            if not batch:
                if pump.error is not None:
                    raise pump.error
                return
            yield batch
    finally:
        pump.stop()


class _Pump:
    """Reads ahead on a thread of its own. The two talk by queues made of C code: a reader that is
    interrupted leaves no lock behind.
    """

    def __init__(self, source: Iterator[Any]) -> None:
        self._source = source
        self._chunks: SimpleQueue[Any] = SimpleQueue()
        self._taken: SimpleQueue[int] = SimpleQueue()
        self._ended = self._stopped = False
        self.error: BaseException | None = None
        # The source is the caller's code and may read its context variables. The thread
        # is a daemon: a source that never ends must not keep the process alive.
        context = contextvars.copy_context()
        threading.Thread(
            target=context.run, args=(self._run,), name="holdfast-source", daemon=True
        ).start()

    def take(self) -> list[Any]:
        """All that has come, at least one chunk; nothing at the end."""
        if self._ended:
            return []
        get = self._chunks.get
        batch = [get()]
        batch += [get() for _ in range(self._chunks.qsize())]
        self._taken.put(len(batch))
        if batch[-1] is _END:
            self._ended = True
            batch.pop()
        return batch

    def stop(self) -> None:
        self._stopped = True
        # Wakes the reading thread if it waits for room.
        self._taken.put(0)

    def _run(self) -> None:
        try:
            ahead = 0
            for chunk in self._source:
                self._chunks.put(chunk)
                ahead += 1
                while not self._stopped and (
                    ahead >= AHEAD_MAX or not self._taken.empty()
                ):
                    ahead -= self._taken.get()
                if self._stopped:
                    break
        # Raised where the chunks are taken, after all that came before it.
        except BaseException as error:
            self.error = error
        if self._stopped:
            _close(self._source, self._source)
        self._chunks.put(_END)


_END = object()
"""The last thing that comes."""


def _close(*sources: Any) -> None:
    """A source that is left before its end is closed, so that its connection is. One that another
    thread is reading can't be: that thread closes it.
    """
    for source in sources:
        close = getattr(source, "close", None)
        if callable(close):
            try:
                close()
            # A generator that is running, and one that yields while it is closed.
            except (ValueError, RuntimeError):
                return
