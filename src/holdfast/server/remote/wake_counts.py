"""Marks of sessions: how often each had news since somebody first asked, for whoever asks again.

A mark is the life of this process and a count. Somebody who comes with an older one, or with one of
another server, is answered at once: between two questions nothing is missed. Sessions that nobody
has asked about for a while are forgotten.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

from holdfast.engine.protocol import Engine
from holdfast.runtime.clock import World

# Twice the longest wait: whoever asks again right after one finds its session watched.
KEEP_S = 60.0


class WatchedSession:
    """A session that somebody asks about."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.asked_at = 0.0
        self.stop: Callable[[], None] = lambda: None
        self.waiting: set[asyncio.Event] = set()


class WakeCounts:
    """Used on the event loop alone; the engine calls back from its own threads."""

    def __init__(self, engine: Engine, world: World) -> None:
        self._engine, self._world = engine, world
        self._life = world.chance(8).hex()
        self._sessions: dict[str, WatchedSession] = {}
        # One for all sessions: a session that was forgotten never gets a mark that it had.
        self._counted = 0
        self._looked_at = world.tick()

    async def news(self, marks: dict[str, str], wait_s: float) -> dict[str, str]:
        """The sessions whose mark is another one than this, as soon as there is one; none of them
        when that takes too long.
        """
        told = asyncio.Event()
        watched = [self._watched(session) for session in marks]
        try:
            for each in watched:
                each.waiting.add(told)
            # After the event is in place: what changes from here on sets it.
            found = self._changed(marks)
            if not found:
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await told.wait()
                found = self._changed(marks)
            return found
        finally:
            for each in watched:
                each.waiting.discard(told)
            self._forget(marks)

    def _changed(self, marks: dict[str, str]) -> dict[str, str]:
        found = {}
        for session, mark in marks.items():
            now = f"{self._life}.{self._watched(session).count}"
            if now != mark:
                found[session] = now
        return found

    def _watched(self, session: str) -> WatchedSession:
        known = self._sessions.get(session)
        if known is None:
            self._counted += 1
            known = self._sessions[session] = WatchedSession(self._counted)
            tell = partial(_tell, asyncio.get_running_loop(), self._count, session)
            known.stop = self._engine.watch(session, tell)
        known.asked_at = self._world.tick()
        return known

    def _count(self, session: str) -> None:
        known = self._sessions.get(session)
        if known is not None:
            self._counted += 1
            known.count = self._counted
            for told in known.waiting:
                told.set()

    def _forget(self, asked: Iterable[str]) -> None:
        now = self._world.tick()
        for session in asked:
            if session in self._sessions:
                self._sessions[session].asked_at = now
        # Looking through all sessions takes as long as there are many; it is not done
        # for each question.
        if now - self._looked_at < KEEP_S:
            return
        self._looked_at = now
        for session, known in list(self._sessions.items()):
            if not known.waiting and now - known.asked_at > KEEP_S:
                known.stop()
                del self._sessions[session]


def _tell(
    loop: asyncio.AbstractEventLoop, count: Callable[[str], Any], session: str
) -> None:
    # From a thread of the engine. A loop that is closed has nobody who waits any more.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(count, session)
