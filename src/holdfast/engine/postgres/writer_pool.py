"""The writer pool: several writers side by side, and still the order in which one caller submits.

A session has one writer for good, so commits to one session stand in one queue. A commit that
concerns several writers (of two sessions, or with a key or an event that a commit of another writer
is just about to settle) is a *meeting*: the other writers come to the same point of their queues
and wait there until it is done. Meetings are queued at all their writers at once, so they are in
the same order everywhere and no two wait for each other.

    writer 0   ──a──b──────●(hold)──e──►
    writer 1   ──c──────d──●(commit)──f──►        a, b, c and d are done before it, e and f after

As long as few commits wait, all go to the first writer: one sync then serves all of them, while of
two writers each would wait for the sync of the other. When many wait, the server's work is worth
dividing, and sessions *spread* over all writers, for good.
"""

import threading
from collections.abc import Callable, Collection, Sequence
from queue import SimpleQueue
from typing import Any, TypeVar

from holdfast.engine.closed_engine import closed
from holdfast.engine.protocol import Commit, Commits, Write, Written
from holdfast.engine.wake_signal import alone
from holdfast.engine.writer import Writer, WriterTicket
from holdfast.errors import StoreUnavailable

Apply = Callable[[Commits], list[Any]]
Self = TypeVar("Self", bound="_Met")


class Meeting:
    """Where writers wait for each other."""

    def __init__(self, others: int) -> None:
        self._arrived: SimpleQueue[bool] = SimpleQueue()
        self._others = others
        self._over = threading.Event()

    def hold(self) -> None:
        self._arrived.put(True)
        self._over.wait()

    def gather(self) -> bool:
        """Waits for the others; False when not all of them were called."""
        return all(self._arrived.get() for _ in range(self._others))

    def call_off(self) -> None:
        """Not all of the others will come: whoever calls them was interrupted."""
        self._arrived.put(False)

    def end(self) -> None:
        self._over.set()


class _Met(tuple[Write, ...]):
    """A commit with a meeting."""

    meeting: Meeting

    @classmethod
    def at(cls: type[Self], meeting: Meeting, commit: Commit) -> Self:
        made = cls(commit)
        made.meeting = meeting
        return made


class _Hold(_Met):
    """Nothing to do but to wait."""


class WriterPool:
    """The writers of one engine. `make` makes one from what applies its batches. They spread when
    `spread_at` commits wait for the first of them.
    """

    def __init__(
        self,
        where: str,
        applies: Sequence[Apply],
        make: Callable[[int, Apply], Writer],
        *,
        spread_at: int,
    ) -> None:
        self._where = where
        self._spread_at = spread_at
        # one writer has nobody to spread to
        self._is_spread = spread_at == 0 or len(applies) == 1
        self._gate = threading.RLock()
        self._closed = False
        self._last: dict[object, tuple[int, int]] = {}
        self._writers = [
            make(number, self._meeting(apply)) for number, apply in enumerate(applies)
        ]

    def submit(self, commit: Commit) -> WriterTicket:
        if len(commit) == 1 and commit[0].event is None and commit[0].open is None:
            if self._is_spread:
                return self._writers[self._home(commit[0].session)].submit(commit)
            # a session must not change writers between the choice and the queue
            with alone(self._gate, self._where):
                self._spread_if_due()
                return self._writers[self._home(commit[0].session)].submit(commit)
        return self._submit_tied(commit)

    def close(self) -> None:
        """Finishes what was submitted, then stops."""
        with self._gate:
            self._closed = True
        for writer in self._writers:
            writer.close()

    def _home(self, session: str) -> int:
        return hash(session) % len(self._writers) if self._is_spread else 0

    def _spread_if_due(self) -> None:
        """From now on each session has the writer it will keep. What it has at the first one is
        done before.
        """
        if (
            self._closed
            or self._is_spread
            or self._writers[0].waiting < self._spread_at
        ):
            return
        # they hold until the first writer has done all that stands in its queue
        self._meet(0, range(1, len(self._writers)), ())
        self._is_spread = True

    def _submit_tied(self, commit: Commit) -> WriterTicket:
        names = [name for write in commit for name in _names(write)]
        with alone(self._gate, self._where):
            if self._closed:
                raise closed(self._where)
            self._spread_if_due()
            homes = [self._home(write.session) for write in commit] or [0]
            owner = homes[0]
            concerned = set(homes)
            for name in names:
                last, count = self._last.get(name, (owner, 0))
                concerned.add(last)
                self._last[name] = (owner, count + 1)
            if concerned == {owner}:
                return self._writers[owner].submit(commit)
            return self._meet(owner, concerned - {owner}, commit)

    def _meet(
        self, owner: int, others: Collection[int], commit: Commit
    ) -> WriterTicket:
        """Queues a meeting at all its writers, under the gate: two meetings stand in the same order
        in all queues, so no two wait for each other.
        """
        meeting = Meeting(len(others))
        try:
            # First: it lets the others go again, whichever of them were called.
            ticket = self._writers[owner].submit(_Met.at(meeting, commit))
            for number in others:
                self._writers[number].submit(_Hold.at(meeting, ()))
        except BaseException:
            meeting.call_off()
            raise
        return ticket

    def _meeting(self, apply: Apply) -> Apply:
        """Applies a batch, piece by piece where there are meetings."""

        def pieces(commits: Commits) -> list[Any]:
            answers: list[Any] = []
            start = 0
            for at, commit in enumerate(commits):
                if isinstance(commit, _Met):
                    answers += apply(commits[start:at]) if at > start else []
                    answers += _meet(commit, apply)
                    start = at + 1
            return answers + (apply(commits[start:]) if start < len(commits) else [])

        def applied(commits: Commits) -> list[Any]:
            try:
                return pieces(commits)
            finally:
                self._release(commits)

        return applied

    def _release(self, commits: Commits) -> None:
        """Keys and events that these commits have settled tie nobody any more."""
        names: list[object] = []
        for commit in commits:
            for write in commit:
                # Asked without a call: nearly all writes are about neither.
                if write.event is not None or write.open is not None:
                    names += _names(write)
        if names:
            with self._gate:
                for name in names:
                    number, count = self._last.pop(name)
                    if count > 1:
                        self._last[name] = (number, count - 1)


def _meet(commit: _Met, apply: Apply) -> list[Any]:
    if isinstance(commit, _Hold):
        commit.meeting.hold()
        return [Written()]
    try:
        if commit.meeting.gather():
            return apply([tuple(commit)])
        # Nobody has its ticket.
        return [
            StoreUnavailable(where="", problem="the call was interrupted", remedy="")
        ]
    finally:
        # whatever came of it: the others would hold for ever
        commit.meeting.end()


def _names(write: Write) -> list[object]:
    """The event and the key that a write is about."""
    names: list[object] = []
    if write.event is not None:
        names.append(write.event)
    if write.open is not None and write.open.key is not None:
        names.append((write.open.tenant, write.open.key, ""))
    return names
