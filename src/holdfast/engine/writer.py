"""The writer: one thread that turns many commits into one transaction and one sync.

    callers ──submit──► queue ──► take all that wait ──► apply (one transaction) ──► answer each ──► tidy up
                 ▲                                                                       │
                 └────────── meanwhile the next batch gathers by itself ◄────────────────┘

There is no linger: while a transaction is being synced, the next commits queue up, so batches grow
with the load and are of one when there is none. A commit is answered after its transaction is
durable, never before (I-3), and followers are woken after the answers. Housekeeping (WAL
checkpoints, old journal generations) runs after the answers too, on the same thread, so that it can
never make a finished commit look failed.

The engine gives `apply`, which answers every commit of a batch, with a ticket of its own where the
answer comes later, and `tidy`. A caller waits on its
ticket: with a lock when it is a thread, with a callback when it is an event loop; either way it is
one hop.
"""

import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from holdfast.engine.closed_engine import closed, ending
from holdfast.engine.protocol import Commit, Commits, Outcome
from holdfast.engine.watchers import call_back
from holdfast.errors import HoldfastError

BATCH_MAX = 1024
WAKE_S = 1.0
"""Whoever waits wakes so often. A signal that another thread was given, or that came just before
the wait began, is noticed only then.
"""


class WriterTicket:
    """A commit under way; see `protocol.Ticket`."""

    __slots__ = ("_answer", "_wake", "commit")

    def __init__(self, commit: Commit) -> None:
        self.commit = commit
        self._answer: Any = None
        self._wake: Callable[[], Any] | None = None

    def result(self, timeout: float | None = None) -> Outcome:
        if self._answer is None:
            # a lock is the cheapest thing a thread can wait on; it is made only if the
            # answer is not there yet
            gate = threading.Lock()
            gate.acquire()
            # The waker is set before the answer is looked at, and the writer answers
            # before it
            # looks for a waker: one of the two sees the other.
            self._wake = gate.release
            slice_s = WAKE_S if timeout is None else timeout
            while self._answer is None and not gate.acquire(timeout=slice_s):
                if timeout is not None:
                    raise TimeoutError
        answer = self._answer
        if isinstance(answer, BaseException):
            try:
                raise answer
            finally:
                # The error knows this frame, and would keep itself and its ticket.
                del self, answer
        outcome: Outcome = answer
        return outcome

    @property
    def done(self) -> bool:
        return self._answer is not None

    def then(self, callback: Callable[["WriterTicket"], Any]) -> None:
        wake = self._wake = partial(callback, self)
        if self._answer is not None:
            self._wake = None
            signal = wake()
            if signal is not None:
                signal()

    def answer(self, answer: Outcome | BaseException) -> Any:
        """Answers, and wakes who waits. What the waker gives back is to be called once, after the
        whole batch.
        """
        self._answer = answer
        wake = self._wake
        # it knows this ticket: whoever waited for it would live until the garbage is
        # collected
        self._wake = None
        return call_back(wake) if wake is not None else None


class Writer:
    """The thread that writes, for one engine."""

    def __init__(
        self,
        where: str,
        *,
        apply: Callable[[Commits], list[Outcome | HoldfastError]],
        wake: Callable[[Commits, Sequence[Any]], None],
        tidy: Callable[[], None],
        finish: Callable[[], None],
    ) -> None:
        self._where = where
        self._apply, self._wake, self._tidy, self._finish = apply, wake, tidy, finish
        self._queue: SimpleQueue[WriterTicket | None] = SimpleQueue()
        self._closed = self._over = False
        if sys.is_finalizing():
            raise ending(where)
        self._thread = threading.Thread(
            target=self._run, name=f"holdfast-writer {where}", daemon=True
        )
        self._thread.start()

    def submit(self, commit: Commit) -> WriterTicket:
        ticket = WriterTicket(commit)
        if self._closed:
            raise closed(self._where)
        if sys.is_finalizing():
            raise ending(self._where)  # its thread never runs again
        self._queue.put(ticket)
        # Without a lock: a signal handler may close the store in the middle of this. The thread
        # says that it is over before it answers the last ones: one of the two sees the other.
        if self._over and not ticket.done:
            raise closed(self._where)
        return ticket

    @property
    def waiting(self) -> int:
        """How many commits no batch has taken yet, about."""
        return self._queue.qsize()

    def close(self) -> None:
        """Finishes what was submitted, then stops."""
        self._closed = True
        # Each time: whoever was here before may have been interrupted.
        self._queue.put(None)
        # a store that is dropped by a callback is closed on the writer thread itself
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        try:
            while True:
                batch, closing = self._take()
                if batch:
                    self._serve(batch)
                if closing:
                    return
        finally:
            self._over = True
            self._refuse_rest()
            self._finish()

    def _take(self) -> tuple[list[WriterTicket], bool]:
        """All that waits, at least one."""
        get = self._queue.get
        taken = [get()]
        # what comes in while this is taken is for the next batch: a steady stream must
        # not starve answers
        taken += [get() for _ in range(min(self._queue.qsize(), BATCH_MAX - 1))]
        return [ticket for ticket in taken if ticket is not None], None in taken

    def _refuse_rest(self) -> None:
        """What came in behind the mark of closing would wait for ever."""
        with suppress(Empty):
            while True:
                ticket = self._queue.get_nowait()
                if ticket is not None:
                    signal = ticket.answer(closed(self._where))
                    if signal is not None:
                        call_back(signal)

    def _serve(self, batch: list[WriterTicket]) -> None:
        commits = [ticket.commit for ticket in batch]
        try:
            answers: Sequence[Any] = self._apply(commits)
        except BaseException as error:
            # A fault of ours must reach every caller, or they would wait for ever.
            answers = [error] * len(batch)
        # many tickets of one event loop have one signal: the loop is woken once for the
        # whole batch
        signals = set()
        for ticket, answer in zip(batch, answers, strict=True):
            if isinstance(answer, WriterTicket):
                # somebody else answers that one: what it waits for must not hold up the
                # others
                answer.then(partial(self._answer_later, ticket))
            else:
                signals.add(ticket.answer(answer))
        for signal in signals - {None}:
            call_back(signal)
        # after the answers: a follower must not delay the caller that wrote
        self._wake(commits, answers)
        self._tidy()

    def _answer_later(self, ticket: WriterTicket, other: WriterTicket) -> None:
        signal = ticket.answer(other._answer)
        if signal is not None:
            call_back(signal)
        self._wake([ticket.commit], [other._answer])
