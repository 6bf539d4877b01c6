"""Sidings: where a commit waits for a row that somebody holds, so that its lane goes on without it.

A program that was frozen, or a person with a console, may hold the row of a session for minutes.
The lane that meets it gives up soon, finds out whose row it is and puts the commits of that session
aside; whatever else concerns the session goes there too, so that its order is kept. A siding has a
thread and a connection of its own, is as patient as a lane, and is gone when its last commit is
answered.
"""

import logging
import threading
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

from holdfast.engine.protocol import Commit
from holdfast.engine.writer import Later

SIDINGS_MAX = 8

_log = logging.getLogger("holdfast")


class CommitRunner(Protocol):
    """What answers commits."""

    def apply(self, commits: Sequence[Commit]) -> list[Any]: ...
    def finish(self) -> None: ...


class _RowWaiters:
    """Commits that wait for the same row."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.waiting: list[tuple[Commit, Later]] = []


class BlockedCommits:
    """The sidings of one engine, shared by its lanes. `make` gives what carries batches through
    patiently.
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

    def divert(self, commits: Sequence[Commit], stuck: Collection[str] = ()) -> list[Later | None]:
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
        siding = next((self._aside[id] for id in sessions if id in self._aside), None)
        if siding is None:
            if not sessions.intersection(stuck):
                return None
            siding = self._opened()
            _log.warning(
                "somebody holds the row of %s; its commits wait aside", ", ".join(sorted(sessions))
            )
        for id in sessions:  # the other sessions of the commit wait with it
            self._aside.setdefault(id, siding)
        later = Later()
        siding.waiting.append((commit, later))
        return later

    def _opened(self) -> _RowWaiters:
        if len(self._threads) >= SIDINGS_MAX:
            return next(iter(self._aside.values()))
        self._made += 1
        siding = _RowWaiters(self._made)
        thread = threading.Thread(
            target=self._run, args=(siding,), name="holdfast-siding", daemon=True
        )
        self._threads[siding.number] = thread
        thread.start()
        return siding

    def _run(self, siding: _RowWaiters) -> None:
        carrier = self._make()
        try:
            while waiting := self._take(siding):
                try:
                    answers = carrier.apply([commit for commit, _ in waiting])
                except (
                    BaseException
                ) as error:  # it must reach every caller, or they would wait for ever
                    answers = [error] * len(waiting)
                for (_, later), answer in zip(waiting, answers, strict=True):
                    later.answer(answer)
        finally:
            carrier.finish()

    def _take(self, siding: _RowWaiters) -> list[tuple[Commit, Later]]:
        """What waits; when nothing does, its sessions go by their lanes again."""
        with self._gate:
            waiting, siding.waiting = siding.waiting, []
            if not waiting:
                self._aside = {
                    id: other for id, other in self._aside.items() if other is not siding
                }
                self._threads.pop(siding.number, None)
        return waiting
