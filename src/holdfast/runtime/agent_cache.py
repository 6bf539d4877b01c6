"""A cache of agents that can't outlive what they were made for.

An agent is kept for exactly one session and one configuration. A reset gives its key another
session, so the old agent is unreachable from that moment on, whoever still holds it (FAULTS C1).
"""

import contextlib
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from types import CoroutineType
from typing import Any

from holdfast.errors import BadArgument
from holdfast.runtime.border import bordered, checked
from holdfast.runtime.clock import RealWorld, World


class _Slot:
    """An agent, or the making of one: callers that want the same agent wait here for each other."""

    def __init__(self) -> None:
        self.making = threading.Lock()
        self.made = False
        self.agent: Any = None
        self.used_at = 0.0
        self.maker: int | None = None  # the thread that holds `making`


@bordered
class AgentCache:
    """Agents by key, epoch and configuration; at most `size` of them, none unused for longer than
    `idle_s`.

    Safe to use from many threads and tasks. An agent that leaves the cache is closed, if it has a
    `close`.
    """

    @checked
    def __init__(
        self,
        factory: Callable[[Any], Any],
        *,
        size: int = 256,
        idle_s: float = 3600,
        world: World | None = None,
    ) -> None:
        self._factory, self._size, self._idle_s = factory, size, idle_s
        self._tick = (world or RealWorld()).tick
        self._lock = threading.RLock()
        self._slots: OrderedDict[tuple[Hashable, ...], _Slot] = OrderedDict()

    def __repr__(self) -> str:
        return f"<AgentCache of {len(self._slots)} agents, at most {self._size}>"

    def get(self, session: Any, *, config: Hashable = None) -> Any:
        """The agent for exactly this session and configuration, made by the factory if there is
        none.
        """
        name = _name_of(session)
        # The id, too: a store may have been put in the place of another.
        wanted = (name, session.epoch, session.id, config)
        with self._lock:
            leaving = self._leaving(wanted, name, session.epoch)
            slot = self._slots.setdefault(wanted, _Slot())
            self._slots.move_to_end(wanted)
            slot.used_at = self._tick()
        # Outside the lock, as the factory below: both are the caller's code and may
        # take long, and nobody who wants another agent should wait for them.
        self._close(leaving)
        self._insist_on_another(slot)
        with slot.making:
            if not slot.made:
                slot.maker = threading.get_ident()
                try:
                    slot.agent = self._begun(self._factory(session), wanted, slot)
                    slot.made = True
                # A slot that never gets its agent would stay for good: `_leaving` takes
                # only those that were made.
                except BaseException:
                    self._forget(wanted, slot)
                    raise
                finally:
                    slot.maker = None
            return _shared(slot.agent)

    def drop(self, session: Any) -> None:
        """Closes all agents of this session's key, whatever their epoch or configuration."""
        name = _name_of(session)
        with self._lock:
            leaving = [
                self._slots.pop(key) for key in list(self._slots) if key[0] == name
            ]
        self._close(leaving)

    def close(self) -> None:
        """Closes all agents."""
        with self._lock:
            leaving = list(self._slots.values())
            self._slots.clear()
        self._close(leaving)

    def __len__(self) -> int:
        return len(self._slots)

    def _leaving(
        self, wanted: tuple[Hashable, ...], name: Hashable, epoch: int
    ) -> list[_Slot]:
        """Those that have to go to make room for `wanted`: older epochs of the same key, the idle,
        and the least used beyond the size. One that is still being made stays: the callers that
        wait for it get it alive.
        """
        oldest = self._tick() - self._idle_s
        # A list: a signal handler may come by here, too.
        made = {key: slot for key, slot in list(self._slots.items()) if slot.made}
        gone = []
        for key, slot in made.items():
            is_older_epoch = key[0] == name and key[1] < epoch  # type: ignore[operator]
            if is_older_epoch or slot.used_at < oldest:
                gone.append(key)
        left = [key for key in made if key not in gone and key != wanted]
        # One more than is left: `wanted` is about to have a place of its own.
        gone += left[: max(0, len(left) + 1 - self._size)]
        return [self._slots.pop(key) for key in gone]

    def _begun(self, agent: Any, wanted: tuple[Hashable, ...], slot: _Slot) -> Any:
        """What an async factory gives becomes a task; one that fails is forgotten, and the next
        caller tries again.
        """
        # A coroutine can be awaited once, and several callers may want this agent: a
        # task can be awaited by all of them.
        if not isinstance(agent, CoroutineType):
            return agent
        import asyncio

        def made(task: "asyncio.Task[Any]") -> None:
            if task.cancelled() or task.exception() is not None:
                self._forget(wanted, slot)

        task = asyncio.ensure_future(agent)
        task.add_done_callback(made)
        return task

    def _insist_on_another(self, slot: _Slot) -> None:
        """Raises in the factory that makes this agent, which can't wait for itself. Asked before
        the lock is tried: it can't be taken twice.
        """
        if slot.maker == threading.get_ident():
            raise BadArgument(
                parameter="session",
                takes="in a factory, sessions other than the one whose agent it makes",
                given="that one: its agent is not made yet",
            )

    def _forget(self, wanted: tuple[Hashable, ...], slot: _Slot) -> None:
        with self._lock:
            # It may have been dropped while it was made, and another one begun in its
            # place.
            if self._slots.get(wanted) is slot:
                del self._slots[wanted]

    def _close(self, slots: list[_Slot]) -> None:
        for slot in slots:
            # `drop` and `close` also take slots whose agents are still being made: an
            # agent that comes into being after that must be closed, too.
            self._insist_on_another(slot)
            with slot.making:
                agent = slot.agent if slot.made else None
            if _is_task(agent):
                _when_made(agent, _hang_up)
            else:
                _hang_up(agent)


