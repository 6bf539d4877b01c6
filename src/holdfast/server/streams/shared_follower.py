"""One follower of the store for all readers of a session.

    store ──news───► SharedFollower ──► the last occurrences ──► reader, reader, reader …
                                            ▲ joins where it is
    store ◄──reads by itself── a reader that is behind

A thousand readers of one session are one watcher and one reading of what is new. Chunks that are
said through this process come with the news, and are not read at all. Each reader has an index
into the occurrences that are kept, and nothing else: no queue grows for one that is slow. A reader
that is behind what is kept, or has just come, reads the store by itself, until it stands where the
shared follower has stood (`Occurrence.place`); from there on it takes what the others take. What it
is told is the same either way, for both are followers of one log.

Readers are woken a few at a time, and a session with many readers is looked at less often: whoever
writes waits for none of them.

All of it happens on the event loop; only the store's own calls come from other threads.
"""

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from holdfast.runtime.catalog.follow_session import SETTLE_S
from holdfast.runtime.live.follow import closes
from holdfast.runtime.live.session_log import SessionLog
from holdfast.runtime.plans.plan import News, read
from holdfast.runtime.plans.plan_asyncio import arun, on_this_loop
from holdfast.runtime.turns.recovery import settle_to_read
from holdfast.server.streams.gathered_reads import GatheredReads
from holdfast.server.streams.occurrence import (
    Occurrence,
    OccurrenceFollower,
    Place,
    from_seq,
)

Wake = Callable[[], None]

KEPT_MAX, KEPT_BYTES_MAX = 2000, 4 << 20
"""So much of what happened last is kept for the readers of a session."""
BATCH_BYTES = 256 << 10
"""A reader takes about so much at once."""
WOKEN_AT_ONCE = 4
PACE_S, PACE_MAX_S, PACE_A_READER_S = 0.005, 0.25, 0.0002


def pace_s(readers: int) -> float:
    """How long to wait between two readings of a session with so many readers."""
    return min(PACE_MAX_S, max(PACE_S, readers * PACE_A_READER_S))


class KeptOccurrences:
    """The last occurrences of a session, numbered from its first reader on."""

    def __init__(self) -> None:
        self._kept: deque[Occurrence] = deque()
        self._first = self._weight = 0
        self._before: Place | None = None
        self._after: Place | None = None

    @property
    def next(self) -> int:
        """The number of the next one."""
        return self._first + len(self._kept)

    def add(self, found: Sequence[Occurrence], place: Place) -> None:
        """Some more; `place` is where they lead to."""
        kept = self._kept
        if not kept and not found:
            self._before = place
        for each in found:
            kept.append(each)
            self._weight += each.weight
        while len(kept) > KEPT_MAX or (self._weight > KEPT_BYTES_MAX and kept):
            dropped = kept.popleft()
            self._weight -= dropped.weight
            self._first += 1
            self._before = dropped.place
        self._after = place

    def number_at(self, place: Place) -> int | None:
        """What comes next for a reader at this place; None if it is not known here."""
        if place == self._after:
            return self.next
        # The last one that leads here: some move neither the cursor nor the journal.
        index = bisect_right(self._kept, place[0], key=_position)
        while index and self._kept[index - 1].position == place[0]:
            if self._kept[index - 1].cursor == place[1]:
                return self._first + index
            index -= 1
        return self._first if place == self._before else None

    def since(self, number: int) -> list[Occurrence] | None:
        """What follows, from this number on, up to a batch; None if some of it is no longer
        kept.
        """
        if number < self._first:
            return None
        kept = self._kept
        # Most often one has come, or none.
        if len(kept) - (number - self._first) == 1:
            return [kept[-1]]
        found: list[Occurrence] = []
        size = 0
        for index in range(number - self._first, len(kept)):
            if size > BATCH_BYTES:
                break
            found.append(kept[index])
            size += found[-1].weight
        return found


def _position(occurrence: Occurrence) -> int:
    return occurrence.position


