"""The search index: which messages have which words, in a file of its own beside the log (I-17).

It is derived. A commit never touches it (FAULTS G10); it reads the log by itself, in the order of
arrival, from where it last stopped: before each search, so that an answer is complete as of the
call, and in idle time (`indexer`). If the file is missing, damaged or not of this log, an empty one
takes its place, and reading starts over.

    log      entry 1 ……………………………………………………………… mark ………… head
    index    words_0 │ words_1 │ words_2 │ words_3 ◄──┘      │
    search   ◄─────────── newest first ───────────────◄──────┘  what could not be indexed is read from the log

The words of the log lie in volumes of so many entries. A search goes through them from the newest
and stops when its page is full, so what a common word costs does not grow with the store; nor does
a rare one, for which only the volumes are opened that it is listed with; a time outside of a volume
skips it whole; and an erasure rewrites only the volumes it concerns. What does grow is a search of
common words that hardly ever stand together: all messages with them are gone through.

The index only proposes. Every message is read from the log, the truth, before it is shown: one that
was erased meanwhile, or that a damaged index made up, is left out.
"""

import contextlib
import json
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar

import apsw

from holdfast.domain.entry import Entry
from holdfast.domain.search.query import Found, SearchScope
from holdfast.engine.closed_engine import closed
from holdfast.engine.named_sql import Row, Rows
from holdfast.engine.sql.search import found_in
from holdfast.engine.sqlite.queries import SEARCH, transaction
from holdfast.engine.sqlite.search.feed import (
    FEW,
    SearchFeed,
    facet,
)
from holdfast.engine.sqlite.search.file import SearchFile, Spoiled, Unsealed
from holdfast.engine.sqlite.search.fts_question import FtsQuestion
from holdfast.engine.sqlite.search.log_source import LogSource
from holdfast.engine.wake_signal import in_the_middle, is_mine
from holdfast.errors import Damaged, StoreUnavailable
from holdfast.process_fork import let_fork

BATCH = 500
BATCH_SMALL = 50
SCAN_MAX = 20_000
"""So many entries at the end of the log are searched without an index, when it can't be had."""
PAGE = 256
ATTEMPTS_MAX = 3
_ANY_TIME = (-(1 << 62), 1 << 62)

T = TypeVar("T")


class Quest(NamedTuple, Generic[T]):
    """What is sought, and in which form: what to make of numbers of entries that the index
    proposes, what of a message that was found without it, and how much to take. `size` is how many
    proposals are looked at first.
    """

    sought: SearchScope
    look: Callable[[SearchScope, list[int]], Iterator[T]]
    result_of: Callable[[Found], T]
    take: Callable[[Iterator[T]], list[T]]
    size: int


