"""Reads of many followers, done a batch at a time on one thread.

While one batch is being read the next one gathers, as commits do: a session more that is spoken in
costs what is read of it, and no change of threads. One that fails fails alone.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from holdfast.runtime.plans.plan_asyncio import in_background

T = TypeVar("T")
_Waiting = tuple[Callable[[], Any], "asyncio.Future[Any]"]


class GatheredReads:
    """Used on one event loop."""

    def __init__(self) -> None:
        self._waiting: list[_Waiting] = []
        self._task: asyncio.Task[None] | None = None

    async def read(self, work: Callable[[], T]) -> T:
        """What this reads; raises what it raises."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append((work, answer))
        if self._task is None:
            self._task = asyncio.create_task(self._read_all())
        return await answer

    async def _read_all(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                # Nobody waits for some of them any more.
                wanted = [each for each in batch if not each[1].done()]
                works = [work for work, _ in wanted]
                found = await in_background(partial(_done, works))
                for (_, answer), one in zip(wanted, found, strict=True):
                    _tell(answer, one)
        finally:
            self._task = None


def _done(works: list[Callable[[], Any]]) -> list[Any]:
    return [_outcome(work) for work in works]


def _outcome(work: Callable[[], Any]) -> tuple[Any, Exception | None]:
    try:
        return work(), None
    except Exception as error:
        return None, error


def _tell(answer: "asyncio.Future[Any]", one: tuple[Any, Exception | None]) -> None:
    value, error = one
    # Its reader left while the batch was being read.
    if answer.done():
        return
    if error is None:
        answer.set_result(value)
    else:
        answer.set_exception(error)
