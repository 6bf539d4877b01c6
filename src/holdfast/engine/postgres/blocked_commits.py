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
from holdfast.engine.writer import Later

THREADS_MAX = 8

_log = logging.getLogger("holdfast")


class CommitRunner(Protocol):
    """What answers commits."""

    def apply(self, commits: Commits) -> list[Any]: ...
    def finish(self) -> None: ...


class _RowWaiters:
    """Commits that wait for the same row."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.waiting: list[tuple[Commit, Later]] = []


class BlockedCommits:
    """The blocked commits of one engine, shared by its writers. `make` gives a batch writer that
    waits for rows.
    """

    def __init__(self, make: Callable[[], CommitRunner]) -> None:
        self._make = make
        self._gate = threading.Lock()
        self._aside: dict[str, _RowWaiters] = {}
        self._threads: dict[int, threading.Thread] = {}
        self._made = 0

    @property
    def busy(self) -> bool:
        """Whether any session is aside."""
        return bool(self._aside)

    def divert(
        self, commits: Commits, stuck: Collection[str] = ()
    ) -> list[Later | None]:
        """Puts aside what concerns a session that is aside already, or one of these; None for what
        may go on.
        """
        with self._gate:
            return [self._divert(commit, stuck) for commit in commits]

    def close(self) -> None:
        """Waits for what is aside."""
        for thread in list(self._threads.values()):
            thread.join()

    def _divert(self, commit: Commit, stuck: Collection[str]) -> Later | None:
        sessions = {write.session for write in commit}
        waiters = next((self._aside[id] for id in sessions if id in self._aside), None)
        if waiters is None:
            if not sessions.intersection(stuck):
                return None
            waiters = self._opened()
            _log.warning(
                "somebody holds the row of %s; its commits wait aside",
                ", ".join(sorted(sessions)),
            )
        for id in sessions:  # the other sessions of the commit wait with it
            self._aside.setdefault(id, waiters)
        later = Later()
        waiters.waiting.append((commit, later))
        return later

    def _opened(self) -> _RowWaiters:
        if len(self._threads) >= THREADS_MAX:
            return next(iter(self._aside.values()))
        self._made += 1
        waiters = _RowWaiters(self._made)
        thread = threading.Thread(
            target=self._run, args=(waiters,), name="holdfast-siding", daemon=True
        )
        self._threads[waiters.number] = thread
        thread.start()
        return waiters

    def _run(self, waiters: _RowWaiters) -> None:
        runner = self._make()
        try:
            while waiting := self._take(waiters):
                try:
                    answers = runner.apply([commit for commit, _ in waiting])
                except BaseException as error:
                    # It must reach every caller, or they would wait for ever.
                    answers = [error] * len(waiting)
                for (_, later), answer in zip(waiting, answers, strict=True):
                    later.answer(answer)
        finally:
            runner.finish()

    def _take(self, waiters: _RowWaiters) -> list[tuple[Commit, Later]]:
        """What waits; when nothing does, its sessions go to their writers again."""
        with self._gate:
            waiting, waiters.waiting = waiters.waiting, []
            if not waiting:
                self._aside = {
                    id: other
                    for id, other in self._aside.items()
                    if other is not waiters
                }
                self._threads.pop(waiters.number, None)
        return waiting
