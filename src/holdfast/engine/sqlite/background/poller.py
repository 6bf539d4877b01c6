"""The poller: looks whether other processes have written to the sessions that are watched in this
one.

There is one for each engine, however many watch. It asks which are the last rows of the log and of
the journal, which costs the same however much is there. If there are others than at the last look,
it asks which sessions they belong to, leaves out what this engine has written itself (`own_rows`),
and wakes those who watch one of them.

    watchers ──begin──►  poller ──"which are the last rows?"──► file
        ▲                   │   ──"whose are those that are new, and not ours?"──►
        └── has moved ──────┘

It begins with the first who watches, and ends, with its connection, when nobody has for a while:
who waits in short pauses comes back. When it can't ask, it wakes all that watch, who then look for
themselves, and tries again until it can. It holds no transaction between two questions.

That nothing is missed: a watcher begins to watch before it reads. What the reading does not see is
later than that, so it is later than the last look of a poller that was there; and one that has just
begun, or could not ask for a while, wakes all after its first look. What changes no row of either
kind (a lease that is renewed, a turn that is seized and not settled yet) is not told.
"""

import sys
import threading
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import NamedTuple

import msgspec

from holdfast.engine.sqlite.background.own_rows import OwnRows, Span
from holdfast.engine.sqlite.readers import Readers
from holdfast.engine.wake_signal import Signal, begin_thread
from holdfast.engine.watchers import Watchers

LIVELY_S, CALM_S = 0.02, 0.05
"""How long it rests between two looks, while something moves and when nothing has moved lately."""
LIVELY_LOOKS = 50
LOOKS_AFTER = 25
"""So many looks more when nobody watches any longer."""
TROUBLE_S, TROUBLE_MAX_S = 0.02, 1.0
ROWS_AT_ONCE = 5000
"""So many rows are looked through in one question."""


class LastRows(NamedTuple):
    """How far the log and the journal had got at a look."""

    entry: int
    position: int


class SqlitePoller:
    """The poller of one engine."""

    def __init__(self, readers: Readers, watchers: Watchers) -> None:
        self._readers, self._watchers = readers, watchers
        self._own = OwnRows()
        self._serving = threading.Lock()
        self.is_serving = self._serving.locked
        # One that its own thread may take again: a callback may close the store.
        self._at_work = threading.RLock()
        self._closed = Signal()
        self._last: LastRows | None = None
        self._doubts = self._doubts_seen = 0

    # For those who watch, and the writer.

    def rouse(self) -> None:
        """Somebody begins to watch."""
        if self.is_serving() or self._closed.is_set() or sys.is_finalizing():
            return
        # Where no thread can be begun, the next one who comes tries again.
        with suppress(RuntimeError):
            begin_thread(self._run, "holdfast-poller")

    def note(self, entries: Span | None, chunks: Span | None) -> None:
        """This engine is about to commit these rows; need not be told while nobody is served."""
        self._own.add(entries, chunks)

    def doubt(self) -> None:
        """A commit of this engine has failed: what it said of its rows does not hold."""
        self._own.forget()
        self._doubts += 1

    def stop(self) -> None:
        """Looks no more, from now on or as soon as the look that is under way is over."""
        self._closed.set()

    def wait(self) -> None:
        """Until it has let go of its connection, after `stop`."""
        # A process that ends waits for no thread.
        if not sys.is_finalizing():
            with self._at_work:
                pass

    # Its thread.

    def _run(self) -> None:
        # Looked at again when it has let go: whoever came before that has begun no other.
        while self._watchers.are_there and not self._closed.is_set():
            if not self._serving.acquire(blocking=False):
                return
            try:
                with self._at_work:
                    self._serve()
            finally:
                self._serving.release()

    def _serve(self) -> None:
        try:
            self._look_on()
        finally:
            self._readers.leave()

    def _look_on(self) -> None:
        """Looks until nobody has watched for a while."""
        idle = troubles = 0
        looks_left = LOOKS_AFTER
        self._last = None
        while looks_left and not self._closed.is_set():
            looks_left = LOOKS_AFTER if self._watchers.are_there else looks_left - 1
            try:
                moved = self._look()
                self._watchers.wake_those(moved)
                idle, troubles = 0 if moved else idle + 1, 0
                self._closed.wait(pace(idle))
            except Exception:
                self._give_up()
                self._closed.wait(min(TROUBLE_MAX_S, TROUBLE_S * 2**troubles))
                troubles = min(troubles + 1, 10)

    def _look(self) -> Collection[str]:
        """The sessions that others have written to since the last look; all that are watched when
        that is not known.
        """
        # Before the file is looked at: what fails after that is for the next look.
        doubts = self._doubts
        [(entry, *positions)] = self._readers.read("last_rows", ())
        last = LastRows(entry or 0, max(position or 0 for position in positions))
        before, self._last = self._last, None
        moved: Collection[str]
        # A log that has become shorter was taken back by somebody.
        is_shorter = before is not None and last.entry < before.entry
        if before is None or is_shorter or doubts != self._doubts_seen:
            moved = self._watchers.watched()
        else:
            # The journal is emptied now and then, and its positions never fall.
            last = LastRows(last.entry, max(last.position, before.position))
            entries = self._own.entries.others(before.entry, last.entry)
            chunks = self._own.chunks.others(before.position, last.position)
            moved = {
                *self._whose("written_sessions", entries),
                *self._whose("spoken_sessions", chunks),
            }
        self._own.seen(*last)
        self._last, self._doubts_seen = last, doubts
        return moved

    def _whose(self, query: str, spans: list[Span]) -> Iterator[str]:
        """The sessions that these rows belong to."""
        for piece in pieces(spans, ROWS_AT_ONCE):
            if self._closed.is_set():
                return
            given = msgspec.json.encode(piece).decode()
            for (id,) in self._readers.read(query, {"spans": given}):
                yield id

    def _give_up(self) -> None:
        """For this time. Those who watch look for themselves meanwhile."""
        self._last = None
        self._readers.leave()
        self._watchers.wake_those(self._watchers.watched())


def pace(idle: int) -> float:
    """How long to rest after so many looks in a row that have found nothing."""
    return LIVELY_S if idle < LIVELY_LOOKS else CALM_S


def pieces(spans: list[Span], rows: int) -> Iterator[list[Span]]:
    """The same spans, so many rows at a time."""
    piece: list[Span] = []
    left = rows
    for first, last in spans:
        while first <= last:
            end = min(last, first + left - 1)
            piece.append((first, end))
            left -= end - first + 1
            first = end + 1
            if not left:
                yield piece
                piece, left = [], rows
    if piece:
        yield piece
