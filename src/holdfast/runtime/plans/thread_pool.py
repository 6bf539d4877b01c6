"""Threads that do what may block, so that an event loop need not.

Not Python's own executor: where that one locks, it is made of Python code. A signal handler that
raises while work is handed over leaves such a lock locked, and none of its threads ever takes
another piece of work: every store of the process waits for ever, and so does the end of the
process. Here, what the caller shares with the threads is made of C code alone.
"""

import atexit
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial, wraps
from queue import Empty, SimpleQueue
from typing import Any, Generic, ParamSpec, TypeVar, cast

from holdfast.engine.wake_signal import begin_thread, may_be_interrupted
from holdfast.engine.watchers import call_back
from holdfast.engine.writer import WriterTicket
from holdfast.runtime.plans.deadline import exiting
from holdfast.runtime.plans.plan import bearable

P = ParamSpec("P")
T = TypeVar("T")


class Job(WriterTicket, Generic[T]):
    """A piece of work; it is waited for as a commit is."""

    __slots__ = ("_work",)

    def __init__(self, work: Callable[[], T]) -> None:
        super().__init__(())
        self._work: Callable[[], T] | None = work

    def give_up(self) -> None:
        """Nobody waits for it any more: it is not begun."""
        self._work = None

    def do(self) -> None:
        """Does it on this thread, and tells whoever waits."""
        work, self._work = self._work, None
        try:
            # In a tuple: a ticket whose answer is None counts as not answered, and one
            # whose answer is an error raises it.
            answer: Any = () if work is None else (work(),)
        except BaseException as error:
            answer = bearable(error)
        signal = self.answer(answer)
        del self, work, answer  # an error knows this frame, and would keep all of it
        if signal is not None:
            call_back(signal)

    def value(self) -> T:
        """What it has given; raises what it has raised. Waits if need be."""
        try:
            [value] = cast(tuple[T], self.result())
            return value
        finally:
            del self


def uninterrupted(function: Callable[P, T]) -> Callable[P, T]:
    """The function, done where no signal handler comes in between: by a thread of its own, if it is
    called where one may. Whoever waits for it may be interrupted; what it gives is dropped then, as
    soon as it is there, and has to clean up after itself.
    """

    @wraps(function)
    def call(*given: P.args, **named: P.kwargs) -> T:
        # A process that ends starts no thread, and would wait for it.
        if not may_be_interrupted() or sys.is_finalizing():
            return function(*given, **named)
        work = partial(copy_context().run, function, *given, **named)
        job: Job[T] = Job(work)
        try:
            begin_thread(job.do, "holdfast-opener")
            return job.value()
        finally:
            # The interrupt knows this frame, and would keep what nobody got.
            del job, work

    return call


class Pool:
    """Some threads, started as they are needed."""

    def __init__(self, size: int, name: str) -> None:
        self._size, self._name = size, name
        self._jobs: SimpleQueue[Job[Any] | None] = SimpleQueue()
        self._idle: SimpleQueue[None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._gate = threading.RLock()  # what is dropped in there may come here, too
        atexit.register(self._finish)

    def submit(self, job: Job[Any]) -> None:
        """Has it done, after what was submitted before."""
        # An interrupt in here may lose a mark of idleness. That costs a thread at most:
        # all of them take from one queue.
        if not self._is_someone_idle():
            self._start()
        self._jobs.put(job)

    def _is_someone_idle(self) -> bool:
        with suppress(Empty):
            self._idle.get_nowait()
            return True
        return False

    def _start(self) -> None:
        with self._gate:
            # One whose start was interrupted may never begin. It does not count.
            self._threads = [thread for thread in self._threads if thread.is_alive()]
            if len(self._threads) < self._size:
                thread = threading.Thread(
                    target=self._run, name=self._name, daemon=True
                )
                self._threads.append(thread)
                thread.start()

    def _run(self) -> None:
        while True:
            try:
                job = self._jobs.get_nowait()
            except Empty:
                self._idle.put(None)
                job = self._jobs.get()
            if job is None:
                self._jobs.put(None)  # for the others
                return
            job.do()
            # What the last job has read must not live on while this waits for the next.
            del job

    def _finish(self) -> None:
        """At the end of the process: sees through what was submitted, a store that is being closed
        above all, for as long as a process waits that ends.
        """
        self._jobs.put(None)
        deadline = exiting()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(deadline.left_s)