class SharedFollower:
    """What is new in one session, for as long as somebody reads it."""

    def __init__(self, session: SessionLog, all: "SharedFollowers") -> None:
        self.session, self._all = session, all
        self._loop = asyncio.get_running_loop()
        self.kept = KeptOccurrences()
        self.readers: dict[Wake, None] = {}
        self.failure: Exception | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_idle = False
        self._look = asyncio.Event()
        self._next_at = self._look_at = self._alive_at = 0.0

    def join(self, wake: Wake) -> None:
        """One more reader; `wake` is called when there is something new."""
        self.readers[wake] = None
        if self._task is None:
            self._task = asyncio.create_task(self._follow())

    def leave(self, wake: Wake) -> None:
        """A reader goes; with the last one, nothing is followed any more."""
        self.readers.pop(wake, None)
        if not self.readers:
            self._all.forget(self)
            if self._task is not None:
                self._task.cancel()

    async def _follow(self) -> None:
        try:
            await self._follow_on()
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        # Each reader is told: it comes back, and then it is tried anew.
        self.failure = error
        self._all.forget(self)
        for wake in self.readers:
            wake()

    async def _follow_on(self) -> None:
        session = self.session
        state = await arun(read(session.state))
        follower = await arun(read(lambda: from_seq(session, state.head)))
        self.kept.add((), follower.place)
        self._alive_at = session.world.tick()
        with News(session.engine, session.id) as news:
            news.then = on_this_loop(partial(self._hear, follower, news))
            while True:
                found = await self._next(follower, news)
                if found:
                    self._alive_at = session.world.tick()
                    self.kept.add(found, follower.place)
                    await self._wake()
                    await asyncio.sleep(pace_s(len(self.readers)))
                elif follower.is_running and self._is_quiet():
                    await arun(settle_to_read(session))
                    self._alive_at = session.world.tick()

    def _is_quiet(self) -> bool:
        """Whether nothing was said for a while: whoever speaks is there."""
        return self.session.world.tick() - self._alive_at > SETTLE_S

    async def _next(self, follower: OccurrenceFollower, news: News) -> list[Occurrence]:
        if not (follower.behind or news.told.is_set()):
            # Rows that say nothing to anybody may have been passed.
            self.kept.add((), follower.place)
            wait_s = self.session.engine.look_s
            await self._idle(min(wait_s, SETTLE_S) if follower.is_running else wait_s)
        rows = news.clear()
        if rows is not None and not follower.behind:
            # It was not for news that it woke, and there is nothing to look for yet.
            now = self.session.world.tick()
            if rows or now < self._look_at:
                return follower.heard(rows)
        self._look_at = self.session.world.tick() + self.session.engine.look_s
        return await self._all.reads.read(follower.occurrences)

    async def _idle(self, seconds: float) -> None:
        self._look.clear()
        self._is_idle = True
        try:
            async with asyncio.timeout(seconds):
                await self._look.wait()
        except TimeoutError:
            pass
        finally:
            self._is_idle = False

    def _hear(self, follower: OccurrenceFollower, news: News) -> None:
        """There are news. If they are rows, a few readers are told at once: most news are such, and
        waking a task for them would cost more than they do.
        """
        if not self._is_idle:
            return  # it looks for news before it is
        now = self._loop.time()
        is_due = now >= self._next_at and len(self.readers) <= WOKEN_AT_ONCE
        rows = news.clear() if is_due else None
        if is_due and rows is None:
            follower.behind = True  # something is new, and nobody else will say so
        if rows:
            self._alive_at = self.session.world.tick()
            self._next_at = now + PACE_S
            try:
                self.kept.add(follower.heard(rows), follower.place)
            except Exception as error:
                self._fail(error)
            for wake in self.readers:
                wake()
        if follower.behind or rows is None:
            self._look.set()

    async def _wake(self) -> None:
        for number, wake in enumerate(list(self.readers), 1):
            wake()
            if number % WOKEN_AT_ONCE == 0:
                # Those that were woken write now, and so does whoever else has something to do.
                await asyncio.sleep(0)


class SharedFollowers:
    """The sessions that are followed now, each by one."""

    def __init__(self) -> None:
        self.reads = GatheredReads()
        self._by_session: dict[str, SharedFollower] = {}

    def __len__(self) -> int:
        return len(self._by_session)

    def joined(self, session: SessionLog, wake: Wake) -> SharedFollower:
        """The one for this session, with one more reader."""
        known = self._by_session.get(session.id)
        if known is None:
            known = self._by_session[session.id] = SharedFollower(session, self)
        known.join(wake)
        return known

    def forget(self, follower: SharedFollower) -> None:
        """It follows no more."""
        if self._by_session.get(follower.session.id) is follower:
            del self._by_session[follower.session.id]

    @property
    def readers(self) -> int:
        """How many readers there are."""
        return sum(len(each.readers) for each in self._by_session.values())


