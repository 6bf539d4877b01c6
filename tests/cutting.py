"""Cancelling a task exactly where it waits for the k-th time, for tests that do it at every such
place.

    cut = Cut(at=3, when="before")
    task = asyncio.create_task(cut.drive(life()))
    await asyncio.wait([task])
    cut.reached                      # whether there was a third place

`drive` awaits a coroutine by hand: whatever the coroutine waits for passes through here on its way
to the event loop. So places are counted by what the coroutine itself awaits, however deep, and not
by how often the loop happens to turn: the k-th place is the same in every run as long as the
coroutine does the same.

A cancellation can come at two moments of a wait, and both are tried. "before": as the wait begins;
what is waited for is cancelled with it. "after": what was waited for has come, and the task has not
been told yet; it is told of the cancellation instead, and the answer is lost on the way.
`Task.cancel` gives the second by itself when the future it waits for is done, and a callback that
is added before the task's own is called before the task is woken. "twice" is "before", and again at
the very next place: whoever cleans up is cancelled too.
"""

import asyncio
from collections.abc import Coroutine, Generator
from types import coroutine
from typing import Any

MOMENTS = ("before", "after", "twice")


class Cut:
    """One cancellation, to come at a task's place `at`."""

    def __init__(self, *, at: int, when: str) -> None:
        self.at, self.when = at, when
        self.places = 0

    @property
    def reached(self) -> bool:
        return self.places >= self.at

    async def drive(self, life: Coroutine[Any, Any, Any]) -> Any:
        """Awaits `life` and cancels the task that does at its place."""
        return await self._drive(life)

    @coroutine
    def _drive(self, life: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
        error: BaseException | None = None
        while True:
            try:
                waited_for = life.send(None) if error is None else life.throw(error)
            except StopIteration as stop:
                return stop.value
            error = None
            self.places += 1
            self._cancel(waited_for)
            try:
                yield waited_for
            except BaseException as told:
                error = told

    def _cancel(self, waited_for: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        if self.when == "after":
            if self.places == self.at:
                # A bare yield (`sleep(0)`) waits for nothing that could come: there is only one
                # moment.
                waited_for.add_done_callback(
                    lambda _: task.cancel()
                ) if waited_for is not None else task.cancel()
        elif self.places in ((self.at,) if self.when == "before" else (self.at, self.at + 1)):
            task.cancel()
