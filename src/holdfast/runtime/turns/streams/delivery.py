"""A delivery: the text of a streamed message, each piece handed on after it is durable (I-5).

It is an object and no generator: a generator that is dropped runs its last lines where Python
swallows what is raised, Ctrl-C included. A delivery that is dropped runs nothing; the keeper closes
its stream (`RunningTurn.attend`).
"""

import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from holdfast.engine.wake_signal import in_the_middle, is_mine
from holdfast.runtime.plans.chunk_source import batches
from holdfast.runtime.plans.plan import run
from holdfast.runtime.turns.running_turn import RunningTurn


class Delivery(Iterator[str]):
    """The pieces of one message; `close` leaves it before its end, and what was said so far is
    stored as partial.
    """

    def __init__(self, work: RunningTurn, chunks: Iterable[Any], format: str) -> None:
        self._work = work
        self._stream = work.open_stream(format)
        self._source: Any = batches(chunks, work.session.world.tick)
        self._begun = self._over = False

    def __iter__(self) -> "Delivery":
        return self

    def __next__(self) -> str:
        if self._over:
            raise StopIteration
        # Before the `try`: these mistakes must not cut off the thread that is reading.
        if self._source.gi_running:
            raise ValueError("another thread is reading this delivery")
        if is_mine(self._stream.lock):
            raise in_the_middle(self._work.session.engine.where)
        try:
            text = self._advance()
        except BaseException as error:
            self._leave(error)
            raise
        if text is None:
            raise StopIteration
        return text

    def _advance(self) -> str | None:
        """The next text to show; None at the end of the stream, when its message is stored."""
        work, stream = self._work, self._stream
        if not self._begun:
            self._begun = True
            # The keeper is given the source and not the delivery, which could never be
            # dropped then. Not earlier: one that nobody reads has nothing to cut off.
            work.attend(stream, self, partial(_close_elsewhere, self._source.close))
        if work.ended:
            run(work.refuse())
        if not stream.taken_back:
            for batch in self._source:
                text = run(work.store_chunks(stream, batch))
                if text:
                    return text
                if stream.taken_back:
                    break
        if stream.taken_back:
            self._source.close()
            self._over = True
            return None
        stream.finish()
        run(work.close_stream(stream))
        self._over = True
        return None

    def __repr__(self) -> str:
        return f"<Delivery of turn {self._work.id}, {'over' if self._over else 'open'}>"

    def close(self) -> None:
        """Leaves the stream before its end. Its source is closed, and what was handed on
        is stored.
        """
        if not self._over:
            self._leave()

    def _leave(self, error: BaseException | None = None) -> None:
        self._over = self._stream.closed = True
        try:
            self._source.close()
        finally:
            # What is on its way out is re-raised, Ctrl-C above all.
            with self._work.untold():
                run(self._work.close_stream(self._stream), self._work.deadline(error))


def _close_elsewhere(close: Any) -> None:
    """Closes a source on a thread of its own: that is its owner's code, and may take its time."""
    threading.Thread(
        target=_closed, args=(close,), name="holdfast-source", daemon=True
    ).start()


def _closed(close: Any) -> None:
    # Nobody is left to be told, and the turn has ended well without it.
    with suppress(Exception):
        close()