def _name_of(session: Any) -> Hashable:
    """What a session's agents are found by, whatever its epoch: its store, its tenant and its key."""
    # Two stores may have the same tenants and keys. What is no session of ours, and only has the
    # fields of one, is known by these.
    engine = getattr(getattr(session, "_log", None), "engine", None)
    where = getattr(engine, "where", None)
    return where, session.tenant, session.id if session.key is None else session.key


_closing: set[Any] = set()
"""Closings under way: a task that nobody holds can vanish."""


def _is_task(agent: Any) -> bool:
    # Not imported: in a program that has not loaded asyncio nothing is a task.
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and isinstance(agent, asyncio.Task)


def _shared(agent: Any) -> Any:
    """An agent still being made can be awaited by everybody who asks for it; one who gives up takes
    it from nobody.
    """
    if not _is_task(agent):
        return agent
    import asyncio

    return asyncio.shield(agent)


def _when_made(task: Any, then: Callable[[Any], None]) -> None:
    def made(done: Any) -> None:
        if not done.cancelled() and done.exception() is None:
            then(done.result())

    made(task) if task.done() else task.add_done_callback(made)


def _hang_up(agent: Any) -> None:
    """Closes an agent, if it has a `close`. Errors are swallowed: the caller wanted another
    agent, and can do nothing about them.
    """
    close = getattr(agent, "close", None)
    if callable(close):
        # Any exception: `close` is the caller's code, and the agents after this one
        # have to be closed as well.
        with contextlib.suppress(Exception):
            _see_through(close())


def _see_through(closing: Any) -> None:
    """Drives what `close` gave to its end, if that is a coroutine."""
    if isinstance(closing, CoroutineType):
        import asyncio

        try:
            # On a running loop this can't wait for it; without one, nothing else would
            # ever drive the coroutine.
            task = asyncio.get_running_loop().create_task(closing)
        except RuntimeError:
            asyncio.run(closing)
        else:
            _closing.add(task)
            task.add_done_callback(_closing.discard)
