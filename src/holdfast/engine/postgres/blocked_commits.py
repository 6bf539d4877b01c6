"""Blocked commits: they wait aside for a row that somebody holds, and their writer goes on.

A program that was frozen, or a person with a console, may hold the row of a session for minutes.
The writer that meets it gives up soon, finds out whose row it is and puts the commits of that
session aside; whatever else concerns the session goes there too, so that its order is kept. Those
that wait for one row have a thread and a connection of their own, which tries for as long as a
writer does, and is gone when the last of them is answered.
"""

import logging
import threading
from collections.abc import Callable, Collection
from typing import Any, Protocol

from holdfast.engine.protocol import Commit, Commits
from holdfast.engine.writer import WriterTicket

THREADS_MAX = 8

_log = logging.getLogger("holdfast")


class CommitRunner(Protocol):
    """What answers commits."""

    def apply(self, commits: Commits) -> list[Any]: ...
    def close(self) -> None: ...


class _RowWaiters:
    """Commits that wait for the same row, and the thread that waits with them."""

    def __init__(self, run: Callable[["_RowWaiters"], None]) -> None:
        self.waiting: list[WriterTicket] = []
        self.thread = threading.Thread(
            target=run, args=(self,), name="holdfast-siding", daemon=True
        )


class BlockedCommits:
    """The blocked commits of one engine, shared by its writers. `make` gives a batch writer that
    waits for rows.
    """

    def __init__(self, make: Callable[[], CommitRunner]) -> None:
        self._make = make
        self._gate = threading.Lock()
        self._aside: dict[str, _RowWaiters] = {}
        self._live: list[_RowWaiters] = []

    @property
    def busy(self) -> bool:
        """Whether any session is aside."""
        return bool(self._aside)

    def divert(
        self, commits: Commits, stuck: Collection[str] = ()
    ) -> list[WriterTicket | None]:
        """Puts aside what concerns a session that is aside already, or one of these; None for what
        may go on.
        """
        with self._gate:
            return [self._divert(commit, stuck) for commit in commits]

    def close(self) -> None:
        """Waits for what is aside."""
        for waiters in list(self._live):
            waiters.thread.join()

    def _divert(self, commit: Commit, stuck: Collection[str]) -> WriterTicket | None:
        sessions = {write.session for write in commit}
        # the order of a session is kept: it goes where its earlier commits wait
        waiters = next((self._aside[id] for id in sessions if id in self._aside), None)
        if waiters is None:
            if sessions.isdisjoint(stuck):
                return None
            waiters = self._opened()
            _log.warning(
                "somebody holds the row of %s; its commits wait aside",
                ", ".join(sorted(sessions)),
            )
        for id in sessions:  # the other sessions of the commit wait with it
            self._aside.setdefault(id, waiters)
        ticket = WriterTicket(commit)
        waiters.waiting.append(ticket)
        return ticket

    def _opened(self) -> _RowWaiters:
        # each has a connection: those that come later wait with the first, and may wait
        # longer
        if len(self._live) >= THREADS_MAX:
            return self._live[0]
        waiters = _RowWaiters(self._run)
        self._live.append(waiters)
        waiters.thread.start()
        return waiters

    def _run(self, waiters: _RowWaiters) -> None:
        runner = self._make()
        try:
            while waiting := self._take(waiters):
                try:
                    answers = runner.apply([ticket.commit for ticket in waiting])
                except BaseException as error:
                    # It must reach every caller, or they would wait for ever.
                    answers = [error] * len(waiting)
                for ticket, answer in zip(waiting, answers, strict=True):
                    ticket.answer(answer)
        finally:
            runner.close()

    def _take(self, waiters: _RowWaiters) -> list[WriterTicket]:
        """What waits; when nothing does, its sessions go to their writers again."""
        with self._gate:
            waiting, waiters.waiting = waiters.waiting, []
            if not waiting:
                for id in [id for id in self._aside if self._aside[id] is waiters]:
                    del self._aside[id]
                self._live.remove(waiters)
        return waiting