class StreamReader:
    """One reader's way through a session: behind, then with the others.

    with StreamReader(followers, follower) as reader:
        while not reader.over: found = await reader.next(15)

    What is new while a call waits is given to `take`, if there is one, at once: nobody has to be
    woken for it. If that gives False, the call is.
    """

    def __init__(
        self,
        followers: SharedFollowers,
        follower: OccurrenceFollower,
        take: "Callable[[list[Occurrence]], bool] | None" = None,
    ) -> None:
        self._followers, self._follower, self._take = followers, follower, take
        self._session = follower.session
        self._loop = asyncio.get_running_loop()
        self._shared: SharedFollower | None = None
        self._number: int | None = None
        self._last: Occurrence | None = None
        self._has_ended = follower.over
        self._woken = asyncio.Event()
        self._is_waiting = False
        self._wait_s = self._until = 0.0
        self._alarm: asyncio.TimerHandle | None = None
        self._is_leaving = False
        self.over = False
        """Whether nothing more will come: the session has ended, or the reader is to leave."""

    def __enter__(self) -> "StreamReader":
        self._shared = self._followers.joined(self._session, self._wake)
        return self

    def __exit__(self, *_: object) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        if self._shared is not None:
            self._shared.leave(self._wake)

    def leave(self) -> None:
        """Nobody reads any longer."""
        self._is_leaving = True
        self._woken.set()

    async def next(self, wait_s: float) -> list[Occurrence]:
        """What has happened since the last call; nothing if nothing does for so long, or once it is
        over.
        """
        loop = self._loop
        self._wait_s, self._until = wait_s, loop.time() + wait_s
        while not self.over:
            self._woken.clear()
            found = await self._found()
            if found and not self._is_leaving:
                self._note(found)
                return found
            self.over = self._is_leaving or self._has_ended
            if self.over:
                break
            if loop.time() >= self._until:
                break
            if self._alarm is None:
                self._alarm = loop.call_at(self._until, self._ring)
            self._is_waiting = True
            try:
                await self._woken.wait()
            finally:
                self._is_waiting = False
        return []

    def _wake(self) -> None:
        """There is something new."""
        if not self._is_waiting or not self._has_taken():
            self._woken.set()

    def _has_taken(self) -> bool:
        """Whether all that is new was taken by who waits, and more may come."""
        number, shared = self._number, self._shared
        # Whoever was told to go, or that something went wrong, is not on its way: it is woken.
        if self._take is None or number is None or self._woken.is_set():
            return False
        if shared is None or shared.failure is not None:
            return False
        found = shared.kept.since(number)
        try:
            if not found or not self._take(found):
                return False
        except Exception:
            # What can't be written is met again by who is woken, and told where that is awaited.
            return False
        self._number = number + len(found)
        self._note(found)
        self._until = self._loop.time() + self._wait_s
        return self._number == shared.kept.next and not self._has_ended

    def _note(self, found: list[Occurrence]) -> None:
        self._last = found[-1]
        for each in found:
            if each.entry is not None and closes(each.entry, self._session):
                self._has_ended = True

    def _ring(self) -> None:
        # One alarm for many waits: most are over long before, and the next has more time.
        self._alarm = None
        if self._loop.time() >= self._until:
            self._woken.set()
        else:
            self._alarm = self._loop.call_at(self._until, self._ring)

    async def _found(self) -> list[Occurrence]:
        assert self._shared is not None
        if self._shared.failure is not None:
            raise self._shared.failure
        kept = self._shared.kept
        if self._number is None:
            self._number = kept.number_at(self._follower.place)
        if self._number is not None:
            found = kept.since(self._number)
            if found is not None:
                self._number += len(found)
                return found
            # It was too slow for what is kept, and reads by itself from where it is.
            self._number = None
            await self._fall_back()
        return await arun(read(self._follower.occurrences))

    async def _fall_back(self) -> None:
        session, last = self._session, self._last
        # Without one it has taken nothing since it joined, and its own follower is where it is.
        if last is not None:
            cursor, heard = last.cursor, last.position
            self._follower = await arun(
                read(lambda: OccurrenceFollower(session, cursor, heard=heard))
            )
