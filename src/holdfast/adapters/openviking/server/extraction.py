"""The extraction of archives: by a few threads, in order within a session, again after a failure.

An archive that waits is in the log; what is kept here is only which sessions are to be looked at
and when. If the process is killed, the next one finds them there. A failure changes nothing that is
stored: the archive is whole, its messages stay in the context, and it is tried again, ever less
often.
"""

import heapq
import logging
import threading
from collections.abc import Iterable
from typing import NamedTuple

from holdfast.adapters.openviking.server.extractor import (
    LIMIT_S,
    ExtractionFailed,
    Extractor,
    ExtractorTooSlow,
    LimitedExtractor,
    said_by,
)
from holdfast.adapters.openviking.server.replies import archive_to_extract
from holdfast.adapters.openviking.server.sessions.directory import Directory, Requester
from holdfast.errors import HoldfastError
from holdfast.runtime.clock import World

RETRY_FIRST_S, RETRY_MOST_S = 1.0, 300.0
TRIES = 3
"""After so many failures in a row a task is reported as failed. It is tried again all the same."""
WORKERS = 4
_log = logging.getLogger("holdfast.openviking")


class SessionPlace(NamedTuple):
    """A session of somebody's."""

    requester: Requester
    session: str


class Failure(NamedTuple):
    """How the extraction of an archive went so far."""

    number: int
    tries: int
    problem: str


class Extraction:
    """The threads that extract. With `notify` they are told where something may wait."""

    def __init__(
        self,
        directory: Directory,
        extractor: Extractor,
        world: World,
        *,
        limit_s: float = LIMIT_S,
    ) -> None:
        self._directory, self._world = directory, world
        self._extractor = LimitedExtractor(extractor, limit_s)
        self._limit_s = limit_s
        self._changed = threading.Condition()
        # A heap; what is in it and not in `_next_look` was overtaken by an earlier look.
        self._due: list[tuple[float, SessionPlace]] = []
        self._next_look: dict[SessionPlace, float] = {}
        self._running: set[SessionPlace] = set()
        self._again: set[SessionPlace] = set()
        self._failures: dict[SessionPlace, Failure] = {}
        self._is_over = False
        self._threads = [
            threading.Thread(
                target=self._work,
                name="holdfast-extract",
                daemon=True,
            )
            for _ in range(WORKERS)
        ]

    def start(self, requesters: Iterable[Requester]) -> None:
        """Begins to work, with what an earlier process has left to be done for these people."""
        look = threading.Thread(
            target=self._look,
            args=(set(requesters),),
            name="holdfast-look",
            daemon=True,
        )
        # Looking is a thread of its own: a store may have many sessions, and who asks now is
        # served now.
        for thread in (*self._threads, look):
            thread.start()

    def _look(self, requesters: set[Requester]) -> None:
        try:
            for requester in requesters:
                for name in self._directory.unfinished(requester):
                    if self._is_over:
                        return
                    self.notify(SessionPlace(requester, name))
        except HoldfastError as error:
            # They are found all the same when somebody next uses them.
            _log.warning(
                "archives that wait were not looked for: %s",
                error.code,
            )

    def stop(self) -> None:
        """Begins nothing more. What runs is not waited for: an extractor may take minutes, and what
        it was called with is tried again by the next process.
        """
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def notify(self, place: SessionPlace) -> None:
        """Something may wait in this session: it is looked at now, whatever has failed before."""
        with self._changed:
            self._schedule(place, 0.0)

    def failure(self, place: SessionPlace, number: int) -> Failure | None:
        """How the tries for this archive have failed; None when they have not."""
        with self._changed:
            failure = self._failures.get(place)
        return failure if failure is not None and failure.number == number else None

    def is_running(self, place: SessionPlace) -> bool:
        with self._changed:
            return place in self._running

    def _schedule(self, place: SessionPlace, wait_s: float) -> None:
        due = self._world.tick() + wait_s
        # One turn to come for each session: a hundred commits during an outage are not a hundred
        # calls when it is over.
        if place in self._next_look and self._next_look[place] <= due:
            return
        self._next_look[place] = due
        heapq.heappush(self._due, (due, place))
        self._changed.notify()

    def _work(self) -> None:
        while (place := self._next()) is not None:
            try:
                wait_s = self._extract(place)
            except Exception as error:
                # Any: it comes from a caller's function, or from a store that can't be used now.
                # Its words may be those of a session, and are not logged.
                _log.warning(
                    "extraction failed: %s",
                    type(error).__name__,
                )
                wait_s = RETRY_MOST_S
            with self._changed:
                self._running.discard(place)
                # Somebody asked while it was being looked at, and may have meant what came after.
                if place in self._again:
                    self._again.discard(place)
                    wait_s = 0.0
                if wait_s is not None:
                    self._schedule(place, wait_s)

    def _next(self) -> SessionPlace | None:
        with self._changed:
            while not self._is_over:
                now = self._world.tick()
                if not self._due:
                    self._changed.wait()
                elif self._due[0][0] > now:
                    self._changed.wait(self._due[0][0] - now)
                else:
                    due, place = heapq.heappop(self._due)
                    if self._next_look.get(place) != due:
                        continue
                    del self._next_look[place]
                    # One at a time in a session: an overview builds on the one before.
                    if place in self._running:
                        self._again.add(place)
                        continue
                    self._running.add(place)
                    return place
        return None

    def _extract(self, place: SessionPlace) -> float | None:
        """Extracts what waits in a session; when to look again, None for when something new comes."""
        handle = self._directory.find(place.requester, place.session)
        while handle is not None and not self._is_over:
            served = handle.served()
            archive = served.unfinished.get(served.extracted + 1)
            if archive is None:
                break
            asked = archive_to_extract(
                place.requester, place.session, handle, served, archive
            )
            try:
                said = said_by(self._extractor(asked))
            except ExtractionFailed as error:
                return self._failed(place, archive.number, error)
            # Nothing to do if it was finished meanwhile: another server has called, too.
            handle.finish(archive, said)
            with self._changed:
                self._failures.pop(place, None)
        return None

    def _failed(
        self,
        place: SessionPlace,
        number: int,
        error: ExtractionFailed,
    ) -> float:
        with self._changed:
            before = self._failures.get(place)
            tries = 1
            if before is not None and before.number == number:
                tries = before.tries + 1
            self._failures[place] = Failure(number, tries, str(error))
        _log.warning("extraction failed %d times: %s", tries, error)
        wait_s = RETRY_FIRST_S * 2.0 ** (tries - 1)
        # It has held a worker for so long: others have at least as much.
        if isinstance(error, ExtractorTooSlow):
            wait_s = max(wait_s, self._limit_s)
        return min(wait_s, RETRY_MOST_S)