class SearchIndex:
    """The search index of one store. Safe to use from many threads."""

    def __init__(
        self,
        path: str,
        log: LogSource,
        *,
        lock_s: float,
    ) -> None:
        self._file = SearchFile(path, lock_s=lock_s)
        self._feed = SearchFeed(self._file, log)
        self._read = log.read
        self._gate, self._queue = threading.RLock(), threading.RLock()
        self._closed = False

    def gates(self) -> list[Any]:
        """The lock that is held while the file is used."""
        return [self._gate]

    def abandon(self) -> None:
        """In a child that was forked."""
        self._file.abandon()

    @property
    def exists(self) -> bool:
        """Whether anybody has searched this store before."""
        return self._file.exists

    def search(self, sought: SearchScope, *, limit: int) -> list[Found]:
        """The newest messages that answer, newest first."""
        first = partial(_first, limit)
        return self._answer(
            Quest(sought, self._messages, _itself, first, size=limit + 1)
        )

    def matching(self, sought: SearchScope, *, limit: int) -> list[str]:
        """The sessions in which messages answer, those with the newest ones first. The messages are
        not read: there may be very many.
        """
        first = partial(_first_different, limit)
        return self._answer(
            Quest(sought, self._sessions, attrgetter("session"), first, size=16 * FEW)
        )

    def advance(self) -> bool:
        """Reads a little more of the log, if anybody has ever searched; False when there is no more
        to do.
        """
        with self._alone():
            return self.exists and self._feed.step(BATCH_SMALL)

    def forget(self, sessions: Sequence[int], blanked: Sequence[int] = ()) -> None:
        """After this, nothing of these sessions is in any byte of the file (FAULTS K7), nor of
        those messages of the `blanked` ones that have no words in the log. When that can't be had,
        the file goes: it is made anew from the log, which has been erased before.
        """
        with self._alone(), self._file.judged():
            if not self._file.has_traces:
                return
            with self._file.locked(), contextlib.suppress(Spoiled):
                self._feed.forget(sessions, blanked)

    def close(self) -> None:
        self._closed = True
        # A signal handler in the middle of a search can't: that goes on with the file, and lets
        # go of it.
        if not is_mine(self._gate):
            with self._alone():
                self._file.close()

    def _alone(self) -> Any:
        """The lock for one thread at a time, about in the order they came: `with self._alone():`. A
        lock alone would be had again at once by whoever let go.

        The lock itself is what `with` takes, in C code alone: an interrupt between two steps of
        ours would leave it locked for good. A signal handler in the middle of a search is told so:
        the file is in use.
        """
        if is_mine(self._gate):
            raise in_the_middle(self._file.path)
        let_fork()
        # the next one in the queue holds it while it waits, so whoever lets go of the
        # gate queues up behind
        with self._queue:
            with self._gate:
                pass
        return self._gate

    def _catch_up(self, head: int) -> None:
        """Reads the log up to its head, as it was when somebody asked."""
        caught_up = False
        while not caught_up:
            with self._alone():
                if self._closed:
                    raise closed(self._file.path)
                caught_up = self._feed.is_caught_up(head) or not self._feed.step(BATCH)

    def _answer(self, quest: Quest[T]) -> list[T]:
        problem = ""
        for _ in range(ATTEMPTS_MAX):
            try:
                return self._attempt(quest)
            except Unsealed as unsealed:
                problem = str(unsealed)  # catching up, it is looked at under the lock
            except Spoiled as spoiled:
                problem = str(spoiled)
                with (
                    contextlib.suppress(StoreUnavailable),
                    self._alone(),
                    self._file.judged(),
                    self._file.locked(),
                ):
                    self._file.renew()
        remedy = (
            f"Delete {self._file.path}, then search again; it holds nothing of its own"
        )
        raise StoreUnavailable(where=self._file.path, problem=problem, remedy=remedy)

    def _attempt(self, quest: Quest[T]) -> list[T]:
        head = self._read("log_head", ())[0][0]
        try:
            self._catch_up(head)
        except StoreUnavailable as trouble:
            with self._alone():
                return self._without(quest, head, trouble)
        with self._alone(), self._file.judged():
            connection = self._file.open()
            with (
                transaction(connection, "DEFERRED"),
                contextlib.closing(self._indexed(quest, connection)) as found,
            ):
                return quest.take(found)

    def _without(
        self, quest: Quest[T], head: int, trouble: StoreUnavailable
    ) -> list[T]:
        """An answer when the index could not be brought up to date: from the index as it is and the
        rest of the log, or from the log alone, if that is not too long.
        """
        with contextlib.suppress(StoreUnavailable, Spoiled), self._file.judged():
            connection = self._file.open()
            with transaction(connection, "DEFERRED"):
                n, id = connection.execute(SEARCH["mark"]).get
                if head - n <= SCAN_MAX and self._feed.is_of_this_log(n, id):
                    return quest.take(
                        chain(
                            self._scanned(quest, n, head),
                            self._indexed(quest, connection),
                        )
                    )
        if head > SCAN_MAX:
            raise trouble
        return quest.take(self._scanned(quest, 0, head))

    def _indexed(
        self, quest: Quest[T], connection: apsw.Connection
    ) -> Generator[T, None, None]:
        """What the index knows, newest first."""
        question = self._asked(quest.sought)
        if question is None:
            return
        size = quest.size
        for volume, expression in question.by_volume(connection, _times(quest.sought)):
            rows = connection.cursor()
            try:
                rows.execute(SEARCH["words"].format(volume=volume), (expression,))
                while picked := [n for (n,) in islice(rows, size)]:
                    yield from quest.look(quest.sought, picked)
                    # a filter may leave few of them: the further back it goes, the more
                    # it takes at once
                    size = min(2 * size, 16 * FEW)
            finally:
                rows.close()

    def _scanned(self, quest: Quest[T], after: int, head: int) -> Iterator[T]:
        """What answers among the entries after one and up to another, newest first, without the
        index.
        """
        while rows := self._read(
            "log_back", (after, *_filters(quest.sought), head, PAGE)
        ):
            yield from map(quest.result_of, self._judged(quest.sought, rows))
            head = rows[-1][0] - 1

    def _messages(self, sought: SearchScope, picked: list[int]) -> Iterator[Found]:
        return self._judged(sought, self._pick("log_pick", sought, picked))

    def _sessions(self, sought: SearchScope, picked: list[int]) -> Iterator[str]:
        return (id for (id,) in self._pick("log_pick_sessions", sought, picked))

    def _pick(self, name: str, sought: SearchScope, picked: list[int]) -> Rows:
        """What there is to these entries, as far as they can be read."""
        try:
            return self._read(name, (json.dumps(picked), *_filters(sought)))
        except Damaged:
            rows: Rows = []
            for one in picked:
                with contextlib.suppress(Damaged):
                    rows += self._read(name, (json.dumps([one]), *_filters(sought)))
            return rows

    def _judged(self, sought: SearchScope, rows: Rows) -> Iterator[Found]:
        for _n, number, session, key, seq, kind, turn, id, at, note, body in rows:
            whole, words = self._feed.words(number, seq, kind, note, body)
            entry = Entry(seq, kind, turn, id, at, note, whole)
            yield from found_in(session, key, entry, words, sought)

    def _asked(self, sought: SearchScope) -> FtsQuestion | None:
        """What is sought; None when there can be no such message."""
        if not sought.asked.phrases and not sought.asked.anything:
            return None
        facets = [facet("t", sought.tenant)]
        for kind, name in (("r", sought.role), ("f", sought.tool), ("k", sought.key)):
            if name is not None:
                facets.append(facet(kind, name))
        if sought.partial is not None:
            facets.append(f"p{int(sought.partial)}")
        if sought.session is not None:
            rows = self._read("session_sought", (sought.tenant, sought.session))
        elif sought.state is not None:
            some = (sought.tenant, sought.state, FEW + 1)
            rows = self._read("sessions_in_state", some)
        else:
            return FtsQuestion(sought.asked, facets, [])
        if not rows:
            return None
        # of many, every few messages one passes the filter
        sessions = [n for (n,) in rows] if len(rows) <= FEW else []
        return FtsQuestion(sought.asked, facets, sessions)


def _itself(found: Found) -> Found:
    return found


def _first(limit: int, found: Iterator[T]) -> list[T]:
    return list(islice(found, limit))


def _first_different(limit: int, found: Iterator[T]) -> list[T]:
    different: dict[T, None] = {}
    for one in found:
        different[one] = None
        if len(different) >= limit:
            break
    return list(different)


def _times(sought: SearchScope) -> tuple[int, int]:
    earliest, latest = _ANY_TIME
    return (
        earliest if sought.since is None else sought.since,
        latest if sought.until is None else sought.until,
    )


def _filters(sought: SearchScope) -> Row:
    return (sought.tenant, *_times(sought), sought.key, sought.session, sought.state)
